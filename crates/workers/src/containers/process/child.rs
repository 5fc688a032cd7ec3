//! One process: how it is started, and how its end is noticed.

use super::log;
use super::marks;
use super::record::{Directory, Record};
use crate::driver::Error;
use crate::processes::{HAPROXY_MARK, Identity};
use indexmap::IndexMap;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;

/// What of Segue's own environment a process gets, with what it is when Segue has none.
const BASE: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/"),
    ("LANG", ""),
    ("TZ", ""),
];

/// A command line that can be executed.
#[derive(Clone, Debug)]
pub(super) struct Command {
    words: Vec<String>,
}

impl Command {
    /// A command of at least one word; what the system could never execute is refused.
    pub(super) fn new(
        words: Vec<String>,
        environment: &IndexMap<String, String>,
    ) -> Result<Self, Error> {
        if let Some(name) = environment.keys().find(|name| name.is_empty() || name.contains('=')) {
            return Err(Error::Permanent(format!(
                "'{name}' cannot be the name of an environment variable"
            )));
        }
        Ok(Self { words })
    }

    /// Starts the process of `record`, as the leader of a group of its own.
    pub(super) fn spawn(&self, record: &Record, directory: &Directory) -> Result<Process, Error> {
        let transient = |error: io::Error| {
            Error::Transient(format!("cannot start '{}': {error}", self.words[0]))
        };
        let output = log::open(&directory.log(&record.spec.name)).map_err(transient)?;
        let child = tokio::process::Command::new(&self.words[0])
            .args(&self.words[1..])
            .env_clear()
            .envs(environment(record, directory))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(transient)?)
            .stderr(output)
            .spawn();
        let child = child.map_err(|error| {
            let words = format!("cannot start '{}': {error}", self.words[0]);
            // What the system lacks now it may have later; everything else is wrong with the command itself.
            let lacks = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory)
                || matches!(error.raw_os_error(), Some(code) if code == rustix::io::Errno::MFILE.raw_os_error()
                    || code == rustix::io::Errno::NFILE.raw_os_error()
                    || code == rustix::io::Errno::TXTBSY.raw_os_error());
            if lacks { Error::Transient(words) } else { Error::Permanent(words) }
        })?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let identity = pid.and_then(Identity::of).ok_or_else(|| {
            Error::Transient(format!(
                "cannot start '{}': /proc does not show its process",
                self.words[0]
            ))
        })?;
        Ok(Process { identity, watch: Watch::Own(child) })
    }
}

/// What a process is given: the base, the service's variables, its ports, the marks.
fn environment(record: &Record, directory: &Directory) -> IndexMap<String, String> {
    let base = |(name, default): (&str, &str)| {
        let value = std::env::var(name).unwrap_or_else(|_| default.to_owned());
        (!value.is_empty()).then(|| (name.to_owned(), value))
    };
    let mut environment: IndexMap<String, String> = BASE.into_iter().filter_map(base).collect();
    environment.extend(record.spec.environment.clone());
    for (name, port) in &record.ports {
        environment.insert(port_variable(name), port.to_string());
    }
    if let (1, Some(port)) = (record.ports.len(), record.ports.values().next()) {
        environment.insert("PORT".to_owned(), port.to_string());
    }
    environment.shift_remove(HAPROXY_MARK);
    environment.insert(marks::INSTANCE.to_owned(), record.spec.name.clone());
    environment.insert(marks::DIRECTORY.to_owned(), directory.path().display().to_string());
    environment
}

/// `PORT_<NAME>`: the name in upper case, other characters than letters and digits as `_`.
pub(super) fn port_variable(name: &str) -> String {
    let character = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("PORT_{}", name.chars().map(character).collect::<String>())
}

/// A process that runs, or ended a moment ago.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) identity: Identity,
    watch: Watch,
}

#[derive(Debug)]
enum Watch {
    /// Started by this driver.
    Own(Child),
    /// Started by an earlier one.
    Adopted(AsyncFd<OwnedFd>),
}

impl Process {
    /// Watches a process that was started by an earlier driver; `None` when it does not run any more.
    pub(super) fn adopt(identity: Identity) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(identity.pid) else { return Ok(None) };
        let descriptor = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Only now that the descriptor holds on to the process, looking at it says which one that is.
        if !identity.is_alive() {
            return Ok(None);
        }
        #[expect(
            deprecated,
            reason = "its successor is unsafe because the descriptor could be closed early; this one is owned"
        )]
        let watch = Watch::Adopted(AsyncFd::with_interest(descriptor, Interest::READABLE)?);
        Ok(Some(Self { identity, watch }))
    }

    /// Returns when the process has ended, with how it did. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> String {
        match &mut self.watch {
            Watch::Own(child) => match child.wait().await {
                Ok(status) => words(status),
                Err(error) => format!("ended; its status cannot be read: {error}"),
            },
            // The descriptor becomes readable when the process ends. Its status goes to its parent alone.
            Watch::Adopted(descriptor) => {
                let _ = descriptor.readable().await;
                "ended (its status is unknown, since an earlier Segue started it)".to_owned()
            }
        }
    }
}

fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(_)) => {
            format!("was ended by {}", status.to_string().replacen("signal: ", "signal ", 1))
        }
        (None, None) => format!("ended: {status}"),
    }
}
