//! From a POST until subscribers have the event: a thousand of them, each with a connection of its own; and the same
//! without a service, by plain sockets, which is what the machine itself takes.

use super::{Bench, Measure};
use crate::bench::quantile;
use crate::progress;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const SUBSCRIBERS: usize = 1_000;
const EVENTS: usize = 2_000;
/// 200 events a second.
const EVERY: Duration = Duration::from_millis(5);
const READ_TIME_MAX: Duration = Duration::from_mins(1);
const LATENCY_MS_MAX: f64 = 10.0;
/// How many threads send by plain sockets: one for each processor, as the service has them.
const SENDERS: usize = 2;
/// About as long as an event in a stream.
const PLAIN: &[u8] = b"id: 1234567\nevent: event\ndata: {\"id\":\"1234567\",\"tags\":[\"latency\"],\"value\":1234,\"timestamp\":\"2030-01-10T15:33:49.766Z\",\"type\":\"event\"}\n\n";

/// Posts to subscribers that each note when they had what: first half as fast as the limit is for, then as fast. Both
/// also by plain sockets.
pub(in crate::bench) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let address = bench.api().base().trim_start_matches("http://").to_owned();
    let streams = (0..SUBSCRIBERS).map(|_| {
        let stream = subscribe(&address, "latency")?;
        ensure!(stream.buffer().is_empty(), "an event came before any was sent");
        Ok(stream.into_inner())
    });
    let streams = streams.collect::<Result<Vec<_>>>()?;
    let mut ours = Vec::new();
    for every in [EVERY * 2, EVERY] {
        let rate = 1.0 / every.as_secs_f64();
        say(&format!("plain sockets, {rate} times a second"), &by_plain_sockets(every)?)?;
        ours = by_service(bench, &streams, every)?;
        say(&format!("{SUBSCRIBERS} subscribers, {rate} events a second"), &ours)?;
    }
    let p99 = quantile(&ours, 0.99).context("no event came")?;
    let what = format!("event at {SUBSCRIBERS} subscribers, p99 of {EVENTS}");
    Ok(vec![Measure::at_most(what, p99, "ms", LATENCY_MS_MAX)])
}

fn say(what: &str, latencies: &[f64]) -> Result<()> {
    let of = |share| quantile(latencies, share).context("no event came");
    let (p50, p99) = (of(0.5)?, of(0.99)?);
    progress::say(&format!("{what}: p50 {p50:.2} ms, p99 {p99:.2} ms"));
    Ok(())
}

/// From each POST until each subscriber has the event, in ms.
fn by_service(bench: &Bench, streams: &[TcpStream], every: Duration) -> Result<Vec<f64>> {
    let post = |number| {
        let event = serde_json::json!({"tags": ["latency"], "value": number});
        bench.api().send("POST", "/api/v1/events", &event, 201).map(drop)
    };
    thread::scope(|scope| {
        let reader = scope.spawn(|| arrivals(streams));
        let starts = paced(every, post)?;
        delays(&[starts], &reader.join().map_err(|_| anyhow!("the reader failed"))??)
    })
}

/// From when each round of sends began until each reader has its bytes, in ms.
fn by_plain_sockets(every: Duration) -> Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    let address = listener.local_addr()?;
    let mut readers = Vec::new();
    let mut sockets: Vec<_> = (0..SENDERS).map(|_| Vec::new()).collect();
    for number in 0..SUBSCRIBERS {
        readers.push(TcpStream::connect(address)?);
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(READ_TIME_MAX))?;
        sockets[number % SENDERS].push(socket);
    }
    let write = |mut socket: &TcpStream| Ok(socket.write_all(PLAIN)?);
    thread::scope(|scope| {
        let reader = scope.spawn(|| arrivals(&readers));
        let send = |sockets: &Vec<TcpStream>| paced(every, |_| sockets.iter().try_for_each(write));
        let senders: Vec<_> =
            sockets.iter().map(|sockets| scope.spawn(move || send(sockets))).collect();
        let mut starts = Vec::new();
        for sender in senders {
            starts.push(sender.join().map_err(|_| anyhow!("a sender failed"))??);
        }
        delays(&starts, &reader.join().map_err(|_| anyhow!("the reader failed"))??)
    })
}

/// Calls `send` for each event at its time, or as soon as the call before it ends; when each of them began.
fn paced(every: Duration, mut send: impl FnMut(usize) -> Result<()>) -> Result<Vec<Instant>> {
    let began = Instant::now();
    let mut starts = Vec::with_capacity(EVENTS);
    for number in 0..EVENTS {
        let due = every * u32::try_from(number).context("a bench has few events")?;
        // Polled: the pace of the load is what is set here, nothing is waited for.
        thread::sleep(due.saturating_sub(began.elapsed()));
        starts.push(Instant::now());
        send(number)?;
    }
    Ok(starts)
}

/// How long everything was under way to each reader, in ms; the readers belong to the senders in turn.
fn delays(starts: &[Vec<Instant>], arrivals: &[Vec<Instant>]) -> Result<Vec<f64>> {
    let mut delays = Vec::with_capacity(EVENTS * arrivals.len());
    for (arrivals, starts) in arrivals.iter().zip(starts.iter().cycle()) {
        for (start, arrived) in starts.iter().zip(arrivals) {
            let delay =
                arrived.checked_duration_since(*start).context("it came before it was sent")?;
            delays.push(delay.as_secs_f64() * 1000.0);
        }
    }
    Ok(delays)
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
fn arrivals(streams: &[TcpStream]) -> Result<Vec<Vec<Instant>>> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poll, stream, data, epoll::EventFlags::IN)?;
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
            let count = (&streams[index]).read(&mut bytes)?;
            ensure!(count > 0, "a stream ended");
            let now = Instant::now();
            for byte in &bytes[..count] {
                if *byte != b'\n' {
                    lines[index].push(*byte);
                    continue;
                }
                if lines[index].starts_with(b"data: ") {
                    ensure!(arrivals[index].len() < EVENTS, "an event came twice");
                    arrivals[index].push(now);
                    missing -= 1;
                }
                lines[index].clear();
            }
        }
    }
    Ok(arrivals)
}
