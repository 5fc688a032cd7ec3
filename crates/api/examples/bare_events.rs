//! What a handler costs that does nothing: it parses the JSON of an event and answers with it. `cargo xtask bench events`
//! compares it with POST /events. `bare_events ADDRESS:PORT` serves until it is killed.

use actix_web::{App, HttpResponse, HttpServer, web};
use serde_json::Value;

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let event = async |event: web::Json<Value>| HttpResponse::Created().json(event.0);
    HttpServer::new(move || App::new().route("/api/v1/events", web::post().to(event)))
        .workers(2)
        .bind(address)?
        .run()
        .await
}
