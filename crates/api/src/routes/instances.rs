//! What instances print.

use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::problem::ProblemKind;
use segue_workers::containers::{ContainerDriver, ObservedInstance};
use segue_workers::driver::Error;
use serde_json::json;
use std::sync::Arc;

/// How many lines are given when nobody says how many.
const LINES: usize = 100;
const LINES_MAX: usize = 1_000;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    let output = "/deployments/{deployment}/clusters/{cluster}/services/{service}/instances/{instance}/output";
    config.service(Route::at(output).get(output_of).done());
}

/// The end of what an instance printed. Whoever runs it is asked, so that one that ended, or was never seen to run, is
/// found as well.
async fn output_of(request: Request) -> Answer {
    let [deployment, cluster, service, instance] =
        ["deployment", "cluster", "service", "instance"].map(|name| request.path(name));
    let (deployment, cluster, service, instance) = (deployment?, cluster?, service?, instance?);
    let lines = lines(&request)?;
    let running = request.running()?;
    let mut away = None;
    for driver in &running.containers {
        match printed(driver.as_ref(), [&deployment, &cluster, &service, &instance], lines).await {
            Ok(Some(lines)) => {
                let document = json!({ "name": instance, "lines": lines });
                return Ok(request.document(StatusCode::OK, None, &document));
            }
            Ok(None) => {}
            // Another one may run it.
            Err(error) => away = Some((driver.name(), error)),
        }
    }
    if let Some((driver, error)) = away {
        let failure = Failure::new(ProblemKind::BadGateway, error.to_string());
        return Err(failure.hint(&format!("the driver '{driver}' has to answer first")));
    }
    let failure = Failure::not_found(format!("there is no instance '{instance}' at this path"));
    Err(failure.hint("GET the deployment: its services list their instances"))
}

/// The last lines of an instance, when `driver` runs it.
async fn printed(
    driver: &dyn ContainerDriver,
    [deployment, cluster, service, instance]: [&str; 4],
    lines: usize,
) -> Result<Option<Vec<String>>, Error> {
    let observed = driver.observe(deployment).await?;
    let is_it = |found: &Arc<ObservedInstance>| {
        let owner = &found.owner;
        found.name == instance && owner.cluster == cluster && owner.service == service
    };
    if observed.iter().any(is_it) {
        driver.output(deployment, instance, lines).await
    } else {
        Ok(None)
    }
}

fn lines(request: &Request) -> Result<usize, Failure> {
    let Some(asked) = request.parameters.number("lines")? else { return Ok(LINES) };
    let fits = usize::try_from(asked).ok().filter(|lines| (1..=LINES_MAX).contains(lines));
    fits.ok_or_else(|| {
        let failure = Failure::parameter(format!("parameter 'lines' cannot be {asked}"));
        failure.hint(&format!("give a number from 1 to {LINES_MAX}"))
    })
}
