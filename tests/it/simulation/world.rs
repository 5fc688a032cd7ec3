//! Everything that one life plays in: a log, a service on it, drivers that may lie, and a clock that only the life moves.

use super::drivers::{Asked, Containers, Proxy};
use super::tally::Tally;
use futures::executor::block_on;
use segue_domain::command::{Command, Context, Rules};
use segue_domain::event::Position;
use segue_domain::log::Log;
use segue_domain::state::State;
use segue_domain::store::Store;
use segue_workers::Settings;
use segue_workers::checks::{self, Check, Results};
use segue_workers::deployments::DeploymentWorker;
use segue_workers::escalation::EscalationWorker;
use segue_workers::gateways::{Configuration, GatewayDriver};
use segue_workers::health::HealthWorker;
use segue_workers::routing::GatewaysWorker;
use segue_workers::sla::SlaWorker;
use segue_workers::turn::{self, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use time::{Duration, OffsetDateTime};

/// The pool of ports: it wraps around soon, and deployments and gateways may want more than that.
pub const PORTS: std::ops::RangeInclusive<u16> = 20_000..=20_004;
/// How often health is looked at; the worker itself asks for it.
const LOOK: Duration = Duration::seconds(1);

/// A world that stands still unless it is moved.
pub struct World {
    pub store: Store,
    pub containers: Containers,
    pub proxy: Arc<Proxy>,
    pub settings: Settings,
    /// How often the service was started.
    pub lives: u32,
    now: OffsetDateTime,
    service: Service,
    suffix: Arc<AtomicU64>,
    turns: u64,
    /// What happened and is in no record, behind which record.
    notes: Vec<(Position, OffsetDateTime, String)>,
}

/// What is lost when the service is killed.
struct Service {
    gateways: GatewaysWorker,
    deployments: BTreeMap<String, DeploymentWorker>,
    sla: SlaWorker,
    escalation: EscalationWorker,
    health: HealthWorker,
    health_at: Option<OffsetDateTime>,
    checks: Arc<Results>,
}

/// Who takes a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    Deployment(String),
    Gateways,
    Sla,
    Escalation,
    Health,
    /// What is to be checked; the answers come from the life.
    Checks,
}

/// A turn that was taken.
pub struct Taken {
    pub who: Who,
    /// What the worker saw.
    pub before: Arc<State>,
    /// Whether it came to an end.
    pub is_ok: bool,
    /// What it asked of the container driver.
    pub asked: Asked,
}

impl World {
    pub fn new(settings: Settings, tally: &Tally) -> Self {
        let store = Store::new(Log::in_memory().expect("a log in memory opens"), rules());
        let store = store.expect("an empty log replays");
        let proxy = Arc::new(Proxy::new(tally.clone()));
        let mut world = Self {
            service: Service::new(&store, &proxy, &settings),
            store,
            containers: Containers::new(tally.clone()),
            proxy,
            settings,
            lives: 1,
            now: start(),
            suffix: Arc::default(),
            turns: 0,
            notes: Vec::new(),
        };
        world.advance(Duration::ZERO);
        world
    }

    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        self.containers.advance(self.now);
        self.proxy.advance(self.now);
    }

    /// A user's wish; being refused is an answer. Whether it made a record.
    pub fn execute(&mut self, command: &Command) -> bool {
        self.turns += 1;
        let correlation = format!("request {}", self.turns);
        let context = Context { now: self.now, actor: "user".to_owned(), cause: None, correlation };
        // The refusals themselves are tested elsewhere.
        block_on(self.store.execute(command, &context)).is_ok_and(|done| !done.records.is_empty())
    }

    /// Everybody who may take a turn.
    pub fn everybody(&self) -> Vec<Who> {
        let known = self.store.state().deployments().keys().cloned().collect::<BTreeSet<_>>();
        let left =
            self.containers.truth.instances().into_iter().map(|found| found.owner.deployment);
        let names: BTreeSet<String> = known.into_iter().chain(left).collect();
        let others = [Who::Gateways, Who::Checks, Who::Sla, Who::Escalation, Who::Health];
        names.into_iter().map(Who::Deployment).chain(others).collect()
    }

    /// A turn of `who`.
    pub fn turn(&mut self, who: &Who) -> Taken {
        let (store, now, correlation) = (self.store.clone(), self.now, self.next_correlation());
        let (before, cause) = (store.state(), store.log().last());
        self.containers.begin_turn();
        let is_ok = match self.worker(who) {
            // A driver's error comes to nothing; the next turn tries again.
            Some(worker) => {
                block_on(turn::take(&store, worker, now, cause, || correlation)).is_ok()
            }
            None => false,
        };
        Taken { who: who.clone(), before, is_ok, asked: self.containers.asked() }
    }

    /// A turn of `who` that acts; the service is killed before it reports.
    pub fn turn_and_kill(&mut self, who: &Who) -> Taken {
        let (before, now) = (self.store.state(), self.now);
        self.containers.begin_turn();
        if let Some(worker) = self.worker(who) {
            // A driver's error is one more way to get nothing done.
            drop(block_on(worker.turn(&before, now)));
        }
        self.kill_service();
        Taken { who: who.clone(), before, is_ok: false, asked: self.containers.asked() }
    }

    /// A turn of `who` during which somebody writes: it acts on what is, and reports on what `meanwhile` makes of it.
    pub fn turn_overtaken(&mut self, who: &Who) -> (Taken, Option<(Context, Command)>) {
        let (before, now) = (self.store.state(), self.now);
        let seen = self.store.log().last();
        self.containers.begin_turn();
        let correlation = format!("{} {}", OVERTAKEN, self.next_correlation());
        let report = self.worker(who).and_then(|worker| {
            let turn = block_on(worker.turn(&before, now)).ok()?;
            let cause = (!turn.without_cause).then(|| turn.cause.unwrap_or(seen));
            let context = Context { now, actor: worker.actor(), cause, correlation };
            let reports = turn.reports.into_iter().map(Command::Report).collect();
            Some((context, Command::All(reports)))
        });
        let is_ok = false;
        (Taken { who: who.clone(), before, is_ok, asked: self.containers.asked() }, report)
    }

    /// Records the reports of a turn that was overtaken.
    pub fn report(&mut self, (context, reports): &(Context, Command)) {
        drop(block_on(self.store.execute(reports, context)));
    }

    /// What is to be checked now.
    pub fn checks(&self) -> Vec<Check> {
        checks::checks(&self.store.state())
    }

    /// A check of an instance passes, or fails with these words.
    pub fn answer(&mut self, check: &Check, outcome: Result<(), String>) {
        self.service.checks.note(check, outcome);
    }

    /// What a worker that knows nothing yet tells of how everything is now.
    pub fn told_anew(&self) -> Command {
        let empty = Store::in_memory(rules()).expect("a log in memory opens");
        let mut fresh = health(&empty, &self.service.checks, &self.proxy, &self.settings);
        let turn = block_on(fresh.turn(&self.store.state(), self.now)).expect("the proxy answers");
        Command::All(turn.reports.into_iter().map(Command::Report).collect())
    }

    /// The time.
    pub fn now(&self) -> OffsetDateTime {
        self.now
    }

    /// How long requests may keep an instance.
    pub fn drain(&self) -> Duration {
        self.settings.drain.try_into().expect("it is short")
    }

    /// The service is killed and started again: only the log and what runs are left, and what was under way.
    pub fn kill_service(&mut self) {
        self.store = Store::new(self.store.log().clone(), rules()).expect("the log replays");
        self.service = Service::new(&self.store, &self.proxy, &self.settings);
        self.containers.next_life();
        self.proxy.next_life();
        self.lives += 1;
    }

    /// What the proxy serves.
    pub fn served(&self) -> Configuration {
        self.proxy.served()
    }

    /// Keeps `words` for the story.
    pub fn note(&mut self, words: impl Into<String>) {
        self.notes.push((self.store.log().last(), self.now, words.into()));
    }

    /// Everything that happened, for whoever has to understand a failure.
    pub fn story(&self) -> String {
        let mut story = String::new();
        let mut notes = self.notes.iter().peekable();
        let mut tell = |story: &mut String, up_to: Position| {
            while let Some((_, at, words)) = notes.next_if(|(position, ..)| *position < up_to) {
                let _ = writeln!(story, "     {} {words}", *at - start());
            }
        };
        for record in self.store.log().read(Position::START, usize::MAX).expect("the log reads") {
            tell(&mut story, record.position);
            let event = &record.event;
            let _ = writeln!(
                story,
                "{:>4} {} {:<20} {:<15} {} {}",
                record.position.0,
                record.time - start(),
                record.provenance.actor,
                event.kind,
                event.tags.as_slice().join(" "),
                event.value
            );
        }
        tell(&mut story, Position(u64::MAX));
        let _ = writeln!(story, "runs: {:#?}", self.containers.truth.instances());
        let _ = writeln!(story, "state: {:#?}", self.store.state().deployments());
        story
    }

    fn next_correlation(&mut self) -> String {
        self.turns += 1;
        format!("turn {}", self.turns)
    }

    /// The worker that `who` is; `None` for what is done without one, and for one that is not due.
    fn worker(&mut self, who: &Who) -> Option<&mut dyn Worker> {
        match who {
            Who::Deployment(name) => Some(self.deployment_worker(name)),
            Who::Gateways => Some(&mut self.service.gateways),
            Who::Sla => Some(&mut self.service.sla),
            Who::Escalation => Some(&mut self.service.escalation),
            Who::Health => {
                let is_due = self.service.health_at.is_none_or(|at| self.now - at >= LOOK);
                if !is_due {
                    return None;
                }
                self.service.health_at = Some(self.now);
                Some(&mut self.service.health)
            }
            Who::Checks => {
                self.service.checks.expect(&self.checks());
                None
            }
        }
    }

    fn deployment_worker(&mut self, name: &str) -> &mut DeploymentWorker {
        let suffix = Arc::clone(&self.suffix);
        let (containers, settings) = (self.containers.clone(), self.settings.clone());
        let checks = Arc::clone(&self.service.checks);
        self.service.deployments.entry(name.to_owned()).or_insert_with(|| {
            let next = move || suffix.fetch_add(1, Ordering::Relaxed).to_string();
            DeploymentWorker::new(
                name.to_owned(),
                vec![Arc::new(containers)],
                settings,
                Box::new(next),
            )
            .held_back_by(checks)
        })
    }
}

/// What the correlation of reports begins with that somebody's write overtook.
pub const OVERTAKEN: &str = "overtaken";

impl Service {
    fn new(store: &Store, proxy: &Arc<Proxy>, settings: &Settings) -> Self {
        let checks = Arc::new(Results::default());
        Self {
            gateways: GatewaysWorker::new(driver(proxy), settings.clone()),
            deployments: BTreeMap::new(),
            sla: SlaWorker::new(store.clone()),
            escalation: EscalationWorker::new(store.clone()),
            health: health(store, &checks, proxy, settings),
            health_at: None,
            checks,
        }
    }
}

fn health(
    store: &Store,
    checks: &Arc<Results>,
    proxy: &Arc<Proxy>,
    settings: &Settings,
) -> HealthWorker {
    HealthWorker::new(store.clone(), driver(proxy), settings.windows, checks.failing())
}

fn driver(proxy: &Arc<Proxy>) -> Arc<dyn GatewayDriver> {
    proxy.clone()
}

/// When every life begins.
fn start() -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::days(20_000)
}

pub fn rules() -> Rules {
    Rules { gateway_ports: PORTS, ..Rules::default() }
}
