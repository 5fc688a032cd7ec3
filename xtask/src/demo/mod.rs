//! `cargo xtask demo`: the product's main story on real input. Prepares what the story needs and stops it again;
//! the story itself is in [`story`].

mod docker;
mod story;

use crate::progress::Progress;
use crate::service::{Containers, Service, Settings};
use crate::setup;
use crate::shop::Runtime;
use crate::workspace::{Profile, Workspace};
use anyhow::{Context as _, Result, bail};
use docker::Daemon;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The demo's options.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Stop everything at the end; fail when anything was not as told.
    #[arg(long)]
    check: bool,
    /// How instances run.
    #[arg(long, value_enum, default_value = "process")]
    containers: Containers,
    /// A new or empty folder for everything that belongs to the demo.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Builds the program, tells the story, and leaves the service running, or with `--check` stops it.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let progress = Progress::new()?;
    let for_docker = options.containers == Containers::Docker;
    setup::run(setup::Options { for_docker, ..setup::Options::default() })?;
    let program = workspace.build_segue(Profile::Release)?;
    let folder = fresh_folder(options.data.as_deref())?;
    println!("Everything that belongs to this demo is in {}", folder.display());
    let mut stage = Stage::set(&program, &folder, options.containers, &progress)?;
    let told = story::tell(&stage.service, &stage.runtime, &progress);
    match told {
        Ok(ending) if ending.problems.is_empty() && !options.check => {
            println!("{}", stage.what_next(ending.port));
            Ok(())
        }
        Ok(ending) if ending.problems.is_empty() => {
            stage.strike(&progress)?;
            fs::remove_dir_all(&folder)
                .with_context(|| format!("{} cannot be removed", folder.display()))?;
            println!("\nThe story is true from start to end, and nothing is left running.");
            Ok(())
        }
        Ok(ending) => {
            let words = stage.service.last_words();
            stage.strike(&progress)?;
            ending.problems.iter().for_each(|problem| eprintln!("not so: {problem}"));
            bail!("{} of the story was not so\n{words}", ending.problems.len());
        }
        Err(error) => {
            let words = stage.service.last_words();
            if let Err(again) = stage.strike(&progress) {
                eprintln!("{again:#}");
            }
            Err(error.context(words))
        }
    }
}

/// Makes the folder that is told, or one with a new name where temporary files are. Its path is short, because the
/// paths of Unix sockets below it are limited.
pub fn fresh_folder(told: Option<&Path>) -> Result<PathBuf> {
    let folder = told.map_or_else(unused_folder, |folder| Ok(folder.to_owned()))?;
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let folder = folder.canonicalize()?;
    if fs::read_dir(&folder)?.next().is_some() {
        bail!("{} is not empty; name a folder that is new", folder.display());
    }
    Ok(folder)
}

fn unused_folder() -> Result<PathBuf> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(std::env::temp_dir().join(format!("segue-{}", time.as_millis())))
}

/// What runs for the story.
struct Stage {
    service: Service,
    runtime: Runtime,
    daemon: Option<Daemon>,
}

impl Stage {
    fn set(
        program: &Path,
        folder: &Path,
        containers: Containers,
        progress: &Progress,
    ) -> Result<Self> {
        let (runtime, daemon) = match containers {
            Containers::Process | Containers::Simulated => {
                (Runtime::Process(program.to_owned()), None)
            }
            Containers::Docker => (Runtime::Docker, docker::prepare(folder, progress)?),
        };
        let docker_socket = daemon.as_ref().map(Daemon::socket);
        let settings = Settings { program, folder, containers, docker_socket };
        match Service::start(&settings, progress) {
            Ok(service) => Ok(Self { service, runtime, daemon }),
            Err(error) => {
                if let Some(again) = daemon.and_then(|daemon| daemon.stop(progress).err()) {
                    eprintln!("{again:#}");
                }
                Err(error)
            }
        }
    }

    fn strike(&mut self, progress: &Progress) -> Result<()> {
        let stopped = self.service.stop(progress);
        let daemon = self.daemon.take().map_or(Ok(()), |daemon| daemon.stop(progress));
        stopped.and(daemon)
    }

    fn what_next(&self, port: u16) -> String {
        let base = self.service.api().base();
        let daemon = self
            .daemon
            .as_ref()
            .map(|daemon| format!("; kill {}", daemon.pid()))
            .unwrap_or_default();
        format!(
            "\nThe service goes on running. Try next:\n\
             \x20 curl http://127.0.0.1:{port}/                               # through HAProxy\n\
             \x20 curl -H 'Accept: application/x-yaml' {base}/api/v1/deployments/shop\n\
             \x20 curl {base}/api/v1/gateways/shop/web/http\n\
             \x20 curl -N {base}/api/v1/events/stream                         # then, in another terminal:\n\
             \x20 curl -X PUT -H 'Content-Type: application/x-yaml' -d '{{instances: 3, cpu: 0.1, memory: 32MB}}' \
             {base}/api/v1/deployments/shop/clusters/web/services/web:2/scale\n\
             Stop everything with\n\
             \x20 {}{daemon}",
            self.service.stop_line()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_is_fresh() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new");
        assert!(fresh_folder(Some(&folder)).unwrap().is_dir());
        fs::write(folder.join("file"), "x").unwrap();
        assert!(fresh_folder(Some(&folder)).unwrap_err().to_string().contains("not empty"));
    }
}
