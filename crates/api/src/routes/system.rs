//! The service about itself: information, configuration, the gateways' configuration, a cycle at once (wire, section 12).

use super::{information, later, probes};
use crate::config::flatten;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use serde_json::{Map, Value};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/livez").always().get(probes::live).done());
    config.service(Route::at("/readyz").always().get(probes::ready).done());
    config.service(Route::at("/{path:info|information}").get(info).done());
    config.service(Route::at("/{path:config|configuration}").get(configuration).done());
    config.service(Route::at("/{path:config|configuration}/{key}").get(configuration_of).done());
    config.service(Route::at("/haproxy").unnegotiated().get(haproxy_without_version).done());
    config.service(Route::at("/haproxy/{version}").unnegotiated().get(haproxy).done());
    let vga = "/vga/{type}/{version}/{part:configuration|config}";
    config.service(Route::at(vga).unnegotiated().get(generated).done());
    config.service(Route::at("/sync").get(sync).done());
    let path = "/{later:sla|escalation|stats|statistics|health|metrics|log|logs|vga}{rest:(/.*)?}";
    config.service(Route::at(path).get(later).post(later).put(later).delete(later).done());
}

async fn info(request: Request) -> Answer {
    let wanted: Vec<String> = request.parameters.all("on").map(str::to_ascii_lowercase).collect();
    let document = information::document(&request.service, request.running()?, &wanted);
    Ok(request.document(StatusCode::OK, None, &document))
}

async fn configuration(request: Request) -> Answer {
    let document = &request.service.config.document;
    let document = if request.parameters.boolean("flatten")? {
        Value::Object(flatten(document).into_iter().collect())
    } else {
        document.clone()
    };
    Ok(request.document(StatusCode::OK, None, &document))
}

/// The map with one key; a key of the predecessor finds its successor.
async fn configuration_of(request: Request) -> Answer {
    let asked = request.path("key")?;
    let key = asked.replace('-', "_");
    let key = key.strip_prefix("vamp.").or_else(|| key.strip_prefix("segue.")).unwrap_or(&key);
    let pointer = format!("/{}", key.replace('.', "/"));
    let found = request.service.config.document.pointer(&pointer);
    let value =
        found.ok_or_else(|| Failure::not_found(format!("there is no setting '{asked}'")))?;
    let document = Value::Object(Map::from_iter([(key.to_owned(), value.clone())]));
    Ok(request.document(StatusCode::OK, None, &document))
}

async fn haproxy_without_version(_request: Request) -> Answer {
    Err(Failure::parameter("the version is missing")
        .hint("GET /haproxy/{version}, see gateway_driver of GET /info"))
}

async fn haproxy(request: Request) -> Answer {
    let version = request.path("version")?;
    configuration_text(&request, &version).await
}

async fn generated(request: Request) -> Answer {
    let kind = request.path("type")?;
    if kind != "haproxy" {
        return Err(Failure::not_found(format!("no configuration of type '{kind}' is generated")));
    }
    let version = request.path("version")?;
    configuration_text(&request, &version).await
}

async fn configuration_text(request: &Request, version: &str) -> Answer {
    let running = request.running()?;
    if running.configuration_version != version {
        let detail = format!(
            "a configuration is generated for '{}', not '{version}'",
            running.configuration_version
        );
        return Err(Failure::not_found(detail));
    }
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body(running.gateways.text().await))
}

async fn sync(request: Request) -> Answer {
    request.running()?.workers.synchronise();
    Ok(HttpResponse::Accepted().finish())
}
