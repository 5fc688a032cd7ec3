//! Docker for the demo: a daemon of its own where none runs, and images without a registry.

use crate::progress::{self, Progress};
use crate::setup;
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the machine's own daemon listens.
const USUAL_SOCKET: &str = "/var/run/docker.sock";
/// How long the private daemon may take to answer and to stop.
const DAEMON_TIME_MAX: Duration = Duration::from_mins(1);
/// What each image does: serve one page until it is told to stop. As process 1 it has to name the signal, since the
/// kernel gives that process no default action.
const START: &str = "\
/bin/busybox httpd -f -p 8080 -h /www &
server=$!
trap 'kill $server' TERM
wait $server
";

/// A private daemon.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and with it its containers.
    pub fn stop(mut self, progress: &Progress) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .context("dockerd cannot be signalled")?;
        progress.for_cleanup().wait("stopping dockerd", DAEMON_TIME_MAX, || {
            Ok(self
                .child
                .try_wait()?
                .map_or(ControlFlow::Continue("it runs".into()), |_| ControlFlow::Break(())))
        })
    }
}

/// Makes sure that a daemon answers and has the images. `None`: the machine's own daemon is used.
pub fn prepare(folder: &Path, progress: &Progress) -> Result<Option<Daemon>> {
    let daemon =
        if answers(Path::new(USUAL_SOCKET)) { None } else { Some(start(folder, progress)?) };
    let socket = daemon.as_ref().map_or(Path::new(USUAL_SOCKET), Daemon::socket).to_owned();
    for version in [1, 2] {
        if let Err(error) = make_image(&socket, folder, version) {
            if let Some(again) = daemon.and_then(|daemon| daemon.stop(progress).err()) {
                eprintln!("{again:#}");
            }
            return Err(error);
        }
    }
    Ok(daemon)
}

fn start(folder: &Path, progress: &Progress) -> Result<Daemon> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "no Docker answers at {USUAL_SOCKET}, and only root can start one; start Docker or run as root"
        );
    }
    let program = setup::program("dockerd")
        .context("dockerd is not installed; run cargo xtask setup --for-docker")?;
    let home = folder.join("docker");
    fs::create_dir_all(&home).with_context(|| format!("{} cannot be made", home.display()))?;
    let log = home.join("log");
    let output =
        File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
    let errors = output.try_clone().context("the log file cannot be opened twice")?;
    let socket = home.join("socket");
    let mut command = Command::new(program);
    command.arg("--host").arg(format!("unix://{}", socket.display()));
    command.arg("--data-root").arg(home.join("data")).arg("--exec-root").arg(home.join("run"));
    command.arg("--pidfile").arg(home.join("pid"));
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let child = command.spawn().context("dockerd cannot be started")?;
    let mut daemon = Daemon { child, socket };
    let ready = progress.wait("a private dockerd answers", DAEMON_TIME_MAX, || {
        if let Some(status) = daemon.child.try_wait()? {
            bail!("dockerd ended ({status}); its words are in {}", log.display());
        }
        let ready = answers(&daemon.socket);
        Ok(if ready { ControlFlow::Break(()) } else { ControlFlow::Continue("it starts".into()) })
    });
    if let Err(error) = ready {
        // It may have ended by itself.
        daemon.stop(progress).ok();
        return Err(error);
    }
    Ok(daemon)
}

/// Packs a static busybox and a page into an image. `docker import` needs neither a builder nor a registry.
fn make_image(socket: &Path, folder: &Path, version: u32) -> Result<()> {
    let busybox =
        setup::static_busybox().context("no static busybox; run cargo xtask setup --for-docker")?;
    let root = folder.join(format!("image-{version}"));
    fs::create_dir_all(root.join("bin"))?;
    fs::create_dir_all(root.join("www"))?;
    fs::copy(&busybox, root.join("bin/busybox"))
        .with_context(|| format!("{} cannot be copied", busybox.display()))?;
    fs::write(root.join("start"), START)?;
    fs::write(root.join("www/index.html"), format!("{{\"version\":\"{version}\"}}\n"))?;
    let archive = folder.join(format!("image-{version}.tar"));
    let mut pack = Command::new("tar");
    pack.arg("--create").arg("--file").arg(&archive).arg("--directory").arg(&root).arg(".");
    progress::run("packing the image", &mut pack)?;
    let mut import = docker(socket);
    import.args([
        "import",
        "--change",
        r#"CMD ["/bin/busybox", "sh", "/start"]"#,
        "--change",
        "EXPOSE 8080",
    ]);
    import.arg(&archive).arg(format!("segue-example:{version}"));
    progress::run(&format!("image segue-example:{version}"), &mut import)
}

fn answers(socket: &Path) -> bool {
    let silent = |command: &mut Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    socket.exists() && silent(docker(socket).arg("version")).is_ok_and(|status| status.success())
}

fn docker(socket: &Path) -> Command {
    let mut command = Command::new("docker");
    command.arg("--host").arg(format!("unix://{}", socket.display()));
    command
}
