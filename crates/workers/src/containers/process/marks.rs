//! The marks by which the processes of an instance are found when no record names them.

use crate::processes::{self, Marked};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;

/// The variable that names the instance a process belongs to; children inherit it.
pub(super) const INSTANCE: &str = "SEGUE_INSTANCE";
/// The variable that names the directory of the driver, since two installations may use the same names.
pub(super) const DIRECTORY: &str = "SEGUE_DIRECTORY";

/// Every live process that carries the marks of `instance`.
pub(super) fn marked(directory: &Path, instance: &str) -> Vec<Marked> {
    processes::marked(&[
        format!("{INSTANCE}={instance}"),
        format!("{DIRECTORY}={}", directory.display()),
    ])
}

/// Kills everything that carries the marks of `instance`.
pub(super) fn kill_marked(directory: &Path, instance: &str) {
    for Marked { pid, .. } in marked(directory, instance) {
        if let Some(pid) = Pid::from_raw(pid) {
            // It may have ended in the meantime.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
