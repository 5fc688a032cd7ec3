//! Schemas of answers that are no documents: problems, events as they are stored, what the service tells of itself.

use serde_json::{Map, Value, json};

/// The schemas by name.
pub(super) fn schemas() -> Map<String, Value> {
    let text = || json!({ "type": "string" });
    let object = |title: &str, required: &[&str], properties: Value| json!({ "title": title, "type": "object", "required": required, "properties": properties });
    let problem = object(
        "Problem",
        &["type", "title", "status", "detail", "message", "errors"],
        json!({
            "type": text(), "title": text(), "status": { "type": "integer" }, "detail": text(), "message": text(),
            "request_id": text(),
            "errors": { "type": "array", "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "additionalProperties": false,
                "properties": {
                    "pointer": { "type": "string", "description": "A JSON pointer into the body." },
                    "line": { "type": "integer", "minimum": 1 },
                    "column": { "type": "integer", "minimum": 1 },
                    "detail": text(),
                    "hint": { "type": "string", "description": "What to write or do instead." },
                },
            } },
        }),
    );
    let event = json!({
        "id": { "type": "string", "description": "Opaque, unique." },
        "tags": { "type": "array", "items": text(), "minItems": 1 },
        "value": {},
        "timestamp": { "type": "string", "format": "date-time" },
        "type": text(),
    });
    let stored_event = object("Stored event", &["id", "tags", "value", "timestamp", "type"], event);
    let aggregation =
        object("Aggregation", &["value"], json!({ "value": { "type": ["number", "null"] } }));
    let events = json!({ "anyOf": [
        { "type": "array", "items": { "$ref": "#/components/schemas/stored_event" } },
        { "$ref": "#/components/schemas/aggregation" },
    ] });
    let information = object(
        "Information",
        &["message", "version", "uuid", "running_since"],
        json!({ "message": text(), "version": text(), "uuid": { "type": "string", "format": "uuid" },
            "running_since": { "type": "string", "format": "date-time" } }),
    );
    let any_artifact = json!({ "title": "Artifact of any kind", "type": "object", "required": ["kind"],
        "properties": { "kind": text(), "name": {} } });
    let by_name = json!({ "title": "Something with a name", "type": "object", "required": ["name"],
        "properties": { "kind": text(), "name": {} } });
    let instance_output = object(
        "Output of an instance",
        &["name", "lines"],
        json!({ "name": text(), "lines": { "type": "array", "items": text(), "description": "Oldest first." } }),
    );
    let settings = json!({ "title": "Map of settings", "type": "object" });
    [
        ("problem", problem),
        ("stored_event", stored_event),
        ("aggregation", aggregation),
        ("events", events),
        ("information", information),
        ("any_artifact", any_artifact),
        ("any_artifact_by_name", by_name),
        ("instance_output", instance_output),
        ("settings", settings),
    ]
    .map(|(name, schema)| (name.to_owned(), schema))
    .into_iter()
    .collect()
}
