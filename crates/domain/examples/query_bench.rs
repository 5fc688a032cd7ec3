//! How fast the log answers questions, and how much memory that takes.
//!
//! `query_bench DIRECTORY EVENTS QUERIES` fills a log in DIRECTORY with EVENTS events (a tag that all have, one of ten
//! values of another, numbers in the values, one timestamp in a hundred from the past), measures and removes it again. The
//! page has 30 events, whose records are read from disk; the range of time and the tag change with every query. A process
//! of its own fills the log, so that the memory is that of a service that was started with it.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures time; the crate itself is handed it"
)]

use segue_domain::event::{
    Aggregator, Bound, Draft, Event, Function, Origin, Provenance, Query, Tags, TimeRange,
};
use segue_domain::log::{Expect, Log};
use segue_domain::store;
use std::error::Error;
use std::path::Path;
use std::time::Instant;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

/// The allocator of the service.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const START: OffsetDateTime = datetime!(2026-01-01 00:00:00 UTC);
const BATCH: u32 = 5_000;
/// How many batches may be on their way to the disk.
const AHEAD: usize = 4;
const PER_PAGE: u64 = 30;
const AVERAGES: u32 = 20;
/// What the process is told that fills the log.
const FILL: &str = "--fill";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (directory, events, queries) = match arguments.as_slice() {
        [fill, directory, events] if fill == FILL => return filled(directory, events.parse()?),
        [directory, events, queries] => (directory, events, queries),
        _ => return Err("usage: query_bench DIRECTORY EVENTS QUERIES".into()),
    };
    let directory = Path::new(directory).join(format!("query-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let measured = measure(&directory, events.parse()?, queries.parse()?);
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &Path, events: u32, queries: u32) -> Result<(), Box<dyn Error>> {
    let mut filling = std::process::Command::new(std::env::current_exe()?);
    if !filling.arg(FILL).arg(directory).arg(events.to_string()).status()?.success() {
        return Err("the log was not filled".into());
    }
    let began = Instant::now();
    let log = Log::open(directory)?;
    println!(
        "opened                      {:>12.0} ms (goal: at most 300 for 1 M, 500 for 10 M)",
        milliseconds(began)
    );
    println!("resident memory             {:>12.0} MB (goal: under 300)", resident_megabytes()?);
    page_times(&log, events, queries, 1)?;
    page_times(&log, events, queries.min(200), u64::from(events) / 40 / PER_PAGE)?;
    average_times(&log)?;
    println!("resident memory             {:>12.0} MB", resident_megabytes()?);
    replay_time(&log, events)
}

/// Every record read from the disk, decoded and folded into a state.
fn replay_time(log: &Log, events: u32) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let state = store::replay(log)?;
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(state.position().0, u64::from(events));
    println!(
        "replayed                    {:>12.0} events/s (goal: at least 1000000)",
        f64::from(events) / seconds
    );
    Ok(())
}

fn filled(directory: &str, events: u32) -> Result<(), Box<dyn Error>> {
    let log = Log::open(Path::new(directory))?;
    let began = Instant::now();
    fill(&log, events)?;
    let seconds = began.elapsed().as_secs_f64();
    println!("filled with {events} events  {:>12.0} events/s", f64::from(events) / seconds);
    Ok(())
}

fn fill(log: &Log, events: u32) -> Result<(), Box<dyn Error>> {
    let mut waiting = std::collections::VecDeque::new();
    let mut first = 0;
    while first < events {
        let last = (first + BATCH).min(events);
        waiting.push_back(log.append((first..last).map(draft).collect(), &Expect::Any)?);
        if waiting.len() > AHEAD {
            waiting.pop_front().ok_or("a queue with batches has a first")?.durable_blocking()?;
        }
        first = last;
    }
    for pending in waiting {
        pending.durable_blocking()?;
    }
    Ok(())
}

/// Two tags, one of which every event has, and a range of time that covers half of them.
fn page_times(log: &Log, events: u32, queries: u32, page: u64) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    let mut found = 0;
    for number in 0..queries {
        let from = START
            + Duration::milliseconds(
                i64::from(number.wrapping_mul(7919) % (events / 2).max(1)) * 10,
            );
        let to = from + Duration::milliseconds(i64::from(events / 2) * 10);
        let query = Query {
            tags: vec!["all".to_owned(), format!("tenth:{}", number % 10)],
            kind: None,
            time: TimeRange {
                from: Some(Bound { at: from, inclusive: true }),
                to: Some(Bound { at: to, inclusive: false }),
            },
        };
        let began = Instant::now();
        let page = log.query(&query, page, PER_PAGE)?;
        times.push(milliseconds(began));
        found += page.total;
    }
    times.sort_by(f64::total_cmp);
    let of = |hundredth: usize| times[(times.len() - 1) * hundredth / 100];
    println!(
        "page {page:<7} of 2 tags, time {:>12.3} ms p50, {:.3} ms p99, {:.3} ms at most (goal for page 1: p99 at most 1); {} matched on average",
        of(50),
        of(99),
        of(100),
        found / u64::from(queries.max(1)),
    );
    Ok(())
}

/// The average of the values that one event in ten has.
fn average_times(log: &Log) -> Result<(), Box<dyn Error>> {
    for field in ["value", "load"] {
        let mut best = f64::INFINITY;
        let mut value = None;
        let query = Query { tags: vec!["tenth:3".to_owned()], ..Query::default() };
        for _ in 0..AVERAGES {
            let aggregator = Aggregator { function: Function::Average, field: field.to_owned() };
            let began = Instant::now();
            value = Some(log.aggregate(&query, &aggregator)?);
            best = best.min(milliseconds(began));
        }
        println!(
            "average of '{field}', a tenth  {best:>10.2} ms (goal for a million: at most 20); {value:?}"
        );
    }
    Ok(())
}

fn draft(number: u32) -> Draft {
    let now = START + Duration::milliseconds(i64::from(number) * 10);
    let late = if number % 100 == 7 { Duration::hours(1) } else { Duration::ZERO };
    let value = match number % 10 {
        3 if number % 20 < 10 => serde_json::json!(f64::from(number) / 3.0),
        3 => serde_json::json!({"load": number % 1000, "unit": "ms"}),
        _ => serde_json::json!(number % 5000),
    };
    Draft {
        time: now,
        provenance: Provenance {
            actor: "bench".to_owned(),
            cause: None,
            correlation: format!("r-{number}"),
            origin: Origin::External,
        },
        event: Event {
            kind: "metrics".to_owned(),
            tags: Tags::expand([
                "all".to_owned(),
                format!("tenth:{}", number % 10),
                format!("hosts:{}", number.wrapping_mul(2_654_435_761) % 1000),
            ]),
            timestamp: now - late,
            value,
            fact: None,
        },
    }
}

fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1000.0
}

fn resident_megabytes() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kilobytes.parse::<f64>()? / 1024.0)
}
