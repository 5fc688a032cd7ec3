//! SLAs and what follows from them, in a world whose time is a list of instants.

use super::*;
use crate::Settings;
use crate::containers::SimulatedContainers;
use crate::deployments::DeploymentWorker;
use crate::escalation::EscalationWorker;
use crate::gateways::simulated::SimulatedGateways;
use crate::routing::GatewaysWorker;
use crate::turn;
use futures::executor::block_on;
use segue_domain::command::{
    Command, Context, Measure, Measurement, Posted, Rules, Submission, Verb,
};
use segue_domain::dsl::{self, Options};
use segue_domain::event::Record;
use serde_json::{Value, json};
use std::sync::Arc;

/// Shows: D40
#[test]
fn the_slowest_gateway_decides_and_without_data_nothing_happens() {
    let window = Window {
        upper_ms: 800,
        lower_ms: 90,
        interval: Duration::seconds(120),
        cooldown: Duration::seconds(300),
    };
    let check = |means: &[Option<f64>], expected: Option<Direction>| {
        assert_eq!(window.judge(means.iter().copied()), expected, "{means:?}");
    };
    let (up, down) = (Some(Direction::Up), Some(Direction::Down));
    check(&[], None);
    check(&[None, None], None);
    check(&[Some(800.1)], up);
    check(&[Some(800.0)], None);
    check(&[Some(90.0)], None);
    check(&[Some(89.9)], down);
    check(&[Some(0.0)], down);
    check(&[Some(10.0), Some(900.0)], up);
    check(&[Some(10.0), Some(100.0)], None);
    check(&[None, Some(10.0)], down);
    check(&[Some(900.0), None], up);
}

/// What happens at a second.
#[derive(Clone, Copy)]
enum At {
    /// Somebody measured so many milliseconds.
    Measured(i64, f64),
    /// Segue tells that no requests come.
    Idle(i64),
    /// Segue tells of requests that took so many milliseconds.
    Told(i64, f64),
    /// Somebody posts an event with these tags.
    Posted(i64, &'static [&'static str]),
    /// Nothing but a tick.
    Tick(i64),
    /// The service is killed and started again.
    Killed(i64),
    /// Somebody deploys it once more, as it was.
    Deployed(i64),
    /// Somebody undeploys it, and when nothing runs any more deploys it with three instances.
    Renewed(i64),
}

const SHOP: &str = "
clusters:
  web:
    sla:
      type: response_time_sliding_window
      threshold: {upper: 800, lower: 90}
      window: {interval: 10, cooldown: 20}
      escalations: [{type: scale_instances, minimum: 1, maximum: 3, scale_by: 1}]
    services:
    - breed: {name: web:1, deployable: acme/web:1, ports: {http: 80}}
      scale: {cpu: 1, memory: 1GB, instances: 2}
";

/// How many instances run at the end, and the verdicts with the seconds at which they were given.
fn play(story: &[At]) -> (u32, Vec<(i64, &'static str)>) {
    let mut world = World::new();
    world.deploy(SHOP);
    for at in story {
        world.happen(*at);
    }
    (world.running_in_the_end(), world.verdicts())
}

/// Shows: D40, D41
#[test]
fn a_day_of_a_cluster() {
    use At::{Measured, Posted, Tick};
    let (up, down) = ("sla:escalate", "sla:deescalate");
    // Without data nothing happens, however often it is looked.
    assert_eq!(play(&[Tick(5), Tick(500), Tick(5000)]), (2, vec![]));
    assert_eq!(play(&[Measured(5, 400.0), Tick(6)]), (2, vec![]));
    // Too slow: one more; then a pause of interval and cooldown, both ends included.
    assert_eq!(play(&[Measured(5, 900.0)]), (3, vec![(5, up)]));
    assert_eq!(play(&[Measured(5, 900.0), Measured(35, 10.0)]), (3, vec![(5, up)]));
    assert_eq!(play(&[Measured(5, 900.0), Measured(36, 10.0)]), (2, vec![(5, up), (36, down)]));
    // A bound is a bound: the verdict is given, and refused.
    let twice = [Measured(5, 900.0), Measured(40, 900.0), Measured(80, 900.0)];
    assert_eq!(play(&twice), (3, vec![(5, up), (40, up), (80, up)]));
    // The mean of the window counts, both ends included; what is older does not.
    assert_eq!(play(&[Measured(5, 500.0), Measured(10, 1200.0)]), (3, vec![(10, up)]));
    assert_eq!(play(&[Measured(5, 100.0), Measured(15, 1400.0)]), (2, vec![]));
    assert_eq!(play(&[Measured(5, 100.0), Measured(16, 1400.0)]), (3, vec![(16, up)]));
    // An escalation that somebody else posted is acted on, and begins the pause, too.
    let posted = Posted(4, &["sla:escalate", "deployment:shop", "clusters:web"]);
    assert_eq!(play(&[posted, Measured(5, 10.0), Tick(14)]), (3, vec![]));
    assert_eq!(play(&[posted, Measured(35, 10.0)]), (2, vec![(35, down)]));
}

/// Shows: D40
#[test]
fn without_requests_only_what_was_added_is_taken_back() {
    use At::{Deployed, Idle, Measured, Posted};
    let (up, down) = ("sla:escalate", "sla:deescalate");
    // A response time of 0 where nobody asked is no measurement, and no reason to shrink.
    assert_eq!(play(&[Idle(5), Idle(100)]), (2, vec![]));
    let story = [Measured(5, 900.0), Idle(40), Idle(80), Idle(120)];
    assert_eq!(play(&story), (3 - 1, vec![(5, up), (40, down)]));
    // What somebody else asked for is not ours to take back.
    let posted = Posted(4, &["sla:escalate", "deployments:shop", "clusters:web"]);
    assert_eq!(play(&[posted, Idle(40), Idle(80)]), (3, vec![]));
    // What was added before somebody said how much is to run is no longer there.
    let story = [Measured(5, 900.0), Deployed(10), Idle(40), Idle(80)];
    assert_eq!(play(&story), (2, vec![(5, up)]));
    let story =
        [Measured(5, 900.0), Deployed(10), Measured(40, 900.0), Idle(80), Idle(120), Idle(160)];
    assert_eq!(play(&story), (2, vec![(5, up), (40, up), (80, down)]));
    // What somebody else took back is back.
    let posted = Posted(40, &["sla:deescalate", "deployments:shop", "clusters:web"]);
    assert_eq!(play(&[Measured(5, 900.0), posted, Idle(80), Idle(120)]), (2, vec![(5, up)]));
    // What somebody else measured is a measurement, also when the mean is 0.
    assert_eq!(play(&[Idle(5), Measured(50, 0.0)]), (1, vec![(50, down)]));
    assert_eq!(play(&[Measured(50, 0.0)]), (1, vec![(50, down)]));
}

/// Shows: D40
#[test]
fn that_no_requests_came_says_nothing_about_those_that_came_later() {
    use At::{Idle, Measured, Told};
    let (up, down) = ("sla:escalate", "sla:deescalate");
    // The mean is 200 and not 67.
    assert_eq!(play(&[Idle(5), Idle(8), Told(10, 200.0)]), (2, vec![]));
    assert_eq!(play(&[Idle(5), Idle(8), Told(10, 900.0)]), (3, vec![(10, up)]));
    assert_eq!(play(&[Told(5, 200.0), Idle(8), Idle(10)]), (2, vec![]));
    // Requests that were that fast are a measurement, as is what somebody else measured.
    assert_eq!(play(&[Idle(5), Told(10, 50.0)]), (1, vec![(10, down)]));
    assert_eq!(play(&[Idle(5), Told(50, 0.0)]), (1, vec![(50, down)]));
    assert_eq!(play(&[Idle(5), Idle(8), Measured(10, 0.0)]), (1, vec![(10, down)]));
}

/// Shows: D40
#[test]
fn a_clock_that_is_put_back_does_not_end_the_pause() {
    use At::{Idle, Measured, Posted, Told};
    let (up, down) = ("sla:escalate", "sla:deescalate");
    let story = [Measured(100, 900.0), Measured(50, 900.0), Measured(131, 10.0)];
    assert_eq!(play(&story), (2, vec![(100, up), (131, down)]));
    // What somebody posts has no say on when we told something.
    let posted = Posted(100, &["sla", "deployments:shop", "clusters:web"]);
    assert_eq!(play(&[posted, Measured(50, 900.0)]), (3, vec![(50, up)]));
    // The last that was told is not what has the latest time.
    assert_eq!(play(&[Idle(100), Told(85, 0.0), Idle(95)]), (1, vec![(85, down)]));
}

/// Two clusters of one service each; the first has the SLA.
fn two_clusters(escalations: &str) -> String {
    format!(
        "
clusters:
  web:
    sla:
      type: response_time_sliding_window
      threshold: {{upper: 800, lower: 90}}
      window: {{interval: 10, cooldown: 20}}
      escalations: {escalations}
    services:
    - breed: {{name: web:1, deployable: acme/web:1, ports: {{http: 80}}}}
      scale: {{cpu: 1, memory: 1GB, instances: 2}}
  store:
    services:
    - breed: {{name: store:1, deployable: acme/store:1, ports: {{api: 81}}}}
      scale: {{cpu: 1, memory: 1GB, instances: 2}}
"
    )
}

/// What is wanted of web and store after each of the events: instances, and megabytes.
fn wanted(escalations: &str, story: &[At]) -> Vec<[(u32, u64); 2]> {
    let mut world = World::new();
    world.deploy(&two_clusters(escalations));
    let after = |at: &At| {
        world.happen(*at);
        let state = world.store.state();
        let shop = state.deployment("shop").unwrap();
        ["web", "store"].map(|cluster| {
            let scale = shop.clusters[cluster].services[0].scale;
            (scale.instances, scale.memory.centi_megabytes() / 100)
        })
    };
    story.iter().map(after).collect()
}

/// Shows: D40
#[test]
fn without_requests_exactly_what_was_added_is_taken_back() {
    use At::{Idle, Measured};
    const INSTANCES: &str = "{type: scale_instances, minimum: 1, maximum: 3, scale_by: 1}";
    const OTHER_INSTANCES: &str =
        "{type: scale_instances, target: store, minimum: 1, maximum: 2, scale_by: 1}";
    const OTHER_MEMORY: &str =
        "{type: scale_memory, target: store, minimum: 512, maximum: 2048, scale_by: 256}";
    let deployed = [(2, 1024), (2, 1024)];
    // A step down would begin with the memory of the other cluster.
    let story = [Measured(5, 900.0), Idle(40), Idle(80)];
    let one_of = format!("[{{type: to_one, escalations: [{INSTANCES}, {OTHER_MEMORY}]}}]");
    assert_eq!(wanted(&one_of, &story), [[(3, 1024), (2, 1024)], deployed, deployed]);
    // A step down would take from all, also from those that got nothing.
    let escalations = format!("[{{type: to_all, escalations: [{INSTANCES}, {OTHER_INSTANCES}]}}]");
    assert_eq!(wanted(&escalations, &story), [[(3, 1024), (2, 1024)], deployed, deployed]);
    // One step after the other, and nothing of what a step down left.
    let story = [Measured(5, 10.0), Measured(40, 900.0), Measured(80, 900.0), Idle(120), Idle(160)];
    let web = wanted(&format!("[{INSTANCES}]"), &story).into_iter().map(|[web, _]| web.0);
    assert_eq!(web.collect::<Vec<_>>(), [1, 2, 3, 2, 2]);
    let story = [Measured(5, 900.0), Measured(40, 900.0), Idle(80), Idle(120), Idle(160)];
    let both = wanted(&one_of, &story);
    let more = [(3, 1024), (2, 1280)];
    let less = [(3, 1024), (2, 1024)];
    assert_eq!(both, [less, more, less, deployed, deployed]);
}

/// Shows: D40
#[test]
fn what_an_earlier_deployment_got_and_what_somebody_says_it_got_does_not_count() {
    use At::{Idle, Measured, Posted, Renewed};
    let (up, down) = ("sla:escalate", "sla:deescalate");
    let story = [Measured(5, 900.0), Renewed(40), Idle(80), Idle(120)];
    assert_eq!(play(&story), (3, vec![(5, up)]));
    let says = &["escalation:applied", "deployments:shop", "clusters:web"];
    let story = [Measured(5, 900.0), Posted(10, says), Idle(40), Idle(80)];
    assert_eq!(play(&story), (2, vec![(5, up), (40, down)]));
    assert_eq!(play(&[Posted(10, says), Idle(40)]), (2, vec![]));
}

/// Shows: D20
#[test]
fn a_restart_forgets_nothing_and_repeats_nothing() {
    use At::{Killed, Measured, Posted, Tick};
    let up = At::Posted(2, &["sla:escalate", "deployments:shop", "clusters:web"]);
    let (running, _) = play(&[up, Killed(3), Tick(4), Killed(5), Tick(6)]);
    assert_eq!(running, 3);
    let down = Posted(7, &["sla:deescalate", "deployments:shop", "clusters:web"]);
    let (running, _) = play(&[up, Killed(3), down, down, Killed(8), Tick(9)]);
    assert_eq!(running, 1);
    let (running, verdicts) = play(&[Measured(5, 900.0), Killed(6), Tick(7), Tick(8)]);
    assert_eq!((running, verdicts.len()), (3, 1));
}

/// What was posted while nobody looked is acted on in order, each seeing what the one before made.
#[test]
fn what_was_missed_is_made_up_for() {
    let mut world = World::new();
    world.deploy(SHOP);
    for verdict in ["sla:escalate", "sla:escalate", "sla:deescalate", "sla:deescalate"] {
        world.post(&[verdict, "deployments:shop", "clusters:web"], json!(""));
    }
    world.escalation = EscalationWorker::new(world.store.clone());
    // 2, 3, refused, 2, 1: the other order would have ended at 3.
    assert_eq!(world.running_in_the_end(), 1);
}

/// Every decision is an event that names its cause, from the measurement to the instance.
#[test]
fn causes_lead_back_to_the_measurement() {
    let mut world = World::new();
    world.deploy(SHOP);
    world.happen(At::Measured(5, 900.0));
    let records = world.records();
    let find =
        |wished: &dyn Fn(&Record) -> bool| records.iter().find(|found| wished(found)).unwrap();
    let measured = find(&|record| record.event.tags.contains("metrics:responseTime"));
    let verdict = find(&|record| record.event.tags.contains("sla:escalate"));
    let scaled = find(&|record| record.event.tags.contains("scale"));
    let told = find(&|record| record.event.kind == "escalation");
    assert_eq!(verdict.provenance.cause, Some(measured.position));
    assert_eq!(verdict.provenance.actor, "worker:sla");
    assert_eq!(scaled.provenance.cause, Some(verdict.position));
    assert_eq!(told.provenance.cause, Some(verdict.position));
    assert_eq!(told.provenance.actor, "worker:escalation");
    assert_eq!(told.event.value["event"], json!(verdict.position));
}

/// A service, its drivers, and a clock that only the test moves.
struct World {
    store: Store,
    containers: SimulatedContainers,
    deployments: DeploymentWorker,
    gateways: GatewaysWorker,
    sla: SlaWorker,
    escalation: EscalationWorker,
    now: OffsetDateTime,
}

impl World {
    fn new() -> Self {
        let store = Store::in_memory(Rules::default()).unwrap();
        let containers = SimulatedContainers::new();
        let settings = Settings::default();
        let mut number = 0;
        let suffix = Box::new(move || {
            number += 1;
            number.to_string()
        });
        let drivers: Vec<Arc<dyn crate::containers::ContainerDriver>> =
            vec![Arc::new(containers.clone())];
        let gateways = Arc::new(SimulatedGateways::default());
        Self {
            deployments: DeploymentWorker::new(
                "shop".to_owned(),
                drivers,
                settings.clone(),
                suffix,
            ),
            gateways: GatewaysWorker::new(gateways, settings),
            sla: SlaWorker::new(store.clone()),
            escalation: EscalationWorker::new(store.clone()),
            now: START,
            containers,
            store,
        }
    }

    fn deploy(&mut self, body: &str) {
        let body = dsl::read_deployment_body(&dsl::document(body).unwrap(), &Options::default());
        let submission = Submission { verb: Verb::Update, representation: json!("") };
        self.execute(&Command::Deploy {
            name: "shop".to_owned(),
            body: Box::new(body.unwrap()),
            submission,
        });
        self.settle();
    }

    /// Takes everything away, and waits until it is gone.
    fn undeploy(&mut self) {
        let body = dsl::read_deployment_body(&dsl::document(SHOP).unwrap(), &Options::default());
        let submission = Submission { verb: Verb::Delete, representation: json!("") };
        self.execute(&Command::Undeploy {
            name: "shop".to_owned(),
            body: Box::new(body.unwrap()),
            submission,
        });
        for _ in 0..3 {
            self.now += Duration::seconds(1);
            self.containers.advance(self.now);
            self.settle();
        }
        assert!(self.store.state().deployment("shop").is_none());
    }

    fn happen(&mut self, at: At) {
        let (At::Measured(second, _)
        | At::Idle(second)
        | At::Told(second, _)
        | At::Posted(second, _)
        | At::Tick(second)
        | At::Killed(second)
        | At::Deployed(second)
        | At::Renewed(second)) = at;
        self.now = START + Duration::seconds(second);
        self.containers.advance(self.now);
        match at {
            At::Measured(_, milliseconds) => {
                self.post(&["gateways:shop/web/http", "metrics:responseTime"], json!(milliseconds));
            }
            At::Idle(_) => self.tell(&json!(0), &json!(0)),
            At::Told(_, milliseconds) => self.tell(&json!(1), &json!(milliseconds)),
            At::Posted(_, tags) => self.post(tags, json!("")),
            At::Tick(_) => {}
            At::Deployed(_) => self.deploy(SHOP),
            At::Renewed(_) => {
                self.undeploy();
                self.deploy(&SHOP.replace("instances: 2", "instances: 3"));
            }
            At::Killed(_) => {
                self.sla = SlaWorker::new(self.store.clone());
                self.escalation = EscalationWorker::new(self.store.clone());
            }
        }
        self.settle();
    }

    /// Segue tells of a second.
    fn tell(&mut self, rate: &Value, response_time: &Value) {
        let told = |(metric, value): (_, &Value)| Measurement {
            subject: segue_domain::command::Subject::Gateway("shop/web/http".to_owned()),
            measure: Measure::Metric(metric),
            value: value.clone(),
        };
        let told = [("rate", rate), ("responseTime", response_time)].map(told).to_vec();
        let (store, now, last) = (&self.store, self.now, self.store.log().last());
        block_on(turn::take(store, &mut Teller(told), now, last, || "turn".to_owned())).unwrap();
    }

    fn post(&self, tags: &[&str], value: Value) {
        self.execute(&Command::Post(Posted {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            kind: "event".to_owned(),
            value,
            timestamp: None,
        }));
    }

    fn execute(&self, command: &Command) {
        let context = Context {
            now: self.now,
            actor: "user".to_owned(),
            cause: None,
            correlation: "request".to_owned(),
        };
        block_on(self.store.execute(command, &context)).unwrap();
    }

    /// Lets all workers take turns until nothing happens any more.
    fn settle(&mut self) {
        let Self { store, containers, deployments, gateways, sla, escalation, now } = self;
        let mut quiet_rounds = 0;
        for _ in 0..100 {
            let before = store.log().last();
            // An instance that was told to stop is gone in the next round.
            containers.advance(*now);
            let workers: [&mut dyn Worker; 4] = [deployments, gateways, sla, escalation];
            for worker in workers {
                block_on(turn::take(store, worker, *now, store.log().last(), || "turn".to_owned()))
                    .unwrap();
            }
            quiet_rounds = if store.log().last() == before { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == 3 {
                return;
            }
        }
        panic!("it never settles: {:#?}", self.records().iter().rev().take(20).collect::<Vec<_>>());
    }

    /// How many instances run once those that are to go had their time; nothing is measured any more.
    fn running_in_the_end(&mut self) -> u32 {
        for _ in 0..3 {
            self.now += Duration::seconds(60);
            self.settle();
        }
        u32::try_from(self.containers.running()).unwrap()
    }

    fn records(&self) -> Vec<Arc<Record>> {
        self.store.log().read(Position::START, usize::MAX).unwrap()
    }

    /// The worker's verdicts and the seconds at which they were given.
    fn verdicts(&self) -> Vec<(i64, &'static str)> {
        let records = self.records();
        let own = records.iter().filter(|record| record.provenance.actor == "worker:sla");
        let tag = |record: &Record| {
            ["sla:escalate", "sla:deescalate"]
                .into_iter()
                .find(|tag| record.event.tags.contains(tag))
        };
        own.filter_map(|record| Some(((record.time - START).whole_seconds(), tag(record)?)))
            .collect()
    }
}

/// Tells what it was given, as the worker does that measures.
struct Teller(Vec<Measurement>);

#[async_trait]
impl Worker for Teller {
    fn actor(&self) -> String {
        health::ACTOR.to_owned()
    }

    async fn turn(&mut self, _: &State, _: OffsetDateTime) -> Result<Turn, Error> {
        let reports = vec![Report::Measured(self.0.clone())];
        Ok(Turn { reports, without_cause: true, ..Turn::default() })
    }
}

const START: OffsetDateTime = time::macros::datetime!(2030-01-10 12:00 UTC);
