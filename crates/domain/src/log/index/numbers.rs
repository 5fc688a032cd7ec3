//! The numbers in the value of an event: what can be aggregated (wire, section 10.3).

use serde_json::Value;

/// How many members of one value are kept in memory; the records of larger values are read when they are needed.
const MEMBERS_MAX: usize = 16;
/// A longer text is no number.
const TEXT_BYTES_MAX: usize = 60;

/// The numbers of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::log) enum Numbers {
    /// None at all.
    #[default]
    None,
    /// The value is a number, or a text that holds one.
    Whole(f64),
    /// The value is a map with such members.
    Members(Vec<(String, f64)>),
    /// It has too many members to keep.
    Many,
}

impl Numbers {
    /// The numbers of `value`.
    pub fn of(value: &Value) -> Self {
        let Value::Object(members) = value else {
            return number(value).map_or(Self::None, Self::Whole);
        };
        let numbers = members.iter().filter_map(|(name, value)| Some((name, number(value)?)));
        let mut kept = Vec::new();
        for (name, number) in numbers {
            if kept.len() == MEMBERS_MAX {
                return Self::Many;
            }
            kept.push((name.clone(), number));
        }
        if kept.is_empty() { Self::None } else { Self::Members(kept) }
    }

    /// The numbers of the JSON in `bytes`, which is only read where it may have some.
    pub fn of_json(bytes: &[u8]) -> Self {
        let may_have = bytes.first() == Some(&b'{') || bytes.len() <= TEXT_BYTES_MAX + 2;
        let value = may_have.then(|| serde_json::from_slice(bytes).ok()).flatten();
        value.map_or(Self::None, |value| Self::of(&value))
    }
}

/// The number that `field` is of an event with `value`: the value itself when there is no member to look for.
pub(in crate::log) fn number_in(value: &Value, member: Option<&str>) -> Option<f64> {
    match (member, value) {
        (None, value) => number(value),
        (Some(member), Value::Object(members)) => members.get(member).and_then(number),
        (Some(_), _) => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text.len() <= TEXT_BYTES_MAX => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    };
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_texts_that_hold_one_count() {
        let check = |value: Value, expected: Numbers| {
            assert_eq!(Numbers::of(&value), expected, "{value}");
            assert_eq!(Numbers::of_json(value.to_string().as_bytes()), expected, "{value}");
        };
        check(json!(1), Numbers::Whole(1.0));
        check(json!(-2.5e3), Numbers::Whole(-2500.0));
        check(json!("0.5"), Numbers::Whole(0.5));
        check(json!(" 7 "), Numbers::Whole(7.0));
        for value in [
            json!(""),
            json!("x"),
            json!("NaN"),
            json!("inf"),
            json!(true),
            json!(null),
            json!([1]),
            json!({}),
        ] {
            check(value, Numbers::None);
        }
        check(json!({"a": 1, "b": "2", "c": "x", "d": {"e": 3}}), {
            Numbers::Members(vec![("a".to_owned(), 1.0), ("b".to_owned(), 2.0)])
        });
        check(json!("1".repeat(61)), Numbers::None);
        let many = (0..17).map(|n| (n.to_string(), json!(n))).collect();
        check(Value::Object(many), Numbers::Many);
    }
}
