//! The reader of rewrites (documents, section 5), stored ones and those of routes.

use super::{
    Options,
    common::{reference_or_inline, refuse_name_without_reference},
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    artifact::{Kind, NamedRewrite, Rewrite, RewriteReference},
    problem::{ProblemKind, Result},
};

/// Reads a stored rewrite.
pub fn read_rewrite(node: &Node, options: &Options) -> Result<NamedRewrite> {
    let mut reading = Reading::new(options);
    let rewrite = Fields::open(&Element::root(node), &mut reading).and_then(|mut fields| {
        let name = fields.general_name(&mut reading);
        let metadata = fields.top(&[Kind::Rewrite], &mut reading);
        let rewrite = body(fields, &mut reading);
        Some(NamedRewrite { name: name?, metadata, rewrite: rewrite? })
    });
    reading.finish(rewrite)
}

/// Reads the text of a rewrite, `NEW_PATH if CONDITION`; the last ` if ` splits.
pub fn rewrite(text: &str) -> Option<Rewrite> {
    let at = text.to_ascii_lowercase().rfind(" if ")?;
    let (path, condition) = (&text[..at], &text[at + 4..]);
    (!path.trim().is_empty() && !condition.trim().is_empty())
        .then(|| Rewrite { path: path.to_owned(), condition: condition.to_owned() })
}

/// The rewrites of a route: a list, or one map.
pub(super) fn rewrites(fields: &mut Fields<'_>, reading: &mut Reading) -> Vec<RewriteReference> {
    let Some(element) = fields.take("rewrites", reading) else { return Vec::new() };
    let elements = if element.is_map() {
        vec![element]
    } else if let Some(items) = element.items(reading) {
        items
    } else {
        reading.wrong_type(&element, "a list of rewrites");
        return Vec::new();
    };
    elements.iter().filter_map(|element| rewrite_reference(element, reading)).collect()
}

/// A rewrite by name, or written in place.
fn rewrite_reference(element: &Element<'_>, reading: &mut Reading) -> Option<RewriteReference> {
    match reference_or_inline(element, reading) {
        Reference::To(name) => Some(RewriteReference::Reference(name?)),
        Reference::No if element.is_map() => {
            let mut fields = Fields::open(element, reading)?;
            refuse_name_without_reference(&mut fields, reading);
            body(fields, reading).map(RewriteReference::Inline)
        }
        Reference::No => {
            reading.wrong_type(element, "the name of a rewrite or a map with 'path'");
            None
        }
    }
}

fn body(mut fields: Fields<'_>, reading: &mut Reading) -> Option<Rewrite> {
    let path = fields.require("path", reading);
    fields.close(reading);
    let path = path?;
    let text = fields::text(&path, reading)?;
    let rewrite = rewrite(&text);
    if rewrite.is_none() {
        let problem =
            path.problem(ProblemKind::UnsupportedPathRewrite, format!("'{text}' is no rewrite"));
        reading.refuse(problem.hint("write NEW_PATH if CONDITION"));
    }
    rewrite
}
