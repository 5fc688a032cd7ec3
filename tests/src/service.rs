//! The real `segue serve` on a data directory of its own, with ports of its own.

use crate::ports::Ports;
use crate::processes;
use crate::wait::{LIMIT, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ureq::Agent;
use ureq::http::Request;

/// The service gives up a request after 10 s.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(15);
/// How much of the service's log a failed test shows.
const LOG_LINES_SHOWN: usize = 60;
const PER_PAGE: usize = 1_000;
const PAGES_MAX: usize = 50;

/// An answer of the API.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The revision, when it has one.
    pub etag: Option<String>,
    /// The body; null when it is empty, a text when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// The body of an answer that has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:#}", self.body);
        self.body
    }

    /// Whether what was asked for is done.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Speaks with one service; clones share connections.
#[derive(Clone, Debug)]
pub struct Api {
    agent: Agent,
    base: String,
}

impl Api {
    /// For the service at `address`.
    pub fn new(address: SocketAddr) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .proxy(None)
            .timeout_global(Some(REQUEST_TIME_MAX))
            .build();
        Self { agent: config.into(), base: format!("http://{address}") }
    }

    /// Sends a request. An error says why there is no answer; then nobody knows whether the request was acted on.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        document: Option<&Value>,
    ) -> Result<Answer, String> {
        self.send_text(method, path, document.map(Value::to_string).unwrap_or_default())
    }

    fn send_text(&self, method: &str, path: &str, body: String) -> Result<Answer, String> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("Content-Type", "application/json")
            .body(body)
            .map_err(|error| error.to_string())?;
        let mut response = self.agent.run(request).map_err(|error| error.to_string())?;
        let etag = response.headers().get("ETag").and_then(|value| value.to_str().ok());
        let etag = etag.map(str::to_owned);
        let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
        let body = if text.trim().is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok(Answer { status: response.status().as_u16(), etag, body })
    }

    /// What is at `path`.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.answered("GET", path, None)
    }

    /// Replaces or merges what is at `path`.
    #[track_caller]
    pub fn put(&self, path: &str, document: &Value) -> Answer {
        self.answered("PUT", path, Some(document))
    }

    /// Replaces what is at `path` by a text.
    #[track_caller]
    pub fn put_text(&self, path: &str, text: &str) -> Answer {
        match self.send_text("PUT", path, text.to_owned()) {
            Ok(answer) => answer,
            Err(error) => panic!("PUT {path} was not answered: {error}"),
        }
    }

    /// Creates something at `path`.
    #[track_caller]
    pub fn post(&self, path: &str, document: &Value) -> Answer {
        self.answered("POST", path, Some(document))
    }

    /// Removes what is at `path`, or what `document` names there.
    #[track_caller]
    pub fn delete(&self, path: &str, document: &Value) -> Answer {
        self.answered("DELETE", path, Some(document))
    }

    /// All events that carry every one of `tags`, oldest first.
    #[track_caller]
    pub fn events(&self, tags: &[&str]) -> Vec<Value> {
        let tags: String = tags.iter().flat_map(|tag| ["&tag=", tag]).collect();
        let mut events = Vec::new();
        for page in 1..=PAGES_MAX {
            let path = format!("/api/v1/events?per_page={PER_PAGE}&page={page}{tags}");
            let part = self.get(&path).expect(200);
            let part = part.as_array().cloned().unwrap_or_default();
            let is_last = part.len() < PER_PAGE;
            events.extend(part);
            if is_last {
                events.reverse();
                return events;
            }
        }
        panic!("more than {PAGES_MAX} pages of events {tags}");
    }

    /// Waits for an event with all of `tags` that `fits`.
    #[track_caller]
    pub fn wait_event(&self, tags: &[&str], fits: impl Fn(&Value) -> bool) -> Value {
        wait_until(&format!("an event {tags:?}"), LIMIT, || {
            let events = self.events(tags);
            let found = events.iter().find(|event| fits(event)).cloned();
            found.ok_or_else(|| format!("{events:?}"))
        })
    }

    #[track_caller]
    fn answered(&self, method: &str, path: &str, document: Option<&Value>) -> Answer {
        match self.send(method, path, document) {
            Ok(answer) => answer,
            Err(error) => panic!("{method} {path} was not answered: {error}"),
        }
    }
}

/// How a service is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What runs instances.
    pub containers: &'static str,
    /// More of its environment.
    pub environment: Vec<(&'static str, String)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { containers: "process", environment: Vec::new() }
    }
}

/// A running service. When this is dropped it ends, with everything that it leaves running on purpose; a test that
/// failed shows its log.
#[derive(Debug)]
pub struct Service {
    /// Its API.
    pub api: Api,
    /// Ports of the test's own.
    pub ports: Ports,
    folder: TempDir,
    setup: Setup,
    address: SocketAddr,
    virtual_hosts_port: u16,
    child: Option<Child>,
}

impl Service {
    /// Starts a service that runs processes, and waits until it is ready.
    pub fn start() -> Self {
        Self::start_with(Setup::default())
    }

    /// Starts a service, and waits until it is ready.
    pub fn start_with(setup: Setup) -> Self {
        let mut ports = Ports::take();
        let folder = tempfile::Builder::new().prefix("segue-it-").tempdir();
        let folder = folder.expect("the system's directory for temporary files can be written");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.one()));
        let virtual_hosts_port = ports.one();
        let api = Api::new(address);
        let mut service =
            Self { api, ports, folder, setup, address, virtual_hosts_port, child: None };
        service.restart();
        service
    }

    /// Where log, records and HAProxy's files are.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A directory of the test's own.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the service has said in all of its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the service again that was killed or stopped, and waits until it is ready.
    pub fn restart(&mut self) {
        self.spawn();
        wait_until("the service is ready", LIMIT, || {
            if let Some(status) = self.ended() {
                panic!("the service ended, {status}:\n{}", self.last_words());
            }
            match self.api.send("GET", "/readyz", None) {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }

    /// Starts the service again and does not wait.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "the service runs already");
        let log = OpenOptions::new().create(true).append(true).open(self.folder.path().join("log"));
        let log = log.expect("a file can be made in a directory that was just made");
        let errors = log.try_clone().expect("an open file can be opened twice");
        let mut command = self.command("serve");
        command.args(["--listen", &self.address.to_string(), "--gateways", "haproxy"]);
        command.args(["--containers", self.setup.containers]);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(command.spawn().expect("the program can be started"));
    }

    /// `kill -9`: it gets no chance to finish anything.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("the service runs");
        child.kill().expect("an own child can be killed");
        child.wait().expect("an own child can be waited for");
    }

    /// SIGTERM. Says how long it took to end, which has to be in time and without an error.
    pub fn terminate(&mut self) -> Duration {
        let since = Instant::now();
        let pid = self.child.as_ref().expect("the service runs").id();
        processes::signal(pid, Signal::TERM);
        let status = wait_until("the service stops on SIGTERM", LIMIT, || {
            self.ended().ok_or_else(|| "it runs".to_owned())
        });
        assert!(status.success(), "the service stopped with {status}");
        self.child = None;
        since.elapsed()
    }

    /// A second service with the same data, elsewhere; it is expected to end by itself.
    pub fn second(&mut self) -> Output {
        let port = self.ports.one();
        let mut command = self.command("serve");
        command.args(["--listen", &format!("127.0.0.1:{port}"), "--gateways", "haproxy"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let ended = Instant::now() + LIMIT;
        while child.try_wait().expect("an own child can be waited for").is_none() {
            if Instant::now() > ended {
                child.kill().expect("an own child can be killed");
                panic!("a second service runs on the same data");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.wait_with_output().expect("an own child can be waited for")
    }

    /// Runs a tool, such as `replay`, on the data of a service that does not run.
    pub fn tool(&self, name: &str, flags: &[&str]) -> Output {
        self.command(name).args(flags).output().expect("the program can be started")
    }

    /// The processes of its instances, by instance.
    pub fn instances(&self) -> std::collections::BTreeMap<String, u32> {
        processes::instances(&self.data())
    }

    /// HAProxy's master process.
    pub fn haproxy(&self) -> u32 {
        let path = self.data().join("haproxy/process.json");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let record: Value = serde_json::from_str(&text).unwrap_or_default();
        let pid = record["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        pid.unwrap_or_else(|| panic!("{} holds no process: {text}", path.display()))
    }

    /// HAProxy's processes that carry traffic, those that finish what they carry included.
    pub fn haproxy_workers(&self) -> Vec<u32> {
        processes::children(self.haproxy())
    }

    /// HAProxy's one process that carries traffic, once those before it finished what they carried.
    #[track_caller]
    pub fn haproxy_worker(&self) -> u32 {
        wait_until("HAProxy has one worker", LIMIT, || match self.haproxy_workers().as_slice() {
            [worker] => Ok(*worker),
            others => Err(format!("{others:?}")),
        })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program());
        for (name, _) in std::env::vars_os() {
            // What tests are told is not meant for the service, which reads every such variable.
            if name.to_string_lossy().starts_with("SEGUE_") {
                command.env_remove(name);
            }
        }
        command.arg(name).arg("--data").arg(self.data());
        let gateways = self.ports.gateways();
        let (first, last) = (gateways.start(), gateways.end());
        command
            .env("SEGUE_OPERATION__GATEWAY__PORT_RANGE", format!("{first}-{last}"))
            .env(
                "SEGUE_OPERATION__GATEWAY__VIRTUAL_HOSTS__PORT",
                self.virtual_hosts_port.to_string(),
            )
            .env("SEGUE_GATEWAY_DRIVER__HAPROXY__BIND", "127.0.0.1");
        command.envs(self.setup.environment.iter().map(|(key, value)| (key, value)));
        command
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        child.try_wait().expect("an own child can be waited for")
    }

    fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Ends everything; says what did not work.
    fn end(&mut self) -> Result<(), String> {
        if let Some(mut child) = self.child.take() {
            processes::signal(child.id(), Signal::TERM);
            let since = Instant::now();
            while matches!(child.try_wait(), Ok(None)) {
                if since.elapsed() > LIMIT {
                    let _ = child.kill();
                    let _ = child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let down = self.tool("down", &[]);
        let left = processes::below(&self.data());
        for (pid, _) in &left {
            processes::signal(*pid, Signal::KILL);
        }
        if down.status.success() && left.is_empty() {
            return Ok(());
        }
        Err(format!(
            "segue down ended with {} and left {left:#?}\nit said: {}{}\nthe service's log:\n{}",
            down.status,
            String::from_utf8_lossy(&down.stdout),
            String::from_utf8_lossy(&down.stderr),
            self.last_words()
        ))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let ended = self.end();
        if std::thread::panicking() {
            eprintln!("the service's log:\n{}", self.last_words());
            if let Err(words) = ended {
                eprintln!("{words}");
            }
        } else if let Err(words) = ended {
            panic!("{words}");
        }
    }
}

/// The program under test: what `SEGUE_BIN` names, else the one that was built beside this test.
pub fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("SEGUE_BIN") {
        return program.into();
    }
    let test = std::env::current_exe().expect("a running program has a path");
    let beside = test.ancestors().nth(2).map(|folder| folder.join("segue"));
    match beside.filter(|program| program.is_file()) {
        Some(program) => program,
        None => panic!(
            "there is no program to test: run `cargo xtask test`, or `cargo build -p segue-api` first"
        ),
    }
}
