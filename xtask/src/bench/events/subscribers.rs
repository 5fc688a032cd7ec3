//! From a POST until subscribers have the event: a thousand of them, each with a connection of its own.

use super::{Bench, Measure};
use crate::bench::quantile;
use crate::progress;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const SUBSCRIBERS: usize = 1_000;
const EVENTS: usize = 2_000;
/// 200 events a second.
const EVERY: Duration = Duration::from_millis(5);
const READ_TIME_MAX: Duration = Duration::from_mins(1);
const LATENCY_MS_MAX: f64 = 10.0;

/// Posts at a steady rate to subscribers that each note when they had what.
pub(in crate::bench) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let address = bench.api().base().trim_start_matches("http://").to_owned();
    let streams = (0..SUBSCRIBERS).map(|_| subscribe(&address, "latency"));
    let streams = streams.collect::<Result<Vec<_>>>()?;
    let reader = thread::spawn(move || arrivals(&streams));
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
    let arrivals = reader.join().map_err(|_| anyhow!("the reader failed"))??;
    for arrivals in arrivals {
        let delays = sent.iter().zip(arrivals).map(|(sent, arrived)| arrived - *sent);
        latencies.extend(delays.map(|delay| delay.as_secs_f64() * 1000.0));
    }
    let p50 = quantile(&latencies, 0.5).context("nothing was measured")?;
    progress::say(&format!("half of the events were there after {p50:.2} ms"));
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

/// When each event was there, in order, for each of the streams. One thread reads them all, so that what is measured is
/// the service and not how fast a thousand threads take turns.
fn arrivals(streams: &[BufReader<TcpStream>]) -> Result<Vec<Vec<Instant>>> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, stream) in streams.iter().enumerate() {
        ensure!(stream.buffer().is_empty(), "an event came before any was sent");
        stream.get_ref().set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poll, stream.get_ref(), data, epoll::EventFlags::IN)?;
    }
    let mut arrivals = vec![Vec::with_capacity(EVENTS); streams.len()];
    // What of the last line came so far.
    let mut lines = vec![Vec::new(); streams.len()];
    let mut missing = EVENTS * streams.len();
    let mut ready = Vec::with_capacity(SUBSCRIBERS);
    let mut bytes = vec![0; 64 << 10];
    while missing > 0 {
        let limit = rustix::event::Timespec::try_from(READ_TIME_MAX)?;
        epoll::wait(&poll, spare_capacity(&mut ready), Some(&limit))?;
        ensure!(!ready.is_empty(), "{missing} events did not come");
        for event in ready.drain(..) {
            let index = usize::try_from(event.data.u64())?;
            let count = streams[index].get_ref().read(&mut bytes)?;
            ensure!(count > 0, "a stream ended");
            let now = Instant::now();
            for byte in &bytes[..count] {
                if *byte != b'\n' {
                    lines[index].push(*byte);
                    continue;
                }
                if lines[index].starts_with(b"data: ") {
                    arrivals[index].push(now);
                    missing -= 1;
                }
                lines[index].clear();
            }
        }
    }
    Ok(arrivals)
}
