//! Backups while the log is written, and what a restore refuses.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_backup_under_load_is_restored_with_the_same_hash() {
    let directory = tempfile::tempdir().unwrap();
    let places = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    append(&log, (0..3_000).map(draft).collect());
    append(&log, vec![scale_stored("small")]);
    let stopping = AtomicBool::new(false);
    let backups = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stopping.load(Ordering::Relaxed) {
                    append(&log, vec![draft(1), draft(2)]);
                }
            });
        }
        let backups = [1, 2].map(|number| {
            let (before, _) = log.head();
            let backup = log.backup(&places.path().join(format!("backup-{number}"))).unwrap();
            assert!(backup.last >= before, "what was acknowledged before is part of it");
            backup
        });
        stopping.store(true, Ordering::Relaxed);
        backups
    });
    for (number, backup) in (1..).zip(backups) {
        let (from, to) = (
            places.path().join(format!("backup-{number}")),
            places.path().join(format!("log-{number}")),
        );
        assert_eq!(restore(&from, &to).unwrap(), backup);
        let restored = Log::open(&to).unwrap();
        assert_eq!(restored.head(), (backup.last, backup.hash));
        assert_eq!(restored.verify().unwrap().records, backup.last.0);
        assert_eq!(all(&restored), all(&log)[..usize::try_from(backup.last.0).unwrap()]);
        assert_eq!(append(&restored, vec![draft(1)])[0].position, backup.last.next());
    }
    assert!(!directory.path().join("checkpoint").exists());
}

/// Records hold secrets, and copies of them do.
#[test]
fn only_their_owner_looks_into_logs_and_backups() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let [log, backup, restored] =
        ["log", "backup", "restored"].map(|name| directory.path().join(name));
    let opened = Log::open(&log).unwrap();
    append(&opened, vec![draft(1)]);
    opened.backup(&backup).unwrap();
    restore(&backup, &restored).unwrap();
    for path in [log, backup, restored] {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", path.display());
    }
}

#[test]
fn what_a_killed_backup_left_goes_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    append(&log, vec![draft(1)]);
    let checkpoint = directory.path().join("checkpoint");
    log.shared().storage.checkpoint(&checkpoint).unwrap();
    let killed = copy(directory.path());
    let remains = ["checkpoint", "checkpoint.tmp"].map(|name| killed.path().join(name));
    for path in &remains {
        std::fs::create_dir_all(path).unwrap();
    }
    Log::open(killed.path()).unwrap();
    assert!(!remains.iter().any(|path| path.exists()));
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    append(&log, (0..50).map(draft).collect());
    let backup = directory.path().with_extension("backup");
    log.backup(&backup).unwrap();
    assert!(matches!(log.backup(&backup), Err(BackupError::Exists(_))));
    let refused = |damage: &dyn Fn(&Path)| {
        let copy = copy(&backup);
        damage(copy.path());
        let target = copy.path().join("restored");
        let refused = restore(copy.path(), &target).unwrap_err();
        assert!(!target.exists(), "{refused}");
        assert!(!target.with_extension("unfinished").exists(), "it would hold room: {refused}");
        refused.to_string()
    };
    for entry in std::fs::read_dir(&backup).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        refused(&|copy| std::fs::remove_file(copy.join(&name)).unwrap());
        if entry.metadata().unwrap().len() == 0 {
            continue;
        }
        let change = |change: &dyn Fn(&mut Vec<u8>)| {
            refused(&|copy| {
                let mut bytes = std::fs::read(copy.join(&name)).unwrap();
                change(&mut bytes);
                std::fs::write(copy.join(&name), bytes).unwrap();
            })
        };
        let sentence = change(&|bytes| *bytes.last_mut().unwrap() ^= 4);
        assert!(sentence.contains("backup"), "{sentence}");
        change(&|bytes| bytes.truncate(bytes.len() - 1));
    }
    let foreign = refused(&|copy| {
        let path = copy.join("backup.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, text.replace("\"position\": 50", "\"position\": 51")).unwrap();
    });
    assert!(foreign.contains("it ends at position 50"), "{foreign}");
    std::fs::remove_dir_all(&backup).unwrap();
}

/// What is whole is given its name at the end, which is too late to find out that it cannot be.
#[test]
fn what_no_directory_can_take_the_place_of_is_refused_before_anything_is_copied() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(&directory.path().join("log")).unwrap();
    append(&log, vec![draft(1)]);
    let [empty, link, backup] = ["empty", "link", "backup"].map(|name| directory.path().join(name));
    std::fs::create_dir(&empty).unwrap();
    std::os::unix::fs::symlink(&empty, &link).unwrap();
    let refused = log.backup(&link).unwrap_err();
    assert!(matches!(refused, BackupError::Fixed(_)), "{refused}");
    assert!(refused.to_string().contains("name a directory below it"), "{refused}");
    log.backup(&link.join("backup")).unwrap();
    std::fs::remove_dir_all(empty.join("backup")).unwrap();
    log.backup(&empty).unwrap();
    log.backup(&backup).unwrap();
    assert!(matches!(restore(&backup, &link), Err(BackupError::Exists(_))), "it has files now");
    // Another disk begins there.
    assert!(crate::log::backup::is_fixed(Path::new("/proc")).unwrap());
    assert!(!crate::log::backup::is_fixed(&empty).unwrap());
}
