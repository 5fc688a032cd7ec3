//! Health and metrics: the newest event of the window that carries certain tags (wire, section 11.1).
//!
//! Nothing is computed here; whoever computes posts events.

use super::events;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::event::{Bound, Query, Record, TimeRange};
use segue_domain::log::ReadError;
use segue_domain::store::Store;
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

/// How many events are looked at together, in search of one whose value is a number.
const PAGE: u64 = 100;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    for path in [
        "/health/gateways/{gateways}",
        "/health/gateways/{gateways}/routes/{routes}",
        "/health/deployments/{deployments}",
        "/health/deployments/{deployments}/clusters/{clusters}",
        "/health/deployments/{deployments}/clusters/{clusters}/services/{services}",
    ] {
        config.service(Route::at(path).get(health).done());
    }
    for path in [
        "/metrics/gateways/{gateway}/{metric}",
        "/metrics/gateways/{gateway}/routes/{route}/{metric}",
    ] {
        config.service(Route::at(path).get(gateway_metric).done());
    }
    for path in [
        "/metrics/deployments/{deployment}/clusters/{cluster}/ports/{port}/{metric}",
        "/metrics/deployments/{deployment}/clusters/{cluster}/services/{service}/ports/{port}/{metric}",
    ] {
        config.service(Route::at(path).get(deployment_metric).done());
    }
}

async fn health(request: Request) -> Answer {
    let mut tags = vec!["health".to_owned()];
    for group in ["gateways", "routes", "deployments", "clusters", "services"] {
        let name = request.path(group)?;
        if !name.is_empty() {
            tags.push(format!("{group}:{name}"));
        }
    }
    let window = request.service.config.settings.operation.health.window.0;
    newest(&request, vec![tags], &Subject { kind: "health", window, values: 0.0..=1.0 }).await
}

async fn gateway_metric(request: Request) -> Answer {
    let mut tags = vec![format!("gateways:{}", request.path("gateway")?)];
    let route = request.path("route")?;
    if !route.is_empty() {
        tags.push(format!("routes:{route}"));
    }
    metric(&request, vec![tags]).await
}

async fn deployment_metric(request: Request) -> Answer {
    let [deployment, cluster, service, port] =
        ["deployment", "cluster", "service", "port"].map(|name| request.path(name));
    let (cluster, service, port) = (format!("{}/{}", deployment?, cluster?), service?, port?);
    let gateway = format!("gateways:{cluster}/{port}");
    if service.is_empty() {
        return metric(&request, vec![vec![gateway]]).await;
    }
    // Producers name the route by its whole path or without the port.
    let routes =
        [format!("routes:{cluster}/{service}/{port}"), format!("routes:{cluster}/{service}")];
    metric(&request, routes.map(|route| vec![gateway.clone(), route]).into()).await
}

async fn metric(request: &Request, mut alternatives: Vec<Vec<String>>) -> Answer {
    let name = request.path("metric")?;
    for tags in &mut alternatives {
        tags.push(format!("metrics:{name}"));
    }
    let window = request.service.config.settings.operation.metrics.window.0;
    let values = f64::NEG_INFINITY..=f64::INFINITY;
    newest(request, alternatives, &Subject { kind: "metrics", window, values }).await
}

/// What is looked for.
#[derive(Clone)]
struct Subject {
    /// The type that the answer has, whatever the event's own is.
    kind: &'static str,
    /// How old it may be.
    window: Duration,
    /// Other values are passed over.
    values: RangeInclusive<f64>,
}

/// Answers with the newest event that carries all tags of one of the `alternatives`.
async fn newest(request: &Request, alternatives: Vec<Vec<String>>, subject: &Subject) -> Answer {
    let now = OffsetDateTime::now_utc();
    let bound = |at| Some(Bound { at, inclusive: true });
    let time = TimeRange { from: bound(now - subject.window), to: bound(now) };
    let store = request.running()?.store.clone();
    let wanted = alternatives.first().map(|tags| tags.join(", ")).unwrap_or_default();
    let values = subject.values.clone();
    // Records that are not in memory are read from disk.
    let found = web::block(move || {
        let queries = alternatives.into_iter().map(|tags| Query { tags, kind: None, time });
        let found: Result<Vec<_>, _> =
            queries.map(|query| first(&store, &query, &values)).collect();
        found
    });
    let found = found.await.map_err(|error| Failure::internal(error.to_string()))??;
    let newest =
        found.into_iter().flatten().max_by_key(|record| (record.event.timestamp, record.position));
    let record = newest.ok_or_else(|| {
        let seconds = subject.window.as_secs_f64();
        Failure::not_found(format!("no event of the last {seconds} s carries {wanted}"))
    })?;
    let mut document = events::document(&record);
    document["type"] = json!(subject.kind);
    Ok(request.document(StatusCode::OK, None, &document))
}

/// The newest match whose value is a number that counts.
fn first(
    store: &Store,
    query: &Query,
    values: &RangeInclusive<f64>,
) -> Result<Option<Arc<Record>>, ReadError> {
    let counts = |value: &Value| value.as_f64().is_some_and(|number| values.contains(&number));
    for page in 1.. {
        let found = store.query(query, page, PAGE)?;
        let last = page * PAGE >= found.total;
        if let Some(record) = found.records.into_iter().find(|record| counts(&record.event.value)) {
            return Ok(Some(record));
        }
        if last {
            break;
        }
    }
    Ok(None)
}
