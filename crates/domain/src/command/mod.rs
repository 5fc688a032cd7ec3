//! Wishes and what becomes of them: `decide` turns a command into events, or says why not.
//!
//! [`decide`] is pure: it sees the state, the command, the context and the rules, and nothing else. Its events can
//! always be applied.

mod archive;
mod check;
mod configuration;
mod deploy;
mod escalate;
mod gateways;
mod measure;
mod merge;
mod prepare;
mod references;
mod report;
mod slas;
mod statics;
#[cfg(test)]
mod tests;
mod undeploy;

pub use archive::ServiceKey;
pub use escalate::{DEESCALATE, Direction, ESCALATE, EscalationEvent, Scaled, Verdict};
pub use measure::{Measure, Measurement, Subject};
pub use report::{Report, Routed, ServiceReport};

use crate::artifact::value::ConfigurationValues;
use crate::artifact::{
    Argument, ArtifactKey, Blueprint, Breed, Gateway, GatewayName, NamedCondition, NamedEscalation,
    NamedRewrite, NamedRoute, NamedScale, NamedSla, Scale, Template,
};
use crate::dsl::{ClusterSlaBody, DeploymentBody};
use crate::event::{Event, Position, Tags};
use crate::problem::{Problem, ProblemKind, Problems, Result};
use crate::state::State;
use std::ops::RangeInclusive;
use time::OffsetDateTime;

/// A wish.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Create or replace an artifact that only users change, or a gateway.
    Store(Store),
    /// Remove an artifact. Nothing happens when there is none.
    Delete {
        /// Which.
        key: ArtifactKey,
    },
    /// Create a deployment, or merge into it.
    Deploy {
        /// The deployment.
        name: String,
        /// What is to run.
        body: Box<DeploymentBody>,
        /// How it was asked for.
        submission: Submission,
    },
    /// Take services away from a deployment; the breeds of the body are only names.
    Undeploy {
        /// The deployment.
        name: String,
        /// What is to go.
        body: Box<DeploymentBody>,
        /// How it was asked for.
        submission: Submission,
    },
    /// Set how much of a service runs.
    Scale {
        /// The deployment.
        deployment: String,
        /// The cluster.
        cluster: String,
        /// The breed's name.
        service: String,
        /// How much.
        scale: Scale,
        /// How it was asked for.
        submission: Submission,
    },
    /// Set what a cluster promises, or take that away.
    SetSla {
        /// The deployment.
        deployment: String,
        /// The cluster.
        cluster: String,
        /// The SLA; `None` for none.
        sla: Option<Box<ClusterSlaBody>>,
        /// How it was asked for.
        submission: Submission,
    },
    /// Replace what a proxy's configuration is generated from. Whoever asks made sure that it can be used.
    SetConfigurationTemplate {
        /// The kind of the proxy: `haproxy`.
        kind: String,
        /// The name of the configuration.
        name: String,
        /// The template; `None` for Segue's own.
        template: Option<String>,
    },
    /// Record an event of somebody else. It is kept, never folded.
    Post(Posted),
    /// What a worker found or did.
    Report(Report),
    /// Several wishes as one: all or nothing, in an order in which all find what they refer to.
    All(Vec<Command>),
    /// A wish that holds only while an artifact has a certain revision.
    If {
        /// The artifact.
        key: ArtifactKey,
        /// The revision it has.
        revision: Option<RevisionMatch>,
        /// The wish.
        command: Box<Command>,
    },
}

impl Command {
    /// Of several wishes those of lower rank are decided first, so that the documents of one request may refer to one
    /// another in any order: deployments to stored artifacts, external gateways to stored routes, internal gateways to
    /// their deployment.
    pub fn rank(&self) -> u8 {
        match self {
            Self::If { command, .. } => command.rank(),
            Self::Store(Store { artifact: Artifact::Gateway(gateway), .. }) => {
                let internal =
                    GatewayName::parse(&gateway.name).is_some_and(GatewayName::is_internal);
                if internal { 3 } else { 1 }
            }
            Self::Deploy { .. } => 2,
            _ => 0,
        }
    }
}

/// Which revision is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionMatch {
    /// Any, as long as the artifact exists.
    Exists,
    /// This one.
    Is(Position),
}

/// An artifact to be created or replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// The artifact.
    pub artifact: Artifact,
    /// How it was asked for.
    pub submission: Submission,
}

/// An artifact that is stored as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Artifact {
    /// A blueprint; breeds written in place are stored as breeds, too.
    Blueprint(Box<Blueprint>),
    /// A breed.
    Breed(Box<Breed>),
    /// A scale.
    Scale(NamedScale),
    /// A condition.
    Condition(NamedCondition),
    /// An escalation.
    Escalation(Box<NamedEscalation>),
    /// An SLA.
    Sla(Box<NamedSla>),
    /// A gateway.
    Gateway(Box<Gateway>),
    /// A rewrite.
    Rewrite(NamedRewrite),
    /// A route.
    Route(Box<NamedRoute>),
    /// A template.
    Template(Template),
}

/// How something was asked for; becomes the archive event.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The verb of the request.
    pub verb: Verb,
    /// The document as it was sent.
    pub representation: serde_json::Value,
}

/// What was asked for, as archive events say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// DELETE.
    Delete,
}

/// An event of somebody else.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    /// Its tags, not yet expanded.
    pub tags: Vec<String>,
    /// Its type.
    pub kind: String,
    /// Its value; the empty text when there is none.
    pub value: serde_json::Value,
    /// When it happened; now when not said.
    pub timestamp: Option<OffsetDateTime>,
}

/// What a decision may need besides the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The time.
    pub now: OffsetDateTime,
    /// Who asks.
    pub actor: String,
    /// The position that led to this, when there is one.
    pub cause: Option<Position>,
    /// The request or turn that this belongs to.
    pub correlation: String,
}

/// What the installation settles for all decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The host under which gateways are reached.
    pub gateway_host: String,
    /// The pool of ports for gateways without one.
    pub gateway_ports: RangeInclusive<u16>,
    /// The scale of services without one.
    pub default_scale: Scale,
    /// Arguments before those of the breed.
    pub default_arguments: Vec<Argument>,
    /// The domain of generated virtual hosts; `None` generates none.
    pub virtual_hosts_domain: Option<String>,
    /// What references such as `$conf://gateway_driver.host` stand for.
    pub configuration: ConfigurationValues,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            gateway_host: "127.0.0.1".to_owned(),
            gateway_ports: 20_000..=25_000,
            default_scale: Scale {
                cpu: crate::artifact::Cpu::from_milli(1000),
                memory: crate::artifact::Memory::from_megabytes(1024),
                instances: 1,
            },
            default_arguments: Vec::new(),
            virtual_hosts_domain: Some("segue".to_owned()),
            configuration: ConfigurationValues::default(),
        }
    }
}

/// Decides `command` on `state`: the events that make it true, or why it is refused.
pub fn decide(
    state: &State,
    command: &Command,
    context: &Context,
    rules: &Rules,
) -> Result<Vec<Event>> {
    let mut events = decide_alone(state, command, context, rules)?;
    if !matches!(command, Command::All(_) | Command::If { .. }) {
        events.extend(gateways::freed_ports(state, &events, context, rules));
    }
    Ok(events)
}

fn decide_alone(
    state: &State,
    command: &Command,
    context: &Context,
    rules: &Rules,
) -> Result<Vec<Event>> {
    match command {
        Command::Store(Store { artifact: Artifact::Gateway(gateway), submission }) => {
            gateways::store(state, gateway, submission, context, rules)
        }
        Command::Store(store) => Ok(statics::store(state, store, context)),
        Command::Delete { key } => statics::delete(state, key, context, rules),
        Command::Deploy { name, body, submission } => {
            deploy::deploy(state, name, body, submission, context, rules)
        }
        Command::Undeploy { name, body, submission } => {
            undeploy::undeploy(state, name, body, submission, context, rules)
        }
        Command::Scale { deployment, cluster, service, scale, submission } => {
            let key = (deployment.as_str(), cluster.as_str(), service.as_str());
            deploy::scale(state, key, *scale, Some(submission), context)
        }
        Command::SetSla { deployment, cluster, sla, submission } => {
            slas::set(state, (deployment, cluster), sla.as_deref(), submission, context)
        }
        Command::SetConfigurationTemplate { kind, name, template } => {
            Ok(configuration::set_template(state, (kind, name), template.as_deref(), context))
        }
        Command::Post(posted) => post(posted, context),
        Command::Report(report) => Ok(report::decide(state, report, context, rules)),
        Command::All(commands) => all(state, commands, context, rules),
        Command::If { key, revision, command } => {
            check_revision(state, key, *revision)?;
            decide(state, command, context, rules)
        }
    }
}

/// Decides `commands` on what the ones before them made, those first that others may refer to; the order is otherwise
/// theirs. Problems point below the index of their command; those of equal rank are reported together.
fn all(
    state: &State,
    commands: &[Command],
    context: &Context,
    rules: &Rules,
) -> Result<Vec<Event>> {
    let mut state = state.clone();
    let mut events = Vec::new();
    let mut ordered: Vec<(usize, &Command)> = commands.iter().enumerate().collect();
    ordered.sort_by_key(|(_, command)| command.rank());
    for group in ordered.chunk_by(|(_, left), (_, right)| left.rank() == right.rank()) {
        let mut problems = Vec::new();
        for (index, command) in group {
            match decide(&state, command, context, rules) {
                Ok(decided) => {
                    for event in decided {
                        foresee(&mut state, &event, context);
                        events.push(event);
                    }
                }
                Err(refused) => problems.extend(refused.below(*index)),
            }
            if problems.len() >= Problems::MAX {
                break;
            }
        }
        Problems::check(problems)?;
    }
    Ok(events)
}

/// Applies an event that has no position yet to a copy of the state that is only looked at.
fn foresee(state: &mut State, event: &Event, context: &Context) {
    let provenance = crate::event::Provenance {
        actor: context.actor.clone(),
        cause: context.cause,
        correlation: context.correlation.clone(),
        origin: crate::event::Origin::Service,
    };
    let draft = crate::event::Draft { time: context.now, provenance, event: event.clone() };
    state.apply(&draft.at(state.position().next()));
}

fn post(posted: &Posted, context: &Context) -> Result<Vec<Event>> {
    if posted.tags.is_empty() {
        let problem =
            Problem::new(ProblemKind::NoTagEvent, "/tags", "an event needs at least one tag");
        return Err(problem.hint("for example tags: [\"releases:shop\"]").into());
    }
    Ok(vec![Event {
        kind: posted.kind.clone(),
        tags: Tags::expand(posted.tags.iter().cloned()),
        timestamp: posted.timestamp.unwrap_or(context.now),
        value: posted.value.clone(),
        fact: None,
    }])
}

fn check_revision(state: &State, key: &ArtifactKey, wanted: Option<RevisionMatch>) -> Result<()> {
    let actual = state.revision(key);
    let holds = match wanted {
        None => true,
        Some(RevisionMatch::Exists) => actual.is_some(),
        Some(RevisionMatch::Is(position)) => actual == Some(position),
    };
    if holds {
        return Ok(());
    }
    let detail = match actual {
        Some(actual) => format!("{key} has revision {actual}, not the one asked for"),
        None => format!("there is no {key}"),
    };
    Err(Problem::new(ProblemKind::PreconditionFailed, "", detail)
        .hint("read it again and repeat the change")
        .into())
}
