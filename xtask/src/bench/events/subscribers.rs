//! From a POST until subscribers have the event: a thousand of them, each with a connection and a thread of its own.

use super::{Bench, Measure};
use crate::bench::quantile;
use anyhow::{Context as _, Result, bail, ensure};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const SUBSCRIBERS: usize = 1_000;
const EVENTS: usize = 2_000;
/// 200 events a second.
const EVERY: Duration = Duration::from_millis(5);
const STACK_BYTES: usize = 256 << 10;
const READ_TIME_MAX: Duration = Duration::from_mins(1);
const LATENCY_MS_MAX: f64 = 10.0;

/// Posts at a steady rate to subscribers that each note when they had what.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let address = bench.api().base().trim_start_matches("http://").to_owned();
    let (received, readers) = mpsc::channel();
    for _ in 0..SUBSCRIBERS {
        let stream = subscribe(&address, "latency")?;
        let received = received.clone();
        let read = move || {
            // Whoever measures may be gone when the stream ends.
            _ = received.send(arrivals(stream));
        };
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(read)
            .context("a reader cannot start")?;
    }
    drop(received);
    let began = Instant::now();
    let mut sent = Vec::with_capacity(EVENTS);
    for number in 0..EVENTS {
        let due = EVERY * u32::try_from(number).context("a bench has few events")?;
        // Polled: the pace of the load is what is set here, nothing is waited for.
        thread::sleep(due.saturating_sub(began.elapsed()));
        sent.push(Instant::now());
        bench.api().send(
            "POST",
            "/api/v1/events",
            &serde_json::json!({"tags": ["latency"], "value": number}),
            201,
        )?;
    }
    let mut latencies = Vec::with_capacity(SUBSCRIBERS * EVENTS);
    for arrivals in readers {
        let arrivals = arrivals?;
        ensure!(arrivals.len() == EVENTS, "a subscriber had {} of {EVENTS} events", arrivals.len());
        let delays = sent.iter().zip(arrivals).map(|(sent, arrived)| arrived - *sent);
        latencies.extend(delays.map(|delay| delay.as_secs_f64() * 1000.0));
    }
    let p99 = quantile(&latencies, 0.99).context("nothing was measured")?;
    let what = format!("event at {SUBSCRIBERS} subscribers, p99 of {EVENTS}");
    Ok(vec![Measure::at_most(what, p99, "ms", LATENCY_MS_MAX)])
}

/// Opens a stream of events with `tag` and reads the head of its answer.
pub(in crate::bench) fn subscribe(address: &str, tag: &str) -> Result<BufReader<TcpStream>> {
    let mut connection = TcpStream::connect(address).context("the service takes no connection")?;
    connection.set_read_timeout(Some(READ_TIME_MAX))?;
    write!(connection, "GET /api/v1/events/stream?tag={tag} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut stream = BufReader::new(connection);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if !line.contains(" 200 ") {
        bail!("a stream is refused: {}; api.sse.streams_max has to allow them", line.trim_end());
    }
    while line.trim_end() != "" {
        line.clear();
        stream.read_line(&mut line)?;
    }
    Ok(stream)
}

/// When each event was there, in order.
fn arrivals(mut stream: BufReader<TcpStream>) -> Result<Vec<Instant>> {
    let mut arrivals = Vec::with_capacity(EVENTS);
    let mut line = String::new();
    while arrivals.len() < EVENTS {
        line.clear();
        ensure!(stream.read_line(&mut line)? > 0, "a stream ended");
        if line.starts_with("data: ") {
            arrivals.push(Instant::now());
        }
    }
    Ok(arrivals)
}
