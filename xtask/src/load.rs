//! A steady load of requests and what became of each. Nothing is tried twice: every request counts.

use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use ureq::Agent;

/// A request that takes longer counts as failed.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// More than a demo ever sends; the load ends there.
const SAMPLES_MAX: usize = 5_000_000;

/// How a client treats its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Connection {
    /// One connection for as long as the other side keeps it.
    KeptAlive,
    /// A new one for each request.
    Fresh,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was sent.
    pub sent: Instant,
    /// When the answer was there, or the failure.
    pub received: Instant,
    /// How it was sent.
    pub connection: Connection,
    /// What was answered, or why there is none.
    pub answer: Result<Answer, String>,
}

impl Sample {
    /// The version that answered.
    pub fn version(&self) -> Option<u32> {
        self.answer.as_ref().ok().map(|answer| answer.version)
    }
}

/// What an instance says about itself, and what the gateway adds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Its version.
    pub version: u32,
    /// The name that no other instance has.
    pub instance: String,
    /// The cookies that the client is to send from now on, as it sends them.
    pub cookies: Vec<String>,
}

/// How much is sent.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Clients that keep their connection.
    pub kept_alive: u32,
    /// Clients that make a new connection each time.
    pub fresh: u32,
    /// What each client waits from the start of one request to the start of the next.
    pub every: Duration,
    /// What each request carries.
    pub headers: &'static [(&'static str, &'static str)],
}

/// A load that runs until it is stopped.
#[derive(Debug)]
pub struct Load {
    samples: Arc<Mutex<Vec<Sample>>>,
    stopping: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts all clients.
    pub fn start(url: &str, plan: Plan) -> Self {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let stopping = Arc::new(AtomicBool::new(false));
        let kinds = std::iter::repeat_n(Connection::KeptAlive, plan.kept_alive as usize)
            .chain(std::iter::repeat_n(Connection::Fresh, plan.fresh as usize));
        let clients = kinds
            .map(|connection| {
                let (url, samples, stopping) =
                    (url.to_owned(), Arc::clone(&samples), Arc::clone(&stopping));
                thread::spawn(move || run_client(&url, connection, plan, &samples, &stopping))
            })
            .collect();
        Self { samples, stopping, clients }
    }

    /// The requests that were sent at `since` or later and came to an end, in order of their end.
    pub fn since(&self, since: Instant) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let start = samples.partition_point(|sample| sample.received < since);
        samples[start..].iter().filter(|sample| sample.sent >= since).cloned().collect()
    }

    /// The requests whose end came at `since` or later, in order of their end.
    pub fn ended_since(&self, since: Instant) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples[samples.partition_point(|sample| sample.received < since)..].to_vec()
    }

    /// The first request whose end came at `since` or later and that fits.
    pub fn find(&self, since: Instant, fits: impl Fn(&Sample) -> bool) -> Option<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let start = samples.partition_point(|sample| sample.received < since);
        samples[start..].iter().find(|sample| fits(sample)).cloned()
    }

    /// The last request so far that fits.
    pub fn find_last(&self, fits: impl Fn(&Sample) -> bool) -> Option<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().rfind(|sample| fits(sample)).cloned()
    }

    /// Whether the last `count` requests, all of which were sent at `since` or later, fit.
    pub fn ends_with(&self, count: usize, since: Instant, fits: impl Fn(&Sample) -> bool) -> bool {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let last = samples.iter().rev().take_while(|sample| sample.sent >= since && fits(sample));
        last.take(count).count() == count
    }

    /// Takes out the requests so far.
    pub fn take(&self) -> Vec<Sample> {
        std::mem::take(&mut self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the load after the requests under way and hands out all samples.
    pub fn stop(mut self) -> Vec<Sample> {
        self.end();
        self.take()
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.thread().unpark();
            // A client that panicked has said so; its samples are there.
            client.join().ok();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

/// Asks `url` once.
pub fn ask(agent: &Agent, url: &str, headers: &[(&str, &str)]) -> Result<Answer, String> {
    let request =
        headers.iter().fold(agent.get(url), |request, (name, value)| request.header(*name, *value));
    let mut response = request.call().map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let cookies = response.headers().get_all("Set-Cookie").iter();
    let cookies = cookies
        .filter_map(|cookie| Some(cookie.to_str().ok()?.split(';').next()?.to_owned()))
        .collect();
    let body = response
        .body_mut()
        .read_to_string()
        .map_err(|error| format!("answer broke off: {error}"))?;
    if status != 200 {
        return Err(format!("status {status}"));
    }
    answer(&body, cookies)
        .ok_or_else(|| format!("unreadable answer: {}", body.chars().take(80).collect::<String>()))
}

/// A client for `url`.
pub fn agent(connection: Connection) -> Agent {
    let kept = match connection {
        Connection::KeptAlive => 1,
        Connection::Fresh => 0,
    };
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .timeout_global(Some(REQUEST_TIME_MAX))
        .max_idle_connections(kept)
        .max_idle_connections_per_host(kept)
        .build();
    config.into()
}

/// How many samples each version answered.
pub fn split(samples: &[Sample]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for version in samples.iter().filter_map(Sample::version) {
        *counts.entry(version).or_default() += 1;
    }
    counts
}

/// Why requests failed, and how many of each.
pub fn failures(samples: &[Sample]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for sample in samples {
        if let Err(reason) = &sample.answer {
            *counts.entry(format!("{:?}: {reason}", sample.connection)).or_default() += 1;
        }
    }
    counts
}

/// The share of `version` among the answers, in percent.
pub fn percent(samples: &[Sample], version: u32) -> Result<f64> {
    let counts = split(samples);
    let all: usize = counts.values().sum();
    ensure!(all > 0, "nothing was answered");
    let of_version = counts.get(&version).copied().unwrap_or(0);
    Ok(f64::from(u32::try_from(of_version)?) * 100.0 / f64::from(u32::try_from(all)?))
}

/// The first answer of `version`.
pub fn first_of(samples: &[Sample], version: u32) -> Option<&Sample> {
    samples.iter().find(|sample| sample.version() == Some(version))
}

/// The last answer of `version`.
pub fn last_of(samples: &[Sample], version: u32) -> Option<&Sample> {
    samples.iter().rfind(|sample| sample.version() == Some(version))
}

/// The first `size` consecutive answers in which `version` has a share, in percent, between `low` and `high`.
pub fn first_window(
    samples: &[Sample],
    size: usize,
    version: u32,
    low: f64,
    high: f64,
) -> Option<&[Sample]> {
    let fits = |window: &&[Sample]| {
        percent(window, version).is_ok_and(|share| (low..=high).contains(&share))
    };
    samples.windows(size).find(fits)
}

fn run_client(
    url: &str,
    connection: Connection,
    plan: Plan,
    samples: &Mutex<Vec<Sample>>,
    stopping: &AtomicBool,
) {
    let agent = agent(connection);
    let mut next = Instant::now();
    while !stopping.load(Ordering::Relaxed) {
        let wait = next.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            thread::park_timeout(wait);
            continue;
        }
        let sent = Instant::now();
        let answer = ask(&agent, url, plan.headers);
        let mut all = samples.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken under the lock, so that the samples stand in order of their end.
        let received = Instant::now();
        if all.len() >= SAMPLES_MAX {
            return;
        }
        all.push(Sample { sent, received, connection, answer });
        drop(all);
        // A client that was held up does not catch up: the load stays steady.
        next = (next + plan.every).max(received);
    }
}

fn answer(body: &str, cookies: Vec<String>) -> Option<Answer> {
    let said: Value = serde_json::from_str(body).ok()?;
    let version = said["version"].as_str()?.parse().ok()?;
    Some(Answer { version, instance: said["instance"].as_str()?.to_owned(), cookies })
}

/// An answer of `version`, for tests.
#[cfg(test)]
pub fn of_version(version: u32) -> Answer {
    Answer { version, instance: format!("instance-{version}"), cookies: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    fn samples(answers: &[Result<u32, &str>]) -> Vec<Sample> {
        let now = Instant::now();
        let sample = |answer: &Result<u32, &str>| Sample {
            sent: now,
            received: now,
            connection: Connection::Fresh,
            answer: answer.map(of_version).map_err(str::to_owned),
        };
        answers.iter().map(sample).collect()
    }

    #[test]
    fn answers_are_counted_by_version_and_failures_by_reason() {
        let samples = samples(&[Ok(1), Ok(2), Err("status 503"), Ok(1), Err("status 503")]);
        assert_eq!(split(&samples), BTreeMap::from([(1, 2), (2, 1)]));
        assert_eq!(failures(&samples), BTreeMap::from([("Fresh: status 503".to_owned(), 2)]));
        assert!((percent(&samples, 2).unwrap() - 100.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_first_window_with_the_wanted_share_is_found() {
        let samples = samples(&[Ok(1), Ok(1), Ok(1), Ok(2), Ok(1), Ok(2)]);
        let window = first_window(&samples, 4, 2, 40.0, 60.0).unwrap();
        assert_eq!(split(window), BTreeMap::from([(1, 2), (2, 2)]));
        assert!(first_window(&samples, 2, 2, 100.0, 100.0).is_none());
    }

    /// Answers every request of every connection as version 7, and 503 from the fifth request of a connection on.
    fn serve(listener: TcpListener) {
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut lines =
                        BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                    let mut answered = 0;
                    while lines.by_ref().find(String::is_empty).is_some() {
                        answered += 1;
                        let status = if answered < 5 { "200 OK" } else { "503 Busy" };
                        let body = r#"{"version":"7","instance":"instance-7"}"#;
                        let text = format!(
                            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
                            body.len()
                        );
                        if (&stream).write_all(text.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn connections_are_kept_or_fresh_as_planned() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        serve(listener);
        let begun = Instant::now();
        let load = Load::start(
            &url,
            Plan { kept_alive: 1, fresh: 1, every: Duration::from_millis(1), headers: &[] },
        );
        let deadline = Instant::now() + Duration::from_mins(1);
        let has = |connection, count| {
            let samples = load.ended_since(begun);
            samples.iter().filter(|sample| sample.connection == connection).count() >= count
        };
        while !(has(Connection::KeptAlive, 5) && has(Connection::Fresh, 2)) {
            assert!(Instant::now() < deadline, "{:?}", load.ended_since(begun));
            thread::sleep(Duration::from_millis(1));
        }
        let samples = load.stop();
        let (kept, fresh): (Vec<Sample>, Vec<Sample>) =
            samples.into_iter().partition(|sample| sample.connection == Connection::KeptAlive);
        assert!(
            fresh.len() > 1 && fresh.iter().all(|sample| sample.version() == Some(7)),
            "{fresh:?}"
        );
        let answers: Vec<_> = kept.iter().take(5).map(|sample| sample.answer.clone()).collect();
        let seven = || Ok(of_version(7));
        assert_eq!(answers, [seven(), seven(), seven(), seven(), Err("status 503".to_owned())]);
    }

    #[test]
    fn a_refused_connection_is_a_failure_with_its_reason() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let error = ask(&agent(Connection::Fresh), &url, &[]).unwrap_err();
        assert!(error.contains("refused"), "{error}");
    }
}
