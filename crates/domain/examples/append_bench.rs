//! How many durable appends a second the log does, next to what the disk can do.
//!
//! `append_bench DIRECTORY SECONDS` measures for that many seconds each, on the disk of DIRECTORY: plain `fdatasync`
//! calls, each after appending to a file about the bytes that one append brings to the log, in turn with one writer that
//! waits for each of its appends (the median of what the turns compare to, since disks vary); 64 and 1,024 of them; 64 that
//! each change an artifact of their own, without and with the revision that they expect it to have, in turn; and 64 that
//! append a hundred events at a time. Writers are tasks, which two threads share, as in the service. It removes what it made.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures time; the crate itself is handed it"
)]

use futures::executor::block_on;
use futures::future::join_all;
use segue_domain::artifact::{ArtifactKey, Cpu, Kind, Memory, Metadata, NamedScale, Scale};
use segue_domain::event::{Draft, Event, Fact, Origin, Provenance, StaticFact, Tags};
use segue_domain::log::{Expect, Log};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// The allocator of the service.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What RocksDB puts around a record in its log: headers of the entry and of the batch, key and column family.
const FRAME_BYTES: usize = 32;
const THREADS: u32 = 2;
const BATCH: u32 = 100;
/// How often one writer and plain calls take turns.
const TURNS: u32 = 15;
/// How often writers with and without expected revisions take turns.
const ROUNDS: u32 = 3;

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
    measured
}

fn measure(directory: &Path, duration: Duration) -> Result<(), Box<dyn Error>> {
    let log = Log::open(&directory.join("log"))?;
    let plain = |_: u32| (vec![draft()], Expect::Any);
    let (mut disk, mut one, mut ratios) = (0.0, 0.0, Vec::new());
    for _ in 0..TURNS {
        // In turn, and compared turn by turn: a disk's speed changes within seconds.
        let raw = raw(&directory.join("raw"), duration / TURNS)?;
        let appends = writers(&log, 1, duration / TURNS, &plain);
        disk += raw / f64::from(TURNS);
        one += appends / f64::from(TURNS);
        ratios.push(appends / raw);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    println!("fdatasync/s                     {disk:>10.0}");
    print("1 writer, appends/s", one, (ratio, "of fdatasync/s", 0.7));
    for (count, goal) in [(64, 11.0), (1024, 15.0)] {
        let many = writers(&log, count, duration, &plain);
        print(&format!("{count} writers, appends/s"), many, (many / one, "times 1 writer", goal));
    }
    let change = |writer: u32| (vec![changed(writer)], Expect::Any);
    let expecting = |writer: u32| {
        let key = ArtifactKey::new(Kind::Scale, format!("s{writer}"));
        let revision = log.revision(&key);
        (vec![changed(writer)], Expect::Revisions(vec![(key, revision)]))
    };
    let (mut without, mut with) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        without += writers(&log, 64, duration / ROUNDS, &change) / f64::from(ROUNDS);
        with += writers(&log, 64, duration / ROUNDS, &expecting) / f64::from(ROUNDS);
    }
    print("64, expecting revisions", with, (with / without, "of without", 0.8));
    let batches = |_: u32| ((0..BATCH).map(|_| draft()).collect(), Expect::Any);
    let events = writers(&log, 64, duration, &batches) * f64::from(BATCH);
    print("64, batches of 100, events/s", events, (events, "events/s", 400_000.0));
    Ok(())
}

fn print(what: &str, rate: f64, (value, unit, goal): (f64, &str, f64)) {
    let verdict = if value >= goal { "PASS" } else { "MISSED" };
    println!("{what:<30}  {rate:>10.0}   {value:>9.2} {unit} (goal: at least {goal}) {verdict}");
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

/// The same with `count` tasks that append what `next` makes for them, and wait until it is durable.
fn writers(
    log: &Log,
    count: u32,
    duration: Duration,
    next: &(impl Fn(u32) -> (Vec<Draft>, Expect) + Sync),
) -> f64 {
    let start = Instant::now();
    let write = async |writer: u32| {
        let mut appends = 0_u32;
        while start.elapsed() < duration {
            let (drafts, expect) = next(writer);
            let pending = log.append(drafts, &expect).expect("the queue has room for every writer");
            pending.durable().await.expect("the disk of a benchmark has room");
            appends += 1;
        }
        appends
    };
    let threads = THREADS.min(count);
    let share = |thread: u32| {
        let tasks = (0..count).filter(|writer| writer % threads == thread).map(write);
        block_on(join_all(tasks)).into_iter().sum::<u32>()
    };
    let share = &share;
    let appends: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || share(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer does not panic")).sum()
    });
    f64::from(appends) / start.elapsed().as_secs_f64()
}

/// The scale of `writer`, stored anew.
fn changed(writer: u32) -> Draft {
    let scale = NamedScale {
        name: format!("s{writer}"),
        metadata: Metadata::new(),
        scale: Scale {
            cpu: Cpu::from_milli(500),
            memory: Memory::from_megabytes(64),
            instances: 1,
        },
    };
    let mut draft = draft();
    draft.event.fact = Some(Fact::Static(StaticFact::ScaleStored(scale)));
    draft
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
