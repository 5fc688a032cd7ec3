//! Everything that one life plays in: a log, a service on it, simulated drivers, and a clock that only the life moves.

use futures::executor::block_on;
use segue_domain::command::{Command, Context, Rules};
use segue_domain::event::Position;
use segue_domain::log::Log;
use segue_domain::store::Store;
use segue_workers::Settings;
use segue_workers::containers::SimulatedContainers;
use segue_workers::containers::simulated::Operation;
use segue_workers::deployments::DeploymentWorker;
use segue_workers::driver::Error;
use segue_workers::gateways::Configuration;
use segue_workers::gateways::simulated::{Behaviour, SimulatedGateways};
use segue_workers::routing::GatewaysWorker;
use segue_workers::turn::{self, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use time::{Duration, OffsetDateTime};

/// A world that stands still unless it is moved.
pub struct World {
    pub store: Store,
    pub containers: SimulatedContainers,
    pub gateways: Arc<SimulatedGateways>,
    now: OffsetDateTime,
    service: Service,
    suffix: Arc<AtomicU64>,
}

/// What is lost when the service is killed.
struct Service {
    gateways: GatewaysWorker,
    deployments: BTreeMap<String, DeploymentWorker>,
}

impl World {
    pub fn new() -> Self {
        let log = Log::in_memory().expect("a log in memory opens");
        let gateways = Arc::new(SimulatedGateways::default());
        Self {
            store: Store::new(log, rules()).expect("an empty log replays"),
            containers: SimulatedContainers::new(),
            service: Service::new(&gateways),
            gateways,
            now: OffsetDateTime::UNIX_EPOCH + Duration::days(20_000),
            suffix: Arc::default(),
        }
    }

    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        self.containers.advance(self.now);
    }

    /// A user's wish; being refused is an answer.
    pub fn execute(&mut self, command: &Command) {
        let context = Context {
            now: self.now,
            actor: "user".to_owned(),
            cause: None,
            correlation: "request".to_owned(),
        };
        // The refusals themselves are tested elsewhere.
        drop(block_on(self.store.execute(command, &context)));
    }

    /// A turn of one worker, chosen by `which`.
    pub fn turn(&mut self, which: usize) {
        let names = self.names();
        match names.get(which % (names.len() + 1)) {
            Some(name) => self.turn_deployment(&name.clone()),
            None => self.turn_gateways(),
        }
    }

    /// A turn of every worker.
    pub fn turn_all(&mut self) {
        for name in self.names() {
            self.turn_deployment(&name);
        }
        self.turn_gateways();
    }

    /// A turn of one worker that acts and is killed before it reports.
    pub fn turn_without_report(&mut self, which: usize) {
        let now = self.now;
        let names = self.names();
        let state = self.store.state();
        let outcome = match names.get(which % (names.len() + 1)) {
            Some(name) => block_on(self.worker(&name.clone()).turn(&state, now)).map(drop),
            None => block_on(self.service.gateways.turn(&state, now)).map(drop),
        };
        // A driver's error is one more way to get nothing done.
        drop(outcome);
    }

    /// A turn of one worker during which somebody writes: it acted on what was, and reports on what is.
    pub fn turn_overtaken(&mut self, which: usize) -> Option<(Context, Vec<Command>)> {
        let (now, names, state) = (self.now, self.names(), self.store.state());
        let cause = Some(self.store.log().last());
        let worker: &mut dyn Worker = if let Some(name) = names.get(which % (names.len() + 1)) {
            self.worker(name)
        } else {
            &mut self.service.gateways
        };
        let (actor, turn) = (worker.actor(), block_on(worker.turn(&state, now)));
        let context = Context { now, actor, cause, correlation: "turn".to_owned() };
        let reports = turn.ok()?.reports.into_iter().map(Command::Report).collect();
        Some((context, reports))
    }

    /// Records the reports of a turn that was overtaken.
    pub fn report(&mut self, context: &Context, reports: Vec<Command>) {
        drop(block_on(self.store.execute(&Command::All(reports), context)));
    }

    /// The time.
    pub fn now(&self) -> OffsetDateTime {
        self.now
    }

    /// How long requests may keep an instance.
    pub fn drain() -> Duration {
        settings().drain.try_into().expect("it is short")
    }

    /// The service is killed and started again: only the log and what runs are left.
    pub fn kill_service(&mut self) {
        self.store = Store::new(self.store.log().clone(), rules()).expect("the log replays");
        self.service = Service::new(&self.gateways);
    }

    pub fn fail_something(&mut self, which: u32, times: usize, error: &Error) {
        match which {
            0 => self.containers.fail(Operation::Start, times, error),
            1 => self.containers.fail(Operation::Stop, times, error),
            2 => self.containers.fail(Operation::Observe, times, error),
            _ => self.gateways.behave(|behaviour| behaviour.error = Some(error.clone())),
        }
    }

    /// The proxy works again, and no request hangs.
    pub fn calm(&mut self) {
        self.gateways.behave(|behaviour| *behaviour = Behaviour::default());
    }

    /// Other programs have these ports, and no others.
    pub fn take_ports(&mut self, ports: BTreeSet<u16>) {
        self.gateways.behave(|behaviour| behaviour.ports_taken = ports);
    }

    /// Requests keep the instances in `names`.
    pub fn carry(&mut self, names: BTreeSet<String>) {
        self.gateways.behave(|behaviour| behaviour.carrying = names);
    }

    /// What the proxy serves.
    pub fn served(&self) -> Configuration {
        self.gateways.applied().unwrap_or_default()
    }

    /// Everything that was recorded, for whoever has to understand a failure.
    pub fn story(&self) -> String {
        let mut story = String::new();
        for record in self.store.log().read(Position::START, usize::MAX).expect("the log reads") {
            let event = &record.event;
            let _ = writeln!(
                story,
                "{:>4} {} {:<20} {:<15} {} {}",
                record.position.0,
                (record.time - OffsetDateTime::UNIX_EPOCH - Duration::days(20_000)),
                record.provenance.actor,
                event.kind,
                event.tags.as_slice().join(" "),
                event.value
            );
        }
        let _ = writeln!(story, "runs: {:#?}", self.containers.instances());
        let _ = writeln!(story, "state: {:#?}", self.store.state().deployments());
        story
    }

    fn names(&self) -> Vec<String> {
        let known = self.store.state().deployments().keys().cloned().collect::<BTreeSet<_>>();
        let left =
            self.containers.instances().into_iter().map(|instance| instance.owner.deployment);
        known.into_iter().chain(left).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn worker(&mut self, name: &str) -> &mut DeploymentWorker {
        let suffix = Arc::clone(&self.suffix);
        let containers = self.containers.clone();
        self.service.deployments.entry(name.to_owned()).or_insert_with(|| {
            let next = move || suffix.fetch_add(1, Ordering::Relaxed).to_string();
            DeploymentWorker::new(
                name.to_owned(),
                vec![Arc::new(containers)],
                settings(),
                Box::new(next),
            )
        })
    }

    fn turn_deployment(&mut self, name: &str) {
        let (store, now) = (self.store.clone(), self.now);
        let cause = store.log().last();
        // A driver's error comes to nothing; the next turn tries again.
        drop(block_on(turn::take(&store, self.worker(name), now, cause, "turn")));
    }

    fn turn_gateways(&mut self) {
        let cause = self.store.log().last();
        drop(block_on(turn::take(
            &self.store,
            &mut self.service.gateways,
            self.now,
            cause,
            "turn",
        )));
    }
}

impl Service {
    fn new(gateways: &Arc<SimulatedGateways>) -> Self {
        let worker = GatewaysWorker::new(gateways.clone(), settings());
        Self { gateways: worker, deployments: BTreeMap::new() }
    }
}

fn settings() -> Settings {
    Settings { ready_for_deployment: None, ready_for_undeployment: None, ..Settings::default() }
}

/// A pool of ports that wraps around soon and never runs out.
fn rules() -> Rules {
    Rules { gateway_ports: 20_000..=20_007, ..Rules::default() }
}
