//! What actix-web does without Segue: `bare_handler ADDR:PORT WORKERS FILE...` answers `/0`, `/1` and so on with the
//! bytes of each file. The benches compare the API with it.

use actix_web::{App, HttpResponse, HttpServer, web};
use std::error::Error;

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(workers)) = (arguments.next(), arguments.next()) else {
        return Err("usage: bare_handler ADDR:PORT WORKERS FILE...".into());
    };
    let bodies: Result<Vec<web::Bytes>, _> =
        arguments.map(|file| std::fs::read(file).map(web::Bytes::from)).collect();
    let bodies = web::Data::new(bodies?);
    let server = HttpServer::new(move || {
        App::new().app_data(bodies.clone()).route("/{number}", web::get().to(answer))
    });
    Ok(server.workers(workers.parse()?).bind(address)?.run().await?)
}

async fn answer(number: web::Path<usize>, bodies: web::Data<Vec<web::Bytes>>) -> HttpResponse {
    match bodies.get(*number) {
        Some(body) => HttpResponse::Ok().content_type("application/json").body(body.clone()),
        None => HttpResponse::NotFound().finish(),
    }
}
