//! The reader of breeds (documents, section 3).

use super::{
    Options,
    breed_rules::{self, rank},
    common::{self, KeyAlias},
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    artifact::{Breed, BreedReference, Deployable, Kind, Port},
    problem::{ProblemKind, Result},
};
use indexmap::IndexMap;
use std::rc::Rc;

/// Reads a breed.
pub fn read_breed(node: &Node, options: &Options) -> Result<Breed> {
    let mut reading = Reading::new(options);
    let fields = Fields::open(&Element::root(node), &mut reading);
    let breed = fields.and_then(|fields| breed(fields, Position::Document, &mut reading));
    reading.finish(breed)
}

/// Where a breed is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// It is a document of its own.
    Document,
    /// It is part of another artifact.
    Nested,
}

/// A breed with all its rules.
pub(super) fn breed(
    mut fields: Fields<'_>,
    position: Position,
    reading: &mut Reading,
) -> Option<Breed> {
    let rules_begin = reading.rules_begin();
    let canonical = fields.element().canonical.clone();
    let is_nested = position == Position::Nested;
    let name = name(&mut fields, position, reading);
    let metadata = fields.top(&[Kind::Breed], reading);
    fields.ignore(&["lookup_name"], reading);
    let deployable = deployable(&mut fields, reading);
    let ports = ports(&mut fields, reading);
    let environment_variables = common::environment_variables(&mut fields, KeyAlias::Kept, reading);
    let constants = fields.take("constants", reading);
    let constants = common::traits(constants, KeyAlias::Dropped, reading);
    let arguments = fields.take("arguments", reading);
    let arguments = common::arguments(arguments, reading);
    let dependencies = dependencies(&mut fields, reading);
    let health_checks = common::health_checks(&mut fields, rank::HEALTH_CHECKS, reading);
    fields.close(reading);
    let breed = Breed {
        name: name?,
        metadata,
        deployable: deployable?,
        ports,
        environment_variables,
        constants,
        arguments,
        dependencies,
        health_checks,
    };
    reading.settle_rules(rules_begin, breed_rules::broken(&breed, &canonical), is_nested);
    Some(breed)
}

fn name(fields: &mut Fields<'_>, position: Position, reading: &mut Reading) -> Option<String> {
    // The name in the path is that of the document, not of what is written inside it.
    if position == Position::Document {
        let (name, element) = fields.name(reading)?;
        return fields::general_name(&element, &name, reading).then_some(name);
    }
    let element = fields.require("name", reading)?;
    let name = fields::text(&element, reading)?;
    fields::general_name(&element, &name, reading).then_some(name)
}

fn deployable(fields: &mut Fields<'_>, reading: &mut Reading) -> Option<Deployable> {
    let element = fields.require("deployable", reading)?;
    let kind = reading.options.default_deployable_type.clone();
    if let Some(definition) = fields::scalar_text(&element) {
        return Some(Deployable { kind, definition });
    }
    if !element.is_map() {
        reading.wrong_type(&element, "text or a map with 'type' and 'definition'");
        return None;
    }
    let mut inner = Fields::open(&element, reading)?;
    let kind = match inner.take("type", reading) {
        Some(element) => fields::text(&element, reading),
        None => Some(kind),
    };
    let definition =
        inner.require("definition", reading).and_then(|element| fields::text(&element, reading));
    inner.close(reading);
    Some(Deployable { kind: kind?, definition: definition? })
}

fn ports(fields: &mut Fields<'_>, reading: &mut Reading) -> IndexMap<String, Port> {
    let element = fields.take("ports", reading);
    let mut ports = IndexMap::new();
    for (name, element) in common::trait_elements(element, KeyAlias::Dropped, reading) {
        // A port without value is kept as empty text and refused by the rules.
        let text = fields::scalar_text(&element).unwrap_or_default();
        if let Some(port) = fields::port(&element, &text, ProblemKind::InvalidPort, reading) {
            ports.insert(name, port);
        }
    }
    ports
}

fn dependencies(
    fields: &mut Fields<'_>,
    reading: &mut Reading,
) -> IndexMap<String, BreedReference> {
    let mut dependencies = IndexMap::new();
    let Some(element) = fields.take("dependencies", reading) else { return dependencies };
    let Some(entries) = element.entries(reading) else {
        reading.wrong_type(&element, "a map from alias to breed");
        return dependencies;
    };
    for (alias, element) in entries {
        if let Some(dependency) = dependency(&element, reading) {
            dependencies.insert(alias.text.clone(), dependency);
        }
    }
    dependencies
}

/// A dependency: a breed, or a map whose only key is `breed`.
fn dependency(element: &Element<'_>, reading: &mut Reading) -> Option<BreedReference> {
    if !element.is_map() {
        return breed_reference(element, reading);
    }
    let mut fields = Fields::open(element, reading)?;
    if !fields.has("breed") {
        return breed_reference(element, reading);
    }
    let inner = fields.take("breed", reading)?.standing_for(Rc::clone(&element.canonical), reading);
    fields.close(reading);
    breed_reference(&inner, reading)
}

/// A breed by name, or written in place.
pub(super) fn breed_reference(
    element: &Element<'_>,
    reading: &mut Reading,
) -> Option<BreedReference> {
    match fields::reference(element, &[], reading) {
        Reference::To(name) => Some(BreedReference::Reference(name?)),
        Reference::No if element.is_map() => {
            let fields = Fields::open(element, reading)?;
            let breed = breed(fields, Position::Nested, reading)?;
            Some(BreedReference::Inline(Box::new(breed)))
        }
        Reference::No => {
            reading.wrong_type(element, "the name of a breed, {ref: NAME} or a breed");
            None
        }
    }
}
