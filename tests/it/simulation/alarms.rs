//! What must hold of SLAs: a verdict has a reason and keeps the cooldown; each event that asks for escalation is acted
//! on once and in order, across all lives of the service, and no step leaves its bounds.

use super::follow::{Read, ensure};
use super::tally::Tally;
use super::world::OVERTAKEN;
use segue_domain::artifact::{
    Escalation, EscalationReference, Scale, ScaleStep, Service, Sla, SlaCheck,
};
use segue_domain::command::Scaled;
use segue_domain::event::{Fact, Origin, Position};
use segue_domain::state::State;
use std::collections::BTreeMap;
use time::{Duration, OffsetDateTime};

/// Everything that the log said so far about SLAs.
#[derive(Default)]
pub struct Alarms {
    /// Events that ask for escalation, in their order.
    asked: Vec<Alarm>,
    /// How many of them were acted on.
    done: usize,
    /// Events about the SLA of a cluster.
    noise: Vec<Alarm>,
    /// Response times by gateway.
    measured: BTreeMap<String, Vec<Measured>>,
}

#[derive(Clone, Debug)]
struct Alarm {
    position: Position,
    at: OffsetDateTime,
    deployment: Option<String>,
    cluster: Option<String>,
    is_up: bool,
    /// What it asks to undo, when the service itself asks.
    undo: Vec<Scaled>,
}

struct Measured {
    position: Position,
    at: OffsetDateTime,
    milliseconds: f64,
    of_route: bool,
    /// Whether it only says that no requests came.
    is_idle: bool,
}

/// A service whose scale changed.
struct Change {
    deployment: String,
    cluster: String,
    from: Scale,
    to: Scale,
}

impl Alarms {
    pub fn is_done(&self) -> bool {
        self.done == self.asked.len()
    }

    pub(super) fn read(&mut self, read: &Read<'_>, tally: &Tally) -> Result<(), String> {
        let record = read.record;
        let tags = &record.event.tags;
        if record.provenance.actor == "worker:sla" {
            tally.count("verdict");
            self.check_verdict(read)?;
        }
        if let Some(Fact::Escalated { position }) = &record.event.fact {
            self.check_acted(read, *position, tally)?;
        }
        let named = |groups: [&str; 2]| {
            let tags = tags.as_slice().iter().filter_map(|tag| tag.split_once(':'));
            let mut tags = tags.filter(|(group, _)| groups.contains(group));
            tags.next().map(|(_, name)| name.to_owned())
        };
        let alarm = Alarm {
            position: record.position,
            at: record.event.timestamp,
            deployment: named(["deployment", "deployments"]),
            cluster: named(["cluster", "clusters"]),
            is_up: tags.contains("sla:escalate"),
            undo: if record.provenance.origin == Origin::Service {
                Scaled::all(&record.event.value["undo"])
            } else {
                Vec::new()
            },
        };
        if alarm.is_up || tags.contains("sla:deescalate") {
            self.asked.push(alarm.clone());
        }
        if tags.contains("sla") {
            self.noise.push(alarm);
        }
        let is_time =
            tags.contains("metrics:responseTime") || tags.contains("metrics:response-time");
        if let Some(milliseconds) = record.event.value.as_f64().filter(|_| is_time) {
            let gateway = tags.as_slice().iter().find_map(|tag| tag.strip_prefix("gateways:"));
            let (position, at) = (record.position, record.event.timestamp);
            let of_route = tags.contains("routes");
            let is_idle = milliseconds == 0.0 && record.provenance.actor == "worker:health";
            let measured = Measured { position, at, milliseconds, of_route, is_idle };
            self.measured.entry(gateway.unwrap_or_default().to_owned()).or_default().push(measured);
        }
        Ok(())
    }

    /// A verdict is of a cluster at rest whose mean response time is past a bound, and no event about its SLA is newer
    /// than interval and cooldown. One that was overtaken is judged by what was known when its turn began.
    fn check_verdict(&self, read: &Read<'_>) -> Result<(), String> {
        let record = read.record;
        let is_overtaken = record.provenance.correlation.starts_with(OVERTAKEN);
        let state = if is_overtaken { read.remembered } else { read.old };
        let (now, known) = (record.time, state.position());
        let tag = |group: &str| {
            let mut tags = record.event.tags.as_slice().iter();
            tags.find_map(|tag| tag.strip_prefix(group)).unwrap_or_default().to_owned()
        };
        let (deployment, cluster) = (tag("deployments:"), tag("clusters:"));
        let words = |what: &str| format!("the verdict {} {what}", record.position);
        let found = state.deployment(&deployment).and_then(|found| found.clusters.get(&cluster));
        let found = found.ok_or_else(|| words("is of no cluster"))?;
        let check = found.sla.as_ref().map(|sla| &sla.sla.check);
        let Some(SlaCheck::ResponseTimeSlidingWindow {
            upper_ms,
            lower_ms,
            interval_seconds,
            cooldown_seconds,
        }) = check
        else {
            return Err(words("is of a cluster that promises nothing"));
        };
        ensure(found.services.iter().all(Service::is_done), || {
            words("is of a cluster that is not at rest")
        })?;
        let cooling = now - Duration::seconds(interval_seconds + cooldown_seconds);
        let noise = self.noise.iter().find(|alarm| {
            alarm.deployment.as_ref() == Some(&deployment)
                && alarm.cluster.as_ref() == Some(&cluster)
                && alarm.position <= known
                && (cooling..=now).contains(&alarm.at)
        });
        ensure(noise.is_none(), || words("does not keep the cooldown"))?;
        let gateway = format!("{deployment}/{cluster}/http");
        let since = now - Duration::seconds(*interval_seconds);
        let measured = self.measured.get(&gateway).map(Vec::as_slice).unwrap_or_default();
        let measured: Vec<&Measured> = measured
            .iter()
            .filter(|one| (since..=now).contains(&one.at) && one.position <= known)
            .collect();
        let has_reason = mean(&measured).is_some_and(|mean| {
            #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
            let (upper, lower) = (*upper_ms as f64, *lower_ms as f64);
            let up = record.event.tags.contains("sla:escalate");
            if up { mean > upper } else { mean < lower }
        });
        ensure(has_reason, || words("has no reason"))?;
        let caused = measured.iter().any(|one| Some(one.position) == record.provenance.cause);
        ensure(caused, || words("does not name a measurement as its cause"))
    }

    /// The next event in order is acted on, by the steps of its SLA; when nothing is done, nothing could be.
    fn check_acted(
        &mut self,
        read: &Read<'_>,
        position: Position,
        tally: &Tally,
    ) -> Result<(), String> {
        let record = read.record;
        let words = |what: &str| format!("the escalation {} {what}", record.position);
        let next = self.asked.get(self.done).ok_or_else(|| words("acts on nothing"))?;
        ensure(next.position == position, || {
            words(&format!("acts on {position} instead of {}", next.position))
        })?;
        ensure(record.provenance.cause == Some(position), || words("does not name its cause"))?;
        let changes = changes(read.old, read.before);
        let is_applied = record.event.tags.contains("escalation:applied");
        ensure(is_applied != changes.is_empty(), || words("says something else than it does"))?;
        let sla = next.sla(read.old);
        let steps = sla.map(|sla| steps(&sla.escalations)).unwrap_or_default();
        let is_group = sla.is_some_and(|sla| has_to_all(&sla.escalations));
        ensure(is_group || !next.undo.is_empty() || changes.len() < 2, || {
            words("does more than one step")
        })?;
        for change in &changes {
            ensure(next.undoes(change) || next.explains(change, &steps, is_group), || {
                words(&format!("scales '{}' past the bounds of its steps", change.cluster))
            })?;
            tally.count("scale by an alarm");
        }
        let possible =
            next.undo.is_empty() && steps.iter().any(|step| next.is_possible(step, read.old));
        ensure(is_applied || !possible, || words("does nothing though it could"))?;
        tally.count(if is_applied { "alarm acted on" } else { "alarm ignored" });
        self.done += 1;
        Ok(())
    }
}

/// The mean of what was measured: of the whole gateway, and only where there is none, of its routes. That no requests
/// came counts only where there is nothing else.
fn mean(measured: &[&Measured]) -> Option<f64> {
    if !measured.is_empty() && measured.iter().all(|one| one.is_idle) {
        return Some(0.0);
    }
    let measured = measured.iter().filter(|one| !one.is_idle);
    let whole: Vec<f64> =
        measured.clone().filter(|one| !one.of_route).map(|one| one.milliseconds).collect();
    let all: Vec<f64> = measured.map(|one| one.milliseconds).collect();
    let counted = if whole.is_empty() { all } else { whole };
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let count = counted.len() as f64;
    (!counted.is_empty()).then(|| counted.iter().sum::<f64>() / count)
}

impl Alarm {
    /// The SLA that it is about.
    fn sla<'a>(&self, state: &'a State) -> Option<&'a Sla> {
        let deployment = state.deployment(self.deployment.as_ref()?)?;
        let cluster = deployment.clusters.get(self.cluster.as_ref()?)?;
        cluster.sla.as_ref().map(|sla| &sla.sla)
    }

    /// The cluster that `step` scales.
    fn target<'a>(&'a self, step: &'a Escalation) -> Option<&'a String> {
        match step {
            Escalation::ScaleInstances(ScaleStep { target, .. }) => target.as_ref(),
            Escalation::ScaleCpu(step) | Escalation::ScaleMemory(step) => step.target.as_ref(),
            Escalation::ToAll(_) | Escalation::ToOne(_) | Escalation::Other { .. } => None,
        }
        .or(self.cluster.as_ref())
    }

    /// Whether it asks for `change`, by which what was added is taken back.
    fn undoes(&self, Change { deployment, cluster, from, to }: &Change) -> bool {
        let mut own = self.undo.iter().filter(|undo| undo.cluster == *cluster);
        self.deployment.as_ref() == Some(deployment)
            && own.clone().any(|undo| undo.to == *from)
            && own.any(|undo| undo.from == *to)
    }

    /// Whether one of `steps`, or in a group several of them, come to `change`.
    fn explains(&self, change: &Change, steps: &[&Escalation], is_group: bool) -> bool {
        if self.deployment.as_ref() != Some(&change.deployment) {
            return false;
        }
        let own = steps.iter().filter(|step| self.target(step) == Some(&change.cluster));
        own.into_iter().any(|step| {
            let (minimum, maximum, by) = bounds(step);
            let (from, to) = (number(step, change.from), number(step, change.to));
            let moved = if self.is_up { to - from } else { from - to };
            let is_step = moved == by || is_group && moved >= by;
            // The other parts of the scale belong to other steps.
            let alone = is_group || only_differs_in(step, change);
            is_step && alone && (minimum..=maximum).contains(&to)
        })
    }

    /// Whether `step` can be done.
    fn is_possible(&self, step: &Escalation, state: &State) -> bool {
        let deployment = self.deployment.as_ref().and_then(|name| state.deployment(name));
        let cluster = deployment
            .zip(self.target(step))
            .and_then(|(deployment, cluster)| deployment.clusters.get(cluster));
        let services = cluster.map(|cluster| &cluster.services[..]).unwrap_or_default();
        let first = services.iter().find(|service| !service.is_undeploying());
        first.is_some_and(|service| {
            let (minimum, maximum, by) = bounds(step);
            let from = number(step, service.scale);
            let to = if self.is_up { from + by } else { from - by };
            (minimum..=maximum).contains(&to) && to >= 0
        })
    }
}

/// The single steps of a list, at every depth.
fn steps(list: &[EscalationReference]) -> Vec<&Escalation> {
    let inline = list.iter().filter_map(|member| match member {
        EscalationReference::Inline(escalation) => Some(&**escalation),
        EscalationReference::Reference(_) => None,
    });
    inline
        .flat_map(|escalation| match escalation.members() {
            [] => vec![escalation],
            members => steps(members),
        })
        .collect()
}

fn has_to_all(list: &[EscalationReference]) -> bool {
    list.iter().any(|member| match member {
        EscalationReference::Inline(escalation) => {
            matches!(**escalation, Escalation::ToAll(_)) || has_to_all(escalation.members())
        }
        EscalationReference::Reference(_) => false,
    })
}

/// Minimum, maximum and size of a step.
fn bounds(step: &Escalation) -> (i64, i64, i64) {
    match step {
        Escalation::ScaleInstances(step) => (step.minimum, step.maximum, step.scale_by),
        Escalation::ScaleCpu(step) => {
            (step.minimum.milli(), step.maximum.milli(), step.scale_by.milli())
        }
        other => panic!("the simulation makes no {other:?}"),
    }
}

/// What a step changes of a scale.
fn number(step: &Escalation, scale: Scale) -> i64 {
    match step {
        Escalation::ScaleInstances(_) => i64::from(scale.instances),
        Escalation::ScaleCpu(_) => i64::try_from(scale.cpu.milli()).expect("it is small"),
        other => panic!("the simulation makes no {other:?}"),
    }
}

fn only_differs_in(step: &Escalation, Change { from, to, .. }: &Change) -> bool {
    match step {
        Escalation::ScaleInstances(_) => from.cpu == to.cpu && from.memory == to.memory,
        _ => from.instances == to.instances && from.memory == to.memory,
    }
}

/// Services that have another scale in `new` than in `old`.
fn changes(old: &State, new: &State) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, stored) in new.deployments() {
        for (cluster, service) in stored.artifact.services() {
            let before = old.deployment(name);
            let before = before.and_then(|found| found.service(cluster, &service.breed.name));
            if let Some(before) = before.filter(|before| before.scale != service.scale) {
                let (deployment, cluster) = (name.clone(), cluster.to_owned());
                let (from, to) = (before.scale, service.scale);
                changes.push(Change { deployment, cluster, from, to });
            }
        }
    }
    changes
}
