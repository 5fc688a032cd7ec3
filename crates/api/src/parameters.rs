//! Query parameters and request headers that many resources share.

use crate::problem::Failure;
use actix_web::HttpRequest;
use actix_web::http::header::HeaderName;
use actix_web::web::Query;
use segue_domain::command::RevisionMatch;
use segue_domain::event::Position;

/// The parameters of a request, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads a query string.
    pub fn parse(query: &str) -> Result<Self, Failure> {
        if query.is_empty() {
            return Ok(Self::default());
        }
        let pairs = Query::<Vec<(String, String)>>::from_query(query)
            .map_err(|error| Failure::parameter(format!("the query cannot be read: {error}")))?;
        Ok(Self(pairs.into_inner()))
    }

    /// The first value of `name`.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of `name`, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A boolean: true/false, yes/no, on/off, 1/0 in any case; false when absent.
    pub fn boolean(&self, name: &str) -> Result<bool, Failure> {
        let Some(text) = self.first(name) else { return Ok(false) };
        match &text.to_ascii_lowercase()[..] {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(Failure::parameter(format!(
                "parameter '{name}' cannot be '{text}': true or false is expected"
            ))),
        }
    }

    /// A whole number within what fits; `None` when absent.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.first(name) else { return Ok(None) };
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let detail =
                format!("parameter '{name}' cannot be '{text}': a whole number is expected");
            return Err(Failure::parameter(detail));
        }
        Ok(Some(digits.parse::<i64>().unwrap_or(i64::MAX) * sign))
    }
}

/// The text of a header; none when it is absent, an error when it is no text.
pub fn header<'a>(request: &'a HttpRequest, name: &HeaderName) -> Result<Option<&'a str>, Failure> {
    let Some(value) = request.headers().get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Failure::parameter(format!("header '{name}' is no text")))
}

/// The entity tag of a revision.
pub fn entity_tag(revision: Position) -> String {
    format!("\"{revision}\"")
}

/// Reads `If-Match`. Of several tags the one that `current` has counts; a tag that Segue never gave matches nothing.
pub fn if_match(
    text: Option<&str>,
    current: Option<Position>,
) -> Result<Option<RevisionMatch>, Failure> {
    let Some(text) = text.map(str::trim) else { return Ok(None) };
    if text == "*" {
        return Ok(Some(RevisionMatch::Exists));
    }
    let mut wanted = Vec::new();
    for tag in text.split(',').map(str::trim) {
        let strong = tag.strip_prefix("W/").is_none();
        let opaque =
            tag.trim_start_matches("W/").strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let opaque = opaque.ok_or_else(|| {
            Failure::parameter(format!(
                "header 'If-Match' cannot be '{text}': '*' or quoted entity tags are expected"
            ))
        })?;
        // Position 0 is no record's, so nothing has it as revision.
        let position = opaque.parse().ok().filter(|_| strong).map_or(Position::START, Position);
        wanted.push(position);
    }
    let matching = wanted.iter().find(|position| Some(**position) == current);
    Ok(Some(RevisionMatch::Is(*matching.unwrap_or(&wanted[0]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans() {
        let check = |query: &str, expected: Option<bool>| {
            assert_eq!(Parameters::parse(query).unwrap().boolean("x").ok(), expected, "{query}");
        };
        check("", Some(false));
        check("x=true", Some(true));
        check("x=YES", Some(true));
        check("x=on&x=off", Some(true));
        check("x=0", Some(false));
        check("x=", None);
        check("x=maybe", None);
        check("y=maybe", Some(false));
    }

    #[test]
    fn revisions_asked_for() {
        let check = |text: &str, expected: Option<RevisionMatch>| {
            assert_eq!(if_match(Some(text), Some(Position(7))).ok().flatten(), expected, "{text}");
        };
        check("*", Some(RevisionMatch::Exists));
        check("\"7\"", Some(RevisionMatch::Is(Position(7))));
        check("\"5\", \"7\"", Some(RevisionMatch::Is(Position(7))));
        check("\"5\"", Some(RevisionMatch::Is(Position(5))));
        check("\"abc\"", Some(RevisionMatch::Is(Position(0))));
        check("W/\"7\"", Some(RevisionMatch::Is(Position(0))));
        check("7", None);
    }
}
