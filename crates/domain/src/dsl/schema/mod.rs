//! JSON Schemas of documents, for editors and for the description of the API (draft 2020-12).
//!
//! `definitions.yaml` says what the readers accept, field by field; this module turns it into schemas. Whether it says
//! the same as the readers is tested with generated documents. What a schema cannot say - whether a name is declared,
//! whether weights add up - only a reader knows.

use super::{Limits, parse};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const DEFINITIONS: &str = include_str!("definitions.yaml");

/// The dialect of the schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// What has a schema of its own: kinds of artifacts, in the singular, and events.
pub const PUBLISHED: [&str; 12] = [
    "blueprint",
    "breed",
    "condition",
    "deployment",
    "escalation",
    "event",
    "gateway",
    "rewrite",
    "route",
    "scale",
    "sla",
    "template",
];

/// Keywords whose value is a schema.
const SCHEMA: [&str; 7] =
    ["additionalProperties", "propertyNames", "items", "not", "if", "then", "else"];
/// Keywords whose value is a list of schemas.
const SCHEMAS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

static ALL: LazyLock<Map<String, Value>> = LazyLock::new(definitions);

/// The schema of documents of `kind`, on its own: what it needs stands in its `$defs`.
pub fn of(kind: &str) -> Option<Value> {
    let kind = PUBLISHED.into_iter().find(|published| *published == kind)?;
    let mut definition = ALL.get(kind)?.clone();
    let schema = definition.as_object_mut()?;
    let mut needed = BTreeSet::new();
    references(&ALL[kind], &mut needed);
    let definitions = needed.into_iter().map(|name| (name.to_owned(), ALL[name].clone()));
    schema.insert("$defs".to_owned(), Value::Object(definitions.collect()));
    schema.shift_insert(0, "$schema".to_owned(), DIALECT.into());
    Some(definition)
}

/// All definitions by name, with references that begin with `prefix`, such as `#/components/schemas/`.
pub fn all(prefix: &str) -> Map<String, Value> {
    let text = Value::Object(ALL.clone()).to_string().replace("\"#/$defs/", &format!("\"{prefix}"));
    match serde_json::from_str(&text) {
        Ok(Value::Object(all)) => all,
        _ => unreachable!("a prefix without quotes and backslashes leaves JSON what it is"),
    }
}

/// The names of definitions that `schema` needs, itself or through others.
fn references<'a>(schema: &'a Value, needed: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(Value::as_str);
            if let Some(name) = name.and_then(|target| target.strip_prefix("#/$defs/"))
                && needed.insert(name)
            {
                references(&ALL[name], needed);
            }
            members.values().for_each(|member| references(member, needed));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, needed)),
        _ => {}
    }
}

fn definitions() -> Map<String, Value> {
    let documents = parse(DEFINITIONS, &Limits::default());
    let documents = documents.unwrap_or_else(|problems| panic!("definitions.yaml: {problems}"));
    let Some(Value::Object(short)) = documents.first().map(super::Node::to_json) else {
        unreachable!("definitions.yaml is a map, a test reads it");
    };
    short.iter().map(|(name, schema)| (name.clone(), long(schema, &short))).collect()
}

/// The schema that `schema`, in the short form of `definitions.yaml`, stands for.
fn long(schema: &Value, short: &Map<String, Value>) -> Value {
    let schema = match schema {
        Value::String(name) => return json!({ "$ref": format!("#/$defs/{name}") }),
        Value::Object(schema) => extended(schema, short),
        other => return other.clone(),
    };
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let required = required(&schema);
    let out = schema.into_iter().map(|(keyword, value)| {
        let value = match (&keyword[..], value) {
            ("properties", Value::Object(fields)) => {
                let fields = fields.into_iter().map(|(name, field)| {
                    let field = long(&field, short);
                    let may_be_null = is_closed && !required.contains(&name);
                    (name, if may_be_null { or_null(field) } else { field })
                });
                Value::Object(fields.collect())
            }
            (keyword, Value::Array(items)) if SCHEMAS.contains(&keyword) => {
                items.iter().map(|item| long(item, short)).collect()
            }
            (keyword, value) if SCHEMA.contains(&keyword) => long(&value, short),
            (_, value) => value,
        };
        (keyword, value)
    });
    Value::Object(out.collect())
}

/// `schema` with everything that the definitions it extends have and it lacks; of fields it gets all.
fn extended(schema: &Map<String, Value>, short: &Map<String, Value>) -> Map<String, Value> {
    let mut out = schema.clone();
    let bases = out.remove("extends");
    for base in bases.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
        let Some(base) = short.get(base).and_then(Value::as_object) else {
            unreachable!("definitions.yaml extends '{base}', which is not there; a test reads it");
        };
        for (keyword, value) in extended(base, short) {
            match (out.get_mut(&keyword), value) {
                (Some(Value::Object(own)), Value::Object(fields)) if keyword == "properties" => {
                    for (name, field) in fields {
                        own.entry(name).or_insert(field);
                    }
                }
                (Some(_), _) => {}
                (None, _) if matches!(&keyword[..], "title" | "description") => {}
                (None, value) => {
                    out.insert(keyword, value);
                }
            }
        }
    }
    out
}

/// The fields that some branch of `schema` requires. Null equals an absent key, so they are not null.
fn required(schema: &Map<String, Value>) -> BTreeSet<String> {
    let branches = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let lists = branches.map(|branch| &branch["required"]).chain(schema.get("required"));
    let names = lists.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// `schema`, or null, which equals an absent key.
fn or_null(schema: Value) -> Value {
    match &schema {
        Value::Object(members) if members.is_empty() => schema,
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}
