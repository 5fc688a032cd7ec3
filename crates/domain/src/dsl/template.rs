//! The reader of templates (documents, section 11.2).

use super::{
    Options, fields,
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    artifact::{Kind, Template},
    problem::Result,
};

/// Reads a template.
pub fn read_template(node: &Node, options: &Options) -> Result<Template> {
    let mut reading = Reading::new(options);
    let template = Fields::open(&Element::root(node), &mut reading).and_then(|mut fields| {
        let name = fields.general_name(&mut reading);
        let metadata = fields.top(&[Kind::Template], &mut reading);
        let element = fields.require_either("definition", "def", &mut reading);
        fields.close(&mut reading);
        let element = element?;
        let definition = fields::json_map(&element);
        if definition.is_none() {
            reading.wrong_type(&element, "a map, part of a document");
        }
        Some(Template { name: name?, metadata, definition: definition? })
    });
    reading.finish(template)
}
