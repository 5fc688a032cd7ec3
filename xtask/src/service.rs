//! A running `segue serve` of its own, in its own process group: it survives the task that started it.

use crate::api::Api;
use crate::progress::{self, Progress};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::{ControlFlow, RangeInclusive};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long the service may take to answer `/readyz`.
const READY_TIME_MAX: Duration = Duration::from_mins(1);
/// How long the service may take to stop; it promises 10 s.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);
/// How much of the service's log is shown when it fails.
const LOG_LINES_SHOWN: usize = 20;
/// The service gives these ports to internal gateways.
const GATEWAY_PORTS: RangeInclusive<u16> = 20_000..=25_000;
/// How often a port is drawn before there seems to be none.
const PORT_DRAWS_MAX: usize = 100;

/// How the service is told where Docker listens.
const DOCKER_SOCKET: &str = "SEGUE_CONTAINER_DRIVER__DOCKER__SOCKET";

/// How instances run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Containers {
    /// As processes of this machine.
    Process,
    /// As Docker containers.
    Docker,
    /// Not at all: containers and gateways are simulated.
    #[value(skip)]
    Simulated,
}

impl Containers {
    fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Docker => "docker",
            Self::Simulated => "simulated",
        }
    }

    /// The driver of gateways that goes with it.
    fn gateways(self) -> &'static str {
        match self {
            Self::Process | Self::Docker => "haproxy",
            Self::Simulated => "simulated",
        }
    }
}

/// What the service is started with.
#[derive(Debug)]
pub struct Settings<'a> {
    /// The `segue` program.
    pub program: &'a Path,
    /// The folder for everything that belongs to this service.
    pub folder: &'a Path,
    /// How instances run.
    pub containers: Containers,
    /// Docker's socket, when it is not the usual one.
    pub docker_socket: Option<&'a Path>,
}

/// A service that was started here.
#[derive(Debug)]
pub struct Service {
    launch: Launch,
    child: Child,
    api: Api,
}

/// How the service is started, each time in the same way.
#[derive(Debug)]
struct Launch {
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    address: SocketAddr,
    containers: Containers,
    docker_socket: Option<PathBuf>,
}

impl Service {
    /// Starts the service and waits until it is ready. One that does not get ready is stopped.
    pub fn start(settings: &Settings, progress: &Progress) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let launch = Launch {
            program: settings.program.to_owned(),
            data: settings.folder.join("data"),
            log: settings.folder.join("segue.log"),
            address,
            containers: settings.containers,
            docker_socket: settings.docker_socket.map(Path::to_owned),
        };
        let command = launch.serve()?;
        progress::say(&crate::workspace::shown(&command));
        let child = launch.spawn(command)?;
        let mut service = Self { launch, child, api: Api::new(address) };
        match service.wait_until_ready(progress) {
            Ok(()) => Ok(service),
            Err(error) => {
                let words = service.last_words();
                if let Err(again) = service.stop(progress) {
                    eprintln!("{again:#}");
                }
                Err(error.context(words))
            }
        }
    }

    /// Ends the service with TERM and starts it again; HAProxy and instances go on meanwhile.
    pub fn restart(&mut self, progress: &Progress) -> Result<()> {
        self.stop_process(progress)?;
        self.start_again(progress)
    }

    /// Kills the service at once and starts it again; HAProxy and instances go on meanwhile.
    pub fn kill_and_restart(&mut self, progress: &Progress) -> Result<()> {
        self.child.kill().context("the service cannot be killed")?;
        self.child.wait().context("the service does not end")?;
        self.start_again(progress)
    }

    fn start_again(&mut self, progress: &Progress) -> Result<()> {
        self.child = self.launch.spawn(self.launch.serve()?)?;
        self.wait_until_ready(progress)
    }

    /// Its API.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The master process of its HAProxy.
    pub fn haproxy(&self) -> Result<u32> {
        let path = self.launch.data.join("haproxy/process.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        let record: Value = serde_json::from_str(&text).unwrap_or_default();
        let pid = record["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        pid.with_context(|| format!("{} holds no process: {text}", path.display()))
    }

    /// The end of its log, for errors.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.launch.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        format!("the service's last lines ({}):\n{}", self.launch.log.display(), last.join("\n"))
    }

    /// The line that stops the service and everything it started.
    pub fn stop_line(&self) -> String {
        let pid = self.pid();
        let quoted = |path: &Path| {
            let text = path.to_string_lossy();
            shlex::try_quote(&text).map_or_else(|_| text.to_string(), std::borrow::Cow::into_owned)
        };
        let launch = &self.launch;
        let socket = launch
            .docker_socket
            .as_deref()
            .map(|socket| format!("{DOCKER_SOCKET}={} ", quoted(socket)));
        let (program, data) = (quoted(&launch.program), quoted(&launch.data));
        // The data belong to the service until it ended.
        format!(
            "kill {pid}; tail --pid={pid} -f /dev/null; {}{program} down --data {data}",
            socket.unwrap_or_default()
        )
    }

    /// Stops the service, then everything that it left running on purpose: HAProxy and instances.
    pub fn stop(&mut self, progress: &Progress) -> Result<()> {
        let stopped = self.stop_process(&progress.for_cleanup());
        stopped.and(self.run_down())
    }

    fn run_down(&self) -> Result<()> {
        let output = self
            .launch
            .command("down")
            .output()
            .with_context(|| format!("{} cannot be run", self.launch.program.display()))?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "segue down failed ({}): {}", output.status, words.trim());
        Ok(())
    }

    fn stop_process(&mut self, progress: &Progress) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("the service cannot be signalled")?;
        let child = &mut self.child;
        let ended = progress.wait("stopping the service", STOP_TIME_MAX, || {
            Ok(child
                .try_wait()?
                .map_or(ControlFlow::Continue("it drains".into()), ControlFlow::Break))
        });
        if let Err(error) = ended {
            self.child
                .kill()
                .and_then(|()| self.child.wait())
                .context("the service cannot be killed")?;
            return Err(error.context("the service did not stop on TERM and was killed"));
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, progress: &Progress) -> Result<()> {
        let (api, child) = (&self.api, &mut self.child);
        progress.wait("the service is ready", READY_TIME_MAX, || {
            if let Some(status) = child.try_wait()? {
                bail!("the service ended: {status}");
            }
            Ok(match api.status("/readyz") {
                Ok(200) => ControlFlow::Break(()),
                Ok(status) => ControlFlow::Continue(format!("/readyz answers {status}")),
                Err(error) => ControlFlow::Continue(error.to_string()),
            })
        })
    }
}

impl Launch {
    fn serve(&self) -> Result<Command> {
        let output = File::options().create(true).append(true).open(&self.log);
        let output = output.with_context(|| format!("{} cannot be written", self.log.display()))?;
        let errors = output.try_clone().context("the log file cannot be opened twice")?;
        let mut command = self.command("serve");
        command.args(["--listen", &self.address.to_string()]);
        command.args(["--containers", self.containers.word()]);
        command.args(["--gateways", self.containers.gateways()]);
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        Ok(command)
    }

    fn spawn(&self, mut command: Command) -> Result<Child> {
        command.spawn().with_context(|| format!("{} cannot be started", self.program.display()))
    }

    fn command(&self, task: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(task).arg("--data").arg(&self.data);
        if let Some(socket) = &self.docker_socket {
            command.env(DOCKER_SOCKET, socket);
        }
        command
    }
}

/// A port of this host that nobody listens on, and that the service does not give away.
pub fn free_port() -> Result<u16> {
    for _ in 0..PORT_DRAWS_MAX {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        let port = listener.local_addr()?.port();
        if !GATEWAY_PORTS.contains(&port) {
            return Ok(port);
        }
    }
    bail!(
        "{PORT_DRAWS_MAX} free ports in a row lie in {GATEWAY_PORTS:?}; see net.ipv4.ip_local_port_range"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_none_of_the_services() {
        let port = free_port().unwrap();
        assert!(!GATEWAY_PORTS.contains(&port));
    }
}
