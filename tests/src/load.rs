//! A steady load of requests, and what became of each. Nothing is tried twice.

use crate::wait::{LIMIT, wait_until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use ureq::Agent;

/// A request that takes longer has failed.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// What each client waits from one request to the next.
const EVERY: Duration = Duration::from_millis(15);

/// What became of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many each version answered.
    pub versions: BTreeMap<String, usize>,
    /// How many failed, by reason.
    pub failures: BTreeMap<String, usize>,
    /// When the first one failed.
    pub first_failure: Option<OffsetDateTime>,
}

impl Tally {
    /// How many were answered.
    pub fn answered(&self) -> usize {
        self.versions.values().sum()
    }

    /// How many `version` answered.
    pub fn of(&self, version: &str) -> usize {
        self.versions.get(version).copied().unwrap_or(0)
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let rest = |now: &BTreeMap<String, usize>, then: &BTreeMap<String, usize>| {
            let count = |(key, count): (&String, &usize)| {
                (key.clone(), count - then.get(key).copied().unwrap_or(0))
            };
            now.iter().map(count).filter(|(_, count)| *count > 0).collect()
        };
        Self {
            versions: rest(&self.versions, &earlier.versions),
            failures: rest(&self.failures, &earlier.failures),
            first_failure: self.first_failure.filter(|_| earlier.first_failure.is_none()),
        }
    }

    fn count(&mut self, answer: Result<String, String>) {
        if answer.is_err() {
            self.first_failure.get_or_insert_with(OffsetDateTime::now_utc);
        }
        *match answer {
            Ok(version) => self.versions.entry(version).or_default(),
            Err(reason) => self.failures.entry(reason).or_default(),
        } += 1;
    }
}

/// A load that runs until it is stopped.
#[derive(Debug)]
pub struct Load {
    tally: Arc<Mutex<Tally>>,
    stopping: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients for the port: some keep their connection, some make a new one for each request.
    pub fn start(port: u16, kept_alive: usize, fresh: usize) -> Self {
        let (tally, stopping) = (Arc::<Mutex<Tally>>::default(), Arc::<AtomicBool>::default());
        let start = |keeps: bool| {
            let (tally, stopping) = (Arc::clone(&tally), Arc::clone(&stopping));
            thread::spawn(move || run_client(port, keeps, &tally, &stopping))
        };
        let kinds = std::iter::repeat_n(true, kept_alive).chain(std::iter::repeat_n(false, fresh));
        let clients = kinds.map(start).collect();
        Self { tally, stopping, clients }
    }

    /// What became of all requests so far.
    pub fn tally(&self) -> Tally {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for `count` more requests, and says what became of them.
    #[track_caller]
    pub fn next(&self, count: usize) -> Tally {
        let before = self.tally();
        wait_until(&format!("{count} more requests"), LIMIT, || {
            let news = self.tally().since(&before);
            let ended = news.answered() + news.failures.values().sum::<usize>();
            if ended < count { Err(format!("{ended}")) } else { Ok(news) }
        })
    }

    /// Ends the load after the requests under way.
    pub fn stop(mut self) -> Tally {
        self.end();
        self.tally()
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("a client does not panic");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

/// A client that keeps its connection, or makes a new one for each request.
pub fn client(keeps: bool) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .timeout_global(Some(REQUEST_TIME_MAX))
        .max_idle_connections(usize::from(keeps))
        .max_idle_connections_per_host(usize::from(keeps))
        .build();
    config.into()
}

/// Asks once; gives the answer as JSON, or why there is none.
pub fn ask(client: &Agent, port: u16) -> Result<Value, String> {
    ask_as(client, port, "segue-tests")
}

/// Asks once under this user agent.
pub fn ask_as(client: &Agent, port: u16, agent: &str) -> Result<Value, String> {
    let url = format!("http://127.0.0.1:{port}/");
    let request = client.get(url).header("User-Agent", agent);
    let mut response = request.call().map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let body = response.body_mut().read_to_string();
    let body = body.map_err(|error| format!("the answer broke off: {error}"))?;
    if status != 200 {
        return Err(format!("status {status}"));
    }
    serde_json::from_str(&body).map_err(|_| format!("an answer that cannot be read: {body}"))
}

fn run_client(port: u16, keeps: bool, tally: &Mutex<Tally>, stopping: &AtomicBool) {
    let client = client(keeps);
    let kind = if keeps { "kept alive" } else { "fresh" };
    while !stopping.load(Ordering::Relaxed) {
        let since = Instant::now();
        let answer = ask(&client, port);
        let answer = answer.map(|body| body["version"].as_str().unwrap_or("none").to_owned());
        let answer = answer.map_err(|reason| format!("{kind}: {reason}"));
        tally.lock().unwrap_or_else(PoisonError::into_inner).count(answer);
        thread::sleep(EVERY.saturating_sub(since.elapsed()));
    }
}
