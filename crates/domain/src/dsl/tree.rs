//! The document tree: what a YAML or JSON text says, with the line and column of every element.
//!
//! It knows nothing of artifacts. Aliases and merge keys are already replaced by what they stand for.

pub use super::{scalar::ScalarKind, spelling::Spelling};
use crate::problem::Place;
use serde_json::{Map, Number, Value as Json};
use std::borrow::Cow;

/// An element of a document and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where the element begins; an aliased element begins where it was first written.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What an element of a document is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// A single value.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Node>),
    /// A map in document order, without duplicate keys.
    Mapping(Vec<(Key, Node)>),
}

/// A single value: its spelling, and what that stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    /// The text as written, escapes resolved.
    pub text: String,
    /// What it stands for.
    pub kind: ScalarKind,
    /// How the text stands in the document.
    pub spelling: Spelling,
}

/// A key of a map: always text, exactly as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The text.
    pub text: String,
    /// Where it begins.
    pub place: Place,
}

/// Longer values say nothing in a message.
const SHORT_CHARACTERS: usize = 60;

impl Node {
    /// The place of the element at the JSON `pointer`: of its key in a map, else of the element itself. `None` when
    /// there is no such element.
    pub fn locate(&self, pointer: &str) -> Option<Place> {
        if pointer.is_empty() {
            return Some(self.place);
        }
        let mut node = self;
        let mut place = None;
        for segment in pointer.strip_prefix('/')?.split('/') {
            let segment = segment.replace("~1", "/").replace("~0", "~");
            (place, node) = match &node.value {
                Value::Mapping(entries) => {
                    let (key, value) = entries.iter().find(|(key, _)| key.text == segment)?;
                    (Some(key.place), value)
                }
                Value::Sequence(items) => {
                    let item = items.get(segment.parse::<usize>().ok()?)?;
                    (Some(item.place), item)
                }
                Value::Null | Value::Scalar(_) => return None,
            };
        }
        place
    }

    /// How many elements it has, itself among them.
    pub(crate) fn size(&self) -> usize {
        1 + match &self.value {
            Value::Null | Value::Scalar(_) => 0,
            Value::Sequence(items) => items.iter().map(Node::size).sum(),
            Value::Mapping(entries) => entries.iter().map(|(_, value)| value.size()).sum(),
        }
    }

    /// Where the character stands before which the text of this scalar has `offset` characters.
    pub fn place_within(&self, offset: usize) -> Place {
        match &self.value {
            Value::Scalar(scalar) => scalar.spelling.place(self.place, &scalar.text, offset),
            Value::Null | Value::Sequence(_) | Value::Mapping(_) => self.place,
        }
    }

    /// The text that a scalar is where text is expected: as written, and `true` or `false` of a boolean (documents,
    /// section 1.4). `None` of everything else.
    pub fn text(&self) -> Option<String> {
        match &self.value {
            Value::Scalar(Scalar { kind: ScalarKind::Boolean(value), .. }) => {
                Some(value.to_string())
            }
            Value::Scalar(scalar) => Some(scalar.text.clone()),
            Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
        }
    }

    /// The same content as JSON. Numbers keep their type; those that JSON cannot hold become text.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Scalar(scalar) => scalar.to_json(),
            Value::Sequence(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Mapping(entries) => {
                let members =
                    entries.iter().map(|(key, value)| (key.text.clone(), value.to_json()));
                Json::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// The same for those who may have written the right thing with a wrong value: short values as they stand.
    pub fn describe_value(&self) -> String {
        match &self.value {
            Value::Scalar(scalar) if scalar.text.chars().count() <= SHORT_CHARACTERS => {
                match scalar.kind {
                    ScalarKind::Text => format!("'{}'", scalar.text),
                    ScalarKind::Boolean(_) => "a boolean".to_owned(),
                    ScalarKind::Integer(_) | ScalarKind::Decimal(_) => scalar.text.clone(),
                }
            }
            _ => self.describe().to_owned(),
        }
    }

    /// What the element is, in a word, for messages.
    pub fn describe(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a map",
            Value::Scalar(scalar) => match scalar.kind {
                ScalarKind::Text => "text",
                ScalarKind::Boolean(_) => "a boolean",
                ScalarKind::Integer(_) => "an integer",
                ScalarKind::Decimal(_) => "a decimal",
            },
        }
    }
}

impl Scalar {
    fn to_json(&self) -> Json {
        let number = match self.kind {
            ScalarKind::Text => None,
            ScalarKind::Boolean(value) => return Json::Bool(value),
            ScalarKind::Integer(value) => i64::try_from(value)
                .map(Number::from)
                .or_else(|_| u64::try_from(value).map(Number::from))
                .ok(),
            ScalarKind::Decimal(value) => Number::from_f64(value),
        };
        number.map_or_else(|| Json::String(self.text.clone()), Json::Number)
    }
}

/// A segment of a JSON pointer.
pub(crate) fn pointer_segment(text: &str) -> Cow<'_, str> {
    if text.contains(['~', '/']) {
        text.replace('~', "~0").replace('/', "~1").into()
    } else {
        text.into()
    }
}
