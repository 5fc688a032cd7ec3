//! What users and other programs ask for in a life; being refused is part of it.

use super::documents;
use super::life::Life;
use rand::RngExt;
use rand::seq::IndexedRandom;
use segue_domain::artifact::{
    ArtifactKey, BlueprintService, BreedReference, GatewayName, Kind, SlaReference,
};
use segue_domain::command::{Artifact, Command, Posted, Store, Submission, Verb};
use segue_domain::dsl::{ClusterSlaBody, DeploymentBody};
use serde_json::{Value, json};

const DEPLOYMENTS: [&str; 2] = ["shop", "blog"];

impl Life {
    pub(super) fn merge(&mut self) {
        let name = self.pick(&DEPLOYMENTS);
        let body = documents::blueprint(&mut self.random);
        let body = Box::new(DeploymentBody::Blueprint(Box::new(body)));
        let submission = submission(Verb::Update);
        self.wish("merge", &Command::Deploy { name: name.to_owned(), body, submission });
    }

    /// Other weights at some gateway.
    pub(super) fn shift(&mut self) {
        let state = self.world.store.state();
        let published: Vec<_> =
            state.published_gateways().map(|(_, stored)| stored.gateway.clone()).collect();
        let Some(gateway) = published.choose(&mut self.random) else { return };
        let mut gateway = (**gateway).clone();
        documents::weigh(&mut self.random, &mut gateway);
        self.store("shift", Artifact::Gateway(Box::new(gateway)));
    }

    pub(super) fn scale(&mut self) {
        let state = self.world.store.state();
        let services: Vec<(String, String, String)> = state
            .deployments()
            .iter()
            .flat_map(|(name, stored)| {
                let services = stored.artifact.services();
                services.map(|(cluster, service)| {
                    (name.clone(), cluster.to_owned(), service.breed.name.clone())
                })
            })
            .collect::<Vec<_>>();
        let Some((deployment, cluster, service)) = services.choose(&mut self.random).cloned()
        else {
            return;
        };
        let (scale, submission) =
            (documents::any_scale(&mut self.random), submission(Verb::Update));
        self.wish("scale", &Command::Scale { deployment, cluster, service, scale, submission });
    }

    pub(super) fn delete(&mut self) {
        let name = self.pick(&DEPLOYMENTS);
        let state = self.world.store.state();
        let Some(deployment) = state.deployment(name) else { return };
        let whole = self.random.random_bool(0.4);
        let mut body = documents::empty_blueprint();
        for (cluster, service) in deployment.services() {
            if whole || self.random.random_bool(0.4) {
                let named = BlueprintService {
                    breed: BreedReference::Inline(Box::new(service.breed.clone())),
                    ..documents::plain_service(BreedReference::Reference(String::new()))
                };
                body.clusters.entry(cluster.to_owned()).or_default().services.push(named);
            }
        }
        let body = Box::new(DeploymentBody::Blueprint(Box::new(body)));
        let submission = submission(Verb::Delete);
        self.wish(
            "services deleted",
            &Command::Undeploy { name: name.to_owned(), body, submission },
        );
    }

    /// A gateway of its own, new or changed, to whatever is there.
    pub(super) fn store_gateway(&mut self) {
        let state = self.world.store.state();
        let mut known: Vec<String> = state.gateways().keys().cloned().collect();
        for stored in state.gateways().values() {
            let is_internal =
                GatewayName::parse(&stored.gateway.name).is_some_and(GatewayName::is_internal);
            if is_internal {
                known.extend(stored.gateway.routes.keys().map(|path| path.as_str().to_owned()));
            }
        }
        let gateway = documents::gateway(&mut self.random, &known);
        self.store("gateway stored", Artifact::Gateway(Box::new(gateway)));
    }

    /// Any gateway is deleted; those of clusters are not to be.
    pub(super) fn delete_gateway(&mut self) {
        let names: Vec<String> = self.world.store.state().gateways().keys().cloned().collect();
        let Some(name) = names.choose(&mut self.random) else { return };
        let of_blueprint = matches!(GatewayName::parse(name), Some(GatewayName::External { .. }));
        let kind = if of_blueprint { "gateway of a blueprint deleted" } else { "gateway deleted" };
        self.wish(kind, &Command::Delete { key: ArtifactKey::new(Kind::Gateway, name) });
    }

    /// A running cluster promises something else, or nothing.
    pub(super) fn set_sla(&mut self) {
        let Some((deployment, cluster, clusters)) = self.any_cluster() else { return };
        let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
        let sla = self.random.random_bool(0.8).then(|| {
            let sla = documents::sla(&mut self.random, &clusters);
            Box::new(ClusterSlaBody { named: None, sla: SlaReference::Inline(Box::new(sla)) })
        });
        let kind = if sla.is_some() { "SLA set" } else { "SLA taken away" };
        let submission = submission(Verb::Update);
        self.wish(kind, &Command::SetSla { deployment, cluster, sla, submission });
    }

    /// Somebody else measures how long a cluster takes.
    pub(super) fn post_measurement(&mut self) {
        let Some((deployment, cluster, _)) = self.any_cluster() else { return };
        let tag = self.pick(&["metrics:responseTime", "metrics:response-time"]);
        let mut tags = vec![format!("gateways:{deployment}/{cluster}/http"), tag.to_owned()];
        if self.random.random_bool(0.2) {
            tags.push(format!("routes:{deployment}/{cluster}/{cluster}:1/http"));
        }
        let value = [50, 300, 900].choose(&mut self.random).expect("there are some");
        self.post("measurement posted", "metrics", tags, json!(value));
    }

    /// Somebody else asks for more, or less, or for nonsense.
    pub(super) fn post_alarm(&mut self) {
        let mut tags = match self.random.random_range(0..5) {
            0..2 => vec!["sla:escalate"],
            2..4 => vec!["sla:deescalate"],
            _ => vec!["sla:deescalate", "sla:escalate"],
        };
        let (deployment, cluster) = match self.any_cluster() {
            Some((deployment, cluster, _)) if self.random.random_bool(0.85) => {
                (deployment, cluster)
            }
            _ => ("nobody".to_owned(), "nothing".to_owned()),
        };
        if self.random.random_bool(0.2) {
            tags.push("noise");
        }
        let mut tags: Vec<String> = tags.into_iter().map(str::to_owned).collect();
        let plural = self.random.random_bool(0.5);
        tags.push(format!("{}:{deployment}", if plural { "deployments" } else { "deployment" }));
        if self.random.random_bool(0.9) {
            tags.push(format!("{}:{cluster}", if plural { "clusters" } else { "cluster" }));
        }
        self.post("alarm posted", "event", tags, json!(""));
    }

    fn post(&mut self, kind: &'static str, event: &str, tags: Vec<String>, value: Value) {
        let posted = Posted { tags, kind: event.to_owned(), value, timestamp: None };
        self.wish(kind, &Command::Post(posted));
    }

    /// Some cluster, as deployment and name, and all of that deployment.
    fn any_cluster(&mut self) -> Option<(String, String, Vec<String>)> {
        let state = self.world.store.state();
        let clusters = state.deployments().iter().flat_map(|(name, stored)| {
            let all: Vec<String> = stored.artifact.clusters.keys().cloned().collect();
            all.clone().into_iter().map(move |cluster| (name.clone(), cluster, all.clone()))
        });
        clusters.collect::<Vec<_>>().choose(&mut self.random).cloned()
    }

    fn store(&mut self, kind: &'static str, artifact: Artifact) {
        let submission = submission(Verb::Update);
        self.wish(kind, &Command::Store(Store { artifact, submission }));
    }

    /// Something is wished for, and counted as `kind` when it made something happen.
    fn wish(&mut self, kind: &'static str, command: &Command) {
        let accepted = self.world.execute(command);
        self.tally.count(if accepted { kind } else { "wish refused" });
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.choose(&mut self.random).expect("there is something to pick")
    }
}

fn submission(verb: Verb) -> Submission {
    Submission { verb, representation: json!("") }
}
