//! The reader of scales (documents, section 4).

use super::{
    Options,
    common::{reference_or_inline, refuse_name_without_reference},
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    artifact::{Kind, NamedScale, Scale, ScaleReference},
    problem::Result,
};

/// Reads a stored scale.
pub fn read_scale(node: &Node, options: &Options) -> Result<NamedScale> {
    let mut reading = Reading::new(options);
    let scale = Fields::open(&Element::root(node), &mut reading)
        .and_then(|fields| named(fields, &mut reading));
    reading.finish(scale)
}

/// Reads the scale of a running service: a scale, or a reference to a stored one. A name beside the scale is ignored,
/// since answers print one.
pub fn read_inline_scale(node: &Node, options: &Options) -> Result<ScaleReference> {
    let mut reading = Reading::new(options);
    let element = Element::root(node);
    let scale = match reference_or_inline(&element, &mut reading) {
        Reference::To(name) => name.map(ScaleReference::Reference),
        Reference::No => Fields::open(&element, &mut reading).and_then(|mut fields| {
            fields.top(&[Kind::Scale], &mut reading);
            fields.ignore(&["name"], &mut reading);
            values(fields, &mut reading).map(ScaleReference::Inline)
        }),
    };
    reading.finish(scale)
}

fn named(mut fields: Fields<'_>, reading: &mut Reading) -> Option<NamedScale> {
    let name = fields.name(reading);
    let name = name.filter(|(name, element)| fields::general_name(element, name, reading));
    let metadata = fields.top(&[Kind::Scale], reading);
    let scale = values(fields, reading);
    Some(NamedScale { name: name?.0, metadata, scale: scale? })
}

/// The scale of a service in a blueprint.
pub(super) fn scale_reference(
    element: &Element<'_>,
    reading: &mut Reading,
) -> Option<ScaleReference> {
    match reference_or_inline(element, reading) {
        Reference::To(name) => Some(ScaleReference::Reference(name?)),
        Reference::No if element.is_map() => {
            let mut fields = Fields::open(element, reading)?;
            refuse_name_without_reference(&mut fields, reading);
            fields.top(&[Kind::Scale], reading);
            values(fields, reading).map(ScaleReference::Inline)
        }
        Reference::No => {
            reading.wrong_type(element, "the name of a scale or a map with 'cpu' and 'memory'");
            None
        }
    }
}

fn values(mut fields: Fields<'_>, reading: &mut Reading) -> Option<Scale> {
    let cpu = fields.require("cpu", reading).and_then(|cpu| fields::cpu(&cpu, reading));
    let memory =
        fields.require("memory", reading).and_then(|memory| fields::memory(&memory, reading));
    let instances = match fields.take("instances", reading) {
        Some(instances) => fields::unsigned(&instances, reading),
        None => Some(1),
    };
    fields.close(reading);
    Some(Scale { cpu: cpu?, memory: memory?, instances: instances? })
}
