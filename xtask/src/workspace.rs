//! The workspace on disk and the cargo that builds it. Knows nothing of what is built.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian keeps the compilers' names that lead to ccache.
const CCACHE_LINKS: &str = "/usr/lib/ccache";

/// Which flags a build gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Profile {
    /// For tests: quick to build.
    Dev,
    /// For the demo and the benches.
    Release,
}

/// The workspace that the current folder belongs to.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
    metadata: Value,
}

impl Workspace {
    /// Asks cargo, from the current folder.
    pub fn find() -> Result<Self> {
        let output =
            cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output().context(
                "cargo could not be started; install Rust with rustup, see https://rustup.rs",
            )?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {}", words.trim());
        let metadata: Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
        let path = |key: &str| {
            metadata[key]
                .as_str()
                .map(PathBuf::from)
                .with_context(|| format!("cargo metadata has no '{key}'"))
        };
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")?, metadata })
    }

    /// The folder of the workspace's `Cargo.toml`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of what is built.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// What git tracks, and what it would track: new files count before they are committed. Paths from the root.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut command = Command::new("git");
        command.current_dir(&self.root).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let output = command.output().context("git cannot be started; it lists the files")?;
        ensure!(
            output.status.success(),
            "git failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
        Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// What `cargo metadata --no-deps` says.
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// A cargo call in the workspace's folder.
    pub fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = cargo();
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// Builds the `segue` program and says where it is.
    pub fn build_segue(&self, profile: Profile) -> Result<PathBuf> {
        let mut command = self.cargo(["build", "--package", "segue-api"]);
        if profile == Profile::Release {
            command.arg("--release");
        }
        run(&mut command)?;
        let program = self.program(profile);
        ensure!(program.is_file(), "cargo succeeded, but {} is not there", program.display());
        Ok(program)
    }

    /// The `segue` program that is built: the newer one of both profiles.
    pub fn built_segue(&self) -> Result<PathBuf> {
        let modified = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
        [Profile::Release, Profile::Dev]
            .into_iter()
            .map(|profile| self.program(profile))
            .filter(|path| modified(path).is_some())
            .max_by_key(modified)
            .with_context(|| {
                format!("no segue below {}; run cargo build first", self.target.display())
            })
    }

    fn program(&self, profile: Profile) -> PathBuf {
        let folder = match profile {
            Profile::Dev => "debug",
            Profile::Release => "release",
        };
        self.target.join(folder).join("segue")
    }
}

/// Runs `command` with the terminal handed over; anything but success is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("'{shown}' could not be started"))?;
    ensure!(status.success(), "'{shown}' failed: {status}");
    Ok(())
}

/// The command as somebody would type it.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    let words: Vec<String> = std::iter::once(program).chain(arguments).collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo xtask` sets these for the program it runs. Handed on, they would look like a changed environment to
    // build scripts, and RocksDB would be compiled again.
    for (name, _) in env::vars_os() {
        if of_this_package(&name) {
            command.env_remove(&name);
        }
    }
    // C++ goes through ccache by the name of the compiler, because PATH is nothing that cargo or `cc` tracks.
    if Path::new(CCACHE_LINKS).is_dir() {
        command.env("PATH", with_first(CCACHE_LINKS, env::var_os("PATH").unwrap_or_default()));
    }
    command
}

fn of_this_package(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

fn with_first(folder: &str, path: OsString) -> OsString {
    if env::split_paths(&path).next().as_deref() == Some(Path::new(folder)) {
        return path;
    }
    let mut first = OsString::from(folder);
    if !path.is_empty() {
        first.push(":");
        first.push(path);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ccache_comes_first_and_only_once() {
        assert_eq!(with_first("/a", "/b:/c".into()), "/a:/b:/c");
        assert_eq!(with_first("/a", "/a:/b".into()), "/a:/b");
        assert_eq!(with_first("/a", "".into()), "/a");
    }

    #[test]
    fn commands_are_shown_as_they_are_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--", "two words"]);
        assert_eq!(shown(&command), "cargo test -- 'two words'");
    }
}
