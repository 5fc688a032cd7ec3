//! A store in memory that is spoken to in documents.

use futures::executor::block_on;
use segue_domain::artifact::{ArtifactKey, Instance, Kind, Leaving};
use segue_domain::command::{
    Artifact, Command, Context, Posted, Report, Routed, Rules, ServiceKey, ServiceReport, Store,
    Submission, Verb,
};
use segue_domain::dsl::{self, Options};
use segue_domain::event::Record;
use segue_domain::problem::Problems;
use segue_domain::state::State;
use segue_domain::store::{ExecuteError, Store as Log};
use serde_json::Value;
use std::sync::Arc;
use time::{Duration, OffsetDateTime};

/// Where gateways are reached.
pub const HOST: &str = "127.0.0.1";

/// A store, and the time, which only commands move.
pub struct World {
    pub store: Log,
    now: OffsetDateTime,
}

impl World {
    pub fn new() -> Self {
        Self::with(rules())
    }

    pub fn with(rules: Rules) -> Self {
        let store = Log::in_memory(rules).expect("a log in memory opens");
        Self { store, now: OffsetDateTime::UNIX_EPOCH + Duration::days(20_000) }
    }

    pub fn state(&self) -> Arc<State> {
        self.store.state()
    }

    /// What is asked for now.
    pub fn context(&self) -> Context {
        Context {
            now: self.now,
            actor: "user".to_owned(),
            cause: None,
            correlation: "request".to_owned(),
        }
    }

    /// What the next command will be asked with.
    pub fn context_of_next(&self) -> Context {
        Context { now: self.now + Duration::SECOND, ..self.context() }
    }

    /// Executes `command` a second later than the one before.
    pub fn execute(&mut self, command: &Command) -> Result<Vec<Arc<Record>>, Problems> {
        self.now += Duration::SECOND;
        match block_on(self.store.execute(command, &self.context())) {
            Ok(executed) => Ok(executed.records),
            Err(ExecuteError::Rejected(problems)) => Err(problems),
            Err(error @ (ExecuteError::Append(_) | ExecuteError::Read(_))) => panic!("{error}"),
        }
    }

    /// Executes what cannot be refused.
    pub fn must(&mut self, command: &Command) -> Vec<Arc<Record>> {
        self.execute(command).unwrap_or_else(|problems| panic!("{command:?}:\n{problems:?}"))
    }

    /// The service runs with one ready instance for each that is wanted.
    pub fn run(&mut self, deployment: &str, cluster: &str, service: &str) {
        let key = service_key(deployment, cluster, service);
        let wanted = self.state();
        let wanted =
            wanted.deployment(deployment).and_then(|found| found.service(cluster, service));
        let wanted = wanted.unwrap_or_else(|| panic!("there is no {key:?}"));
        let ports = wanted.breed.ports.keys();
        let instance = |number: u32| Instance {
            name: format!("{service}-{number}"),
            host: "10.0.0.1".to_owned(),
            ports: ports.clone().map(|port| (port.clone(), 31_000)).collect(),
            deployed: true,
            leaving: Leaving::No,
            served: false,
        };
        let instances = (0..wanted.scale.instances).map(instance).collect();
        for report in [
            ServiceReport::TakenUp,
            ServiceReport::EnvironmentDue,
            ServiceReport::Instances(instances),
            ServiceReport::Done,
        ] {
            self.report(deployment, cluster, service, report);
        }
        self.route();
    }

    /// A worker's report about one service.
    pub fn report(
        &mut self,
        deployment: &str,
        cluster: &str,
        service: &str,
        report: ServiceReport,
    ) -> Vec<Arc<Record>> {
        let key = service_key(deployment, cluster, service);
        self.must(&Command::Report(Report::Service { key, report }))
    }

    /// The proxy serves everything that is published and has a port.
    pub fn route(&mut self) {
        let state = self.state();
        let published =
            state.published_gateways().filter(|(_, found)| found.gateway.port.number != 0);
        let served = published.map(|(name, _)| name.clone()).collect();
        self.must(&Command::Report(Report::Routed(Routed { served, ..Routed::default() })));
    }
}

/// Rules with a pool that fills up and arguments of the installation.
pub fn rules() -> Rules {
    let argument = |key: &str, value: &str| segue_domain::artifact::Argument {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    Rules {
        gateway_ports: 20_000..=20_004,
        default_arguments: vec![argument("privileged", "false"), argument("log", "json")],
        ..Rules::default()
    }
}

pub fn service_key(deployment: &str, cluster: &str, service: &str) -> ServiceKey {
    ServiceKey {
        deployment: deployment.to_owned(),
        cluster: cluster.to_owned(),
        service: service.to_owned(),
    }
}

/// The command that merges the document `body` into deployment `name`.
pub fn deploy(name: &str, body: &str) -> Result<Command, Problems> {
    Ok(Command::Deploy {
        name: name.to_owned(),
        body: Box::new(dsl::read_deployment_body(&node(body), &Options::default())?),
        submission: submission(Verb::Update),
    })
}

/// The command that takes what the document `body` names away from deployment `name`.
pub fn undeploy(name: &str, body: &str) -> Result<Command, Problems> {
    Ok(Command::Undeploy {
        name: name.to_owned(),
        body: Box::new(dsl::read_removal_body(&node(body), &Options::default())?),
        submission: submission(Verb::Delete),
    })
}

/// The command that stores the document `body`.
pub fn store(kind: Kind, body: &str) -> Result<Command, Problems> {
    store_node(kind, &node(body))
}

/// The command that stores the document `node`.
pub fn store_node(kind: Kind, node: &dsl::Node) -> Result<Command, Problems> {
    let options = Options::default();
    let artifact = match kind {
        Kind::Blueprint => Artifact::Blueprint(Box::new(dsl::read_blueprint(node, &options)?)),
        Kind::Breed => Artifact::Breed(Box::new(dsl::read_breed(node, &options)?)),
        Kind::Condition => Artifact::Condition(dsl::read_condition(node, &options)?),
        Kind::Escalation => Artifact::Escalation(Box::new(dsl::read_escalation(node, &options)?)),
        Kind::Gateway => Artifact::Gateway(Box::new(dsl::read_gateway(node, &options)?)),
        Kind::Rewrite => Artifact::Rewrite(dsl::read_rewrite(node, &options)?),
        Kind::Route => Artifact::Route(Box::new(dsl::read_route(node, &options)?)),
        Kind::Scale => Artifact::Scale(dsl::read_scale(node, &options)?),
        Kind::Sla => Artifact::Sla(Box::new(dsl::read_sla(node, &options)?)),
        Kind::Template => Artifact::Template(dsl::read_template(node, &options)?),
        Kind::Deployment => return deploy("", &node.to_json().to_string()),
    };
    Ok(Command::Store(Store { artifact, submission: submission(Verb::Update) }))
}

pub fn delete(kind: Kind, name: &str) -> Command {
    Command::Delete { key: ArtifactKey::new(kind, name) }
}

pub fn post(kind: &str, tags: &[&str]) -> Command {
    Command::Post(Posted {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        kind: kind.to_owned(),
        value: Value::String("forged".to_owned()),
        timestamp: None,
    })
}

pub fn submission(verb: Verb) -> Submission {
    Submission { verb, representation: Value::String(String::new()) }
}

fn node(text: &str) -> dsl::Node {
    dsl::document(text).unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
}
