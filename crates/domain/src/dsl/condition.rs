//! The reader of conditions (documents, section 5), stored ones and those of routes.

use super::{
    Options,
    common::refuse_name_without_reference,
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    artifact::{Condition, Kind, NamedCondition, RouteCondition},
    problem::{ProblemKind, Result},
};

/// Reads a stored condition.
pub fn read_condition(node: &Node, options: &Options) -> Result<NamedCondition> {
    let mut reading = Reading::new(options);
    let condition = Fields::open(&Element::root(node), &mut reading)
        .and_then(|fields| named(fields, &mut reading));
    reading.finish(condition)
}

fn named(mut fields: Fields<'_>, reading: &mut Reading) -> Option<NamedCondition> {
    let name = fields.name(reading);
    let name = name.filter(|(name, element)| fields::general_name(element, name, reading));
    let metadata = fields.top(&[Kind::Condition], reading);
    let condition = fields.require("condition", reading).and_then(|element| {
        let text = fields::text(&element, reading)?;
        condition(&element, &text, reading)
    });
    fields.close(reading);
    Some(NamedCondition { name: name?.0, metadata, condition: condition? })
}

/// The condition of a route: its text, or a map with the text or a reference. Empty text is no condition.
pub(super) fn route_condition(
    element: &Element<'_>,
    reading: &mut Reading,
) -> Option<RouteCondition> {
    if let Some(text) = element.plain_text() {
        return inline(element, text, reading);
    }
    if !element.is_map() {
        reading.wrong_type(element, "the text of a condition, {condition: TEXT} or {ref: NAME}");
        return None;
    }
    if let Reference::To(name) = fields::reference(element, &["name"], reading) {
        return name.map(RouteCondition::Reference);
    }
    let mut fields = Fields::open(element, reading)?;
    refuse_name_without_reference(&mut fields, reading);
    fields.top(&[Kind::Condition], reading);
    let inner = fields.require("condition", reading);
    fields.close(reading);
    let inner = inner?;
    let text = fields::text(&inner, reading)?;
    inline(&inner, &text, reading)
}

fn inline(element: &Element<'_>, text: &str, reading: &mut Reading) -> Option<RouteCondition> {
    if text.trim().is_empty() {
        return None;
    }
    condition(element, text, reading).map(RouteCondition::Inline)
}

/// Reads `text`, which stands at `element`. For old clients what does not parse is the proxy's own words.
fn condition(element: &Element<'_>, text: &str, reading: &mut Reading) -> Option<Condition> {
    let error = match Condition::parse(text) {
        Ok(condition) => return Some(condition),
        Err(_) if reading.options.legacy_clients && !text.contains('\n') => {
            return Some(Condition::raw(text));
        }
        Err(error) => error,
    };
    let mut problem = element.problem(ProblemKind::ConditionSyntax, error.detail).hint(error.hint);
    problem.place = Some(element.node.place_within(error.offset));
    reading.refuse(problem);
    None
}
