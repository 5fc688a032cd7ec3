//! Processes of this host, as `/proc` shows them.

use crate::wait::{LIMIT, wait_while};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Sends `signal` to a process; one that is gone already is fine.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match kill_process(pid.expect("a process has a number above 0"), signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("process {pid:?} cannot be signalled: {error}"),
    }
}

/// Stops a process with all of its threads, until [`Signal::CONT`]. The signal alone is no stop: a thread that is in
/// the middle of something goes on for a while.
pub fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    let runs = || {
        let mut threads = fs::read_dir(place(pid).join("task")).into_iter().flatten().flatten();
        threads.any(|thread| state(&thread.path()).is_some_and(|state| state != "T"))
    };
    wait_while("a process is stopped", LIMIT, runs);
}

/// Whether a process runs; one that ended and waits for its parent does not.
pub fn is_alive(pid: u32) -> bool {
    state(&place(pid)).is_some_and(|state| state != "Z" && state != "X")
}

/// The living processes whose parent is `pid`.
pub fn children(pid: u32) -> Vec<u32> {
    all().into_iter().filter(|child| is_alive(*child) && parent(*child) == Some(pid)).collect()
}

/// The processes of instances that the service with its data in `data` started, by instance.
pub fn instances(data: &Path) -> BTreeMap<String, u32> {
    all().into_iter().filter_map(|pid| Some((instance(pid, data)?, pid))).collect()
}

/// Processes that belong to the service with its data in `data`, with their command lines: instances, and what runs in
/// a directory below it.
pub fn below(data: &Path) -> Vec<(u32, String)> {
    let runs_there = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|place| place.starts_with(data))
    };
    all()
        .into_iter()
        .filter(|pid| is_alive(*pid) && (runs_there(pid) || instance(*pid, data).is_some()))
        .map(|pid| (pid, command_line(pid)))
        .collect()
}

fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

fn instance(pid: u32, data: &Path) -> Option<String> {
    if !is_alive(pid) {
        return None;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    let value = |name: &str| {
        environment.split('\0').find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    };
    let directory = value("SEGUE_DIRECTORY")?;
    Path::new(directory)
        .starts_with(data)
        .then(|| value("SEGUE_INSTANCE").unwrap_or_default().to_owned())
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("Linux has /proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn place(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The letter for the state of the process or thread that `/proc` has at `place`.
fn state(place: &Path) -> Option<String> {
    stat(place)?.into_iter().next()
}

fn parent(pid: u32) -> Option<u32> {
    stat(&place(pid))?.get(1)?.parse().ok()
}

/// What `/proc` says, from the state on.
fn stat(place: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(place.join("stat")).ok()?;
    // The name, in parentheses, may hold anything.
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}
