//! A disk that is full: writes are refused with a reason, reads go on, and nothing is missing once there is room.

use super::{all, draft};
use segue_domain::event::{Position, Query};
use segue_domain::log::{AppendError, Expect, Log};
use std::path::{Path, PathBuf};
use std::process::Command;

const DISK: &str = "size=24m";
const APPENDS_MAX: usize = 200_000;

/// A file system in memory with little room.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None without the right to mount.
    fn new(place: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", DISK, "tmpfs"])
            .arg(place)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| Self(place.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(place.path()) else {
        println!("skipped: it takes the right to mount");
        return;
    };
    let directory = disk.0.join("log");
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![1; 8 << 20]).unwrap();
    let log = Log::open(&directory).unwrap();
    let mut acknowledged: Vec<String> = Vec::new();
    let mut refused = None;
    for number in 0..APPENDS_MAX {
        let name = format!("full-{number}");
        let mut draft = draft(&name);
        draft.event.value = blake3::hash(name.as_bytes()).to_hex().repeat(64).into();
        match log
            .append(vec![draft], &Expect::Any)
            .and_then(segue_domain::log::Pending::durable_blocking)
        {
            Ok(_) => acknowledged.push(name),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let Some(AppendError::Stopped(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("space"), "{reason}");
    let names = |log: &Log| -> Vec<String> {
        all(log).iter().map(|record| record.provenance.correlation.clone()).collect()
    };
    assert_eq!(names(&log), acknowledged, "reads go on");
    let total = log.query(&Query::default(), 1, 1).unwrap().total;
    assert_eq!(total, acknowledged.len() as u64, "queries go on");
    assert!(matches!(log.append(vec![draft("late")], &Expect::Any), Err(AppendError::Stopped(_))));
    drop(log);
    std::fs::remove_file(ballast).unwrap();
    let log = Log::open(&directory).unwrap();
    log.verify().unwrap();
    let found = names(&log);
    assert_eq!(found[..acknowledged.len()], acknowledged, "nothing is missing after a restart");
    assert!(found.len() <= acknowledged.len() + 1, "at most the one that was refused is there");
    let next = log.append(vec![draft("next")], &Expect::Any).unwrap().durable_blocking().unwrap();
    assert_eq!(next[0].position, Position(found.len() as u64 + 1));
    println!(
        "full after {} appends, which are all there; refused with: {reason}",
        acknowledged.len()
    );
}
