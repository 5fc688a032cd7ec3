//! Imports: documents that build on templates and on other stored artifacts (documents, 11.2).
//!
//! What is imported stands where `import` stands: a problem in it is reported there.

use super::{
    Limits,
    expand::{References, representation_with},
    import_merge::Merged,
    tree::{Key, Node, Scalar, ScalarKind, Spelling, Value},
};
use crate::artifact::{ArtifactKey, Kind};
use crate::problem::{Place, Problem, ProblemKind, Problems, Result};
use crate::state::State;
use serde_json::Value as Json;
use std::borrow::Cow;

/// How much a document imports at most.
const IMPORTS_MAX: usize = 100;
/// What an imported artifact says of itself, which the document that imports it is not.
const OWN: [&str; 3] = ["name", "kind", "lookup_name"];

/// The document with everything that it imports, as `state` has it. Definitions are merged in the order of the list,
/// the document's own keys last: maps merge, lists are united, everything else is replaced.
pub fn import<'n>(node: &'n Node, state: &State) -> Result<Cow<'n, Node>> {
    let Value::Mapping(entries) = &node.value else { return Ok(Cow::Borrowed(node)) };
    let Some((key, list)) = entries.iter().find(|(key, _)| key.text == "import") else {
        return Ok(Cow::Borrowed(node));
    };
    let mut merged = Merged::default();
    let mut problems = Vec::new();
    let mut nodes = node.size();
    for (pointer, item) in items(list, key.place)? {
        match definition(item, state) {
            Ok(definition) => {
                nodes += definition.iter().map(|(_, node)| node.size()).sum::<usize>();
                check_size(nodes, &pointer, item.place)?;
                merged.merge(definition);
            }
            Err(found) => problems.extend(
                found
                    .iter()
                    .map(|problem| problem.clone().at(Some(item.place)))
                    .map(|problem| Problem { pointer: pointer.clone(), ..problem }),
            ),
        }
    }
    Problems::check(problems)?;
    let own = entries.iter().filter(|(key, _)| key.text != "import").cloned();
    merged.merge(own.collect());
    Ok(Cow::Owned(Node { place: node.place, value: Value::Mapping(merged.into_entries()) }))
}

/// Refuses what would hold more elements than a body may.
fn check_size(nodes: usize, pointer: &str, place: Place) -> Result<()> {
    let nodes_max = Limits::default().nodes;
    if nodes <= nodes_max {
        return Ok(());
    }
    let detail = format!("with what it imports the document has more than {nodes_max} elements");
    let problem = Problem::new(ProblemKind::ImportDefinition, pointer, detail);
    Err(problem.at(Some(place)).hint("import less").into())
}

/// What is to be imported, with pointers.
fn items(list: &Node, key: Place) -> Result<Vec<(String, &Node)>> {
    let items: Vec<(String, &Node)> = match &list.value {
        Value::Null => Vec::new(),
        Value::Sequence(items) => {
            let items = items.iter().enumerate();
            items.map(|(index, item)| (format!("/import/{index}"), item)).collect()
        }
        Value::Scalar(_) | Value::Mapping(_) => vec![("/import".to_owned(), list)],
    };
    if items.len() > IMPORTS_MAX {
        let detail = format!("a document imports at most {IMPORTS_MAX} others");
        let problem = Problem::new(ProblemKind::ImportDefinition, "/import", detail);
        return Err(problem.at(Some(key)).hint("put them together in one template").into());
    }
    Ok(items)
}

/// The content of what `item` names.
fn definition(item: &Node, state: &State) -> Result<Vec<(Key, Node)>> {
    let problem = |kind, detail: String| Problem::new(kind, "", detail);
    let hint = "write the name of a template, or KINDS/NAME such as breeds/web:1";
    let Value::Scalar(Scalar { text, .. }) = &item.value else {
        let detail = format!("an import is text, found {}", item.describe());
        return Err(problem(ProblemKind::ImportDefinition, detail).hint(hint).into());
    };
    if text.trim().is_empty() {
        let detail = "an import names something".to_owned();
        return Err(problem(ProblemKind::EmptyImport, detail).hint(hint).into());
    }
    let content = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => state.templates().get(name).map(|stored| stored.artifact.definition.clone()),
        [collection, name] => {
            let kinds = Kind::ALL.into_iter().find(|kind| kind.collection() == collection);
            let kind = kinds.ok_or_else(|| {
                let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.collection()).collect();
                let detail = format!("'{collection}' is no collection of artifacts");
                problem(ProblemKind::UnexpectedArtifact, detail)
                    .hint(format!("one of {}", known.join(", ")))
            })?;
            let key = ArtifactKey::new(kind, name);
            // Where a gateway is reached is not read.
            match representation_with(state, &key, References::Expanded, "")? {
                Some(Json::Object(mut content)) => {
                    content.retain(|key, _| !OWN.contains(&&key[..]));
                    Some(content)
                }
                _ => None,
            }
        }
        _ => {
            let detail = format!("'{text}' names nothing that can be imported");
            return Err(problem(ProblemKind::ImportDefinition, detail).hint(hint).into());
        }
    };
    let content = content.ok_or_else(|| {
        let detail = format!("'{text}' is not stored");
        problem(ProblemKind::ImportReference, detail).hint("store it first, or leave it out")
    })?;
    let entries = content.into_iter().map(|(key, value)| {
        (Key { text: key, place: item.place }, Node::from_json(value, item.place))
    });
    Ok(entries.collect())
}

impl Node {
    /// The element that `json` is, all of it at `place`.
    fn from_json(json: Json, place: Place) -> Self {
        // Its text does not stand in this document, so that every place in it is the one of the import.
        let scalar = |text: String, kind| {
            Value::Scalar(Scalar { text, kind, spelling: Spelling::Other("".into()) })
        };
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => scalar(value.to_string(), ScalarKind::Boolean(value)),
            Json::Number(number) => {
                let integer = number.as_i64().map(i128::from);
                let kind = match integer.or_else(|| number.as_u64().map(i128::from)) {
                    Some(integer) => ScalarKind::Integer(integer),
                    None => ScalarKind::Decimal(number.as_f64().unwrap_or(f64::NAN)),
                };
                scalar(number.to_string(), kind)
            }
            Json::String(text) => scalar(text, ScalarKind::Text),
            Json::Array(items) => Value::Sequence(
                items.into_iter().map(|item| Self::from_json(item, place)).collect(),
            ),
            Json::Object(members) => {
                let entries = members
                    .into_iter()
                    .map(|(text, value)| (Key { text, place }, Self::from_json(value, place)));
                Value::Mapping(entries.collect())
            }
        };
        Self { place, value }
    }
}
