//! What must hold of every record, when the log is read one by one beside the service.

use super::alarms::Alarms;
use super::measures::Measures;
use super::tally::Tally;
use segue_domain::artifact::{Leaving, PhaseName};
use segue_domain::event::{DeploymentFact, Event, Fact, GatewayFact, Record};
use segue_domain::state::State;
use segue_domain::store::Store;

/// A fold of the log of its own, and what is remembered of it.
#[derive(Default)]
pub struct Follow {
    state: State,
    /// The append that is read: its correlation, and the state before it.
    append: (String, State),
    alarms: Alarms,
    pub(super) measures: Measures,
    /// The state when a turn began that somebody overtook.
    remembered: State,
}

/// A record between what was before it.
pub(super) struct Read<'a> {
    pub(super) record: &'a Record,
    /// The state before the append that the record is part of.
    pub(super) old: &'a State,
    /// The state before the record.
    pub(super) before: &'a State,
    /// The state when a turn began that somebody overtook.
    pub(super) remembered: &'a State,
}

impl Follow {
    /// A turn begins that somebody overtakes.
    pub fn remember(&mut self) {
        self.remembered = self.state.clone();
    }

    /// Whether all that asked for escalation was acted on.
    pub fn is_done(&self) -> bool {
        self.alarms.is_done()
    }

    /// Reads what is new; the service lives its so many-th life. The error says what does not hold.
    pub fn read(&mut self, store: &Store, tally: &Tally, life: u32) -> Result<(), String> {
        if store.log().last() == self.state.position() {
            return Ok(());
        }
        let records = store.log().read(self.state.position(), usize::MAX);
        for record in records.map_err(|error| error.to_string())? {
            if self.append.0 != record.provenance.correlation {
                self.append = (record.provenance.correlation.clone(), self.state.clone());
            }
            let read = Read {
                record: &record,
                old: &self.append.1,
                before: &self.state,
                remembered: &self.remembered,
            };
            check_provenance(&record)?;
            check_fact(&read)?;
            self.alarms.read(&read, tally)?;
            self.measures.read(&record, life)?;
            count(&record.event, tally);
            self.state.apply(&record);
        }
        self.measures.look(&self.state);
        ensure(self.state == *store.state(), || "the fold of the log is not the state".to_owned())?;
        Ok(())
    }
}

/// Every record says who, for what request or turn, and, when a worker made it, what led to it. What is measured is led
/// to by nothing in the log.
fn check_provenance(record: &Record) -> Result<(), String> {
    let from = &record.provenance;
    let by_worker = from.actor.starts_with("worker:") && from.actor != segue_workers::health::ACTOR;
    let caused = from.cause.is_some_and(|cause| cause < record.position);
    ensure(!from.actor.is_empty() && !from.correlation.is_empty() && (caused || !by_worker), || {
        format!("record {} does not say where it comes from", record.position)
    })
}

/// What a record changes fits what was before it.
fn check_fact(read: &Read<'_>) -> Result<(), String> {
    let position = read.record.position;
    match &read.record.event.fact {
        Some(Fact::Gateway { name, fact: GatewayFact::PortAssigned(number) }) => {
            let taken =
                read.before.gateways().iter().find(|(other, stored)| {
                    *other != name && stored.gateway.port.number == *number
                });
            ensure(taken.is_none(), || format!("record {position} gives a port twice"))
        }
        Some(Fact::Deployment {
            name,
            fact: DeploymentFact::PhaseChanged { cluster, service, phase },
        }) => {
            let deployment = read.before.deployment(name);
            let found = deployment.and_then(|found| found.service(cluster, service));
            let found = found.ok_or_else(|| format!("record {position} is of no service"))?;
            let says_why =
                read.record.event.value["notification"].as_str().is_some_and(|why| !why.is_empty());
            ensure(phase.name != PhaseName::Failed || says_why, || {
                format!("record {position} does not say why '{service}' failed")
            })?;
            let serving = found
                .instances
                .iter()
                .filter(|instance| instance.deployed && instance.leaving == Leaving::No);
            let is_true = serving.count() == found.scale.instances as usize;
            ensure(phase.name != PhaseName::Done || is_true, || {
                format!("record {position} says that '{service}' is done, which it is not")
            })
        }
        Some(Fact::Deployment {
            name,
            fact: DeploymentFact::InstancesObserved { cluster, service, instances },
        }) => {
            let deployment = read.before.deployment(name);
            let found = deployment.and_then(|found| found.service(cluster, service));
            let known = found.map(|found| &found.instances[..]).unwrap_or_default();
            let back = known.iter().find(|known| {
                let mut now = instances.iter().filter(|instance| instance.name == known.name);
                now.any(|instance| instance.leaving < known.leaving)
            });
            ensure(back.is_none(), || {
                format!("record {position} calls back an instance that is on its way out")
            })
        }
        _ => Ok(()),
    }
}

pub(super) fn ensure(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}

/// What happened, as the catalogue of events says it.
fn count(event: &Event, tally: &Tally) {
    let has = |tag: &str| event.tags.contains(tag);
    let kinds = [
        (has("synchronisation:deployed"), "service deployed"),
        (has("synchronisation:redeploy"), "service redeployed"),
        (has("synchronisation:undeployed"), "service undeployed"),
        (has("archiving:delete") && has("deployments"), "deployment deleted"),
        (has("undeployed") && has("failed"), "gateway refused"),
        (has("routes") && has("failed"), "route disabled"),
        (has("gateways:ERROR"), "pool of ports exhausted"),
        (event.kind == "health", "health told"),
        (event.kind == "metrics" && event.tags.contains("metrics:rate"), "metrics told"),
    ];
    kinds.into_iter().filter(|(is, _)| *is).for_each(|(_, kind)| tally.count(kind));
    if let Some(Fact::Deployment { fact: DeploymentFact::PhaseChanged { phase, .. }, .. }) =
        &event.fact
        && phase.name == PhaseName::Failed
    {
        tally.count("service failed");
        if phase.notification.as_ref().is_some_and(|words| words.starts_with("not ready after")) {
            tally.count("service failed by time-out");
        }
    }
}
