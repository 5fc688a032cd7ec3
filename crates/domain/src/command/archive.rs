//! The events that commands make: their types, tags and values (runtime, section 11).

use super::{Context, Submission, Verb};
use crate::artifact::{ArtifactKey, GatewayName, Kind};
use crate::event::{DeploymentFact, Event, Fact, GatewayFact, Tags};
use serde_json::{Value, json};

impl Verb {
    fn action(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Delete => "delete",
        }
    }
}

/// The archive event of a write to the artifact `key`; it carries the fact when the write changed something.
pub(super) fn archived(
    key: &ArtifactKey,
    submission: &Submission,
    fact: Option<Fact>,
    context: &Context,
) -> Event {
    archived_as(&key.to_string(), submission, fact, context)
}

/// The archive event of a write to what `subject` names, `<collection>:<name>`.
pub(super) fn archived_as(
    subject: &str,
    submission: &Submission,
    fact: Option<Fact>,
    context: &Context,
) -> Event {
    let action = submission.verb.action();
    let tags = [subject.to_owned(), format!("archiving:{action}"), format!("archive:{action}")];
    event("archive", tags, submission.representation.clone(), fact, context)
}

/// Something happened to a gateway. `tags` stand beside those that name it.
pub(super) fn gateway(
    name: &str,
    tags: &[&str],
    value: Value,
    fact: GatewayFact,
    context: &Context,
) -> Event {
    let kind = match fact {
        GatewayFact::DeployedChanged { .. } | GatewayFact::RoutesDisabled(_) => "event",
        GatewayFact::Stored(_)
        | GatewayFact::Published
        | GatewayFact::PortAssigned(_)
        | GatewayFact::Deleted => "gateway",
    };
    let fact = Fact::Gateway { name: name.to_owned(), fact };
    event(kind, gateway_tags(name, tags), value, Some(fact), context)
}

/// A gateway that took traffic is removed. `last` is what it was; `fact` goes with what is told of the removal first.
pub(super) fn gateway_undeployed(
    name: &str,
    last: Value,
    fact: Option<GatewayFact>,
    context: &Context,
) -> Event {
    let fact = fact.map(|fact| Fact::Gateway { name: name.to_owned(), fact });
    event("event", gateway_tags(name, &["undeployed"]), last, fact, context)
}

fn gateway_tags(name: &str, tags: &[&str]) -> impl Iterator<Item = String> {
    let deployment = GatewayName::parse(name).and_then(GatewayName::deployment);
    std::iter::once(format!("gateways:{name}"))
        .chain(deployment.map(|deployment| format!("deployments:{deployment}")))
        .chain(tags.iter().map(|tag| (*tag).to_owned()))
}

/// Where a service stands: deployment, cluster and breed name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The deployment.
    pub deployment: String,
    /// The cluster.
    pub cluster: String,
    /// The breed's name.
    pub service: String,
}

/// Something happened to a service. `tags` stand beside those that name it.
pub(super) fn service(
    kind: &str,
    key: &ServiceKey,
    tags: &[&str],
    value: Value,
    fact: DeploymentFact,
    context: &Context,
) -> Event {
    let own = [
        format!("deployments:{}", key.deployment),
        format!("clusters:{}", key.cluster),
        format!("services:{}", key.service),
    ];
    let tags = own.into_iter().chain(tags.iter().map(|tag| (*tag).to_owned()));
    event(kind, tags, value, Some(Fact::Deployment { name: key.deployment.clone(), fact }), context)
}

/// The last service of a deployment is gone: it is archived as deleted.
pub(super) fn deployment_deleted(name: &str, last: Value, context: &Context) -> Event {
    let fact = Fact::Deployment { name: name.to_owned(), fact: DeploymentFact::Deleted };
    let submission = Submission { verb: Verb::Delete, representation: last };
    archived(&ArtifactKey::new(Kind::Deployment, name), &submission, Some(fact), context)
}

/// Something outside failed, or was done, that belongs to no single artifact.
pub(super) fn notice(tags: &[&str], value: Value, context: &Context) -> Event {
    event("event", tags.iter().map(|tag| (*tag).to_owned()), value, None, context)
}

/// Something was measured.
pub(super) fn measured(kind: &str, tags: Vec<String>, value: Value, context: &Context) -> Event {
    event(kind, tags, value, None, context)
}

/// Something happened that belongs to no single artifact, and changes the state.
pub(super) fn with_fact(
    kind: &str,
    tags: impl IntoIterator<Item = String>,
    value: Value,
    fact: Fact,
    context: &Context,
) -> Event {
    event(kind, tags, value, Some(fact), context)
}

/// The value of a failure.
pub(super) fn notification(text: &str) -> Value {
    json!({ "notification": text })
}

/// The value of an event without one.
pub(super) fn blank() -> Value {
    Value::String(String::new())
}

fn event(
    kind: &str,
    tags: impl IntoIterator<Item = String>,
    value: Value,
    fact: Option<Fact>,
    context: &Context,
) -> Event {
    Event { kind: kind.to_owned(), tags: Tags::expand(tags), timestamp: context.now, value, fact }
}
