//! What form a request has and what form its answer takes: JSON or YAML (wire, section 2).

use segue_domain::problem::ProblemKind;
use serde::Serialize;
use serde_json::Value;

use crate::problem::Failure;

/// Stands for a quote until the text is written; a noncharacter, which no document needs.
const QUOTE_MARK: char = '\u{FDD0}';
/// No number or other special scalar is longer.
const AMBIGUOUS_BYTES_MAX: usize = 64;

const TEXT_KEYS_ONLY: &str = "the maps of documents have text keys only";

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Compact JSON.
    #[default]
    Json,
    /// YAML in block style.
    Yaml,
}

impl Format {
    /// The form that `accept` asks for: the highest quality wins, between equals the first; without header JSON.
    pub fn accepted(accept: Option<&str>) -> Result<Self, Failure> {
        let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
            return Ok(Self::Json);
        };
        let ranges = accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let format = Self::of_range(&parts.next()?.to_ascii_lowercase())?;
            let quality =
                parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            Some((format, quality.map_or(1000, thousandths)))
        });
        // `max_by_key` keeps the last of equals, so the list is walked from behind.
        let ranges: Vec<_> = ranges.filter(|(_, quality)| *quality > 0).collect();
        let best = ranges.into_iter().rev().max_by_key(|(_, quality)| *quality);
        best.map(|(format, _)| format).ok_or_else(|| {
            Failure::new(
                ProblemKind::NotAcceptable,
                format!("'{accept}' allows neither JSON nor YAML"),
            )
            .hint("accept application/json or application/x-yaml")
        })
    }

    /// The media type of documents of this form.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Yaml => "application/x-yaml; charset=utf-8",
        }
    }

    /// The media type of problem documents of this form.
    pub fn problem_type(self) -> &'static str {
        match self {
            Format::Json => "application/problem+json",
            Format::Yaml => "application/x-yaml; charset=utf-8",
        }
    }

    /// `document` in this form.
    pub fn write(self, document: &impl Serialize) -> String {
        match self {
            Format::Json => serde_json::to_string(document).expect(TEXT_KEYS_ONLY),
            Format::Yaml => yaml(&serde_json::to_value(document).expect(TEXT_KEYS_ONLY)),
        }
    }

    fn of_range(range: &str) -> Option<Self> {
        match range {
            "*/*" | "application/*" | "application/json" => Some(Format::Json),
            "application/x-yaml" => Some(Format::Yaml),
            _ => None,
        }
    }
}

/// Refuses a body of a foreign type. Whether a body is JSON or YAML is never asked: one reader reads both.
pub fn check_content_type(content_type: Option<&str>) -> Result<(), Failure> {
    let Some(content_type) = content_type else { return Ok(()) };
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &media_type[..] {
        "" | "application/json" | "application/x-yaml" => Ok(()),
        other => {
            let detail = format!("bodies of type '{other}' are not read here");
            let failure = Failure::new(ProblemKind::UnsupportedMediaType, detail);
            Err(failure.hint("send application/json or application/x-yaml"))
        }
    }
}

/// `value` as YAML. The writer knows YAML 1.2, where `yes` needs no quotes; readers of documents know 1.1, too.
fn yaml(value: &Value) -> String {
    let write = |value: &Value| {
        serde_yaml::to_string(value).expect("JSON values have text keys and finite numbers")
    };
    let plain = write(value);
    if plain.contains(QUOTE_MARK) {
        return plain;
    }
    let mut marked = value.clone();
    if mark_ambiguous(&mut marked) { write(&marked).replace(QUOTE_MARK, "'") } else { plain }
}

/// Puts marks around texts that would be read as something else; says whether there are any.
fn mark_ambiguous(value: &mut Value) -> bool {
    match value {
        Value::String(text) if is_ambiguous(text) => {
            *text = format!("{QUOTE_MARK}{text}{QUOTE_MARK}");
            true
        }
        Value::Array(items) => {
            // All are visited, not only those up to the first.
            items.iter_mut().map(mark_ambiguous).filter(|marked| *marked).count() > 0
        }
        Value::Object(members) => {
            members.values_mut().map(mark_ambiguous).filter(|marked| *marked).count() > 0
        }
        _ => false,
    }
}

/// Whether the YAML 1.2 writer leaves `text` without quotes and the reader then finds no text.
fn is_ambiguous(text: &str) -> bool {
    let word = text.len() <= AMBIGUOUS_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-:".contains(&b));
    let unquoted = || serde_yaml::to_string(text).is_ok_and(|written| written.trim_end() == text);
    let differs =
        || segue_domain::dsl::document(text).is_ok_and(|node| !node.to_json().is_string());
    word && !text.is_empty() && unquoted() && differs()
}

/// A quality in thousandths; one that cannot be read counts as full.
fn thousandths(text: &str) -> u32 {
    let quality: f32 = text.trim().parse().unwrap_or(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0 to 1000"
    )]
    let thousandths = (quality.clamp(0.0, 1.0) * 1000.0) as u32;
    thousandths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_forms() {
        let check = |accept: Option<&str>, expected: Option<Format>| {
            assert_eq!(Format::accepted(accept).ok(), expected, "{accept:?}");
        };
        check(None, Some(Format::Json));
        check(Some(""), Some(Format::Json));
        check(Some("application/json"), Some(Format::Json));
        check(Some("application/x-yaml"), Some(Format::Yaml));
        check(Some("Application/X-Yaml; charset=utf-8"), Some(Format::Yaml));
        check(Some("*/*"), Some(Format::Json));
        check(Some("application/*"), Some(Format::Json));
        check(Some("application/json, text/plain, */*"), Some(Format::Json));
        check(Some("application/x-yaml, application/json"), Some(Format::Yaml));
        check(Some("application/json;q=0.5, application/x-yaml"), Some(Format::Yaml));
        check(Some("application/x-yaml;q=0.5, application/json;q=0.4"), Some(Format::Yaml));
        check(Some("application/x-yaml;q=0, */*;q=0.1"), Some(Format::Json));
        check(Some("text/html"), None);
        check(Some("application/json;q=0"), None);
    }

    #[test]
    fn content_types() {
        let check = |content_type: Option<&str>, expected: bool| {
            assert_eq!(check_content_type(content_type).is_ok(), expected, "{content_type:?}");
        };
        check(None, true);
        check(Some("application/json; charset=utf-8"), true);
        check(Some("application/x-yaml"), true);
        check(Some("text/plain"), false);
        check(Some("application/x-www-form-urlencoded"), false);
        check(Some("application/javascript"), false);
    }

    #[test]
    fn yaml_keeps_texts_that_look_like_something_else() {
        let value = serde_json::json!({"a": "yes", "b": "8000/http", "c": "1.0", "d": ["off", "null", "~", "y"], "e": "1:2",
            "f": "1_000", "g": "0x1F", "h": "", "i": "é", "j": "a: b", "k": "on\nno", "l": true, "m": 5, "n": "2030-01-10"});
        let text = Format::Yaml.write(&value);
        assert_eq!(segue_domain::dsl::document(&text).unwrap().to_json(), value, "{text}");
    }
}
