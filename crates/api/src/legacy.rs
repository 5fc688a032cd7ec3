//! What clients of the predecessor need and the interface forbids: the forms of `api.legacy_clients` (wire, section 15).

use serde_json::{Map, Value};

/// Members whose content belongs to users, or holds no references.
const OPAQUE: [&str; 11] = [
    "metadata",
    "definition",
    "parameters",
    "dialects",
    "environment_variables",
    "constants",
    "ports",
    "hosts",
    "endpoints",
    "arguments",
    "labels",
];
/// Members whose keys are names that users chose.
const NAMED: [&str; 4] = ["clusters", "dependencies", "gateways", "routes"];

/// Prints every reference a second time, as `reference`, where clients look for it.
pub fn name_references_twice(document: &mut Value) {
    match document {
        Value::Array(items) => items.iter_mut().for_each(name_references_twice),
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match value {
                    _ if OPAQUE.contains(&key.as_str()) => {}
                    Value::Object(named) if NAMED.contains(&key.as_str()) => {
                        named.values_mut().for_each(name_references_twice);
                    }
                    value => name_references_twice(value),
                }
            }
            if let Some(name) = members.get("ref").filter(|name| name.is_string()).cloned() {
                members.insert("reference".to_owned(), name);
            }
        }
        _ => {}
    }
}

/// Prints every dotted key of a flattened configuration a second time, as the predecessor spelled it.
pub fn spell_keys_twice(settings: &mut Map<String, Value>) {
    let old: Vec<_> =
        settings.iter().map(|(key, value)| (old_spelling(key), value.clone())).collect();
    settings.extend(old);
}

/// The predecessor's name of a setting.
pub fn old_spelling(key: &str) -> String {
    format!("vamp.{}", key.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_named_twice_and_nothing_else_is() {
        let check = |mut document: Value, expected: Value| {
            name_references_twice(&mut document);
            assert_eq!(document, expected);
        };
        check(
            json!({"breed": {"ref": "a"}, "scale": {"ref": "s"}}),
            json!({"breed": {"ref": "a", "reference": "a"}, "scale": {"ref": "s", "reference": "s"}}),
        );
        check(
            json!({"dependencies": {"ref": {"ref": "a"}}}),
            json!({"dependencies": {"ref": {"ref": "a", "reference": "a"}}}),
        );
        check(
            json!({"clusters": {"ports": {"dependencies": {"hosts": {"ref": "a"}}}}}),
            json!({"clusters": {"ports": {"dependencies": {"hosts": {"ref": "a", "reference": "a"}}}}}),
        );
        check(
            json!({"gateways": {"metadata": {"routes": {"labels": {"ref": "a"}}}}}),
            json!({"gateways": {"metadata": {"routes": {"labels": {"ref": "a", "reference": "a"}}}}}),
        );
        for verbatim in [
            json!({"definition": {"x": {"ref": "a"}}}),
            json!({"escalations": [{"type": "page", "parameters": {"x": {"ref": "a"}}}]}),
            json!({"metadata": {"x": {"ref": "a"}}}),
            json!({"environment_variables": {"ref": "a"}}),
            json!({"dialects": {"docker": {"ref": "a"}}}),
            json!({"name": "ref"}),
        ] {
            check(verbatim.clone(), verbatim);
        }
    }

    #[test]
    fn settings_are_spelled_twice() {
        let mut settings = Map::from_iter([("gateway_driver.host".to_owned(), json!("h"))]);
        spell_keys_twice(&mut settings);
        assert_eq!(
            Value::Object(settings),
            json!({"gateway_driver.host": "h", "vamp.gateway-driver.host": "h"})
        );
    }
}
