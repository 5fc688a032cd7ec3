//! Tells how gateways, routes, services, clusters and deployments are: events of type `health`, `metrics` and
//! `allocation` (runtime, section 14).
//!
//! What is measured comes from the gateways' traffic and from the checks of instances. It looks every second, tells
//! what cannot wait, and everything else once in a period; see [`board`]. While requests are not counted, not even that
//! there are none is known, and what was told stands.

mod board;
mod measure;
#[cfg(test)]
mod tests;

use crate::driver::Error;
use crate::gateways::{GatewayDriver, Traffic};
use crate::turn::{Turn, Worker, is_same};
use async_trait::async_trait;
use board::{Board, Rhythm};
use measure::{Behind, Measured, RATE, Scope};
use segue_domain::command::{Measure, Report, Subject};
use segue_domain::event::{Origin, Query};
use segue_domain::log::ReadError;
use segue_domain::state::State;
use segue_domain::store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::watch;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);
/// How often what changed is told; with short windows more often.
const PERIOD: Duration = Duration::from_secs(5);

/// Requests that were lost are worth a word when they are more than one in so many.
const LOST_SHARE: u64 = 100;

/// A clock that is put back by more than this makes what was told later than what is told from now on.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// Who appends what was measured, as records say it.
pub const ACTOR: &str = "worker:health";

/// Over what is measured; `None` is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Health.
    pub health: Option<Duration>,
    /// Metrics, and with them allocation.
    pub metrics: Option<Duration>,
}

/// Names of instances that fail their checks.
pub type Failing = BTreeSet<String>;

/// The worker that measures. What it told last is lost with the process, which then tells everything once more.
pub struct HealthWorker {
    store: Store,
    gateways: Arc<dyn GatewayDriver>,
    windows: Windows,
    failing: watch::Receiver<Failing>,
    board: Board,
    /// The state that the board was made of.
    seen: Option<State>,
    /// Whether requests were counted when the board was made.
    counted: bool,
    /// Gateways that the board shows with traffic.
    busy: BTreeSet<String>,
    looked_at: Option<OffsetDateTime>,
    told_at: Option<OffsetDateTime>,
    lost: u64,
}

impl HealthWorker {
    /// A worker that counts what comes through `gateways`, and instances that are `failing`. What an earlier one told
    /// it finds in the log of `store`.
    pub fn new(
        store: Store,
        gateways: Arc<dyn GatewayDriver>,
        windows: Windows,
        failing: watch::Receiver<Failing>,
    ) -> Self {
        let rhythm = Rhythm::of(windows);
        Self {
            store,
            gateways,
            windows,
            failing,
            board: Board::new(rhythm),
            seen: None,
            counted: false,
            busy: BTreeSet::new(),
            looked_at: None,
            told_at: None,
            lost: 0,
        }
    }

    /// Brings the board up to date with `state` and what came through the gateways.
    async fn look(&mut self, state: &State, now: OffsetDateTime) -> Result<(), Error> {
        let health = self.traffic(self.windows.health, now).await?;
        let metrics = if self.windows.metrics == self.windows.health {
            health.clone()
        } else {
            self.traffic(self.windows.metrics, now).await?
        };
        self.note_lost(if metrics.lost > health.lost { &metrics } else { &health });
        let busy: BTreeSet<String> = health
            .counts
            .keys()
            .chain(metrics.counts.keys())
            .map(|passage| passage.gateway.clone())
            .collect();
        let checks_changed = self.failing.has_changed().unwrap_or(false);
        let failing = self.failing.borrow_and_update().clone();
        let counted = health.seconds > 0 || metrics.seconds > 0;
        let unchanged =
            counted == self.counted && self.seen.as_ref().is_some_and(|seen| is_same(seen, state));
        let behind = Behind::default();
        let scope = Scope {
            state,
            windows: self.windows,
            health: &health,
            metrics: &metrics,
            failing: &failing,
            behind: &behind,
        };
        if unchanged && !checks_changed {
            // Everything else stays as it is, of however many services.
            let touched: BTreeSet<&String> = busy.union(&self.busy).collect();
            let mut measured = Measured::new();
            for gateway in touched {
                scope.measure_around(gateway, &mut measured);
            }
            self.board.update(measured);
        } else {
            let measured = scope.measure();
            let unread = |error: ReadError| Error::Transient(format!("the log: {error}"));
            recall(&self.store, &mut self.board, &measured, now).map_err(unread)?;
            self.board.replace(measured, watched(state));
            self.seen = Some(state.clone());
            self.counted = counted;
        }
        self.busy = busy;
        Ok(())
    }

    async fn traffic(
        &self,
        window: Option<Duration>,
        now: OffsetDateTime,
    ) -> Result<Traffic, Error> {
        match window {
            Some(window) => self.gateways.traffic(now, window).await,
            None => Ok(Traffic::default()),
        }
    }

    /// What nobody counted makes rates too low; when it is much, who looks for the reason finds it in the service's log.
    fn note_lost(&mut self, traffic: &Traffic) {
        let gateways = traffic.counts.iter().filter(|(passage, _)| passage.route.is_none());
        let counted: u64 = gateways.map(|(_, count)| count.requests).sum();
        let more = traffic.lost.saturating_sub(self.lost);
        if more * LOST_SHARE > counted {
            tracing::warn!(
                "{more} requests are not counted: the proxy could not tell of them in time"
            );
        }
        self.lost = traffic.lost;
    }
}

/// Gateways that the board does not know may have been busy before: in an earlier life of the service, or before they
/// were deleted and stored again. What was told of that stands in the log, so that it has to be taken back.
fn recall(
    store: &Store,
    board: &mut Board,
    measured: &Measured,
    now: OffsetDateTime,
) -> Result<(), ReadError> {
    let rates = measured.keys().filter(|(_, measure)| *measure == RATE);
    for (subject, _) in rates {
        let Subject::Gateway(name) = subject else { continue };
        if board.knows(subject) {
            continue;
        }
        for measure in measure::told_when_busy() {
            let Measure::Metric(metric) = measure else { continue };
            let tags = vec![format!("gateways:{name}"), format!("metrics:{metric}")];
            let page = store.query(&Query { tags, ..Query::default() }, 1, 1)?;
            let own = page.records.first().filter(|record| {
                record.provenance.origin == Origin::Service && record.provenance.actor == ACTOR
            });
            if let Some(record) = own {
                let key = (subject.clone(), measure);
                board.recall(key, record.event.value.clone(), record.time.min(now));
            }
        }
    }
    Ok(())
}

/// The internal gateways of clusters with an SLA.
fn watched(state: &State) -> BTreeSet<String> {
    let deployments = state.deployments().values().map(|stored| &stored.artifact);
    let clusters = deployments.flat_map(|deployment| {
        let promising = deployment.clusters.iter().filter(|(_, cluster)| cluster.sla.is_some());
        promising.map(|(name, cluster)| (&deployment.name, name, cluster))
    });
    let gateways = clusters.flat_map(|(deployment, name, cluster)| {
        let ports = cluster.services.iter().flat_map(|service| service.breed.ports.keys());
        ports.map(move |port| format!("{deployment}/{name}/{port}"))
    });
    gateways.collect()
}

#[async_trait]
impl Worker for HealthWorker {
    fn actor(&self) -> String {
        ACTOR.to_owned()
    }

    /// Begins anew: what the log has is found there.
    fn unrecorded(&mut self) {
        self.board = Board::new(Rhythm::of(self.windows));
        (self.seen, self.told_at) = (None, None);
    }

    async fn turn(&mut self, state: &State, now: OffsetDateTime) -> Result<Turn, Error> {
        let mut turn = Turn { without_cause: true, ..Turn::default() };
        if self.windows == Windows::default() {
            return Ok(turn);
        }
        turn.look_again(LOOK);
        if self.looked_at.is_some_and(|at| now + CLOCK_TOLERANCE < at) {
            // What was told stands at times that are yet to come, so everything is told anew.
            self.unrecorded();
        }
        self.looked_at = Some(now);
        self.look(state, now).await?;
        let period = self.board.period();
        // A look may come a little early.
        let whole = self.told_at.is_none_or(|at| now - at + LOOK / 10 >= period || now < at);
        let due = self.board.due(now, whole);
        if whole {
            self.told_at = Some(now);
        }
        if !due.is_empty() {
            turn.reports.push(Report::Measured(due));
        }
        Ok(turn)
    }
}
