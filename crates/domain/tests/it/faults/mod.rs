//! What can go wrong with a process, a disk or a file, and what the log makes of it.
//!
//! Processes that die are this same binary, started again as [`writer`]. With `SEGUE_TEST_LONG` set the counts are those
//! of the goals, without it a part of them; each test prints what it did. `SEGUE_SEED` chooses other moments and places.

mod disks;
mod histories;
mod kills;
mod mutations;
mod writer;

use segue_domain::event::{Draft, Event, Origin, Position, Provenance, Record, Tags};
use segue_domain::log::Log;
use std::path::Path;
use std::sync::Arc;
use time::OffsetDateTime;

/// Whether the full counts are wanted.
fn is_long() -> bool {
    std::env::var_os("SEGUE_TEST_LONG").is_some()
}

/// Numbers that are as good as random, and the same for the same seed.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn new() -> Self {
        let seed = std::env::var("SEGUE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(2026);
        println!("seed {seed}");
        Self { seed, drawn: 0 }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        let bytes = [self.seed.to_le_bytes(), self.drawn.to_le_bytes()].concat();
        let hash = *blake3::hash(&bytes).as_bytes();
        u64::from_le_bytes(*hash.first_chunk().unwrap()) % limit.max(1)
    }
}

/// An event that can be told from all others by `name`.
fn draft(name: &str) -> Draft {
    let time = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
    Draft {
        time,
        provenance: Provenance {
            actor: "test".into(),
            cause: None,
            correlation: name.into(),
            origin: Origin::External,
        },
        event: Event {
            kind: "event".into(),
            tags: Tags::expand([format!("name:{name}")]),
            timestamp: time,
            value: serde_json::json!({ "padding": "x".repeat(name.len() % 7 * 40) }),
            fact: None,
        },
    }
}

fn all(log: &Log) -> Vec<Arc<Record>> {
    let mut records: Vec<Arc<Record>> = Vec::new();
    loop {
        let after = records.last().map_or(Position::START, |record| record.position);
        let more = log.read(after, usize::MAX).unwrap();
        if more.is_empty() {
            return records;
        }
        records.extend(more);
    }
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, to).unwrap();
        }
    }
}
