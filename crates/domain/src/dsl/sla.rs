//! The readers of SLAs and escalations (documents, section 10).

use super::{
    Options,
    common::refuse_name_without_reference,
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    tree::{Node, Scalar, ScalarKind, Value},
};
use crate::{
    artifact::{
        Amount, Escalation, EscalationReference, Kind, NamedEscalation, NamedSla, ScaleStep, Sla,
        SlaCheck, SlaName, SlaReference,
    },
    problem::{Problem, ProblemKind, Result},
};

/// The SLA of a running cluster as a request gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSlaBody {
    /// Name and metadata, when it is written in place and carries them, as answers print them.
    pub named: Option<SlaName>,
    /// The SLA.
    pub sla: SlaReference,
}

/// Reads a stored escalation.
pub fn read_escalation(node: &Node, options: &Options) -> Result<NamedEscalation> {
    let mut reading = Reading::new(options);
    let escalation = Fields::open(&Element::root(node), &mut reading).and_then(|mut fields| {
        let name = fields.name(&mut reading);
        let name = name.filter(|(name, element)| fields::general_name(element, name, &mut reading));
        let metadata = fields.top(&[Kind::Escalation], &mut reading);
        let escalation = escalation(fields, &mut reading);
        Some(NamedEscalation { name: name?.0, metadata, escalation: escalation? })
    });
    reading.finish(escalation)
}

/// Reads a stored SLA.
pub fn read_sla(node: &Node, options: &Options) -> Result<NamedSla> {
    let mut reading = Reading::new(options);
    let sla = Fields::open(&Element::root(node), &mut reading).and_then(|mut fields| {
        let name = fields.name(&mut reading);
        let name = name.filter(|(name, element)| fields::general_name(element, name, &mut reading));
        let metadata = fields.top(&[Kind::Sla], &mut reading);
        let sla = values(fields, &mut reading);
        Some(NamedSla { name: name?.0, metadata, sla: sla? })
    });
    reading.finish(sla)
}

/// Reads the SLA of a running cluster: an SLA, or a reference to a stored one. A name beside the SLA is kept, since
/// answers print one.
pub fn read_cluster_sla(node: &Node, options: &Options) -> Result<ClusterSlaBody> {
    let mut reading = Reading::new(options);
    let element = Element::root(node);
    let body = match by_name(&element, &mut reading) {
        Some(sla) => sla.map(|sla| ClusterSlaBody { named: None, sla }),
        None => Fields::open(&element, &mut reading).and_then(|mut fields| {
            let name = fields.take("name", &mut reading);
            let name = name.and_then(|name| {
                let text = fields::text(&name, &mut reading)?;
                fields::general_name(&name, &text, &mut reading).then_some(text)
            });
            let metadata = fields.top(&[Kind::Sla], &mut reading);
            let sla = SlaReference::Inline(Box::new(values(fields, &mut reading)?));
            Some(ClusterSlaBody { named: name.map(|name| SlaName { name, metadata }), sla })
        }),
    };
    reading.finish(body)
}

/// The SLA of a cluster in a blueprint.
pub(super) fn sla_reference(element: &Element<'_>, reading: &mut Reading) -> Option<SlaReference> {
    if let Some(reference) = by_name(element, reading) {
        return reference;
    }
    if !element.is_map() {
        reading.wrong_type(element, "the name of an SLA or a map with 'type'");
        return None;
    }
    let mut fields = Fields::open(element, reading)?;
    if fields.has("type") {
        refuse_name_without_reference(&mut fields, reading);
    } else {
        fields.ignore(&["name"], reading);
    }
    fields.top(&[Kind::Sla], reading);
    values(fields, reading).map(|sla| SlaReference::Inline(Box::new(sla)))
}

/// A reference with its escalations; `None` when this is something else, `Some(None)` when it was refused.
#[expect(
    clippy::option_option,
    reason = "whether it is one, and whether it can be read, are two questions"
)]
fn by_name(element: &Element<'_>, reading: &mut Reading) -> Option<Option<SlaReference>> {
    let Reference::To(name) = fields::reference(element, &["name", "escalations"], reading) else {
        return None;
    };
    let mut escalations = Vec::new();
    if element.is_map()
        && let Some(mut fields) = Fields::open(element, reading)
    {
        escalations = self::escalations(&mut fields, reading);
    }
    Some(name.map(|name| SlaReference::Reference { name, escalations }))
}

/// All of an SLA but its name and metadata.
fn values(mut fields: Fields<'_>, reading: &mut Reading) -> Option<Sla> {
    let kind = fields.require("type", reading).and_then(|kind| fields::text(&kind, reading));
    let escalations = escalations(&mut fields, reading);
    let check = match kind.as_deref()? {
        "response_time_sliding_window" => sliding_window(&mut fields, reading),
        "escalation_only" => Some(SlaCheck::EscalationOnly),
        kind => {
            Some(SlaCheck::Other { kind: kind.to_owned(), parameters: fields.parameters(reading) })
        }
    };
    fields.close(reading);
    Some(Sla { check: check?, escalations })
}

fn sliding_window(fields: &mut Fields<'_>, reading: &mut Reading) -> Option<SlaCheck> {
    let threshold = pair(fields, "threshold", ["upper", "lower"], reading);
    let window = pair(fields, "window", ["interval", "cooldown"], reading);
    let ([upper_ms, lower_ms], [interval_seconds, cooldown_seconds]) = (threshold?, window?);
    Some(SlaCheck::ResponseTimeSlidingWindow {
        upper_ms,
        lower_ms,
        interval_seconds,
        cooldown_seconds,
    })
}

/// A map of two integers, which are milliseconds or seconds and so not negative: a pause of less than no time would be
/// none, and a bound below every measurement is none.
fn pair(
    fields: &mut Fields<'_>,
    name: &'static str,
    members: [&'static str; 2],
    reading: &mut Reading,
) -> Option<[i64; 2]> {
    let element = fields.require(name, reading)?;
    let mut inner = super::cluster::inner_map(&element, reading)?;
    let [first, second] = members.map(|member| {
        let element = inner.require(member, reading)?;
        let number = integer(&element, reading)?;
        if number < 0 {
            reading.wrong_type(&element, "an integer that is not negative");
            return None;
        }
        Some(number)
    });
    inner.close(reading);
    Some([first?, second?])
}

/// `escalations` of an SLA: one, or a list of which several are one `to_all`.
fn escalations(fields: &mut Fields<'_>, reading: &mut Reading) -> Vec<EscalationReference> {
    let Some(element) = fields.take("escalations", reading) else { return Vec::new() };
    let only = format!("{}/0", element.canonical);
    let Some(items) = element.items(reading) else {
        let element = element.standing_for(only, reading);
        return escalation_reference(&element, reading).into_iter().collect();
    };
    if items.len() < 2 {
        return items.iter().filter_map(|item| escalation_reference(item, reading)).collect();
    }
    let members = items.into_iter().enumerate().map(|(index, item)| {
        let item = item.standing_for(format!("{only}/escalations/{index}"), reading);
        escalation_reference(&item, reading)
    });
    let members = members.collect::<Vec<_>>().into_iter().flatten().collect();
    vec![EscalationReference::Inline(Box::new(Escalation::ToAll(members)))]
}

/// An escalation by name, or in place.
fn escalation_reference(
    element: &Element<'_>,
    reading: &mut Reading,
) -> Option<EscalationReference> {
    match fields::reference(element, &["name"], reading) {
        Reference::To(name) => Some(EscalationReference::Reference(name?)),
        Reference::No if element.is_map() => {
            let mut fields = Fields::open(element, reading)?;
            refuse_name_without_reference(&mut fields, reading);
            fields.top(&[Kind::Escalation], reading);
            let escalation = escalation(fields, reading)?;
            Some(EscalationReference::Inline(Box::new(escalation)))
        }
        Reference::No => {
            reading.wrong_type(element, "the name of an escalation or a map with 'type'");
            None
        }
    }
}

/// All of an escalation but its name and metadata.
fn escalation(mut fields: Fields<'_>, reading: &mut Reading) -> Option<Escalation> {
    if !fields.has("type")
        && fields.untaken() == 1
        && let Some(group) = ["to_all", "to_one"].into_iter().find(|name| fields.has(name))
    {
        let element = fields.take(group, reading)?;
        fields.close(reading);
        return group_in_short(group, &element, reading);
    }
    let kind = fields.require("type", reading).and_then(|kind| fields::text(&kind, reading));
    let escalation = match kind.as_deref()? {
        "scale_instances" => step(&mut fields, reading, integer).map(Escalation::ScaleInstances),
        "scale_cpu" => step(&mut fields, reading, amount).map(Escalation::ScaleCpu),
        "scale_memory" => step(&mut fields, reading, amount).map(Escalation::ScaleMemory),
        group @ ("to_all" | "to_one") => members(&mut fields, reading).map(|list| of(group, list)),
        kind => {
            let parameters = fields.parameters(reading);
            Some(Escalation::Other { kind: kind.to_owned(), parameters })
        }
    };
    fields.close(reading);
    escalation
}

/// A group written as `{to_all: ...}`: its members, or a map with them.
fn group_in_short(group: &str, element: &Element<'_>, reading: &mut Reading) -> Option<Escalation> {
    if element.is_map() {
        let mut inner = Fields::open(element, reading)?;
        let list = members(&mut inner, reading);
        inner.close(reading);
        return list.map(|list| of(group, list));
    }
    let Some(items) = element.items(reading) else {
        reading.wrong_type(element, "a list of escalations");
        return None;
    };
    let parent = element.canonical.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
    let members = items.into_iter().enumerate().map(|(index, item)| {
        let item = item.standing_for(format!("{parent}/escalations/{index}"), reading);
        escalation_reference(&item, reading)
    });
    let members: Vec<_> = members.collect();
    Some(of(group, members.into_iter().flatten().collect()))
}

/// `escalations` of a group.
fn members(fields: &mut Fields<'_>, reading: &mut Reading) -> Option<Vec<EscalationReference>> {
    let element = fields.require("escalations", reading)?;
    let Some(items) = element.items(reading) else {
        reading.wrong_type(&element, "a list of escalations");
        return None;
    };
    Some(items.iter().filter_map(|item| escalation_reference(item, reading)).collect())
}

fn of(group: &str, members: Vec<EscalationReference>) -> Escalation {
    if group == "to_all" { Escalation::ToAll(members) } else { Escalation::ToOne(members) }
}

fn step<T>(
    fields: &mut Fields<'_>,
    reading: &mut Reading,
    read: fn(&Element<'_>, &mut Reading) -> Option<T>,
) -> Option<ScaleStep<T>> {
    let target = fields.take("target", reading).map(|target| {
        let name = fields::text(&target, reading)?;
        fields::general_name(&target, &name, reading).then_some(name)
    });
    let [minimum, maximum, scale_by] = ["minimum", "maximum", "scale_by"]
        .map(|name| fields.require(name, reading).and_then(|element| read(&element, reading)));
    let target = match target {
        Some(target) => Some(target?),
        None => None,
    };
    Some(ScaleStep { target, minimum: minimum?, maximum: maximum?, scale_by: scale_by? })
}

fn integer(element: &Element<'_>, reading: &mut Reading) -> Option<i64> {
    let number = fields::integer(element, reading)?;
    let number = i64::try_from(number).ok();
    if number.is_none() {
        reading.wrong_type(element, "an integer of at most 64 bits");
    }
    number
}

fn amount(element: &Element<'_>, reading: &mut Reading) -> Option<Amount> {
    let amount = match &element.node.value {
        Value::Scalar(Scalar { kind: ScalarKind::Integer(number), .. }) => {
            let milli = number.checked_mul(1000).and_then(|milli| i64::try_from(milli).ok());
            milli.map(Amount::from_milli)
        }
        Value::Scalar(Scalar { kind: ScalarKind::Decimal(number), .. }) => {
            Amount::from_value(*number)
        }
        _ => None,
    };
    if amount.is_none() {
        reading.wrong_type(element, "a number without unit, such as 0.5 or 512");
    }
    amount
}

/// The targets of `escalations`, at any depth, that are no cluster; the list stands at `pointer`. What is referred to
/// is not looked at.
pub(crate) fn unknown_targets(
    escalations: &[EscalationReference],
    pointer: &str,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, escalation) in escalations.iter().enumerate() {
        let EscalationReference::Inline(escalation) = escalation else { continue };
        let pointer = format!("{pointer}/{index}");
        if let Some(target) = escalation.target().filter(|target| !exists(target)) {
            let kind = ProblemKind::UnresolvedScaleEscalationTargetCluster;
            let detail = format!("there is no cluster '{target}' to scale");
            let problem = Problem::new(kind, format!("{pointer}/target"), detail);
            problems.push(problem.hint("name a cluster, or leave 'target' out for the SLA's own"));
        }
        let pointer = format!("{pointer}/escalations");
        problems.extend(unknown_targets(escalation.members(), &pointer, exists));
    }
    problems
}
