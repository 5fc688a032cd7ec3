//! A writer is killed, or its power goes, at random moments, again and again.

use super::writer::{WRITERS, Writer, size};
use super::{Random, all, is_long};
use segue_domain::log::Log;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// So many kills of one log before another is begun: reading it all takes ever longer.
const KILLS_OF_ONE_LOG: u64 = 25;
const MOMENT_MILLISECONDS_MAX: u64 = 120;
/// Every fifth writer is killed while it opens the log, or wherever it is by then.
const KILLED_STARTS: u64 = 5;

/// Every acknowledged append is there once, whole and at its positions; every other one wholly or not at all.
fn check(directory: &Path, acknowledged: &HashMap<String, u64>) -> usize {
    let log = Log::open(directory).unwrap();
    let verified = log.verify().unwrap();
    let records = all(&log);
    assert_eq!(records.len() as u64, verified.last.0, "no position is missing");
    let mut found: HashMap<&str, Vec<u64>> = HashMap::new();
    for record in &records {
        found.entry(&record.provenance.correlation).or_default().push(record.position.0);
    }
    for (name, positions) in &found {
        let (first, count) = (positions[0], size(name));
        let expected: Vec<u64> = (first..).take(count).collect();
        assert_eq!(*positions, expected, "{name} is there once and whole");
    }
    for (name, position) in acknowledged {
        let positions = found.get(name.as_str());
        assert_eq!(
            positions.map(|positions| positions[0]),
            Some(*position),
            "{name} was acknowledged"
        );
    }
    records.len()
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    let kills: u64 = if is_long() { 1_000 } else { 10 };
    let mut random = Random::new();
    let (mut appends, mut events) = (0, 0);
    let mut done = 0;
    while done < kills {
        let directory = tempfile::tempdir().unwrap();
        let mut acknowledged = HashMap::new();
        let mut found = 0;
        for _ in 0..KILLS_OF_ONE_LOG.min(kills - done) {
            let writer = Writer::start(directory.path(), done);
            if random.below(KILLED_STARTS) > 0 {
                writer.wait(&mut acknowledged);
            }
            // The moment of the kill is what is tried out.
            thread::sleep(Duration::from_millis(random.below(MOMENT_MILLISECONDS_MAX)));
            writer.kill(&mut acknowledged);
            found = check(directory.path(), &acknowledged);
            done += 1;
        }
        appends += acknowledged.len();
        events += found;
    }
    println!(
        "{kills} kills under {WRITERS} writers: {appends} appends acknowledged, 0 lost, 0 half; {events} events"
    );
}

/// A disk image with a file system of its own, which can be made to stop at once as if the power had gone: what was
/// not synced is lost. The kernel does that itself (`EXT4_IOC_SHUTDOWN` without flushing its journal).
struct Disk {
    place: tempfile::TempDir,
}

impl Disk {
    /// None where that cannot be done: it takes root, loop devices, ext4 and a Python for the one call.
    fn new() -> Option<Self> {
        let disk = Self { place: tempfile::tempdir().unwrap() };
        std::fs::create_dir(disk.mounted()).unwrap();
        let image = std::fs::File::create(disk.image()).unwrap();
        image.set_len(256 << 20).unwrap();
        let image = disk.image();
        let made =
            run("mkfs.ext4", &["-q", image.to_str().unwrap()]) && run("python3", &["-c", ""]);
        (made && disk.mount()).then_some(disk)
    }

    fn image(&self) -> std::path::PathBuf {
        self.place.path().join("image")
    }

    fn mounted(&self) -> std::path::PathBuf {
        self.place.path().join("mounted")
    }

    fn mount(&self) -> bool {
        let (image, mounted) = (self.image(), self.mounted());
        run("mount", &["-o", "loop", image.to_str().unwrap(), mounted.to_str().unwrap()])
    }

    fn power_off(&self) {
        let call = "import fcntl,os,struct,sys;\
                    fcntl.ioctl(os.open(sys.argv[1],os.O_RDONLY),0x8004587d,struct.pack('I',2))";
        assert!(run("python3", &["-c", call, self.mounted().to_str().unwrap()]));
    }

    fn unmount(&self) -> bool {
        run("umount", &[self.mounted().to_str().unwrap()])
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn a_power_loss_loses_nothing_that_was_acknowledged() {
    let Some(disk) = Disk::new() else {
        println!("skipped: it takes root, loop devices, ext4 and python3");
        return;
    };
    let losses: u64 = if is_long() { 100 } else { 3 };
    let mut random = Random::new();
    let directory = disk.mounted().join("log");
    let mut acknowledged = HashMap::new();
    let mut events = 0;
    for round in 0..losses {
        let writer = Writer::start(&directory, round);
        writer.wait(&mut acknowledged);
        thread::sleep(Duration::from_millis(random.below(MOMENT_MILLISECONDS_MAX)));
        // What is acknowledged while the file system goes down proves nothing: a sync that was under way may succeed
        // in name only, and with the power gone nobody would hear of it.
        writer.acknowledged(&mut acknowledged);
        disk.power_off();
        writer.kill(&mut HashMap::new());
        assert!(disk.unmount() && disk.mount());
        events = check(&directory, &acknowledged);
    }
    println!(
        "{losses} power losses under {WRITERS} writers: {} appends acknowledged, 0 lost, 0 half; {events} events",
        acknowledged.len()
    );
}
