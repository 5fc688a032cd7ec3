//! What services are told of one another, over merges and removals: given commands, when a command, then these services.

use super::*;
use crate::artifact::{Instance, Leaving, PhaseName, Service};
use crate::dsl::{self, Options};

const SHOP: &str = "
clusters:
  store: {name: store:1, deployable: s, ports: {api: 81}}
  web:
    name: web:1
    deployable: w
    ports: {http: 80}
    dependencies: {db: store:1}
    environment_variables: {DB: $db.host:$db.ports.api}";

/// A state, and the time, which only commands move.
struct World {
    state: State,
    now: OffsetDateTime,
}

impl World {
    /// A deployment that was asked for, of which nothing runs yet.
    fn new(body: &str) -> Self {
        let mut world = Self { state: State::default(), now: OffsetDateTime::UNIX_EPOCH };
        world.deploy(body);
        world
    }

    fn deploy(&mut self, body: &str) {
        let body = dsl::read_deployment_body(&dsl::document(body).unwrap(), &Options::default());
        let submission = submission(Verb::Update);
        let (name, body) = ("shop".to_owned(), Box::new(body.unwrap()));
        self.must(&Command::Deploy { name, body, submission });
    }

    fn undeploy(&mut self, body: &str) {
        let body = dsl::read_removal_body(&dsl::document(body).unwrap(), &Options::default());
        let submission = submission(Verb::Delete);
        let (name, body) = ("shop".to_owned(), Box::new(body.unwrap()));
        self.must(&Command::Undeploy { name, body, submission });
    }

    /// The service runs, with one instance.
    fn run(&mut self, cluster: &str, service: &str) {
        let instance = Instance {
            name: format!("{service}-1"),
            host: "10.0.0.1".to_owned(),
            ports: indexmap::IndexMap::new(),
            deployed: true,
            leaving: Leaving::No,
            served: true,
        };
        for report in [
            ServiceReport::TakenUp,
            ServiceReport::EnvironmentDue,
            ServiceReport::Instances(vec![instance]),
            ServiceReport::Done,
        ] {
            self.report(cluster, service, report);
        }
        assert!(self.service(cluster, service).is_done());
    }

    fn report(&mut self, cluster: &str, service: &str, report: ServiceReport) -> Vec<Event> {
        let key = ServiceKey {
            deployment: "shop".to_owned(),
            cluster: cluster.to_owned(),
            service: service.to_owned(),
        };
        self.must(&Command::Report(Report::Service { key, report }))
    }

    /// Carries out what cannot be refused, a second later than what was before.
    fn must(&mut self, command: &Command) -> Vec<Event> {
        self.now += time::Duration::SECOND;
        let context = Context {
            now: self.now,
            actor: "user".to_owned(),
            cause: None,
            correlation: "request".to_owned(),
        };
        let events = decide(&self.state, command, &context, &Rules::default());
        let events = events.unwrap_or_else(|problems| panic!("{command:?}: {problems:?}"));
        for event in &events {
            foresee(&mut self.state, event, &context);
        }
        events
    }

    fn service(&self, cluster: &str, service: &str) -> &Service {
        self.state.deployment("shop").unwrap().service(cluster, service).unwrap()
    }

    /// A variable as the service gets it.
    fn variable(&self, cluster: &str, service: &str, name: &str) -> &str {
        &self.service(cluster, service).environment.as_ref().unwrap()[name]
    }

    fn address(&self, gateway: &str) -> String {
        format!("127.0.0.1:{}", self.state.gateway(gateway).unwrap().port.number)
    }
}

fn submission(verb: Verb) -> Submission {
    Submission { verb, representation: serde_json::Value::String(String::new()) }
}

#[test]
fn what_comes_back_while_it_leaves_is_told_the_new_addresses() {
    let mut world = World::new(SHOP);
    world.run("store", "store:1");
    world.run("web", "web:1");
    let before = world.address("shop/store/api");
    assert_eq!(world.variable("web", "web:1", "DB"), before);
    world.undeploy("clusters: {store: {breed: store:1}, web: {breed: web:1}}");
    world.deploy(SHOP);
    assert_eq!(world.service("web", "web:1").environment, None);
    world.run("store", "store:1");
    world.run("web", "web:1");
    let after = world.address("shop/store/api");
    assert_ne!(after, before);
    assert_eq!(world.variable("web", "web:1", "DB"), after);
}

#[test]
fn who_depends_on_any_of_several_is_told_when_another_one_takes_over() {
    let mut world = World::new(
        "
clusters:
  first:
    services:
    - {name: pg:1, deployable: p, ports: {sql: 5432/tcp}}
    - {name: pg:2, deployable: p, ports: {sql: 5432/tcp}}
    gateways: {sql: {routes: {pg:1: {weight: 0%}, pg:2: {weight: 100%}}}}
  second: {name: pg:3, deployable: p, ports: {sql: 5432/tcp}}
  web:
    name: web:1
    deployable: w
    dependencies: {db: pg:*}
    environment_variables: {DB: $db.host:$db.ports.sql}",
    );
    for (cluster, service) in
        [("first", "pg:1"), ("first", "pg:2"), ("second", "pg:3"), ("web", "web:1")]
    {
        world.run(cluster, service);
    }
    assert_eq!(world.variable("web", "web:1", "DB"), world.address("shop/first/sql"));
    // The address is that of the cluster, whoever of it serves.
    world.undeploy("clusters: {first: {breed: pg:1}}");
    assert!(world.service("web", "web:1").is_done());
    world.undeploy("clusters: {first: {breed: pg:2}}");
    let web = world.service("web", "web:1");
    assert_eq!((web.status.phase.name, &web.environment), (PhaseName::Initiated, &None));
    assert_eq!(web.dependencies["db"], "second");
    assert!(world.service("second", "pg:3").is_done());
    world.run("web", "web:1");
    assert_eq!(world.variable("web", "web:1", "DB"), world.address("shop/second/sql"));
}

/// The order of ports and dialects is part of what an instance is made from.
#[test]
fn a_merge_does_not_reorder_what_it_does_not_change() {
    let web = |breed: &str, dialects: &str| {
        format!(
            "web: {{services: [{{breed: {{name: web:1, deployable: w, {breed}}}, dialects: {dialects}}}]}}"
        )
    };
    let first = web("ports: {a: 80, b: 81}", "{docker: {net: x, labels: {c: 1, d: 2}}}");
    let mut world = World::new(&format!("clusters: {{{first}}}"));
    let before = serde_json::to_string(world.service("web", "web:1")).unwrap();
    let second = web("ports: {b: 81, a: 80}", "{docker: {labels: {d: 2, c: 1}, net: x}}");
    world.deploy(&format!("clusters: {{{second}, other: {{name: other:1, deployable: o}}}}"));
    assert_eq!(serde_json::to_string(world.service("web", "web:1")).unwrap(), before);
    let third = web("ports: {b: 81, a: 82}", "{docker: {labels: {d: 2}, net: x}}");
    world.deploy(&format!("clusters: {{{third}}}"));
    let web = world.service("web", "web:1");
    assert_eq!(web.breed.ports["a"].number, 82);
    assert_eq!(web.dialects["docker"]["labels"], serde_json::json!({"d": 2}));
}

#[test]
fn a_constant_is_that_of_the_breed_depended_on() {
    let mut world = World::new(
        "
clusters:
  store:
    services:
    - {name: store:1, deployable: s, constants: {motto: one, only: first}}
    - {name: store:2, deployable: s, constants: {motto: two}}
  web:
    services:
    - breed:
        name: web:1
        deployable: w
        dependencies: {db: store:2}
        environment_variables: {OWN: $db.constants.motto, REST: $db.constants.only, ANY: none}
      environment_variables: {ANY: $store.constants.motto}",
    );
    world.run("web", "web:1");
    // A name that is no alias is that of a cluster.
    let variables = ["OWN", "ANY", "REST"].map(|name| world.variable("web", "web:1", name));
    assert_eq!(variables, ["two", "one", "first"]);
}

#[test]
fn a_variable_is_referred_to_with_the_value_that_the_service_gets() {
    for (own, inherited, level) in [
        ("", "", "info"),
        ("", "environment_variables: {web.LEVEL: debug}", "debug"),
        ("env: {LEVEL: trace}", "environment_variables: {web.LEVEL: debug}", "trace"),
    ] {
        let mut world = World::new(&format!(
            "
clusters:
  web:
    services:
    - breed: {{name: web:1, deployable: w, env: {{LEVEL: info, LINE: at $LEVEL}}}}
      {own}
{inherited}"
        ));
        world.run("web", "web:1");
        assert_eq!(world.variable("web", "web:1", "LEVEL"), level);
        assert_eq!(world.variable("web", "web:1", "LINE"), format!("at {level}"));
    }
}

#[test]
fn what_failed_to_leave_is_told_about_when_it_is_given_up() {
    let mut world = World::new(SHOP);
    world.undeploy("clusters: {web: {breed: web:1}}");
    for report in [ServiceReport::TakenUp, ServiceReport::Failed("it hangs".to_owned())] {
        world.report("web", "web:1", report);
    }
    let told = world.report("web", "web:1", ServiceReport::Trouble("it may run".to_owned()));
    assert_eq!(told[0].value["notification"], "it may run");
    assert_eq!(world.service("web", "web:1").status.phase.name, PhaseName::Failed);
}

/// What was told stands for its text, until the text changes: going back is a change, too, and a repeated one is none.
#[test]
fn a_value_can_be_taken_back_before_it_is_in_force() {
    let with = |mode: &str| {
        format!(
            "{{clusters: {{web: {{services: [{{breed: {{name: 'web:1', deployable: w, environment_variables: {{MODE: own}}}}}}]}}}}, environment_variables: {{web.MODE: {mode}}}}}"
        )
    };
    let mut world = World::new(&with("x"));
    world.run("web", "web:1");
    let mode = |world: &World| {
        let deployment = world.state.deployment("shop").unwrap();
        deployment.environment_variables["web.MODE"].clone()
    };
    for (sent, wanted) in [("y", "y"), ("y", "y"), ("x", "x"), ("x", "x"), ("z", "z")] {
        world.deploy(&with(sent));
        assert_eq!(mode(&world).as_deref(), Some(wanted));
        assert!(world.service("web", "web:1").environment.is_none());
    }
}
