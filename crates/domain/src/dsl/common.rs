//! What breeds, services and clusters share: traits, arguments, dialects and health checks.

use super::{
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    tree::pointer_segment,
};
use crate::{
    artifact::{Argument, HealthCheck, Metadata, Traits},
    problem::{Problem, ProblemKind},
};

/// What happens to the alias of a trait key, `NAME[ALIAS]`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAlias {
    /// It stays part of the key.
    Kept,
    /// It is dropped.
    Dropped,
}

/// The name and the alias of a trait key; a key such as `NAME[]` has none and is its own name.
pub fn split_alias(key: &str) -> (&str, Option<&str>) {
    let inner = key.strip_suffix(']').and_then(|rest| rest.split_once('['));
    match inner {
        Some((name, alias)) if !name.is_empty() && !alias.is_empty() => (name, Some(alias)),
        _ => (key, None),
    }
}

/// A map from name to scalar; null is "declared without value".
pub(super) fn traits(
    element: Option<Element<'_>>,
    alias: KeyAlias,
    reading: &mut Reading,
) -> Traits {
    let mut traits = Traits::new();
    for (name, element) in trait_elements(element, alias, reading) {
        traits.insert(name, fields::scalar_text(&element));
    }
    traits
}

/// The named scalars of a map, with their elements.
pub(super) fn trait_elements<'n>(
    element: Option<Element<'n>>,
    alias: KeyAlias,
    reading: &mut Reading,
) -> Vec<(String, Element<'n>)> {
    let Some(element) = element else { return Vec::new() };
    let Some(entries) = element.entries(reading) else {
        reading.wrong_type(&element, "a map from name to value");
        return Vec::new();
    };
    let mut traits = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        if value.is_map() || value.is_list() {
            let detail =
                format!("'{}' takes a single value, found {}", key.text, value.node.describe());
            let problem = value.problem(ProblemKind::MalformedTrait, detail);
            reading.refuse(problem.hint(format!("write {}: VALUE", key.text)));
            continue;
        }
        let name = match alias {
            KeyAlias::Kept => key.text.as_str(),
            KeyAlias::Dropped => split_alias(&key.text).0,
        };
        let canonical = format!("{}/{}", element.canonical, pointer_segment(name));
        let value = value.standing_for(canonical, reading);
        traits.push((name.to_owned(), value));
    }
    traits
}

/// Arguments: a list of single-entry maps, or one map.
pub(super) fn arguments(element: Option<Element<'_>>, reading: &mut Reading) -> Vec<Argument> {
    let Some(element) = element else { return Vec::new() };
    if element.is_map() {
        let entries = element.entries(reading).unwrap_or_default();
        let mut arguments = Vec::new();
        for (index, (key, value)) in entries.into_iter().enumerate() {
            let canonical = format!("{}/{index}", element.canonical);
            let value = value.standing_for(canonical, reading);
            arguments.extend(argument(&key.text, &value, reading));
        }
        return arguments;
    }
    let Some(items) = element.items(reading) else {
        refuse_argument(&element, reading);
        return Vec::new();
    };
    let mut arguments = Vec::new();
    for item in items {
        match item.entries(reading).as_deref() {
            Some([(key, value)]) => arguments.extend(argument(&key.text, value, reading)),
            _ => refuse_argument(&item, reading),
        }
    }
    arguments
}

fn argument(key: &str, value: &Element<'_>, reading: &mut Reading) -> Option<Argument> {
    let text = fields::scalar_text(value);
    if text.is_none() {
        refuse_argument(value, reading);
    }
    Some(Argument { key: key.to_owned(), value: text? })
}

fn refuse_argument(element: &Element<'_>, reading: &mut Reading) {
    let problem = element
        .problem(ProblemKind::InvalidArgument, "an argument is a map with one key and one value");
    reading.refuse(problem.hint("write '- key: value'"));
}

/// The arguments below `pointer` whose value is illegal.
pub(super) fn argument_value_problems(arguments: &[Argument], pointer: &str) -> Vec<Problem> {
    let is_boolean =
        |text: &str| text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
    arguments
        .iter()
        .enumerate()
        .filter(|(_, argument)| argument.key == "privileged" && !is_boolean(&argument.value))
        .map(|(index, argument)| {
            let detail = format!("'privileged' is true or false, not '{}'", argument.value);
            Problem::new(ProblemKind::InvalidArgumentValue, format!("{pointer}/{index}"), detail)
                .hint("write privileged: true or privileged: false")
        })
        .collect()
}

/// `dialects` or `dialect`: a map from driver name to anything.
pub(super) fn dialects(fields: &mut Fields<'_>, reading: &mut Reading) -> Metadata {
    let Some(element) = fields.take_either("dialects", "dialect", reading) else {
        return Metadata::new();
    };
    let dialects = fields::json_map(&element);
    if dialects.is_none() {
        reading.wrong_type(&element, "a map from driver name to its settings");
    }
    dialects.unwrap_or_default()
}

/// `environment_variables` or `env`.
pub(super) fn environment_variables(
    fields: &mut Fields<'_>,
    alias: KeyAlias,
    reading: &mut Reading,
) -> Traits {
    let element = fields.take_either("environment_variables", "env", reading);
    traits(element, alias, reading)
}

/// `network`.
pub(super) fn network(fields: &mut Fields<'_>, reading: &mut Reading) -> Option<String> {
    let element = fields.take("network", reading)?;
    fields::text(&element, reading)
}

/// `health_checks`: one or a list; negative failures break the rule `rank`.
pub(super) fn health_checks(
    fields: &mut Fields<'_>,
    rank: u8,
    reading: &mut Reading,
) -> Option<Vec<HealthCheck>> {
    let element = fields.take("health_checks", reading)?;
    let elements = if element.is_map() {
        let canonical = format!("{}/0", element.canonical);
        vec![element.standing_for(canonical, reading)]
    } else if let Some(items) = element.items(reading) {
        items
    } else {
        reading.wrong_type(&element, "a health check or a list of them");
        return None;
    };
    Some(elements.iter().filter_map(|element| health_check(element, rank, reading)).collect())
}

fn health_check(element: &Element<'_>, rank: u8, reading: &mut Reading) -> Option<HealthCheck> {
    let mut fields = Fields::open(element, reading)?;
    let path = fields.take("path", reading).map(|path| fields::text(&path, reading));
    let port = fields.require("port", reading).and_then(|port| fields::text(&port, reading));
    let mut duration = |name, reading: &mut Reading<'_>| {
        let element = fields.require(name, reading)?;
        fields::duration_seconds(&element, reading)
    };
    let initial_delay_seconds = duration("initial_delay", reading);
    let timeout_seconds = duration("timeout", reading);
    let interval_seconds = duration("interval", reading);
    let failures = fields.require("failures", reading).and_then(|failures| {
        let number = fields::integer(&failures, reading)?;
        if number < 0 {
            let kind = ProblemKind::NegativeFailuresNumber;
            reading.break_rule(
                rank,
                &failures,
                kind,
                (format!("'failures' is 0 or more, not {number}"), "write 0 or more"),
            );
            return Some(0);
        }
        fields::unsigned(&failures, reading)
    });
    let protocol =
        fields.take("protocol", reading).map(|protocol| fields::text(&protocol, reading));
    fields.close(reading);
    Some(HealthCheck {
        path: path.unwrap_or_else(|| Some("/".to_owned()))?,
        port: port?,
        initial_delay_seconds: initial_delay_seconds?,
        timeout_seconds: timeout_seconds?,
        interval_seconds: interval_seconds?,
        failures: failures?,
        protocol: protocol.unwrap_or_else(|| Some("HTTP".to_owned()))?,
    })
}

/// The checks below `pointer` whose port nobody declares.
pub(super) fn health_check_problems(
    checks: Option<&[HealthCheck]>,
    pointer: &str,
    is_declared: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let checks = checks.unwrap_or_default().iter().enumerate();
    checks
        .filter(|(_, check)| !is_declared(&check.port))
        .map(|(index, check)| {
            let pointer = format!("{pointer}/{index}/port");
            let detail = format!("no breed here declares the port '{}'", check.port);
            Problem::new(ProblemKind::UnresolvedPortReference, pointer, detail)
                .hint("write the name of a port that the breed declares")
        })
        .collect()
}

/// Refuses an element of a "reference or anonymous" position that has a name but is no reference.
pub(super) fn refuse_name_without_reference(fields: &mut Fields<'_>, reading: &mut Reading) {
    if let Some(name) = fields.take("name", reading) {
        let detail = "what is written in place has no name";
        let problem = name.problem(ProblemKind::EitherReferenceOrAnonymous, detail);
        reading.refuse(problem.hint("leave the name out, or write {ref: NAME} alone"));
    }
}

/// The reference in `element` when there is one, with `name` beside it ignored.
pub(super) fn reference_or_inline(element: &Element<'_>, reading: &mut Reading) -> Reference {
    fields::reference(element, &["name"], reading)
}
