//! Processes of this host, as `/proc` shows them, and signals to them.
//!
//! What Segue starts outlives it. It is found again by its [`Identity`], which is recorded, and by variables in its
//! environment, its marks: these are there even when Segue was killed before it recorded anything.

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::fs;
use uuid::Uuid;

/// The variable that marks our HAProxy, with its directory; no instance may have it.
pub(crate) const HAPROXY_MARK: &str = "SEGUE_HAPROXY";

/// What tells a process apart from every other one, also from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The process id, and that of the group it leads.
    pub(crate) pid: i32,
    /// When it started, in clock ticks since the system did.
    started: u64,
    /// Which start of the system that was.
    boot: Uuid,
}

impl Identity {
    /// The identity of the process that now has the id `pid`.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, started: Status::of(pid)?.started, boot: boot() })
    }

    /// Whether this very process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        Status::of(self.pid)
            .is_some_and(|status| status.is_alive() && status.started == self.started)
            && self.boot == boot()
    }
}

/// Sends a signal to a process group; one that is gone is no error.
pub(crate) fn signal_group(leader: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(leader) {
        // The only failure besides "no such group" is a member that runs as another user; the others got it.
        let _ = kill_process_group(pid, signal);
    }
}

/// Whether anything that still runs belongs to the group that `leader` leads or led.
pub(crate) fn group_is_alive(leader: i32) -> bool {
    processes().any(|(_, status)| status.group == leader && status.is_alive())
}

/// Kills what is left of the group of a leader that ended. As long as anything belongs to a group the system gives its id
/// to no other process, so that one that has it is of another group.
pub(crate) fn kill_orphans(leader: i32) {
    let is_anothers = Status::of(leader).is_some_and(|status| status.is_alive());
    if !is_anothers && group_is_alive(leader) {
        signal_group(leader, Signal::KILL);
    }
}

/// A live process that was found by its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) pid: i32,
    /// The group it belongs to; that of its leader is the leader's own id.
    pub(crate) group: i32,
}

/// Every live process that has all of `marks`, each `NAME=value`, in its environment. For a moment there is nothing in
/// it: while a process begins to run a program, and while it ends.
pub(crate) fn marked(marks: &[String]) -> Vec<Marked> {
    processes()
        .filter(|(_, status)| status.is_alive())
        .filter(|(pid, _)| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            marks.iter().all(|mark| {
                environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            })
        })
        .map(|(pid, status)| Marked { pid, group: status.group })
        .collect()
}

/// The part of `/proc/<pid>/stat` that is needed.
struct Status {
    state: char,
    group: i32,
    started: u64,
}

impl Status {
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses and may hold blanks and parentheses itself.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it is more than the remains of a process whose parent has not asked for its status yet. Where nobody
    /// ever asks, as in a container without `init`, remains stay for ever.
    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn processes() -> impl Iterator<Item = (i32, Status)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, Status::of(pid)?))
    })
}

fn boot() -> Uuid {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}
