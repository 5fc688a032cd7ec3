//! The canonical form of SLAs and escalations (documents, section 10).

use super::write::head;
use crate::artifact::{
    Amount, ClusterSla, Escalation, EscalationReference, NamedEscalation, NamedSla, ScaleStep, Sla,
    SlaCheck, SlaReference,
};
use serde_json::{Map, Value as Json, json};

/// Prints a stored escalation.
pub fn write_escalation(escalation: &NamedEscalation) -> Json {
    let mut out = head(&escalation.name, "escalation", &escalation.metadata);
    out.extend(self::escalation(&escalation.escalation));
    out.into()
}

/// Prints a stored SLA.
pub fn write_sla(sla: &NamedSla) -> Json {
    let mut out = head(&sla.name, "sla", &sla.metadata);
    out.extend(inline_sla(&sla.sla));
    out.into()
}

/// Prints the SLA of a running cluster, with its name when it has one.
pub fn write_cluster_sla(sla: &ClusterSla) -> Json {
    let named = sla.named.as_ref();
    let mut out = named.map_or_else(Map::new, |named| head(&named.name, "sla", &named.metadata));
    out.extend(inline_sla(&sla.sla));
    out.into()
}

/// The SLA of a cluster in a blueprint.
pub(super) fn sla_reference(sla: &SlaReference) -> Json {
    match sla {
        SlaReference::Reference { name, escalations } => {
            json!({"ref": name, "escalations": list(escalations)})
        }
        SlaReference::Inline(sla) => inline_sla(sla).into(),
    }
}

/// An SLA without a name.
pub(super) fn inline_sla(sla: &Sla) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("type".into(), sla.check.kind().into());
    match &sla.check {
        SlaCheck::ResponseTimeSlidingWindow {
            upper_ms,
            lower_ms,
            interval_seconds,
            cooldown_seconds,
        } => {
            let window = json!({"interval": interval_seconds, "cooldown": cooldown_seconds});
            out.insert("window".into(), window);
            out.insert("threshold".into(), json!({"upper": upper_ms, "lower": lower_ms}));
        }
        SlaCheck::EscalationOnly => {}
        SlaCheck::Other { parameters, .. } => {
            out.insert("parameters".into(), parameters.clone().into());
        }
    }
    out.insert("escalations".into(), list(&sla.escalations));
    out
}

fn list(escalations: &[EscalationReference]) -> Json {
    let one = |escalation: &EscalationReference| match escalation {
        EscalationReference::Reference(name) => json!({"ref": name}),
        EscalationReference::Inline(inline) => escalation_value(inline),
    };
    escalations.iter().map(one).collect()
}

fn escalation_value(escalation: &Escalation) -> Json {
    self::escalation(escalation).into()
}

fn escalation(escalation: &Escalation) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("type".into(), escalation.kind().into());
    match escalation {
        Escalation::ScaleInstances(step) => insert_step(&mut out, step, |number| json!(number)),
        Escalation::ScaleCpu(step) | Escalation::ScaleMemory(step) => {
            insert_step(&mut out, step, |amount: Amount| json!(amount.value()));
        }
        Escalation::ToAll(members) | Escalation::ToOne(members) => {
            out.insert("escalations".into(), list(members));
        }
        Escalation::Other { parameters, .. } => {
            out.insert("parameters".into(), parameters.clone().into());
        }
    }
    out
}

fn insert_step<T: Copy>(out: &mut Map<String, Json>, step: &ScaleStep<T>, print: fn(T) -> Json) {
    if let Some(target) = &step.target {
        out.insert("target".into(), target.clone().into());
    }
    out.insert("minimum".into(), print(step.minimum));
    out.insert("maximum".into(), print(step.maximum));
    out.insert("scale_by".into(), print(step.scale_by));
}
