//! How many durable appends a second the log does, next to what the disk can do.
//!
//! `append_bench DIRECTORY SECONDS` measures three things for that many seconds each, on the disk of DIRECTORY: plain
//! `fdatasync` calls, each after appending to a file about the bytes that one append brings to the log (half of them
//! before and half after the next, since disks vary); one writer that waits for each of its appends; and 64 of them.
//! It removes what it made.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures time; the crate itself is handed it"
)]

use segue_domain::event::{Draft, Event, Origin, Provenance, Tags};
use segue_domain::log::{Expect, Log};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

const WRITERS: u32 = 64;
/// What RocksDB puts around a record in its log: headers of the entry and of the batch, key and column family.
const FRAME_BYTES: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [directory, seconds] = arguments.as_slice() else {
        return Err("usage: append_bench DIRECTORY SECONDS".into());
    };
    let duration = Duration::from_secs(seconds.parse()?);
    let directory = Path::new(directory).join(format!("append-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let measured = measure(&directory, duration);
    std::fs::remove_dir_all(&directory)?;
    let [raw, one, many] = measured?;
    println!("fdatasync/s            {raw:>10.0}");
    println!(
        "1 writer, appends/s    {one:>10.0}   {:>6.2} of fdatasync/s (goal: at least 0.70)",
        one / raw
    );
    println!(
        "{WRITERS} writers, appends/s  {many:>10.0}   {:>6.2} times 1 writer (goal: at least 8.00)",
        many / one
    );
    Ok(())
}

fn measure(directory: &Path, duration: Duration) -> Result<[f64; 3], Box<dyn Error>> {
    let log = Log::open(&directory.join("log"))?;
    let before = raw(&directory.join("before"), duration / 2)?;
    let one = writers(&log, 1, duration);
    let after = raw(&directory.join("after"), duration / 2)?;
    let many = writers(&log, WRITERS, duration);
    Ok([f64::midpoint(before, after), one, many])
}

/// Appends to a file and waits for the disk, as often as it goes.
fn raw(path: &Path, duration: Duration) -> Result<f64, Box<dyn Error>> {
    let mut file = std::fs::File::create(path)?;
    let bytes = vec![b'x'; serde_json::to_vec(&draft().event.value)?.len() + 80 + FRAME_BYTES];
    let (start, mut calls) = (Instant::now(), 0u32);
    while start.elapsed() < duration {
        file.write_all(&bytes)?;
        file.sync_data()?;
        calls += 1;
    }
    Ok(f64::from(calls) / start.elapsed().as_secs_f64())
}

/// The same with `count` threads that append to the log and wait until it is durable.
fn writers(log: &Log, count: u32, duration: Duration) -> f64 {
    let start = Instant::now();
    let write = || {
        let mut appends = 0u32;
        while start.elapsed() < duration {
            let pending = log
                .append(vec![draft()], &Expect::Any)
                .expect("the queue has room for every writer");
            pending.durable_blocking().expect("the disk of a benchmark has room");
            appends += 1;
        }
        appends
    };
    let appends: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(write)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer does not panic")).sum()
    });
    f64::from(appends) / start.elapsed().as_secs_f64()
}

fn draft() -> Draft {
    let now = OffsetDateTime::now_utc();
    Draft {
        time: now,
        provenance: Provenance {
            actor: "bench".to_owned(),
            cause: None,
            correlation: "0192f0c1-2f8e-7cc0-8d9a-5f0a4b1c2d3e".to_owned(),
            origin: Origin::Service,
        },
        event: Event {
            kind: "archive".to_owned(),
            tags: Tags::expand(["archiving:create", "breeds:sava:1.0"]),
            timestamp: now,
            value: serde_json::json!(
                "name: sava:1.0\ndeployable: magneticio/sava:1.0.0\nports:\n  port: 80/http\n"
            ),
            fact: None,
        },
    }
}
