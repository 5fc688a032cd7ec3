//! The short way for posted events, which are by far the most frequent documents and nearly all of them plain JSON.

use super::event::{KIND_DEFAULT, PostedEvent};
use super::event_time::instant;
use crate::event::is_event_type;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// With more tags, comparing each with each takes longer than the other reader.
const TAGS_MAX: usize = 32;

/// Reads the text of an event when it is plain JSON, many times faster than the reader of documents. `None` when it is
/// anything else, right or wrong: whoever asks goes on with [`super::read_posted_event`], which also says what is wrong and where.
///
/// Plain is what both readers take for the same: one object with the known members, each at most once and none null, the
/// value a text, a boolean or a number of 64 bits, no escapes and no control characters.
pub fn read_plain_event(text: &str) -> Option<PostedEvent> {
    if !text.chars().all(is_plain) {
        return None;
    }
    let Plain { tags, value, timestamp, kind } = serde_json::from_str(text).ok()?;
    if tags.is_empty() || tags.len() > TAGS_MAX || !is_event_type(kind) {
        return None;
    }
    let timestamp = match timestamp {
        Some(text) => Some(instant(text)?),
        None => None,
    };
    let mut distinct: Vec<String> = Vec::with_capacity(tags.len());
    for tag in tags {
        if !distinct.iter().any(|other| other == tag) {
            distinct.push(tag.to_owned());
        }
    }
    Some(PostedEvent { tags: distinct, value: value.0, timestamp, kind: kind.to_owned() })
}

/// Neither an escape nor one of the characters that documents refuse, fold or take away.
fn is_plain(c: char) -> bool {
    matches!(c, ' '..='[' | ']'..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}')
        || matches!(c, '\u{e000}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
        || matches!(c, '\u{10000}'..='\u{1fffd}')
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain<'a> {
    #[serde(borrow)]
    tags: Vec<&'a str>,
    #[serde(default)]
    value: PlainValue,
    #[serde(default, borrow, deserialize_with = "given")]
    timestamp: Option<&'a str>,
    #[serde(rename = "type", default = "default_kind")]
    kind: &'a str,
}

/// A text, a boolean or a number.
struct PlainValue(Value);

impl Default for PlainValue {
    fn default() -> Self {
        Self(Value::String(String::new()))
    }
}

impl<'de> Deserialize<'de> for PlainValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Beyond 64 bits whole numbers are texts in documents, and a negative zero is none.
        const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
        let value = Value::deserialize(deserializer)?;
        let is_plain = match &value {
            Value::Number(number) if number.is_f64() => {
                number.as_f64().is_some_and(|number| number != 0.0 && number.abs() < WHOLE_MAX)
            }
            Value::Bool(_) | Value::String(_) | Value::Number(_) => true,
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        };
        is_plain.then_some(Self(value)).ok_or_else(|| D::Error::custom("it is not plain"))
    }
}

/// A text that is there, and not null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de str>, D::Error> {
    <&str>::deserialize(deserializer).map(Some)
}

fn default_kind() -> &'static str {
    KIND_DEFAULT
}
