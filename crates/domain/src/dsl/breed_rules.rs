//! The rules of a breed as a whole (documents, section 3), checked on the typed breed.

use super::{
    common::{self, split_alias},
    reader::RuleProblem,
    tree::pointer_segment,
};
use crate::{
    artifact::{
        Breed, BreedReference, is_strict_name,
        value::{self, ValuePart},
    },
    problem::{Problem, ProblemKind},
};

/// The order of the rules.
pub(super) mod rank {
    pub const STRICT_NAMES: u8 = 1;
    pub const PORT_VALUES: u8 = 2;
    pub const CONSTANT_VALUES: u8 = 3;
    pub const ARGUMENTS: u8 = 4;
    pub const HEALTH_CHECKS: u8 = 5;
    pub const TRAIT_VALUES: u8 = 6;
    pub const VALUE_SYNTAX: u8 = 7;
    pub const RECURSION: u8 = 8;
}

/// The rules that `breed`, written at `pointer`, breaks.
pub(super) fn broken(breed: &Breed, pointer: &str) -> Vec<RuleProblem> {
    let mut broken = Vec::new();
    let mut add = |rank: u8, problems: Vec<Problem>| {
        broken.extend(problems.into_iter().map(|problem| RuleProblem { rank, problem }));
    };
    add(rank::STRICT_NAMES, strict_names(breed, pointer));
    add(rank::PORT_VALUES, port_values(breed, pointer));
    add(rank::CONSTANT_VALUES, constant_values(breed, pointer));
    add(
        rank::ARGUMENTS,
        common::argument_value_problems(&breed.arguments, &format!("{pointer}/arguments")),
    );
    let checks = breed.health_checks.as_deref();
    let checks_pointer = format!("{pointer}/health_checks");
    let declares = |port: &str| breed.ports.contains_key(port);
    add(rank::HEALTH_CHECKS, common::health_check_problems(checks, &checks_pointer, declares));
    add(rank::TRAIT_VALUES, trait_values(breed, pointer));
    add(rank::VALUE_SYNTAX, value_syntax(breed, pointer));
    add(rank::RECURSION, recursion(breed, pointer));
    broken
}

fn strict_names(breed: &Breed, pointer: &str) -> Vec<Problem> {
    let ports = breed.ports.keys().map(|name| ("ports", name));
    let variables = breed.environment_variables.keys().map(|name| ("environment_variables", name));
    let constants = breed.constants.keys().map(|name| ("constants", name));
    ports
        .chain(variables)
        .chain(constants)
        .filter(|(_, key)| !is_strict_name(split_alias(key).0))
        .map(|(group, key)| {
            let pointer = format!("{pointer}/{group}/{}", pointer_segment(key));
            Problem::new(
                ProblemKind::IllegalStrictName,
                pointer,
                format!("'{key}' is no name for this"),
            )
            .hint("such a name has no white space, '/', '[', ']' or '.'")
        })
        .collect()
}

fn port_values(breed: &Breed, pointer: &str) -> Vec<Problem> {
    let missing = breed.ports.iter().filter(|(_, port)| port.text.is_empty());
    missing
        .map(|(name, _)| {
            let pointer = format!("{pointer}/ports/{}", pointer_segment(name));
            Problem::new(
                ProblemKind::MissingPortValue,
                pointer,
                format!("the port '{name}' has no value"),
            )
            .hint(format!("write {name}: 8080/http"))
        })
        .collect()
}

fn constant_values(breed: &Breed, pointer: &str) -> Vec<Problem> {
    let missing = breed.constants.iter().filter(|(_, value)| value.is_none());
    missing
        .map(|(name, _)| {
            let pointer = format!("{pointer}/constants/{}", pointer_segment(name));
            Problem::new(
                ProblemKind::MissingConstantValue,
                pointer,
                format!("the constant '{name}' has no value"),
            )
            .hint(format!("write {name}: VALUE"))
        })
        .collect()
}

/// The values of a breed with their canonical pointers.
fn values(breed: &Breed) -> impl Iterator<Item = (String, &str)> {
    let entry = |group: &'static str, name: &str| format!("/{group}/{}", pointer_segment(name));
    let ports =
        breed.ports.iter().map(move |(name, port)| (entry("ports", name), port.text.as_str()));
    let variables = breed.environment_variables.iter().filter_map(move |(name, value)| {
        Some((entry("environment_variables", name), value.as_deref()?))
    });
    let constants = breed
        .constants
        .iter()
        .filter_map(move |(name, value)| Some((entry("constants", name), value.as_deref()?)));
    ports.chain(variables).chain(constants)
}

fn trait_values(breed: &Breed, pointer: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (place, text) in values(breed) {
        let parts = value::parse(text).unwrap_or_default();
        let unresolved = parts.iter().find_map(|part| unresolved(part, breed));
        problems.extend(unresolved.map(|detail| {
            Problem::new(
                ProblemKind::UnresolvedDependencyInTraitValue,
                format!("{pointer}{place}"),
                detail,
            )
            .hint("declare it under 'dependencies', or write '$$' for a '$'")
        }));
    }
    problems
}

/// Why `part` of a value of `breed` refers to nothing.
fn unresolved(part: &ValuePart, breed: &Breed) -> Option<String> {
    let (alias, member) = match part {
        ValuePart::Literal(_) | ValuePart::Local(_) | ValuePart::Global { .. } => return None,
        ValuePart::Host { alias } => (alias, None),
        ValuePart::Trait { alias, group, name } => (alias, Some((group.as_str(), name))),
        ValuePart::Address { alias, port } => (alias, Some(("ports", port))),
    };
    let Some(dependency) = breed.dependencies.get(alias) else {
        return Some(format!("'{alias}' is no dependency of this breed"));
    };
    let (group, name) = member?;
    let declares = dependency.inline().is_none_or(|breed| declares(breed, group, name));
    (!declares).then(|| format!("the dependency '{alias}' declares no '{name}' among its {group}"))
}

/// Whether `breed` declares the trait `name` in `group`.
pub(super) fn declares(breed: &Breed, group: &str, name: &str) -> bool {
    match group {
        "ports" => breed.ports.contains_key(name),
        "environment_variables" => declares_variable(breed, name),
        "constants" => breed.constants.contains_key(name),
        _ => false,
    }
}

/// Whether `breed` declares the environment variable `name`, with or without an alias.
pub(super) fn declares_variable(breed: &Breed, name: &str) -> bool {
    breed.environment_variables.keys().any(|key| split_alias(key).0 == name)
}

fn value_syntax(breed: &Breed, pointer: &str) -> Vec<Problem> {
    values(breed)
        .filter_map(|(place, text)| value_syntax_problem(text, format!("{pointer}{place}")))
        .collect()
}

/// The problem with the value references of `text`, when there is one.
pub(super) fn value_syntax_problem(text: &str, pointer: String) -> Option<Problem> {
    let error = value::parse(text).err()?;
    Some(
        Problem::new(ProblemKind::ValueSyntax, pointer, format!("in '{text}', {error}"))
            .hint("write '$$' for a '$'"),
    )
}

fn recursion(breed: &Breed, pointer: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    descend(breed, pointer, &mut vec![&breed.name], &mut problems);
    problems
}

/// Nesting is as deep as a document may be, so recursion is bounded.
fn descend<'b>(
    breed: &'b Breed,
    pointer: &str,
    path: &mut Vec<&'b str>,
    problems: &mut Vec<Problem>,
) {
    for (alias, dependency) in &breed.dependencies {
        let pointer = format!("{pointer}/dependencies/{}", pointer_segment(alias));
        let name = dependency.name();
        if path.contains(&name) {
            let detail = format!("'{name}' depends on itself: {} -> {name}", path.join(" -> "));
            let problem = Problem::new(ProblemKind::RecursiveDependencies, pointer, detail);
            problems.push(problem.hint("take one of the dependencies out"));
        } else if let BreedReference::Inline(inner) = dependency {
            path.push(name);
            descend(inner, &pointer, path, problems);
            path.pop();
        }
    }
}
