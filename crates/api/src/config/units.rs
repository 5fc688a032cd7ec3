//! The forms of values: durations, sizes, ranges of ports, and what documents write as text or number.

use segue_domain::artifact::Argument;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A duration with a unit, `10 s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Interval(pub Duration);

/// A number of bytes with a unit, `8 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct ByteSize(pub usize);

/// An inclusive range of ports, `20000-25000`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct PortRange(pub RangeInclusive<u16>);

impl Interval {
    /// `None` for zero, which stands for "never".
    pub fn unless_zero(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }
}

impl TryFrom<Value> for Interval {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = text_of(&value);
        let error = || format!("'{text}' is no duration, such as 500 ms, 10 s or 5 min");
        let (number, unit) = amount(&text).ok_or_else(error)?;
        let milliseconds = match unit {
            "ms" | "milliseconds" | "millisecond" => 1,
            "s" | "second" | "seconds" => 1000,
            "min" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            _ => return Err(error()),
        };
        number.checked_mul(milliseconds).map(Duration::from_millis).map(Self).ok_or_else(error)
    }
}

impl TryFrom<Value> for ByteSize {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = text_of(&value);
        let error = || format!("'{text}' is no size, such as 512 KiB or 8 MiB");
        let (number, unit) = amount(&text).ok_or_else(error)?;
        let bytes = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(error()),
        };
        number
            .checked_mul(bytes)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .map(Self)
            .ok_or_else(error)
    }
}

impl TryFrom<Value> for PortRange {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = text_of(&value);
        let range = text.split_once('-').and_then(|(first, last)| {
            let first: u16 = first.trim().parse().ok()?;
            let last: u16 = last.trim().parse().ok()?;
            (first != 0 && first <= last).then_some(Self(first..=last))
        });
        range.ok_or_else(|| format!("'{text}' is no range of ports, such as 20000-25000"))
    }
}

/// A value that reads itself from text; a number is taken as it is written.
pub(super) fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    text_of(&Value::deserialize(deserializer)?).parse().map_err(D::Error::custom)
}

/// Text, or a number as it is written; null is none.
pub(super) fn optional_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        value @ (Value::String(_) | Value::Number(_)) => Ok(Some(text_of(&value))),
        _ => Err(D::Error::custom("text is expected")),
    }
}

/// One value, or a list of at least one.
pub(super) fn one_or_many<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let values = match Value::deserialize(deserializer)? {
        Value::Array(values) => values,
        value => vec![value],
    };
    if values.is_empty() {
        return Err(D::Error::custom("at least one is expected"));
    }
    values
        .into_iter()
        .map(|value| serde_json::from_value(value).map_err(D::Error::custom))
        .collect()
}

/// A list of maps with a single entry each, key to text.
pub(super) fn arguments<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Argument>, D::Error> {
    let error = || {
        D::Error::custom(
            "a list of single-entry maps is expected, such as [{privileged: \"true\"}]",
        )
    };
    let Value::Array(items) = Value::deserialize(deserializer)? else { return Err(error()) };
    let argument = |item: Value| match item {
        Value::Object(entries) if entries.len() == 1 => {
            let (key, value) = entries.into_iter().next().ok_or_else(error)?;
            Ok(Argument { key, value: text_of(&value) })
        }
        _ => Err(error()),
    };
    items.into_iter().map(argument).collect()
}

/// A whole number and the unit behind it.
fn amount(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().to_owned(),
        value => value.to_string(),
    }
}
