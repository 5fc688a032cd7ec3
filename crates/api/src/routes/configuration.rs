//! The configuration as it is in force, or what one of its layers says (wire, section 12, config).

use crate::config::{Config, Layer, flatten, secrets};
use crate::legacy;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use serde_json::{Map, Value, json};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/{path:config|configuration}").get(all).done());
    config.service(Route::at("/{path:config|configuration}/{key}").get(one).done());
}

async fn all(request: Request) -> Answer {
    let document = document(&request);
    let document = if request.parameters.boolean("flatten")? {
        Value::Object(flat(&request, flatten(&document).into_iter().collect()))
    } else {
        document
    };
    Ok(request.document(StatusCode::OK, None, &document))
}

/// The map with one key; a key of the predecessor finds its successor.
async fn one(request: Request) -> Answer {
    let asked = request.path("key")?;
    let key = asked.replace('-', "_");
    let key = key.strip_prefix("vamp.").or_else(|| key.strip_prefix("segue.")).unwrap_or(&key);
    let document = document(&request);
    let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1").replace('.', "/"));
    let found = document.pointer(&pointer).filter(|_| !key.is_empty());
    let value =
        found.ok_or_else(|| Failure::not_found(format!("there is no setting '{asked}'")))?;
    let settings = if request.parameters.boolean("flatten")? {
        let inner = flatten(value).into_iter();
        let whole = |(inner, value): (String, Value)| match &inner[..] {
            "" => (key.to_owned(), value),
            inner => (format!("{key}.{inner}"), value),
        };
        flat(&request, inner.map(whole).collect())
    } else {
        Map::from_iter([(key.to_owned(), value.clone())])
    };
    Ok(request.document(StatusCode::OK, None, &Value::Object(settings)))
}

/// What is asked for, without secrets.
fn document(request: &Request) -> Value {
    let mut document = layer(&request.service.config, request.parameters.first("type"));
    secrets::redact(&mut document);
    document
}

/// The layer that the predecessor called `kind`; an unknown one is what is in force.
fn layer(config: &Config, kind: Option<&str>) -> Value {
    let layer = match kind.map(str::to_ascii_lowercase).as_deref() {
        Some("reference") => Layer::Defaults,
        Some("application") => Layer::File,
        Some("environment") => Layer::Environment,
        Some("system") => Layer::CommandLine,
        // Nothing changes the configuration of a running service.
        Some("dynamic") => return json!({}),
        _ => return config.document.clone(),
    };
    config.layers.get(&layer).cloned().unwrap_or_else(|| json!({}))
}

fn flat(request: &Request, mut settings: Map<String, Value>) -> Map<String, Value> {
    if request.is_legacy() {
        legacy::spell_keys_twice(&mut settings);
    }
    settings
}
