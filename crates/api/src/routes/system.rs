//! The service about itself: information, the gateways' configuration, a cycle at once (wire, section 12).

use super::information;
use crate::idempotency::{PLAIN_TEXT, Reply};
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use segue_domain::command::Command;
use segue_domain::problem::{Problem, ProblemKind, Problems};
use segue_domain::store::Executed;
use segue_workers::gateways::haproxy;

/// The kind of proxy whose configuration is generated.
const HAPROXY: &str = "haproxy";

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/{path:info|information}").get(info).done());
    config.service(Route::at("/haproxy").unnegotiated().get(haproxy_without_version).done());
    config.service(Route::at("/haproxy/{version}").unnegotiated().get(haproxy).done());
    let generated_path = "/vga/{type}/{version}/{part:configuration|config}";
    config.service(Route::at(generated_path).unnegotiated().get(generated).done());
    let template_path = Route::at("/vga/{type}/{version}/template").unnegotiated().raw();
    config.service(template_path.get(template).post(set_template).put(set_template).done());
    config.service(Route::at("/{cycle:sync|sla|escalation}").get(cycle).done());
}

async fn info(request: Request) -> Answer {
    let wanted: Vec<String> = request.parameters.all("on").map(str::to_ascii_lowercase).collect();
    let document = information::document(&request.service, request.running()?, &wanted).await;
    Ok(request.document(StatusCode::OK, None, &document))
}

async fn haproxy_without_version(_request: Request) -> Answer {
    Err(Failure::parameter("the version is missing")
        .hint("GET /haproxy/{version}, see gateway_driver of GET /info"))
}

async fn haproxy(request: Request) -> Answer {
    let version = request.path("version")?;
    let running = request.running()?;
    if running.configuration_version != version {
        let detail = format!(
            "a configuration is generated for '{}', not '{version}'",
            running.configuration_version
        );
        return Err(Failure::not_found(detail));
    }
    Ok(text(running.gateways.text().await))
}

/// The generated configuration; empty when none is generated for that type and name.
async fn generated(request: Request) -> Answer {
    let running = request.running()?;
    Ok(text(if is_generated(&request)? { running.gateways.text().await } else { String::new() }))
}

/// What it is generated from.
async fn template(request: Request) -> Answer {
    if !is_generated(&request)? {
        return Ok(text(String::new()));
    }
    let state = request.running()?.store.state();
    let own = state.configuration_template(HAPROXY, &request.path("version")?);
    Ok(text(own.map_or_else(|| haproxy::TEMPLATE.to_owned(), |own| own.as_str().to_owned())))
}

/// Replaces what it is generated from, once the proxy takes what comes of it; an empty text goes back to our own.
async fn set_template(request: Request) -> Answer {
    let (kind, name) = (request.path("type")?, request.path("version")?);
    if !is_generated(&request)? {
        let failure =
            Failure::not_found(format!("no configuration is generated for {kind} {name}"));
        return Err(failure.hint("gateway_driver of GET /info names those that are"));
    }
    let template = (!request.body.trim().is_empty()).then(|| request.body.clone());
    if let Some(template) = &template {
        let checked = request.running()?.gateways.check_template(template).await;
        checked.map_err(|error| {
            if error.is_permanent() {
                let problem =
                    Problem::new(ProblemKind::InvalidConfigurationTemplate, "", error.to_string());
                Problems::from(problem.hint("begin with the template that GET gives")).into()
            } else {
                Failure::new(ProblemKind::BadGateway, error.to_string())
            }
        })?;
    }
    let reply = Reply::text(StatusCode::ACCEPTED, request.body.as_str());
    if request.validate_only()? {
        return Ok(request.reply(&reply));
    }
    let command = Command::SetConfigurationTemplate { kind, name, template };
    request.carry_out(&command, Failure::from, |_: &Executed| Ok(reply.clone())).await
}

fn is_generated(request: &Request) -> Result<bool, Failure> {
    let version = request.path("version")?;
    Ok(request.path("type")? == HAPROXY && version == request.running()?.configuration_version)
}

fn text(text: String) -> HttpResponse {
    HttpResponse::Ok().content_type(PLAIN_TEXT).body(text)
}

/// The workers of the cycle that is asked for take a turn at once.
async fn cycle(request: Request) -> Answer {
    let workers = &request.running()?.workers;
    match request.path("cycle")?.as_str() {
        "sla" => workers.check_slas(),
        "escalation" => workers.check_escalations(),
        _ => workers.synchronise(),
    }
    Ok(HttpResponse::Accepted().finish())
}
