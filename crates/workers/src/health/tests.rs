//! What is told of simulated traffic, in a world whose time is a list of instants.

use super::*;
use crate::Settings;
use crate::containers::SimulatedContainers;
use crate::deployments::DeploymentWorker;
use crate::gateways::simulated::SimulatedGateways;
use crate::gateways::{Configuration, Count, Passage, Request};
use crate::routing::GatewaysWorker;
use crate::turn;
use futures::executor::block_on;
use segue_domain::command::{Artifact, Command, Context, Rules, Store as Wish, Submission, Verb};
use segue_domain::dsl::{self, Options};
use segue_domain::event::{Position, Record};
use segue_domain::store::Store;
use serde_json::{Value, json};

const START: OffsetDateTime = time::macros::datetime!(2030-01-10 12:00 UTC);
const SHOP: &str = "
gateways: {9080: web/http}
clusters:
  web:
    services:
    - breed: {name: web:1, deployable: acme/web:1, ports: {http: 80}}
      scale: {cpu: 0.25, memory: 512.5MB, instances: 2}
    - breed: {name: web:2, deployable: acme/web:2, ports: {http: 80}}
      scale: {cpu: 1, memory: 1GB, instances: 1}
  db:
    services:
    - breed: {name: db:1, deployable: acme/db:1, ports: {sql: 5432/tcp}}
      scale: {cpu: 1, memory: 1GB, instances: 1}
";
const WINDOW: Duration = Duration::from_secs(30);

struct World {
    store: Store,
    gateways: Arc<SimulatedGateways>,
    failing: watch::Sender<Failing>,
    health: HealthWorker,
    seen: Position,
}

impl World {
    fn new(windows: Windows) -> Self {
        let store = Store::in_memory(Rules::default()).unwrap();
        let gateways = Arc::new(SimulatedGateways::default());
        let failing = watch::Sender::default();
        let health =
            HealthWorker::new(store.clone(), gateways.clone(), windows, failing.subscribe());
        Self { store, gateways, failing, health, seen: Position::START }
    }

    /// A world in which the shop runs.
    fn shop(windows: Windows) -> Self {
        let mut world = Self::new(windows);
        let body = dsl::read_deployment_body(&dsl::document(SHOP).unwrap(), &Options::default());
        world.execute(&Command::Deploy {
            name: "shop".to_owned(),
            body: Box::new(body.unwrap()),
            submission: submission(),
        });
        let containers = SimulatedContainers::new();
        let settings = Settings::default();
        let mut number = 0;
        let suffixes = Box::new(move || {
            number += 1;
            number.to_string()
        });
        let mut deployments = DeploymentWorker::new(
            "shop".to_owned(),
            vec![Arc::new(containers.clone())],
            settings.clone(),
            suffixes,
        );
        let mut routing = GatewaysWorker::new(world.gateways.clone(), settings);
        for _ in 0..10 {
            containers.advance(START);
            let last = world.store.log().last();
            block_on(turn::take(&world.store, &mut deployments, START, last, || "turn".to_owned()))
                .unwrap();
            block_on(turn::take(&world.store, &mut routing, START, last, || "turn".to_owned()))
                .unwrap();
        }
        world.seen = world.store.log().last();
        world
    }

    fn execute(&self, command: &Command) {
        let context = Context {
            now: START,
            actor: "user".to_owned(),
            cause: None,
            correlation: "request".to_owned(),
        };
        block_on(self.store.execute(command, &context)).unwrap();
    }

    /// Stores a gateway.
    fn gateway(&self, text: &str) {
        let gateway = dsl::read_gateway(&dsl::document(text).unwrap(), &Options::default());
        let artifact = Artifact::Gateway(Box::new(gateway.unwrap()));
        self.execute(&Command::Store(Wish { artifact, submission: submission() }));
    }

    /// From now on so many requests are in every window, and the last of them failed.
    fn traffic(&self, passages: &[(Passage, u64, u64)]) {
        let count = |requests: u64, failed: u64| {
            let mut count = Count::default();
            for number in 0..requests {
                let failed = number >= requests - failed;
                let status = if failed { 500 } else { 200 };
                count.add(&Request {
                    failed,
                    status: Some(status),
                    time_ms: Some(10 * (number + 1)),
                });
            }
            count
        };
        self.gateways.behave(|behaviour| {
            behaviour.traffic.counts = passages
                .iter()
                .map(|(passage, requests, failed)| (passage.clone(), count(*requests, *failed)))
                .collect();
        });
    }

    /// What is told at this second.
    fn told(&mut self, second: i64) -> Vec<Arc<Record>> {
        let now = START + time::Duration::seconds(second);
        let turn = turn::take(&self.store, &mut self.health, now, self.seen, || "turn".to_owned());
        block_on(turn).unwrap();
        let told = self.store.log().read(self.seen, usize::MAX).unwrap();
        self.seen = self.store.log().last();
        told
    }

    /// What is told at this second, as `subject measure value`.
    fn lines(&mut self, second: i64) -> Vec<String> {
        self.told(second).iter().map(|record| line(record)).collect()
    }
}

fn submission() -> Submission {
    Submission { verb: Verb::Update, representation: json!("") }
}

fn line(record: &Record) -> String {
    let event = &record.event;
    let name = |group: &str| {
        let mut tags = event.tags.as_slice().iter();
        tags.find_map(|tag| tag.strip_prefix(group)?.strip_prefix(':')).map(str::to_owned)
    };
    let groups = ["gateways", "routes", "deployments", "clusters", "services"];
    let subject: Vec<String> = groups.into_iter().filter_map(name).collect();
    let measure = name("metrics").unwrap_or_else(|| event.kind.clone());
    format!("{} {measure} {}", subject.join(" "), event.value)
}

const BOTH: Windows = Windows { health: Some(WINDOW), metrics: Some(WINDOW) };
const HEALTH: Windows = Windows { health: Some(WINDOW), metrics: None };

/// Shows: I2.4-health
#[test]
fn without_traffic_all_is_well_and_nothing_is_fast_or_slow() {
    let mut world = World::shop(BOTH);
    let mut told = world.lines(0);
    // What is asked for with fewer tags is told last, since the newest event answers.
    let last = |text: &str| told.iter().rposition(|line| line.contains(text)).unwrap();
    assert!(last("shop web web:2 health") < last("shop web health"));
    assert!(last("shop db health") < last("shop health"));
    assert!(last("shop/web/http shop/web/web:2/http rate") < last("shop/web/http rate"));
    told.sort();
    let expected = [
        "shop allocation {\"cpu\":2.5,\"memory\":3072,\"instances\":4}",
        "shop db db:1 health 1",
        "shop db health 1",
        "shop health 1",
        "shop web health 1",
        "shop web web:1 health 1",
        "shop web web:2 health 1",
        "shop/9080 health 1",
        "shop/9080 rate 0",
        "shop/9080 responseTime 0",
        "shop/9080 shop/web/http health 1",
    ];
    assert_eq!(told[..expected.len()], expected);
    assert_eq!(told.len(), 7 * 3 + 6 + 1, "{told:#?}");
}

#[test]
fn what_stays_the_same_is_told_now_and_then_and_what_is_switched_off_never() {
    let mut world = World::shop(BOTH);
    let first = world.lines(0).len();
    assert_eq!((1..300).map(|second| world.lines(second).len()).sum::<usize>(), 0);
    assert_eq!(world.lines(300).len(), first);
    assert_eq!((301..600).map(|second| world.lines(second).len()).sum::<usize>(), 0);
    assert_eq!(World::shop(Windows::default()).lines(0), [""; 0]);
    let only_health = World::shop(HEALTH).lines(0);
    assert!(only_health.iter().all(|line| line.contains("health")), "{only_health:?}");
}

#[test]
fn failures_are_told_at_once_and_everything_else_once_in_a_period() {
    let mut world = World::shop(BOTH);
    world.told(0);
    let (external, internal) = ("shop/9080", "shop/web/http");
    let (one, two) = ("shop/web/web:1/http", "shop/web/web:2/http");
    let passages = |failed: u64| {
        vec![
            (Passage::gateway(external), 3, failed),
            (Passage::route(external, internal), 3, failed),
            (Passage::gateway(internal), 3, failed),
            (Passage::route(internal, one), 2, 0),
            (Passage::route(internal, two), 1, failed),
        ]
    };
    world.traffic(&passages(0));
    let told = world.lines(1);
    assert!(told.contains(&"shop/9080 rate 0.1".to_owned()), "{told:#?}");
    assert!(told.contains(&"shop/9080 responseTime 20".to_owned()), "{told:#?}");
    assert!(told.contains(&"shop/web/http shop/web/web:1/http responseTime 15".to_owned()));
    assert!(told.contains(&"shop/9080 responseTimeP99 30.5".to_owned()), "{told:#?}");
    assert!(told.contains(&"shop/9080 status2xx 0.1".to_owned()), "{told:#?}");
    assert!(!told.iter().any(|line| line.contains("health")), "{told:#?}");

    world.traffic(&passages(1));
    let told = world.lines(2);
    let health = ["shop web web:2 health 0", "shop web health 0", "shop health 0"];
    for line in health {
        assert!(told.contains(&line.to_owned()), "{line}: {told:#?}");
    }
    assert!(told.contains(&"shop/9080 health 0.6667".to_owned()), "{told:#?}");
    assert!(!told.iter().any(|line| line.contains("web:1 ")), "{told:#?}");
    let causes = world.store.log().read(Position::START, usize::MAX).unwrap();
    let last = causes.last().unwrap();
    assert_eq!((last.provenance.actor.as_str(), last.provenance.cause), (ACTOR, None));

    // From one share to another it waits.
    let mut more = passages(1);
    for (_, requests, failed) in &mut more[..3] {
        (*requests, *failed) = (4, 2);
    }
    world.traffic(&more);
    let told = world.lines(3);
    assert!(!told.iter().any(|line| line.starts_with("shop/9080 health 0.5")), "{told:#?}");
    let told = world.lines(5);
    assert!(told.contains(&"shop/9080 health 0.5".to_owned()), "{told:#?}");
    // What only busy gateways have is 0 once, and no more.
    world.traffic(&[]);
    let told = world.lines(6);
    assert!(told.contains(&"shop/9080 status2xx 0".to_owned()), "{told:#?}");
    let later: Vec<String> = (7..40).flat_map(|second| world.lines(second)).collect();
    assert!(!later.iter().any(|line| line.contains("status2xx")), "{later:#?}");
}

#[test]
fn what_an_earlier_life_told_of_traffic_is_taken_back_when_there_is_none() {
    let mut world = World::shop(BOTH);
    world.traffic(&[(Passage::gateway("shop/9080"), 3, 1)]);
    let told = world.lines(0);
    assert!(told.contains(&"shop/9080 status5xx 0.03".to_owned()), "{told:#?}");
    let mut restarted = |requests: u64, second: i64| {
        let (gateways, failing) = (world.gateways.clone(), world.failing.subscribe());
        world.health = HealthWorker::new(world.store.clone(), gateways, BOTH, failing);
        let passages = [(Passage::gateway("shop/9080"), requests, 0)];
        world.traffic(if requests > 0 { &passages } else { &[] });
        let told = world.lines(second);
        told.into_iter().filter(|line| line.contains("status")).collect::<Vec<_>>()
    };
    assert_eq!(restarted(3, 1), ["shop/9080 status2xx 0.1", "shop/9080 status5xx 0"]);
    assert_eq!(restarted(0, 2), ["shop/9080 status2xx 0"]);
    assert_eq!(restarted(0, 3), [""; 0]);
}

#[test]
fn instances_that_fail_their_checks_count() {
    let mut world = World::shop(HEALTH);
    world.told(0);
    let name = {
        let state = world.store.state();
        state.deployment("shop").unwrap().service("web", "web:1").unwrap().instances[0].name.clone()
    };
    world.failing.send_replace(BTreeSet::from([name]));
    let told = world.lines(1);
    for line in [
        "shop web web:1 health 0.5",
        "shop web health 0.5",
        "shop health 0.5",
        "shop/web/http shop/web/web:1/http health 0.5",
        // Of the two instances behind the gateway that get requests, or three with the other version.
        "shop/9080 health 0.6667",
    ] {
        assert!(told.contains(&line.to_owned()), "{line}: {told:#?}");
    }
    assert!(!told.iter().any(|line| line.contains("db")), "{told:#?}");
    world.failing.send_replace(BTreeSet::new());
    assert!(world.lines(2).contains(&"shop health 1".to_owned()));
}

#[test]
fn what_is_gone_is_told_no_more_and_circles_end() {
    let mut world = World::new(HEALTH);
    block_on(world.gateways.apply(&Configuration::default())).unwrap();
    world.gateway("{name: a, port: 9001, routes: {b: {weight: 100%}}}");
    world.gateway("{name: b, port: 9002, routes: {a: {weight: 100%}}}");
    world.failing.send_replace(BTreeSet::from(["somebody".to_owned()]));
    world.seen = world.store.log().last();
    assert_eq!(world.lines(0), ["a b health 1", "b a health 1", "a health 1", "b health 1"]);
    let key = segue_domain::artifact::ArtifactKey::new(segue_domain::artifact::Kind::Gateway, "b");
    world.execute(&Command::Delete { key });
    world.seen = world.store.log().last();
    assert_eq!(world.lines(300), ["a b health 1", "a health 1"]);
}

/// Whoever does not count has nothing to tell, and a part of a window is no whole one.
#[test]
fn nothing_is_told_of_requests_before_they_are_counted() {
    let mut world = World::shop(BOTH);
    let counted = |world: &World, seconds: u64| {
        world.gateways.behave(|behaviour| behaviour.seconds_max = Some(seconds));
    };
    counted(&world, 0);
    let allocation = "shop allocation {\"cpu\":2.5,\"memory\":3072,\"instances\":4}";
    assert_eq!(world.lines(0), [allocation]);
    assert_eq!(world.lines(5), [""; 0]);
    world.traffic(&[(Passage::gateway("shop/9080"), 20, 0)]);
    counted(&world, 4);
    let told = world.lines(6);
    assert!(told.contains(&"shop/9080 rate 5".to_owned()), "{told:#?}");
    assert!(told.contains(&"shop/9080 status2xx 5".to_owned()), "{told:#?}");
    assert!(told.contains(&"shop/9080 health 1".to_owned()), "{told:#?}");
    counted(&world, 40);
    let told: Vec<String> = (7..12).flat_map(|second| world.lines(second)).collect();
    assert!(told.contains(&"shop/9080 rate 0.67".to_owned()), "{told:#?}");
    // What nobody counts any more is not 0, and not what it was.
    counted(&world, 0);
    world.traffic(&[]);
    let later: Vec<String> = (12..700).step_by(3).flat_map(|second| world.lines(second)).collect();
    assert!(later.iter().all(|line| line == allocation), "{later:#?}");
    counted(&world, 40);
    let told = world.lines(700);
    assert!(told.contains(&"shop/9080 rate 0".to_owned()), "{told:#?}");
    assert!(told.contains(&"shop/9080 status2xx 0".to_owned()), "{told:#?}");
}

/// What was told with a later time would be the newest for as long as the clock was put back.
#[test]
fn after_the_clock_was_put_back_everything_is_told_anew() {
    let mut world = World::shop(BOTH);
    let first = world.lines(3600).len();
    assert_eq!(world.lines(3601), [""; 0]);
    assert_eq!(world.lines(3600), [""; 0], "a second is nothing");
    assert_eq!(world.lines(0).len(), first);
    assert_eq!(world.lines(1), [""; 0]);
}

/// There are more ways through them than could ever be walked.
#[test]
fn gateways_that_all_lead_to_all_others_are_looked_through_once() {
    let mut world = World::shop(HEALTH);
    let name = |number: u16| format!("g{number:02}");
    for number in (0..40).rev() {
        let routes: Vec<String> =
            (number + 1..40).map(|later| format!("{}: {{}}", name(later))).collect();
        let routes = if number == 39 { "shop/web/http: {}".to_owned() } else { routes.join(", ") };
        world.gateway(&format!(
            "{{name: {}, port: {}, routes: {{{routes}}}}}",
            name(number),
            9100 + number
        ));
    }
    let failing = {
        let state = world.store.state();
        state.deployment("shop").unwrap().service("web", "web:1").unwrap().instances[0].name.clone()
    };
    world.failing.send_replace(BTreeSet::from([failing]));
    world.seen = world.store.log().last();
    let told = world.lines(1);
    for line in ["g00 health 0.6667", "g00 g20 health 0.6667", "g38 health 0.6667"] {
        assert!(told.contains(&line.to_owned()), "{line}");
    }
}

/// However much there is, the log gets a bounded part of it in a period, and everything in its turn.
#[test]
fn ten_thousand_idle_gateways_do_not_flood_the_log() {
    let mut board = Board::new(Rhythm::of(BOTH));
    let measured: Measured = (0..10_000)
        .map(|number| {
            let subject = segue_domain::command::Subject::Gateway(number.to_string());
            ((subject, segue_domain::command::Measure::Health), Value::from(1))
        })
        .collect();
    board.replace(measured, BTreeSet::new());
    let mut told = BTreeSet::new();
    let mut most = 0;
    for round in 0..5 {
        let due = board.due(START + time::Duration::seconds(5 * round), true);
        most = most.max(due.len());
        told.extend(due.into_iter().map(|measurement| format!("{:?}", measurement.subject)));
    }
    assert_eq!((told.len(), most), (10_000, 2_000));
    let mut later =
        (5..265).map(|round| board.due(START + time::Duration::seconds(5 * round), true).len());
    assert!(later.by_ref().take(55).all(|told| told == 0));
    assert_eq!(later.collect::<Vec<_>>(), [50; 205]);
}

/// Without data nothing follows from an SLA, so there has to be some.
#[test]
fn what_slas_are_checked_against_is_told_twice_a_window() {
    let mut board = Board::new(Rhythm::of(BOTH));
    let gateway = |name: &str| segue_domain::command::Subject::Gateway(name.to_owned());
    let time = segue_domain::command::Measure::Metric("responseTime");
    let measured = ["a", "b"].map(|name| ((gateway(name), time), Value::from(0)));
    board.replace(measured.into(), BTreeSet::from(["b".to_owned()]));
    let mut told = |second: i64| -> Vec<_> {
        let due = board.due(START + time::Duration::seconds(second), true);
        due.into_iter().map(|measurement| measurement.subject).collect()
    };
    assert_eq!(told(0), [gateway("a"), gateway("b")]);
    assert_eq!(told(10), []);
    assert_eq!(told(15), [gateway("b")]);
    assert_eq!(told(30), [gateway("b")]);
    assert_eq!(told(315), [gateway("a"), gateway("b")]);
}
