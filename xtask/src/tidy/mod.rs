//! `cargo xtask tidy`: the rules that neither the compiler nor clippy checks. Each rule is a function from what is on
//! disk to findings; here they are fed and their findings printed.

mod layers;
mod links;
mod sources;

use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail, ensure};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A rule that is broken somewhere. Printed as `file:line: sentence`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Finding {
    file: String,
    line: usize,
    sentence: String,
}

impl Finding {
    fn new(file: &str, line: usize, sentence: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, sentence: sentence.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.sentence)
    }
}

/// Checks every file that git tracks, and the manifests.
pub fn run(workspace: &Workspace) -> Result<()> {
    let files = tracked(workspace.root())?;
    let mut findings = layers::check(workspace.metadata(), workspace.root())?;
    for file in &files {
        let path = workspace.root().join(file);
        // A file that git tracks may be deleted in the working tree, and a link may lead to a folder.
        let Ok(content) = fs::read(&path) else { continue };
        // What is no text has no lines to check.
        let Ok(text) = String::from_utf8(content) else { continue };
        findings.extend(sources::check(file, &text));
        if Path::new(file).extension().is_some_and(|extension| extension == "md") {
            findings
                .extend(links::check(file, &text, |target| workspace.root().join(target).exists()));
        }
    }
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} finding(s) in {} files", findings.len(), files.len());
    }
    println!("tidy: {} files, nothing to say", files.len());
    Ok(())
}

/// What git tracks, and what it would track: new files count before they are committed.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let mut command = Command::new("git");
    command.current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let output = command.output().context("git cannot be started; tidy checks what git tracks")?;
    ensure!(
        output.status.success(),
        "git failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
