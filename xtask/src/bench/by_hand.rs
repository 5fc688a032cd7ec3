//! HAProxy with a file as a person writes it: changed by writing it anew and a reload.

use crate::progress::Progress;
use crate::setup;
use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long HAProxy may take to come up, to reload and to go.
pub(super) const HAPROXY_TIME_MAX: Duration = Duration::from_secs(20);
/// What the master says when its worker runs.
const LOADED: &str = "Loading success";
/// When a reload is asked for again: a master that is not done with the one before misses it.
const RELOAD_AGAIN: Duration = Duration::from_secs(1);

/// What stands in the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    pub(super) port: u16,
    pub(super) servers: Vec<Server>,
    /// Whether requests with the header `X-Beta` go to version 2.
    pub(super) condition: bool,
    /// Whether a cookie binds clients to servers.
    pub(super) sticky: bool,
    /// The port of a second frontend, with the same servers.
    pub(super) neighbour: Option<u16>,
    /// Whether a line is logged about every request.
    pub(super) log: bool,
}

/// One server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) version: u32,
    pub(super) address: String,
    pub(super) weight: u8,
}

impl Server {
    /// A server of version 1 with the usual weight.
    pub(super) fn at(address: impl Into<String>) -> Self {
        Self { version: 1, address: address.into(), weight: 100 }
    }
}

impl Setup {
    fn text(&self) -> String {
        let mut text = String::from(
            "global\n  maxconn 1000\n\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 50s\n  timeout server 50s\n",
        );
        if self.log {
            text.push_str("  log stdout format raw local0\n  option httplog\n");
        }
        self.frontend(&mut text, "front", self.port, "servers");
        self.backend(&mut text, "servers", &self.servers);
        if self.condition {
            // Whoever matches is not spread by weight.
            let beta = self.servers.iter().filter(|server| server.version == 2);
            let beta: Vec<Server> =
                beta.map(|server| Server { weight: 100, ..server.clone() }).collect();
            self.backend(&mut text, "beta", &beta);
        }
        if let Some(port) = self.neighbour {
            self.frontend(&mut text, "neighbour", port, "neighbours");
            self.backend(&mut text, "neighbours", &self.servers);
        }
        text
    }

    fn frontend(&self, text: &mut String, name: &str, port: u16, backend: &str) {
        let rule = if self.condition {
            "  use_backend beta if { req.hdr(X-Beta) -m found }\n"
        } else {
            ""
        };
        write!(
            text,
            "\nfrontend {name}\n  bind 127.0.0.1:{port}\n  option forwardfor\n{rule}  default_backend {backend}\n"
        )
        .expect("a text can always grow");
    }

    fn backend(&self, text: &mut String, name: &str, servers: &[Server]) {
        write!(text, "\nbackend {name}\n  balance roundrobin\n").expect("a text can always grow");
        if self.sticky {
            text.push_str("  cookie SERVER insert indirect nocache\n");
        }
        for Server { address, weight, .. } in servers {
            // Named by its address: a server keeps its name, and with it its cookie, whatever comes and goes.
            let cookie = if self.sticky { format!(" cookie {address}") } else { String::new() };
            writeln!(text, "  server {address} {address} weight {weight}{cookie}")
                .expect("a text can always grow");
        }
    }
}

/// An HAProxy that was started here.
#[derive(Debug)]
pub(super) struct ByHand {
    child: Child,
    file: PathBuf,
}

impl ByHand {
    /// Starts HAProxy with `file`, which is written anew, and waits until it runs: a signal that comes earlier ends it.
    pub(super) fn start(file: PathBuf, setup: &Setup, progress: &Progress) -> Result<Self> {
        write_file(&file, setup)?;
        let program =
            setup::program("haproxy").context("haproxy is not installed; run cargo xtask setup")?;
        let create = |file: &Path| {
            fs::File::create(file).with_context(|| format!("{} cannot be written", file.display()))
        };
        let log = file.with_extension("log");
        let words = create(&log)?;
        // A log that is kept, since ours is read.
        let requests = create(&file.with_extension("requests"))?;
        let mut command = Command::new(program);
        command.arg("-W").arg("-f").arg(&file);
        command.stdin(Stdio::null()).stdout(requests).stderr(words);
        let child = command.spawn().context("haproxy cannot be started")?;
        let mut haproxy = Self { child, file };
        let started = progress.wait_quietly("haproxy runs", HAPROXY_TIME_MAX, || {
            let words = fs::read_to_string(&log)?;
            Ok(if words.contains(LOADED) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(words)
            })
        });
        if let Err(error) = started {
            haproxy.stop(progress)?;
            return Err(error);
        }
        Ok(haproxy)
    }

    /// Where HAProxy's words are.
    pub(super) fn log(&self) -> PathBuf {
        self.file.with_extension("log")
    }

    /// Writes the file anew and reloads HAProxy; returns when a new worker runs.
    pub(super) fn change(&self, setup: &Setup, progress: &Progress) -> Result<()> {
        write_file(&self.file, setup)?;
        reload(self.child.id(), progress)
    }

    /// Ends HAProxy with all that it carries.
    pub(super) fn stop(&mut self, progress: &Progress) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .context("haproxy cannot be signalled")?;
        let child = &mut self.child;
        progress.for_cleanup().wait_quietly("haproxy ends", HAPROXY_TIME_MAX, || {
            Ok(child
                .try_wait()?
                .map_or(ControlFlow::Continue("it runs".into()), |_| ControlFlow::Break(())))
        })
    }
}

/// Asks an HAProxy's master to load its file again; returns when a new worker runs.
pub(super) fn reload(master: u32, progress: &Progress) -> Result<()> {
    let before = children(master)?;
    let pid =
        i32::try_from(master).ok().and_then(Pid::from_raw).context("there is no such process")?;
    let ask = || kill_process(pid, Signal::USR2).context("haproxy cannot be signalled");
    ask()?;
    let mut asked = Instant::now();
    progress.wait_quietly("haproxy has a new worker", HAPROXY_TIME_MAX, || {
        let now = children(master)?;
        if asked.elapsed() > RELOAD_AGAIN {
            ask()?;
            asked = Instant::now();
        }
        Ok(if now.iter().any(|child| !before.contains(child)) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(format!("workers {now:?}"))
        })
    })
}

fn children(pid: u32) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn write_file(file: &Path, setup: &Setup) -> Result<()> {
    fs::write(file, setup.text()).with_context(|| format!("{} cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn haproxy_accepts_the_file_written_by_hand() {
        let two = Server { version: 2, weight: 0, ..Server::at("127.0.0.1:2") };
        let servers = vec![Server::at("127.0.0.1:1"), two];
        for rules in [false, true] {
            let neighbour = rules.then_some(18_081);
            let setup = Setup {
                port: 18_080,
                servers: servers.clone(),
                condition: rules,
                sticky: rules,
                neighbour,
                log: false,
            };
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), setup.text()).unwrap();
            let program = setup::program("haproxy").unwrap();
            let output =
                Command::new(program).arg("-c").arg("-f").arg(file.path()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
