//! A Docker daemon of the test's own, apart from any other on the host.
//!
//! It needs root, `dockerd`, `containerd` and `runc` (Debian: `docker.io`), and `/bin/busybox` (Debian:
//! `busybox-static`). The daemon keeps everything in a temporary directory: its data root, the state of its own
//! containerd (`--exec-root`), its pid file and its socket. The storage driver is left to the daemon, which takes
//! `overlay2` where it can and falls back to `vfs`. Daemons of several tests share the host: the network `bridge` is
//! the interface `docker0` for all of them, so that this one gets a bridge interface and an address range of its own,
//! and removes both at the end. All would keep the same chains of `iptables`, which each clears away as it starts, and
//! so none is given to any: a published port is forwarded by the daemon's own proxy, and no test needs to leave the
//! host. There is one daemon at a time. No registry is reached: the one image is made from the static busybox of the host.

use crate::processes;
use crate::registry::{self, Registry};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The image that is there from the start; its only program is busybox.
pub const IMAGE: &str = "segue/busybox:1";

const BUSYBOX: &str = "/bin/busybox";
const START_LIMIT: Duration = Duration::from_mins(1);
const END_LIMIT: Duration = Duration::from_secs(30);
const PERIOD: Duration = Duration::from_millis(50);
/// One daemon at a time: while one is away, and its containers are not, another would give their ports away.
static TURN: Mutex<()> = Mutex::new(());

/// A running daemon; it ends, with all of its containers, when this is dropped.
pub struct Dockerd {
    directory: TempDir,
    bridge: String,
    range: String,
    child: Child,
    /// Held while it runs; see [`TURN`].
    _turn: MutexGuard<'static, ()>,
}

/// How a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is asked to, and ends its containers unless it leaves them alive.
    Asked,
    /// `kill -9`.
    Killed,
}

impl Dockerd {
    /// Starts a daemon and waits until it answers. Fails with a sentence that says what is missing; a test passes
    /// that on and is never skipped.
    pub fn start() -> Result<Self> {
        let own = fs::metadata("/proc/self").context("/proc cannot be read")?;
        ensure!(
            own.uid() == 0,
            "tests with Docker start a daemon of their own, which needs root: run them as root"
        );
        ensure!(
            Path::new(BUSYBOX).exists(),
            "tests with Docker make their image from {BUSYBOX}: install the package busybox-static"
        );
        let directory = tempfile::Builder::new().prefix("segue-dockerd-").tempdir()?;
        // A test that panicked leaves nothing behind that matters here.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (bridge, range) = add_bridge()?;
        let child = match spawn(directory.path(), &bridge, &range, &[]) {
            Ok(child) => child,
            Err(error) => {
                remove_bridge(&bridge);
                return Err(error);
            }
        };
        let mut daemon = Self { directory, bridge, range, child, _turn: turn };
        daemon.wait_until_it_answers()?;
        daemon.import_image()?;
        Ok(daemon)
    }

    /// Ends the daemon; its files, and what runs without it, stay.
    pub fn end(&mut self, how: End) -> Result<()> {
        let signal = if how == End::Asked { Signal::TERM } else { Signal::KILL };
        self.signal(signal);
        let since = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(since.elapsed() < END_LIMIT, "dockerd does not end");
            std::thread::sleep(PERIOD);
        }
        // The daemon's own containerd dies with it. Where nobody asks for the end of orphans the next daemon would take
        // it for alive.
        let _ = fs::remove_file(self.directory.path().join("exec/containerd/containerd.pid"));
        Ok(())
    }

    /// Starts the daemon again that ended, with `more` arguments, such as `--live-restore`.
    pub fn start_again(&mut self, more: &[&str]) -> Result<()> {
        self.child = spawn(self.directory.path(), &self.bridge, &self.range, more)?;
        self.wait_until_it_answers()
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: Signal) {
        processes::signal(self.child.id(), signal);
    }

    /// Stops the daemon until [`Signal::CONT`].
    pub fn freeze(&self) {
        processes::freeze(self.child.id());
    }

    /// Where the daemon is reached.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Runs the client `docker` with `arguments` and gives what it printed.
    pub fn docker(&self, arguments: &[&str]) -> Result<String> {
        let output = self.client(arguments)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "docker {}: {errors}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Puts [`IMAGE`] into a registry, and gives the name that it has there. This daemon does not keep it.
    pub fn push(&self, registry: &Registry) -> Result<String> {
        let image = format!("{}/segue/busybox:1", registry.address());
        let configuration = self.directory.path().join("client");
        let configuration = configuration.to_str().context("the directory is no text")?;
        let address = registry.address();
        let login = ["login", "-u", registry::USER, "-p", registry::PASSWORD, &address];
        self.docker(&[&["--config", configuration], login.as_slice()].concat())?;
        self.docker(&["tag", IMAGE, &image])?;
        self.docker(&["--config", configuration, "push", &image])?;
        self.docker(&["rmi", &image])?;
        Ok(image)
    }

    fn client(&self, arguments: &[&str]) -> Result<Output> {
        Command::new("docker")
            .arg("-H")
            .arg(format!("unix://{}", self.socket().display()))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("tests with Docker need the program docker: install the package docker.io (and docker-cli)")
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            let ended = self.child.try_wait()?;
            if ended.is_some() || since.elapsed() > START_LIMIT {
                let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(10)..].join("\n");
                bail!(
                    "dockerd did not start; it needs root, cgroups and a bridge. It said:\n{last}"
                );
            }
            if self.socket().exists() && self.client(&["version"])?.status.success() {
                return Ok(());
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// An image that holds nothing but busybox, under the names of the programs that tests use.
    fn import_image(&self) -> Result<()> {
        let root = self.directory.path().join("image");
        fs::create_dir_all(root.join("bin"))?;
        fs::copy(BUSYBOX, root.join("bin/busybox"))?;
        for name in ["sh", "nc", "httpd", "sleep", "cat", "env"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name))?;
        }
        let archive = self.directory.path().join("image.tar");
        let status =
            Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status()?;
        ensure!(status.success(), "tar cannot pack the image");
        let archive =
            archive.to_str().context("the temporary directory has a name that is no text")?;
        self.docker(&["import", "--change", "ENV PATH=/bin", archive, IMAGE]).map(drop)
    }
}

fn spawn(directory: &Path, bridge: &str, range: &str, more: &[&str]) -> Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(directory.join("log"))?;
    Command::new("dockerd")
        .args(["-H", &format!("unix://{}", directory.join("socket").display())])
        .arg("--data-root")
        .arg(directory.join("data"))
        .arg("--exec-root")
        .arg(directory.join("exec"))
        .arg("-p")
        .arg(directory.join("pid"))
        .args(["--bridge", bridge, "--fixed-cidr", range])
        .args(["--iptables=false", "--ip6tables=false", "--ip-masq=false"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("tests with Docker need the program dockerd (install the package docker.io)")
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        // A test that failed may have left it frozen.
        self.signal(Signal::CONT);
        if let Ok(ids) = self.docker(&["ps", "-aq"]) {
            let ids: Vec<&str> = ids.lines().collect();
            if !ids.is_empty() {
                // A daemon that ends leaves the containers' processes to nobody.
                let _ = self.docker(&[&["rm", "-f", "-v"], ids.as_slice()].concat());
            }
        }
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let since = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if since.elapsed() > END_LIMIT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(PERIOD);
        }
        unmount_below(self.directory.path());
        remove_bridge(&self.bridge);
    }
}

/// Makes a bridge interface that no other daemon uses: its name, and the range of its addresses.
fn add_bridge() -> Result<(String, String)> {
    for attempt in 0..200_u32 {
        let number = (std::process::id().wrapping_add(attempt * 7)) % 200;
        let bridge = format!("sgt{number}");
        let added = Command::new("ip")
            .args(["link", "add", &bridge, "type", "bridge"])
            .stderr(Stdio::null())
            .status();
        let added =
            added.context("tests with Docker need the program ip: install the package iproute2")?;
        if !added.success() {
            continue;
        }
        let address = format!("10.213.{number}.1/24");
        for arguments in
            [["addr", "add", &address, "dev", &bridge].as_slice(), &["link", "set", &bridge, "up"]]
        {
            let status = Command::new("ip").args(arguments).status()?;
            if !status.success() {
                remove_bridge(&bridge);
                bail!("ip {} failed", arguments.join(" "));
            }
        }
        return Ok((bridge, format!("10.213.{number}.0/24")));
    }
    bail!(
        "no bridge interface can be made; tests with Docker need root and the capability NET_ADMIN"
    )
}

fn remove_bridge(bridge: &str) {
    let _ = Command::new("ip").args(["link", "del", bridge]).stderr(Stdio::null()).status();
}

/// Unmounts what the daemon left below `directory`, the innermost first, so that it can be removed.
fn unmount_below(directory: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for point in points
        .filter(|point| Path::new(point).starts_with(directory))
        .collect::<Vec<_>>()
        .iter()
        .rev()
    {
        let _ = Command::new("umount").args(["-l", point]).status();
    }
}
