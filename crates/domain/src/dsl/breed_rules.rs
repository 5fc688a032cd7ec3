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
use std::collections::{HashMap, HashSet};

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
    let dependencies = breed.dependencies.iter();
    let dependencies: Dependencies<'_> = dependencies
        .map(|(alias, breed)| (alias.as_str(), breed.inline().map(|breed| Declared::by([breed]))))
        .collect();
    let mut problems = Vec::new();
    for (place, text) in values(breed) {
        let parts = value::parse(text).unwrap_or_default();
        let unresolved = parts.iter().find_map(|part| unresolved(part, &dependencies));
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

/// By alias: what the breeds declare that a breed depends on, as far as they are written in place.
type Dependencies<'b> = HashMap<&'b str, Option<Declared<'b>>>;

/// Why `part` of a value of a breed with these dependencies refers to nothing.
fn unresolved(part: &ValuePart, dependencies: &Dependencies<'_>) -> Option<String> {
    let (alias, member) = match part {
        ValuePart::Literal(_) | ValuePart::Local(_) | ValuePart::Global { .. } => return None,
        ValuePart::Host { alias } => (alias, None),
        ValuePart::Trait { alias, group, name } => (alias, Some((group.as_str(), name))),
        ValuePart::Address { alias, port } => (alias, Some(("ports", port))),
    };
    let Some(dependency) = dependencies.get(alias.as_str()) else {
        return Some(format!("'{alias}' is no dependency of this breed"));
    };
    let (group, name) = member?;
    let declares = dependency.as_ref().is_none_or(|declared| declared.has(group, name));
    (!declares).then(|| format!("the dependency '{alias}' declares no '{name}' among its {group}"))
}

/// What breeds declare, found by hash.
#[derive(Default)]
pub(super) struct Declared<'b> {
    pub ports: HashSet<&'b str>,
    /// Without their aliases.
    pub variables: HashSet<&'b str>,
    pub constants: HashSet<&'b str>,
}

impl<'b> Declared<'b> {
    /// What one of `breeds` or more declare.
    pub fn by(breeds: impl IntoIterator<Item = &'b Breed>) -> Self {
        let mut declared = Self::default();
        for breed in breeds {
            declared.ports.extend(breed.ports.keys().map(String::as_str));
            let variables = breed.environment_variables.keys();
            declared.variables.extend(variables.map(|key| split_alias(key).0));
            declared.constants.extend(breed.constants.keys().map(String::as_str));
        }
        declared
    }

    /// Whether the trait `name` is declared in `group`.
    pub fn has(&self, group: &str, name: &str) -> bool {
        match group {
            "ports" => self.ports.contains(name),
            "environment_variables" => self.variables.contains(name),
            "constants" => self.constants.contains(name),
            _ => false,
        }
    }
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
