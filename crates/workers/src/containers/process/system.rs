//! What the operating system tells about processes, and signals to them.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The variable that names the instance a process belongs to; children inherit it.
pub(super) const MARK_INSTANCE: &str = "SEGUE_INSTANCE";
/// The variable that names the directory of the driver, since two installations may use the same names.
pub(super) const MARK_DIRECTORY: &str = "SEGUE_DIRECTORY";

/// What tells a process apart from every other one, also from a later one with the same id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The process id, and that of the group it leads.
    pub(super) pid: i32,
    /// When it started, in clock ticks since the system did.
    started: u64,
    /// Which start of the system that was.
    boot: String,
}

impl Identity {
    /// The identity of the process that now has the id `pid`.
    pub(super) fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, started: Status::of(pid)?.started, boot: boot() })
    }

    /// Whether this very process still runs.
    pub(super) fn is_alive(&self) -> bool {
        Status::of(self.pid)
            .is_some_and(|status| status.is_alive() && status.started == self.started)
            && self.boot == boot()
    }
}

/// Sends a signal to a process group; one that is gone is no error.
pub(super) fn signal_group(leader: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(leader) {
        // The only failure besides "no such group" is a member that runs as another user; the others got it.
        let _ = kill_process_group(pid, signal);
    }
}

/// Whether anything that still runs belongs to the group that `leader` leads or led.
pub(super) fn group_is_alive(leader: i32) -> bool {
    processes().any(|(_, status)| status.group == leader && status.is_alive())
}

/// Every live process that carries the mark of `instance`: its id, and whether it leads its group.
pub(super) fn marked(directory: &Path, instance: &str) -> Vec<(i32, bool)> {
    let marks = [
        format!("{MARK_INSTANCE}={instance}"),
        format!("{MARK_DIRECTORY}={}", directory.display()),
    ];
    processes()
        .filter(|(_, status)| status.is_alive())
        .filter(|(pid, _)| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            marks.iter().all(|mark| {
                environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            })
        })
        .map(|(pid, status)| (pid, status.group == pid))
        .collect()
}

/// Kills everything that carries the mark of `instance`.
pub(super) fn kill_marked(directory: &Path, instance: &str) {
    for (pid, _) in marked(directory, instance) {
        if let Some(pid) = Pid::from_raw(pid) {
            // It may have ended in the meantime.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
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

    /// Whether it is more than the remains of a process whose parent has not asked for its status yet.
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

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
