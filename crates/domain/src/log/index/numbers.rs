//! The numbers in the value of an event: what can be aggregated (wire, section 10.3).

use serde_json::Value;

/// How many members of one value are kept in memory; the records of larger values are read when they are needed.
const MEMBERS_MAX: usize = 16;
/// A longer text is no number.
const TEXT_BYTES_MAX: usize = 60;
/// How many bytes of JSON one byte of a text takes at most: white space may be written as `\u000b`.
const ESCAPE_BYTES_MAX: usize = 6;

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
        let may_have = bytes.first() == Some(&b'{') || is_short(bytes);
        let value = may_have.then(|| serde_json::from_slice(bytes).ok()).flatten();
        value.map_or(Self::None, |value| Self::of(&value))
    }
}

/// Whether this may be the JSON of a text that is not too long to be a number. When it has more bytes than such a text,
/// there are escapes in it.
fn is_short(json: &[u8]) -> bool {
    let quoted = json.len().saturating_sub(2);
    quoted <= TEXT_BYTES_MAX || quoted <= TEXT_BYTES_MAX * ESCAPE_BYTES_MAX && json.contains(&b'\\')
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
    use proptest::prelude::*;
    use serde_json::json;

    /// Texts that hold a number between white space, as long as can be and longer, and others.
    fn text() -> impl Strategy<Value = String> {
        let space = "[ \t\n\r\u{b}\u{c}\u{85}\u{a0}\u{2028}]{0,40}";
        let control = "[\u{b}\n]{50,60}";
        let number = prop_oneof![
            4 => any::<i16>().prop_map(|number| number.to_string()),
            2 => any::<f64>().prop_map(|number| number.to_string()),
            1 => "\\PC{0,3}",
        ];
        let before = prop_oneof![3 => space, 1 => control];
        (before, number, space).prop_map(|(before, number, after)| before + &number + &after)
    }

    fn value() -> impl Strategy<Value = Value> {
        let one = prop_oneof![
            4 => text().prop_map(Value::from),
            1 => any::<f64>().prop_map(|number| json!(number)),
            1 => any::<u64>().prop_map(|number| json!(number)),
            1 => Just(json!([1, "2"])),
            1 => any::<bool>().prop_map(Value::from),
        ]
        .boxed();
        let members = prop::collection::btree_map("[a-z]{1,2}", one.clone(), 0..20);
        let map = members.prop_map(|members| Value::Object(members.into_iter().collect()));
        prop_oneof![3 => one, 1 => map]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// A live index is told of values, one that is made anew reads them: both find the same numbers.
        #[test]
        fn values_and_their_json_have_the_same_numbers(value in value()) {
            let json = serde_json::to_vec(&value).unwrap();
            prop_assert_eq!(Numbers::of_json(&json), Numbers::of(&value), "{}", value);
        }
    }

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
        check(json!("\u{b}".repeat(59) + "7"), Numbers::Whole(7.0));
        check(json!("\u{b}".repeat(60) + "7"), Numbers::None);
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
