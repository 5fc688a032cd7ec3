//! What nobody is told: not by answers, not by errors, and not by references in documents.

use serde_json::{Value, json};

/// What stands for the value of a secret.
pub const REDACTED: &str = "***";
/// The key of a secret has one of these in it, or [`LAST_WORD`] as its last word.
const PARTS: [&str; 4] = ["password", "secret", "token", "credential"];
const LAST_WORD: &str = "key";

/// Whether nobody is told the value of `key`, a dotted one or a part of one, in any letter case.
pub fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let names_a_secret = |name: &str| {
        PARTS.iter().any(|part| name.contains(part)) || name.rsplit('_').next() == Some(LAST_WORD)
    };
    key.split('.').any(names_a_secret)
}

/// Hides what is set for the keys of secrets and below them, however deep, also in lists.
pub fn redact(document: &mut Value) {
    redact_inside(document, false);
}

/// `hidden` says that something around it is a secret.
fn redact_inside(document: &mut Value, hidden: bool) {
    match document {
        Value::Array(items) => items.iter_mut().for_each(|item| redact_inside(item, hidden)),
        Value::Object(members) => {
            for (key, value) in members {
                redact_inside(value, hidden || is_secret(key));
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) if hidden => {
            *document = json!(REDACTED);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_secrets_are_known() {
        let check = |key: &str, expected: bool| assert_eq!(is_secret(key), expected, "{key}");
        check("password", true);
        check("database.passwords", true);
        check("container_driver.docker.TOKEN_FILE", true);
        check("client_secret.name", true);
        check("credentials", true);
        check("tls.private_key", true);
        check("key", true);
        check("api.keys", false);
        check("keyboard", false);
        check("operation.sla.period", false);
    }

    #[test]
    fn secrets_are_hidden() {
        let mut document = json!({"a": {"api_token": "x", "password": null, "secret": {"name": 1}}, "keys": 1,
            "tokens": ["x", {"for": true}],
            "list": [{"address": "r", "password": "x"}, [{"token": "y"}]]});
        redact(&mut document);
        let expected = json!({"a": {"api_token": "***", "password": null, "secret": {"name": "***"}}, "keys": 1,
            "tokens": ["***", {"for": "***"}],
            "list": [{"address": "r", "password": "***"}, [{"token": "***"}]]});
        assert_eq!(document, expected);
    }
}
