//! Checks what clusters promise: too slow escalates, faster than needed de-escalates (runtime, section 13.1).
//!
//! A verdict is an event and nothing else; what follows from it is the business of [`crate::escalation`]. Response times
//! come from the log, whoever measured them.
//!
//! Where no requests come, a response time of 0 is told, which says nothing about how fast a cluster is: it is left out
//! of the mean. So without traffic only what checks added is taken back, and nothing of what was deployed.

mod added;
#[cfg(test)]
mod tests;

use crate::driver::Error;
use crate::health;
use crate::turn::{Turn, Worker};
use async_trait::async_trait;
use segue_domain::artifact::{Cluster, Deployment, GatewayName, Service, SlaCheck};
use segue_domain::command::{Direction, Report, Scaled, Verdict};
use segue_domain::event::{Bound, Origin, Position, Provenance, Query, Record, Tags, TimeRange};
use segue_domain::log::ReadError;
use segue_domain::state::State;
use segue_domain::store::Store;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

/// What response times are tagged with: the interface's spelling, and the one of those who measured for the predecessor.
const RESPONSE_TIME: [&str; 2] = ["metrics:responseTime", "metrics:response-time"];

/// Who gives verdicts, as records say it.
const ACTOR: &str = "worker:sla";

/// What is measured of a single route is tagged with.
const ROUTES: &str = "routes";

/// How many records are read at once.
const PAGE_RECORDS: u64 = 100;
/// How many such pages are looked at, newest first.
const PAGES_MAX: u64 = 100;

/// The worker that checks the SLAs of all clusters.
pub struct SlaWorker {
    store: Store,
}

impl SlaWorker {
    /// A worker that reads response times in the log of `store`.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

/// Whether the event with `tags` may change what a check comes to.
pub fn concerns(tags: &Tags) -> bool {
    RESPONSE_TIME.into_iter().any(|tag| tags.contains(tag))
}

#[async_trait]
impl Worker for SlaWorker {
    fn actor(&self) -> String {
        ACTOR.to_owned()
    }

    /// Comes to one verdict at most, since each has a cause of its own; then the next turn follows at once.
    async fn turn(&mut self, state: &State, now: OffsetDateTime) -> Result<Turn, Error> {
        let unread = |error: ReadError| Error::Transient(format!("the log: {error}"));
        for stored in state.deployments().values() {
            for (name, cluster) in &stored.artifact.clusters {
                let Some(window) = Window::of(cluster) else { continue };
                let subject = Subject {
                    store: &self.store,
                    state,
                    now,
                    deployment: &stored.artifact,
                    cluster: name,
                };
                let Some((direction, undo)) = subject.verdict(window).map_err(unread)? else {
                    continue;
                };
                let verdict = Verdict {
                    deployment: stored.artifact.name.clone(),
                    cluster: name.clone(),
                    direction,
                    undo,
                };
                let mut turn = Turn {
                    reports: vec![Report::Verdict(verdict)],
                    cause: subject.newest_measurement(window).map_err(unread)?,
                    ..Turn::default()
                };
                turn.look_again(std::time::Duration::ZERO);
                return Ok(turn);
            }
        }
        Ok(Turn::default())
    }
}

/// The bounds of a mean response time, and over what it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    upper_ms: i64,
    lower_ms: i64,
    interval: Duration,
    cooldown: Duration,
}

impl Window {
    /// What is to be checked of `cluster` now: nothing while one of its services is on its way.
    fn of(cluster: &Cluster) -> Option<Self> {
        let SlaCheck::ResponseTimeSlidingWindow {
            upper_ms,
            lower_ms,
            interval_seconds,
            cooldown_seconds,
        } = cluster.sla.as_ref()?.sla.check
        else {
            return None;
        };
        let rests = !cluster.services.is_empty() && cluster.services.iter().all(Service::is_done);
        rests.then_some(Self {
            upper_ms,
            lower_ms,
            interval: Duration::seconds(interval_seconds),
            cooldown: Duration::seconds(cooldown_seconds),
        })
    }

    /// What mean response times of the gateways of a cluster come to. Where nothing was measured nothing happens.
    #[expect(clippy::cast_precision_loss, reason = "bounds in milliseconds stay far below 2^53")]
    fn judge(self, means: impl IntoIterator<Item = Option<f64>>) -> Option<Direction> {
        let slowest = means.into_iter().flatten().reduce(f64::max)?;
        if slowest > self.upper_ms as f64 {
            Some(Direction::Up)
        } else if slowest < self.lower_ms as f64 {
            Some(Direction::Down)
        } else {
            None
        }
    }
}

/// What is known of the response times of one gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    /// Nothing was measured.
    Nothing,
    /// Nothing but that no requests came.
    Unused,
    /// Their mean in milliseconds.
    Mean(f64),
}

/// How often Segue told that nothing came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Zeros {
    /// Through a gateway as a whole.
    whole: u64,
    /// Through one of its routes.
    of_routes: u64,
}

/// One cluster at one time.
struct Subject<'a> {
    store: &'a Store,
    state: &'a State,
    now: OffsetDateTime,
    deployment: &'a Deployment,
    cluster: &'a str,
}

impl Subject<'_> {
    /// Where to go, and what is to be undone for it where no requests come.
    fn verdict(&self, window: Window) -> Result<Option<(Direction, Vec<Scaled>)>, ReadError> {
        if self.is_cooling(window)? {
            return Ok(None);
        }
        let found: Result<Vec<Found>, ReadError> =
            self.gateways().map(|gateway| self.found(gateway, window.interval)).collect();
        let found = found?;
        let means = found.iter().map(|found| match found {
            Found::Nothing => None,
            Found::Unused => Some(0.0),
            Found::Mean(mean) => Some(*mean),
        });
        let is_idle = !found.iter().any(|found| matches!(found, Found::Mean(_)));
        Ok(match window.judge(means) {
            Some(Direction::Down) if is_idle => {
                let added = self.added()?;
                (!added.is_empty()).then_some((Direction::Down, added))
            }
            verdict => verdict.map(|direction| (direction, Vec::new())),
        })
    }

    /// What the window says about `gateway`. Where we told of nothing but 0, but also of requests, they were that fast.
    fn found(&self, gateway: &str, interval: Duration) -> Result<Found, ReadError> {
        let zeros = self.zeros(gateway, interval)?;
        Ok(match self.mean(gateway, interval, zeros)? {
            Some(mean) => Found::Mean(mean),
            None if zeros == Zeros::default() => Found::Nothing,
            None if self.rate(gateway)?.is_some_and(|rate| rate != 0) => Found::Mean(0.0),
            None => Found::Unused,
        })
    }

    /// How often we told that nothing came. What somebody else measured is a measurement.
    fn zeros(&self, gateway: &str, interval: Duration) -> Result<Zeros, ReadError> {
        let query = Query {
            tags: vec![format!("gateways:{gateway}"), RESPONSE_TIME[0].to_owned()],
            kind: Some("metrics".to_owned()),
            time: self.last(interval),
        };
        let mut zeros = Zeros::default();
        self.visit(&query, |record| {
            if record.event.value == 0 && is_measured_by_us(record) {
                let of_route = record.event.tags.contains(ROUTES);
                *(if of_route { &mut zeros.of_routes } else { &mut zeros.whole }) += 1;
            }
            true
        })?;
        Ok(zeros)
    }

    /// The requests per second that we told last: after a clock was put back that is not what has the latest time.
    fn rate(&self, gateway: &str) -> Result<Option<Value>, ReadError> {
        let query = Query {
            tags: vec![format!("gateways:{gateway}"), "metrics:rate".to_owned()],
            kind: None,
            time: TimeRange { from: None, ..self.last(Duration::ZERO) },
        };
        let page = self.store.query(&query, 1, PAGE_RECORDS)?;
        let own = page
            .records
            .iter()
            .filter(|record| is_measured_by_us(record) && !record.event.tags.contains(ROUTES));
        let last = own.max_by_key(|record| record.position);
        Ok(last.map(|record| record.event.value.clone()))
    }

    /// Shows what answers `query` to `visit`, newest first, for as long as it wants to see more and there are not too
    /// many.
    fn visit(
        &self,
        query: &Query,
        mut visit: impl FnMut(&Record) -> bool,
    ) -> Result<(), ReadError> {
        for page in 1..=PAGES_MAX {
            let found = self.store.query(query, page, PAGE_RECORDS)?;
            let wants_more = found.records.iter().all(|record| visit(record));
            if !wants_more || page * PAGE_RECORDS >= found.total {
                break;
            }
        }
        Ok(())
    }

    /// Whether an escalation of this cluster, of whomever, is too recent for another one. One of ours that is yet to come
    /// was told before the clock was put back.
    fn is_cooling(&self, window: Window) -> Result<bool, ReadError> {
        let time = self.last(window.interval.saturating_add(window.cooldown));
        for deployment in ["deployment", "deployments"] {
            for cluster in ["cluster", "clusters"] {
                let tags = vec![
                    "sla".to_owned(),
                    format!("{deployment}:{}", self.deployment.name),
                    format!("{cluster}:{}", self.cluster),
                ];
                let mut query = Query { tags, kind: None, time };
                if self.store.query(&query, 1, 0)?.total > 0 {
                    return Ok(true);
                }
                let later = Bound { at: self.now, inclusive: false };
                query.time = TimeRange { from: Some(later), to: None };
                let mut is_told = false;
                self.visit(&query, |record| {
                    let Provenance { origin, actor, .. } = &record.provenance;
                    is_told = *origin == Origin::Service && actor == ACTOR;
                    !is_told
                })?;
                if is_told {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The gateways of the cluster's ports.
    fn gateways(&self) -> impl Iterator<Item = &str> {
        self.state.gateways_of(&self.deployment.name).filter_map(|stored| {
            let name = stored.gateway.name.as_str();
            match GatewayName::parse(name)? {
                GatewayName::Internal { cluster, .. } => (cluster == self.cluster).then_some(name),
                GatewayName::External { .. } | GatewayName::StandAlone(_) => None,
            }
        })
    }

    /// The mean of what was measured at `gateway`, without `zeros`; none when nothing was.
    fn mean(
        &self,
        gateway: &str,
        interval: Duration,
        zeros: Zeros,
    ) -> Result<Option<f64>, ReadError> {
        let time = self.last(interval);
        let numbers = |tags: &[&str]| {
            let tags = tags.iter().map(|tag| (*tag).to_owned());
            let tags = tags.chain([format!("gateways:{gateway}")]).collect();
            self.store.log().numbers(&Query { tags, kind: None, time }, "value")
        };
        // Those who measure write one of the tags or the other; an event with both is counted once.
        let measured = |more: &[&str]| {
            let [one, other] = RESPONSE_TIME;
            let with = |tags: &[&str]| numbers(&[tags, more].concat());
            let (one, other, both) = (with(&[one])?, with(&[other])?, with(&RESPONSE_TIME)?);
            Ok::<_, ReadError>((
                one.count + other.count - both.count,
                one.sum + other.sum - both.sum,
            ))
        };
        let ((all, sum), (of_routes, sum_of_routes)) = (measured(&[])?, measured(&[ROUTES])?);
        // A route without traffic takes no time, which says nothing about the others.
        let (count, sum) = match all.saturating_sub(of_routes + zeros.whole) {
            0 => (of_routes.saturating_sub(zeros.of_routes), sum_of_routes),
            whole => (whole, sum - sum_of_routes),
        };
        #[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 does not occur")]
        let mean = sum / count as f64;
        Ok((count > 0).then_some(mean))
    }

    /// The position of the newest measurement, which a verdict names as its cause.
    fn newest_measurement(&self, window: Window) -> Result<Option<Position>, ReadError> {
        let time = self.last(window.interval);
        let mut newest = None;
        for gateway in self.gateways() {
            for tag in RESPONSE_TIME {
                let tags = vec![tag.to_owned(), format!("gateways:{gateway}")];
                let page = self.store.query(&Query { tags, kind: None, time }, 1, 1)?;
                let found = page.records.first();
                newest = newest.max(found.map(|record| (record.event.timestamp, record.position)));
            }
        }
        Ok(newest.map(|(_, position)| position))
    }

    /// From `duration` ago until now, both included.
    fn last(&self, duration: Duration) -> TimeRange {
        let from = self.now.checked_sub(duration);
        let bound = |at| Bound { at, inclusive: true };
        TimeRange { from: from.map(bound), to: Some(bound(self.now)) }
    }
}

/// Whether `record` is one of the health worker, and nobody's who only says so.
fn is_measured_by_us(record: &Record) -> bool {
    record.provenance.origin == Origin::Service && record.provenance.actor == health::ACTOR
}
