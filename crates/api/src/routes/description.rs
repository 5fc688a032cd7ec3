//! The description of the API and of its documents: `OpenAPI`, its pages, and JSON Schemas. All of it is part of the
//! program; nothing is fetched from elsewhere.

use crate::openapi;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::header;
use actix_web::{HttpResponse, web};
use segue_domain::dsl::schema;
use std::sync::Arc;
use utoipa_swagger_ui::Config;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/openapi.json").unnegotiated().always().get(document).done());
    config.service(Route::at("/schemas/{file}").unnegotiated().always().get(schema_of).done());
    config.service(Route::at("/docs").unnegotiated().always().get(page).done());
    config.service(Route::at("/docs/{file}").unnegotiated().always().get(page).done());
}

async fn document(_request: Request) -> Answer {
    let body = openapi::document().to_string();
    Ok(HttpResponse::Ok().content_type("application/json").body(body))
}

async fn schema_of(request: Request) -> Answer {
    let file = request.path("file")?;
    let schema = file.strip_suffix(".json").and_then(schema::of).ok_or_else(|| {
        let names = schema::PUBLISHED.join(", ");
        Failure::not_found(format!("there is no schema '{file}'"))
            .hint(&format!("add .json to one of {names}"))
    })?;
    Ok(HttpResponse::Ok().content_type("application/schema+json").body(schema.to_string()))
}

async fn page(request: Request) -> Answer {
    let file = request.path("file")?;
    // The pages refer to their files as siblings, so the folder has to end with a slash.
    if file.is_empty() && !request.original_path().ends_with('/') {
        let location = (header::LOCATION, "docs/");
        return Ok(HttpResponse::PermanentRedirect().insert_header(location).finish());
    }
    let config = Config::new(["../openapi.json"]).validator_url("none").doc_expansion("none");
    let served = utoipa_swagger_ui::serve(&file, Arc::new(config));
    let served = served.map_err(|error| Failure::internal(error.to_string()))?;
    let served = served.ok_or_else(|| Failure::not_found(format!("there is no page '{file}'")))?;
    Ok(HttpResponse::Ok().content_type(served.content_type).body(served.bytes.into_owned()))
}
