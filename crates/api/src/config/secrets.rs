//! What nobody is told.

use serde_json::{Value, json};

/// What stands for the value of a secret.
pub const REDACTED: &str = "***";
/// What the last words of the keys of secrets are.
const SECRETS: [&str; 5] = ["password", "token", "secret", "key", "credentials"];

/// Hides what is set for the keys of secrets, however deep, also in lists.
pub fn redact(document: &mut Value) {
    match document {
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(members) => {
            for (key, value) in members {
                let is_secret = key.rsplit('_').next().is_some_and(|word| SECRETS.contains(&word));
                match value {
                    Value::Object(_) | Value::Array(_) => redact(value),
                    Value::Null => {}
                    value if is_secret => *value = json!(REDACTED),
                    _ => {}
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden() {
        let mut document = json!({"a": {"api_token": "x", "password": null, "secret": {"key": 1}}, "keys": 1,
            "list": [{"address": "r", "password": "x"}, [{"token": "y"}]]});
        redact(&mut document);
        let expected = json!({"a": {"api_token": "***", "password": null, "secret": {"key": "***"}}, "keys": 1,
            "list": [{"address": "r", "password": "***"}, [{"token": "***"}]]});
        assert_eq!(document, expected);
    }
}
