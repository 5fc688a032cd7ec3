//! Whether the service lives and whether it is ready, for whoever supervises it.

use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use crate::service::Running;
use actix_web::{HttpResponse, web};
use futures::future::join_all;
use segue_domain::problem::ProblemKind;
use std::fmt::Display;
use std::time::Duration;

/// How long a driver may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/livez").unnegotiated().always().get(live).done());
    config.service(Route::at("/readyz").unnegotiated().always().get(ready).done());
}

/// 200 as long as the process answers.
async fn live(_request: Request) -> Answer {
    Ok(HttpResponse::Ok().content_type("text/plain").body("live\n"))
}

/// 200 once the log is replayed, takes writes, and all drivers answer.
async fn ready(request: Request) -> Answer {
    let reasons = reasons(request.running()?).await;
    if reasons.is_empty() {
        return Ok(HttpResponse::Ok().content_type("text/plain").body("ready\n"));
    }
    Err(Failure::new(ProblemKind::NotReady, reasons.join("; ")))
}

/// Why the service is not ready.
async fn reasons(running: &Running) -> Vec<String> {
    let mut pings = vec![ping(running.gateways.name(), running.gateways.ping()).await];
    pings.extend(
        join_all(running.containers.iter().map(|driver| ping(driver.name(), driver.ping()))).await,
    );
    let stopped = running
        .store
        .log()
        .failure()
        .map(|reason| format!("the log takes no more writes: {reason}"));
    stopped.into_iter().chain(pings.into_iter().flatten()).collect()
}

async fn ping<E: Display>(
    name: &str,
    answer: impl Future<Output = Result<(), E>>,
) -> Option<String> {
    match tokio::time::timeout(PING_TIMEOUT, answer).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("driver '{name}' does not work: {error}")),
        Err(_) => {
            Some(format!("driver '{name}' does not answer within {} s", PING_TIMEOUT.as_secs()))
        }
    }
}
