//! Runs the workers: one for all gateways, one for each deployment, one each for SLAs, escalations, health and checks of
//! instances, each woken by what concerns it.
//!
//! A wake-up carries no work: a worker looks at everything again. A missed one costs at most one period.

use crate::Settings;
use crate::checks::{ChecksWorker, Results};
use crate::containers::ContainerDriver;
use crate::deployments::DeploymentWorker;
use crate::escalation::{self, EscalationWorker};
use crate::gateways::GatewayDriver;
use crate::health::{self, HealthWorker};
use crate::routing::GatewaysWorker;
use crate::sla::{self, SlaWorker};
use crate::turn::{self, Worker};
use futures::StreamExt;
use segue_domain::command::{Command, Context, Report};
use segue_domain::event::Position;
use segue_domain::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use uuid::Uuid;

const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long nobody asks again what is left outside.
const PAUSE_LEFT: Duration = Duration::from_secs(5);
/// How long nobody does the work of a worker that panicked, so that one that always does is no load.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(5);
/// The worker of all gateways.
const GATEWAYS: &str = "gateways";
/// The worker that checks SLAs.
const SLA: &str = "sla";
/// The worker that acts on escalation events.
const ESCALATION: &str = "escalation";
/// The worker that measures health and metrics.
const HEALTH: &str = "health";
/// The worker that checks instances.
const CHECKS: &str = "checks";
/// What the names of the workers of deployments begin with; also the tag of what concerns them.
const DEPLOYMENT: &str = "deployments:";

/// The running workers.
pub struct Workers {
    shared: Arc<Shared>,
    supervisor: tokio::task::JoinHandle<()>,
}

/// How a worker is.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    /// `gateways`, `sla`, `escalation`, `health`, `checks`, or `deployments:<name>`.
    pub name: String,
    /// When it last finished a turn.
    pub last_turn: Option<OffsetDateTime>,
    /// Why its last turn came to nothing.
    pub trouble: Option<String>,
}

struct Shared {
    store: Store,
    containers: Vec<Arc<dyn ContainerDriver>>,
    gateways: Arc<dyn GatewayDriver>,
    settings: Settings,
    cycles: Cycles,
    stopping: watch::Sender<bool>,
    /// What checks of instances found.
    checks: Arc<Results>,
    status: Mutex<BTreeMap<String, WorkerStatus>>,
    began: Instant,
}

impl Workers {
    /// Starts the workers on the current runtime.
    pub fn start(
        store: Store,
        containers: Vec<Arc<dyn ContainerDriver>>,
        gateways: Arc<dyn GatewayDriver>,
        settings: Settings,
    ) -> Self {
        let shared = Arc::new(Shared {
            store,
            containers,
            gateways,
            settings,
            cycles: Cycles::default(),
            stopping: watch::Sender::new(false),
            checks: Arc::default(),
            status: Mutex::default(),
            began: Instant::now(),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&shared)));
        Self { shared, supervisor }
    }

    /// Brings deployments and gateways in line at once.
    pub fn synchronise(&self) {
        self.shared.cycles.synchronisation.send_modify(|count| *count += 1);
    }

    /// Checks all SLAs at once.
    pub fn check_slas(&self) {
        self.shared.cycles.sla.send_modify(|count| *count += 1);
    }

    /// Acts at once on what asks for escalation.
    pub fn check_escalations(&self) {
        self.shared.cycles.escalation.send_modify(|count| *count += 1);
    }

    /// How every worker is, by name.
    pub fn status(&self) -> Vec<WorkerStatus> {
        self.shared
            .status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Ends the workers after the turns under way. What they made goes on running.
    pub async fn stop(self) {
        self.shared.stopping.send_replace(true);
        if let Err(error) = self.supervisor.await {
            tracing::error!(%error, "the supervisor of the workers ended badly");
        }
    }
}

/// Counts requests for a cycle at once.
#[derive(Default)]
struct Cycles {
    synchronisation: watch::Sender<u64>,
    sla: watch::Sender<u64>,
    escalation: watch::Sender<u64>,
}

impl Shared {
    /// What asks the worker `name` for a turn at once, and how often it takes one without cause.
    fn rhythm(&self, name: &str) -> (watch::Receiver<u64>, Duration) {
        let (cycle, period) = match name {
            SLA => (&self.cycles.sla, self.settings.sla_period),
            ESCALATION => (&self.cycles.escalation, self.settings.escalation_period),
            // It says itself when it looks again.
            HEALTH => (&self.cycles.synchronisation, Duration::ZERO),
            _ => (&self.cycles.synchronisation, self.settings.period),
        };
        (cycle.subscribe(), period)
    }
}

/// Wakes workers by what the log says; starts a worker for each deployment that appears.
async fn supervise(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let from = shared.store.state().position();
    let mut crew = Crew::new(Arc::clone(&shared));
    for name in [GATEWAYS, SLA, ESCALATION, HEALTH, CHECKS] {
        crew.start(name, from, Duration::ZERO);
    }
    for name in shared.store.state().deployments().keys() {
        crew.start(&deployment_worker(name), from, Duration::ZERO);
    }
    let mut left = left_outside(&shared);
    let mut records = shared.store.subscribe(from);
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => break,
            Some(found) = left.join_next() => {
                for name in found.unwrap_or_default() {
                    crew.adopt(&deployment_worker(&name), from);
                }
            }
            record = records.next() => match record {
                Some(Ok(record)) => {
                    let tags = &record.event.tags;
                    if sla::concerns(tags) {
                        crew.wake(SLA, record.position);
                    }
                    if escalation::concerns(tags) {
                        crew.wake(ESCALATION, record.position);
                    }
                    // What has no fact leaves the state as it was, however many such events are posted.
                    if record.event.fact.is_some() {
                        crew.wake(GATEWAYS, record.position);
                        crew.wake(CHECKS, record.position);
                        let tags = tags.as_slice();
                        for tag in tags.iter().filter(|tag| tag.starts_with(DEPLOYMENT)) {
                            crew.wake(tag, record.position);
                        }
                    }
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "the log cannot be followed; workers go on by their period");
                    tokio::select! {
                        () = stopped(&mut stopping) => break,
                        () = tokio::time::sleep(PAUSE_MAX) => {}
                    }
                    // What was recorded meanwhile is seen in the state.
                    let state = shared.store.state();
                    records = shared.store.subscribe(state.position());
                    for name in [GATEWAYS, SLA, ESCALATION, CHECKS] {
                        crew.wake(name, state.position());
                    }
                    for name in state.deployments().keys() {
                        crew.wake(&deployment_worker(name), state.position());
                    }
                }
                None => break,
            },
            Some(ended) = crew.tasks.join_next_with_id() => crew.replace(ended),
        }
    }
    crew.wakes.clear();
    while crew.tasks.join_next().await.is_some() {}
}

/// The workers that run, and how to wake them.
struct Crew {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    names: BTreeMap<Id, String>,
    wakes: BTreeMap<String, watch::Sender<Position>>,
}

impl Crew {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, tasks: JoinSet::new(), names: BTreeMap::new(), wakes: BTreeMap::new() }
    }

    /// Wakes the worker `name`, or starts it when there is none and something to do for it.
    fn wake(&mut self, name: &str, position: Position) {
        let alive = self.wakes.get(name).is_some_and(|wake| wake.send(position).is_ok());
        if !alive && self.is_wanted(name) {
            self.start(name, position, Duration::ZERO);
        }
    }

    /// Starts the worker `name` unless there is one, for what is left of a deployment that may not exist any more.
    fn adopt(&mut self, name: &str, position: Position) {
        if !self.names.values().any(|known| known == name) {
            self.start(name, position, Duration::ZERO);
        }
    }

    fn start(&mut self, name: &str, position: Position, after: Duration) {
        let (sender, wake) = watch::channel(position);
        self.wakes.insert(name.to_owned(), sender);
        let (worker, changes) = worker(&self.shared, name);
        let run = run(name.to_owned(), Arc::clone(&self.shared), worker, wake, changes);
        let task = self.tasks.spawn(async move {
            tokio::time::sleep(after).await;
            run.await;
        });
        self.names.insert(task.id(), name.to_owned());
    }

    /// A worker whose deployment is gone ends by itself. It may have been woken for a new deployment of that name
    /// while it did so, and a worker that panicked is missed: then another one takes its place.
    fn replace(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (id, pause) = match ended {
            Ok((id, ())) => (id, Duration::ZERO),
            Err(error) => {
                tracing::error!(%error, "a worker ended badly and is started again");
                (error.id(), PAUSE_AFTER_PANIC)
            }
        };
        let Some(name) = self.names.remove(&id) else { return };
        // Another one may have taken its place already.
        if self.names.values().any(|other| *other == name) {
            return;
        }
        self.wakes.remove(&name);
        if self.is_wanted(&name) {
            let position = self.shared.store.state().position();
            self.start(&name, position, pause);
        }
    }

    fn is_wanted(&self, name: &str) -> bool {
        name.strip_prefix(DEPLOYMENT)
            .is_none_or(|deployment| self.shared.store.state().deployment(deployment).is_some())
    }
}

/// What each driver says of which deployments anything is left; one that does not answer yet is asked again.
fn left_outside(shared: &Shared) -> JoinSet<BTreeSet<String>> {
    let mut left = JoinSet::new();
    for driver in &shared.containers {
        let driver = Arc::clone(driver);
        left.spawn(async move {
            loop {
                match driver.deployments().await {
                    Ok(found) => return found,
                    Err(error) => {
                        let driver = driver.name();
                        tracing::warn!(driver, %error, "cannot list what is left outside");
                    }
                }
                tokio::time::sleep(PAUSE_LEFT).await;
            }
        });
    }
    left
}

fn deployment_worker(deployment: &str) -> String {
    format!("{DEPLOYMENT}{deployment}")
}

/// The worker `name`, and what tells that something changed outside.
fn worker(shared: &Shared, name: &str) -> (Box<dyn Worker>, Vec<watch::Receiver<u64>>) {
    let settings = shared.settings.clone();
    match name {
        SLA => return (Box::new(SlaWorker::new(shared.store.clone())), Vec::new()),
        ESCALATION => return (Box::new(EscalationWorker::new(shared.store.clone())), Vec::new()),
        HEALTH => {
            let (gateways, failing) = (Arc::clone(&shared.gateways), shared.checks.failing());
            let worker =
                HealthWorker::new(shared.store.clone(), gateways, settings.windows, failing);
            return (Box::new(worker), Vec::new());
        }
        _ => {}
    }
    if name == CHECKS {
        return (Box::new(ChecksWorker::new(Arc::clone(&shared.checks))), Vec::new());
    }
    let Some(deployment) = name.strip_prefix(DEPLOYMENT) else {
        let worker = GatewaysWorker::new(Arc::clone(&shared.gateways), settings);
        return (Box::new(worker), vec![shared.gateways.changes().subscribe()]);
    };
    // The last digits of a fresh identifier are random.
    let suffixes = Box::new(|| Uuid::new_v4().simple().to_string()[20..].to_owned());
    let containers = shared.containers.clone();
    let worker = DeploymentWorker::new(deployment.to_owned(), containers, settings, suffixes)
        .held_back_by(Arc::clone(&shared.checks));
    let drivers = shared.containers.iter().map(|driver| driver.changes());
    let changes = drivers.chain([shared.checks.changes()]);
    let changes = changes.map(|changes| changes.subscribe_to(deployment)).collect();
    (Box::new(worker), changes)
}

/// Takes turns until the service stops, or nothing is left to do for good.
async fn run(
    name: String,
    shared: Arc<Shared>,
    mut worker: Box<dyn Worker>,
    mut wake: watch::Receiver<Position>,
    mut driver_changes: Vec<watch::Receiver<u64>>,
) {
    let mut stopping = shared.stopping.subscribe();
    let (mut cycle, rhythm) = shared.rhythm(&name);
    let mut delay = shared.settings.initial_delay + rhythm;
    let mut pause = PAUSE_MIN;
    loop {
        let cause = *wake.borrow_and_update();
        for changes in &mut driver_changes {
            changes.mark_unchanged();
        }
        let turn = take_turn(&name, &shared, &mut *worker, cause).await;
        pause = if turn.is_ok() { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        let again_after = turn.unwrap_or(Some(pause));
        if is_finished(&name, &shared).await {
            break;
        }
        let period = (!rhythm.is_zero()).then(|| together(shared.began.elapsed(), delay));
        let sleep = [again_after, period].into_iter().flatten().min();
        delay = rhythm;
        tokio::select! {
            () = stopped(&mut stopping) => break,
            changed = wake.changed() => if changed.is_err() { break },
            () = any_changed(&mut driver_changes) => {}
            _ = cycle.changed() => {}
            () = sleep_for(sleep) => {}
        }
    }
    shared.status.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
}

async fn take_turn(
    name: &str,
    shared: &Shared,
    worker: &mut dyn Worker,
    cause: Position,
) -> Result<Option<Duration>, ()> {
    let outcome =
        turn::take(&shared.store, worker, OffsetDateTime::now_utc(), cause, correlation).await;
    let trouble = outcome.as_ref().err().map(ToString::to_string);
    let known = {
        let mut status = shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = status.entry(name.to_owned()).or_insert_with(|| WorkerStatus {
            name: name.to_owned(),
            last_turn: None,
            trouble: None,
        });
        entry.last_turn = Some(OffsetDateTime::now_utc());
        std::mem::replace(&mut entry.trouble, trouble.clone()) == trouble
    };
    match (outcome, trouble) {
        (Ok(turn), _) => Ok(turn.again_after),
        (Err(_), Some(words)) if !known => {
            tracing::warn!(worker = name, "{words}");
            report_failure(shared, worker, words).await;
            Err(())
        }
        (Err(_), _) => Err(()),
    }
}

/// What connects the records of one turn.
fn correlation() -> String {
    Uuid::now_v7().to_string()
}

/// A driver's trouble is published each time it changes.
async fn report_failure(shared: &Shared, worker: &dyn Worker, words: String) {
    let component = match worker.actor().as_str() {
        "worker:gateways" => "gateway_driver",
        "worker:sla" => "sla",
        "worker:escalation" => "escalation",
        health::ACTOR => "health",
        _ => "container_driver",
    };
    let context = Context {
        now: OffsetDateTime::now_utc(),
        actor: worker.actor(),
        cause: None,
        correlation: correlation(),
    };
    let report = Report::Failure { component: component.to_owned(), words };
    if let Err(error) = shared.store.execute(&Command::Report(report), &context).await {
        tracing::error!(%error, "a failure could not be recorded");
    }
}

/// Whether a deployment's worker has nothing left: it does not exist, and nothing of it runs.
async fn is_finished(name: &str, shared: &Shared) -> bool {
    let Some(deployment) = name.strip_prefix(DEPLOYMENT) else { return false };
    if shared.store.state().deployment(deployment).is_some() {
        return false;
    }
    for driver in &shared.containers {
        if driver.observe(deployment).await.map_or(true, |left| !left.is_empty()) {
            return false;
        }
    }
    true
}

async fn any_changed(receivers: &mut [watch::Receiver<u64>]) {
    if receivers.is_empty() {
        return std::future::pending().await;
    }
    let waiting = receivers.iter_mut().map(|receiver| Box::pin(receiver.changed()));
    let (outcome, _, _) = futures::future::select_all(waiting).await;
    if outcome.is_err() {
        // The driver is gone; nothing will change any more.
        std::future::pending::<()>().await;
    }
}

/// Returns when the service stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error says that the supervisor is gone, which is a stop, too.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

/// How long a worker sleeps that has to look again after `period` at the latest, `now` after the start: a little less, so
/// that thousands of workers wake together, at sixteen moments of each period, and not one by one.
fn together(now: Duration, period: Duration) -> Duration {
    const PARTS: u32 = 16;
    let slack = (period / PARTS).as_nanos().max(1);
    let due = (now + period).as_nanos();
    let early = Duration::from_nanos(u64::try_from(due % slack).unwrap_or_default());
    period.saturating_sub(early)
}

async fn sleep_for(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_wake_together_and_never_late() {
        let period = Duration::from_secs(6);
        let wakes =
            |now: u64| Duration::from_millis(now) + together(Duration::from_millis(now), period);
        for now in 0..2_000 {
            let (wake, latest) = (wakes(now), Duration::from_millis(now) + period);
            let early = latest.checked_sub(wake).unwrap();
            assert!(early < period / 16, "{now}: {wake:?}");
        }
        let times: BTreeSet<Duration> = (0..6_000).map(wakes).collect();
        assert_eq!(times.len(), 16);
        assert_eq!(together(Duration::from_secs(1), Duration::from_nanos(3)).as_nanos(), 3);
    }
}
