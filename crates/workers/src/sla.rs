//! Checks what clusters promise: too slow escalates, faster than needed de-escalates (runtime, section 13.1).
//!
//! A verdict is an event and nothing else; what follows from it is the business of [`crate::escalation`]. Response times
//! come from the log, whoever measured them.
//!
//! Where no requests come, a response time of 0 is told, which says nothing about how fast a cluster is. So without
//! traffic only what checks added is taken back, and nothing of what was deployed.

#[cfg(test)]
mod tests;

use crate::driver::Error;
use crate::health;
use crate::turn::{Turn, Worker};
use async_trait::async_trait;
use segue_domain::artifact::{Cluster, Deployment, GatewayName, Service, SlaCheck};
use segue_domain::command::{Direction, EscalationEvent, Report, Verdict};
use segue_domain::dsl;
use segue_domain::event::{Bound, Position, Query, Tags, TimeRange};
use segue_domain::log::ReadError;
use segue_domain::state::State;
use segue_domain::store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use time::{Duration, OffsetDateTime};

/// What response times are tagged with: the interface's spelling, and the one of those who measured for the predecessor.
const RESPONSE_TIME: [&str; 2] = ["metrics:responseTime", "metrics:response-time"];

/// Who gives verdicts, as records say it.
const ACTOR: &str = "worker:sla";

/// How many steps that were taken are looked at, newest first.
const STEPS_MAX: u64 = 100;

/// What is measured of a single route is tagged with.
const ROUTES: &str = "routes";

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
                let Some(direction) = subject.verdict(window).map_err(unread)? else { continue };
                let verdict = Verdict {
                    deployment: stored.artifact.name.clone(),
                    cluster: name.clone(),
                    direction,
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

/// One cluster at one time.
struct Subject<'a> {
    store: &'a Store,
    state: &'a State,
    now: OffsetDateTime,
    deployment: &'a Deployment,
    cluster: &'a str,
}

impl Subject<'_> {
    fn verdict(&self, window: Window) -> Result<Option<Direction>, ReadError> {
        if self.is_cooling(window)? {
            return Ok(None);
        }
        let mut means = Vec::new();
        let mut is_idle = true;
        for gateway in self.gateways() {
            let mean = self.mean(gateway, window.interval)?;
            is_idle = is_idle && (mean.is_none() || self.is_idle(gateway, window.interval)?);
            means.push(mean);
        }
        Ok(match window.judge(means) {
            Some(Direction::Down) if is_idle && !self.has_grown()? => None,
            verdict => verdict,
        })
    }

    /// Whether no requests come to `gateway`, as far as we count them ourselves. What somebody else measured is a
    /// measurement.
    fn is_idle(&self, gateway: &str, interval: Duration) -> Result<bool, ReadError> {
        let own = |tag: &str| {
            let tags = vec![format!("gateways:{gateway}"), tag.to_owned()];
            let page = self.store.query(&Query { tags, ..Query::default() }, 1, 1)?;
            let newest = page.records.into_iter().next();
            let own = newest.filter(|record| record.provenance.actor == health::ACTOR);
            Ok::<_, ReadError>(own.map(|record| record.event.value.clone()))
        };
        let [interface, predecessor] = RESPONSE_TIME;
        let tags = vec![format!("gateways:{gateway}"), predecessor.to_owned()];
        let theirs = Query { tags, kind: None, time: self.last(interval) };
        let theirs = self.store.query(&theirs, 1, 0)?.total;
        Ok(theirs == 0
            && own(interface)?.is_some()
            && own("metrics:rate")?.is_some_and(|rate| rate == 0))
    }

    /// Whether checks added more than they took back since somebody last said how much is to run, as far as the last of
    /// what followed from them tells.
    fn has_grown(&self) -> Result<bool, ReadError> {
        let tags = vec![
            format!("deployments:{}", self.deployment.name),
            format!("clusters:{}", self.cluster),
            "escalation:applied".to_owned(),
        ];
        let applied = self.store.query(&Query { tags, ..Query::default() }, 1, STEPS_MAX)?;
        let mut grown = 0;
        let mut scales = BTreeMap::new();
        for record in &applied.records {
            if !self.is_step_to(&mut scales, &record.event.value) {
                break;
            }
            let Some(cause) = record.provenance.cause else { break };
            let before = Position(cause.0.saturating_sub(1));
            let verdict = self.store.log().read(before, 1)?;
            let own = verdict
                .first()
                .filter(|found| found.position == cause && found.provenance.actor == ACTOR);
            let direction = own.and_then(|own| {
                Some(EscalationEvent::of(own.position, &own.event.tags)?.direction)
            });
            grown += match direction {
                Some(Direction::Up) => 1,
                Some(Direction::Down) => -1,
                // Somebody else's step: what is before it is theirs as well.
                None => break,
            };
        }
        Ok(grown > 0)
    }

    /// Whether an escalation led to `scales`, by cluster and service, which then become those before it; what is not among
    /// them is as it is now. Where it did not, somebody else has changed them since.
    fn is_step_to(&self, scales: &mut BTreeMap<(String, String), Value>, step: &Value) -> bool {
        let changes = step["scaled"].as_array().into_iter().flatten().rev();
        for change in changes {
            let text = |member: &str| change[member].as_str().unwrap_or_default().to_owned();
            let key = (text("cluster"), text("service"));
            let scale = scales.entry(key).or_insert_with_key(|(cluster, service)| {
                let service = self.deployment.service(cluster, service);
                service.map(|service| dsl::write_inline_scale(&service.scale)).unwrap_or_default()
            });
            if *scale != change["to"] {
                return false;
            }
            scale.clone_from(&change["from"]);
        }
        true
    }

    /// Whether an escalation of this cluster, of whomever, is too recent for another one.
    fn is_cooling(&self, window: Window) -> Result<bool, ReadError> {
        let time = self.last(window.interval.saturating_add(window.cooldown));
        for deployment in ["deployment", "deployments"] {
            for cluster in ["cluster", "clusters"] {
                let tags = vec![
                    "sla".to_owned(),
                    format!("{deployment}:{}", self.deployment.name),
                    format!("{cluster}:{}", self.cluster),
                ];
                if self.store.query(&Query { tags, kind: None, time }, 1, 0)?.total > 0 {
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

    /// The mean of what was measured at `gateway`; none when nothing was.
    fn mean(&self, gateway: &str, interval: Duration) -> Result<Option<f64>, ReadError> {
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
        let (count, sum) = match all - of_routes {
            0 => (all, sum),
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
