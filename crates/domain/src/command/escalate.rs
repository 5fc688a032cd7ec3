//! Decides what the check of an SLA, and an escalation event of anybody, leads to (runtime, section 13).
//!
//! An escalation event is acted on once: what it changes, and that it was acted on, are one append.

use super::archive::{blank, notice, with_fact};
use super::{Context, deploy, foresee};
use crate::artifact::{Amount, Cpu, Escalation, EscalationReference, Memory, Scale, ScaleStep};
use crate::dsl;
use crate::event::{Event, Fact, Origin, Position, Record, Tags};
use crate::state::State;
use serde_json::{Value, json};

/// The tag of an event that asks for more.
pub const ESCALATE: &str = "sla:escalate";
/// The tag of an event that asks for less.
pub const DEESCALATE: &str = "sla:deescalate";

/// Where to go from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// There is too little: escalate.
    Up,
    /// There is more than enough: de-escalate.
    Down,
}

/// What the check of an SLA came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The deployment.
    pub deployment: String,
    /// The cluster that has the SLA.
    pub cluster: String,
    /// Where to go.
    pub direction: Direction,
    /// What is to be undone, instead of a step down; none for such a step.
    pub undo: Vec<Scaled>,
}

/// A change of how much of a service is wanted, as an escalation makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The cluster.
    pub cluster: String,
    /// The breed's name.
    pub service: String,
    /// How much was wanted before.
    pub from: Scale,
    /// How much was wanted then.
    pub to: Scale,
}

/// An event that asks for escalation, of the service itself or of anybody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EscalationEvent {
    /// Its position.
    pub position: Position,
    /// The deployment that it names.
    pub deployment: Option<String>,
    /// The cluster that it names.
    pub cluster: Option<String>,
    /// Where to go.
    pub direction: Direction,
    /// What is to be undone, instead of a step of the cluster's escalations. Only the service itself asks for that.
    pub undo: Vec<Scaled>,
}

impl EscalationEvent {
    /// What `record` asks for; `None` when it asks for nothing.
    pub fn of_record(record: &Record) -> Option<Self> {
        let event = Self::of(record.position, &record.event.tags)?;
        let asked = match record.provenance.origin {
            Origin::Service => Scaled::all(&record.event.value["undo"]),
            Origin::External => Vec::new(),
        };
        Some(Self { undo: asked, ..event })
    }

    /// What the event with `tags` at `position` asks for; `None` when it asks for nothing. One with both verdicts
    /// escalates.
    pub fn of(position: Position, tags: &Tags) -> Option<Self> {
        let direction = match (tags.contains(ESCALATE), tags.contains(DEESCALATE)) {
            (true, _) => Direction::Up,
            (false, true) => Direction::Down,
            (false, false) => return None,
        };
        let named = |groups: [&str; 2]| {
            tags.as_slice().iter().find_map(|tag| {
                let (group, name) = tag.split_once(':')?;
                groups.contains(&group).then(|| name.to_owned())
            })
        };
        Some(Self {
            position,
            deployment: named(["deployment", "deployments"]),
            cluster: named(["cluster", "clusters"]),
            direction,
            undo: Vec::new(),
        })
    }
}

impl Scaled {
    /// The changes of a list, as events have it; those that cannot be read are left out.
    pub fn all(list: &Value) -> Vec<Self> {
        list.as_array().into_iter().flatten().filter_map(Self::read).collect()
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |member: &str| value[member].as_str().map(str::to_owned);
        let scale = |member: &str| {
            let scale = &value[member];
            Some(Scale {
                cpu: scale["cpu"].as_f64()?.to_string().parse().ok()?,
                memory: scale["memory"].as_str()?.parse().ok()?,
                instances: u32::try_from(scale["instances"].as_u64()?).ok()?,
            })
        };
        Some(Self {
            cluster: text("cluster")?,
            service: text("service")?,
            from: scale("from")?,
            to: scale("to")?,
        })
    }

    fn write(&self) -> Value {
        json!({
            "cluster": self.cluster,
            "service": self.service,
            "from": dsl::write_inline_scale(&self.from),
            "to": dsl::write_inline_scale(&self.to),
        })
    }
}

impl Direction {
    /// The tag of events that say so.
    pub fn tag(self) -> &'static str {
        match self {
            Direction::Up => ESCALATE,
            Direction::Down => DEESCALATE,
        }
    }
}

/// The event that says what the check of an SLA came to, as long as the cluster has one.
pub(super) fn verdict(state: &State, verdict: &Verdict, context: &Context) -> Vec<Event> {
    let Verdict { deployment, cluster, direction, undo } = verdict;
    let found = state.deployment(deployment).and_then(|found| found.clusters.get(cluster));
    if found.is_none_or(|cluster| cluster.sla.is_none()) {
        return Vec::new();
    }
    let tags = [
        "sla".to_owned(),
        direction.tag().to_owned(),
        format!("deployment:{deployment}"),
        format!("cluster:{cluster}"),
        format!("deployments:{deployment}"),
        format!("clusters:{cluster}"),
    ];
    let undo: Vec<Value> = undo.iter().map(Scaled::write).collect();
    let value = if undo.is_empty() { blank() } else { json!({ "undo": undo }) };
    vec![notice(&tags.each_ref().map(String::as_str), value, context)]
}

/// Acts on an escalation event, unless that was done: new scales, and one event that says what became of it.
pub(super) fn escalation(state: &State, event: &EscalationEvent, context: &Context) -> Vec<Event> {
    if event.position <= state.escalated() {
        return Vec::new();
    }
    let mut run = Run::new(state, event.direction, context);
    let ignored = run.all(event).err();
    let Run { mut events, scaled, .. } = run;
    let named = [("deployments", &event.deployment), ("clusters", &event.cluster)];
    let named = named
        .into_iter()
        .filter_map(|(group, name)| name.as_ref().map(|name| format!("{group}:{name}")));
    let outcome = if ignored.is_none() { "escalation:applied" } else { "escalation:ignored" };
    let mut value = json!({ "event": event.position, "scaled": scaled });
    if let Some(reason) = ignored {
        value["reason"] = reason.into();
    }
    let fact = Fact::Escalated { position: event.position };
    let tags = named.chain([outcome.to_owned()]);
    events.push(with_fact("escalation", tags, value, fact, context));
    events
}

/// An escalation under way.
struct Run<'a> {
    /// With what was done so far.
    state: State,
    direction: Direction,
    context: &'a Context,
    events: Vec<Event>,
    /// What was done, as the last event says it.
    scaled: Vec<Value>,
}

impl<'a> Run<'a> {
    fn new(state: &State, direction: Direction, context: &'a Context) -> Self {
        Self { state: state.clone(), direction, context, events: Vec::new(), scaled: Vec::new() }
    }

    /// Runs the escalations of the cluster's SLA as one group of which the first that changes something is done. An
    /// error says why nothing was scaled.
    fn all(&mut self, event: &EscalationEvent) -> Result<(), String> {
        let (Some(name), Some(cluster)) = (&event.deployment, &event.cluster) else {
            return Err("the event names no deployment or no cluster".to_owned());
        };
        let deployment = self.state.deployment(name);
        let deployment = deployment.ok_or_else(|| format!("there is no deployment '{name}'"))?;
        let found = deployment.clusters.get(cluster);
        let found = found.ok_or_else(|| format!("there is no cluster '{cluster}'"))?;
        let sla = found.sla.as_ref().ok_or_else(|| format!("cluster '{cluster}' has no SLA"))?;
        if !event.undo.is_empty() {
            return self.undo(name, &event.undo);
        }
        let escalations = sla.sla.escalations.clone();
        if self.first_of(&escalations, (name, cluster)) {
            return Ok(());
        }
        Err("no escalation changes anything within its bounds".to_owned())
    }

    /// Undoes `steps`, the last one first, as far as nobody else changed since what they led to.
    fn undo(&mut self, deployment: &str, steps: &[Scaled]) -> Result<(), String> {
        for Scaled { cluster, service, from, to } in steps.iter().rev() {
            let found = self.state.deployment(deployment);
            let found = found.and_then(|found| found.service(cluster, service));
            if found.is_some_and(|found| !found.is_undeploying() && found.scale == *to) {
                self.scale((deployment, cluster, service), *to, *from);
            }
        }
        if self.scaled.is_empty() {
            return Err("what was added is no longer there".to_owned());
        }
        Ok(())
    }

    /// Whether a member changed something; the ones after it are left alone.
    fn first_of(&mut self, members: &[EscalationReference], owner: (&str, &str)) -> bool {
        match self.direction {
            Direction::Up => members.iter().any(|member| self.member(member, owner)),
            Direction::Down => members.iter().rev().any(|member| self.member(member, owner)),
        }
    }

    /// Whether something changed.
    fn member(&mut self, member: &EscalationReference, owner: (&str, &str)) -> bool {
        // Nothing in the SLA of a running cluster is a reference.
        let EscalationReference::Inline(escalation) = member else { return false };
        match &**escalation {
            Escalation::ScaleInstances(_)
            | Escalation::ScaleCpu(_)
            | Escalation::ScaleMemory(_) => self.step(escalation, owner),
            Escalation::ToOne(members) => self.first_of(members, owner),
            Escalation::ToAll(members) => {
                let mut changed = false;
                for member in members {
                    changed |= self.member(member, owner);
                }
                changed
            }
            // Somebody else acts on these.
            Escalation::Other { .. } => false,
        }
    }

    fn step(&mut self, step: &Escalation, (deployment, owner): (&str, &str)) -> bool {
        let target = step.target().unwrap_or(owner);
        let cluster =
            self.state.deployment(deployment).and_then(|found| found.clusters.get(target));
        let services = cluster.map(|cluster| &cluster.services[..]).unwrap_or_default();
        let Some(service) = services.iter().find(|service| !service.is_undeploying()) else {
            return false;
        };
        let (breed, before) = (service.breed.name.clone(), service.scale);
        let Some(scale) = stepped(before, step, self.direction) else { return false };
        self.scale((deployment, target, &breed), before, scale)
    }

    /// Brings a service from one scale to another. Whether it did.
    fn scale(&mut self, key: (&str, &str, &str), from: Scale, to: Scale) -> bool {
        let Ok(events) = deploy::scale(&self.state, key, to, None, self.context) else {
            return false;
        };
        for event in events {
            foresee(&mut self.state, &event, self.context);
            self.events.push(event);
        }
        let (_, cluster, service) = key;
        let (cluster, service) = (cluster.to_owned(), service.to_owned());
        self.scaled.push(Scaled { cluster, service, from, to }.write());
        true
    }
}

/// `scale` after `step`; `None` when that is past a bound, which is refused and not clamped, or changes nothing.
fn stepped(scale: Scale, step: &Escalation, direction: Direction) -> Option<Scale> {
    let after = match step {
        Escalation::ScaleInstances(step) => {
            let instances = moved(i64::from(scale.instances), step, |value| value, direction)?;
            Scale { instances: u32::try_from(instances).ok()?, ..scale }
        }
        Escalation::ScaleCpu(step) => {
            let before = i64::try_from(scale.cpu.milli()).ok()?;
            let milli = moved(before, step, Amount::milli, direction)?;
            Scale { cpu: Cpu::from_milli(u64::try_from(milli).ok()?), ..scale }
        }
        Escalation::ScaleMemory(step) => {
            let before = i64::try_from(scale.memory.centi_megabytes()).ok()?.checked_mul(10)?;
            let milli = moved(before, step, Amount::milli, direction)?;
            let centi = u64::try_from(milli).ok()?.checked_add(5)? / 10;
            Scale { memory: Memory::from_centi_megabytes(centi), ..scale }
        }
        Escalation::ToAll(_) | Escalation::ToOne(_) | Escalation::Other { .. } => return None,
    };
    (after != scale).then_some(after)
}

/// `before` and a step, within the bounds.
fn moved<T: Copy>(
    before: i64,
    step: &ScaleStep<T>,
    number: impl Fn(T) -> i64,
    direction: Direction,
) -> Option<i64> {
    let by = number(step.scale_by);
    let after = match direction {
        Direction::Up => before.checked_add(by)?,
        Direction::Down => before.checked_sub(by)?,
    };
    (number(step.minimum)..=number(step.maximum)).contains(&after).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(cpu: &str, memory: &str, instances: u32) -> Scale {
        Scale { cpu: cpu.parse().unwrap(), memory: memory.parse().unwrap(), instances }
    }

    /// `[minimum, maximum, scale_by]`
    fn instances([minimum, maximum, scale_by]: [i64; 3]) -> Escalation {
        Escalation::ScaleInstances(ScaleStep { target: None, minimum, maximum, scale_by })
    }

    fn amounts(numbers: [f64; 3]) -> ScaleStep<Amount> {
        let [minimum, maximum, scale_by] =
            numbers.map(|number| Amount::from_value(number).unwrap());
        ScaleStep { target: None, minimum, maximum, scale_by }
    }

    /// Shows: D41
    #[test]
    fn a_step_past_a_bound_is_refused_and_not_clamped() {
        let check = |before: u32, bounds: [i64; 3], up: Option<u32>, down: Option<u32>| {
            let after = |direction| {
                let scale = scale("1", "1GB", before);
                stepped(scale, &instances(bounds), direction).map(|scale| scale.instances)
            };
            assert_eq!((after(Direction::Up), after(Direction::Down)), (up, down), "{bounds:?}");
        };
        check(2, [1, 4, 1], Some(3), Some(1));
        check(4, [1, 4, 1], None, Some(3));
        check(1, [1, 4, 1], Some(2), None);
        check(3, [1, 4, 2], None, Some(1));
        check(2, [1, 4, 3], None, None);
        // Outside of the bounds already: a step leads back in, or is refused.
        check(9, [1, 4, 1], None, None);
        check(5, [1, 4, 1], None, Some(4));
        check(0, [1, 4, 1], Some(1), None);
        // Nothing below zero, and nothing that changes nothing.
        check(1, [-5, 4, 2], Some(3), None);
        check(2, [1, 4, 0], None, None);
        check(2, [4, 1, 1], None, None);
        check(u32::MAX, [0, i64::MAX, 1], None, Some(u32::MAX - 1));
        check(2, [i64::MIN, i64::MAX, i64::MAX], None, None);
    }

    #[test]
    fn cpu_and_memory_move_in_cores_and_megabytes() {
        let check = |before: Scale, step: &Escalation, up: Option<Scale>, down: Option<Scale>| {
            assert_eq!(stepped(before, step, Direction::Up), up, "up {step:?}");
            assert_eq!(stepped(before, step, Direction::Down), down, "down {step:?}");
        };
        let cpu = Escalation::ScaleCpu(amounts([0.1, 1.0, 0.3]));
        check(
            scale("0.4", "64MB", 2),
            &cpu,
            Some(scale("0.7", "64MB", 2)),
            Some(scale("0.1", "64MB", 2)),
        );
        check(scale("0.8", "64MB", 2), &cpu, None, Some(scale("0.5", "64MB", 2)));
        let memory = Escalation::ScaleMemory(amounts([256.0, 1024.0, 256.0]));
        check(
            scale("1", "512MB", 2),
            &memory,
            Some(scale("1", "768MB", 2)),
            Some(scale("1", "256MB", 2)),
        );
        check(scale("1", "1GB", 2), &memory, None, Some(scale("1", "768MB", 2)));
        check(scale("1", "256MB", 2), &memory, Some(scale("1", "512MB", 2)), None);
    }

    /// Shows: D20
    #[test]
    fn events_say_where_to_go() {
        let check = |tags: &[&str], expected: Option<(Direction, Option<&str>, Option<&str>)>| {
            let event = EscalationEvent::of(Position(1), &Tags::expand(tags.iter().copied()));
            let found = event.as_ref().map(|event| {
                (event.direction, event.deployment.as_deref(), event.cluster.as_deref())
            });
            assert_eq!(found, expected, "{tags:?}");
        };
        let (up, down) = (Direction::Up, Direction::Down);
        check(&["sla:escalate", "deployment:d", "cluster:c"], Some((up, Some("d"), Some("c"))));
        check(
            &["deployments:d", "clusters:c", "sla:deescalate"],
            Some((down, Some("d"), Some("c"))),
        );
        check(&["sla:deescalate", "sla:escalate", "deployments:d"], Some((up, Some("d"), None)));
        check(&["sla:escalate", "clusters:a:b"], Some((up, None, Some("a:b"))));
        check(&["sla", "deployments:d", "clusters:c"], None);
        check(&["sla:escalated"], None);
    }
}
