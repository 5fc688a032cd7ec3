//! Health and metrics: the newest event of the window that carries certain tags (wire, section 11.1).
//!
//! Nothing is computed here; whoever computes posts events. What Segue itself measured of something that is still there
//! stands until it tells something else, so it answers also when it was told before the window.

use super::events;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::command::{ServiceKey, Subject};
use segue_domain::event::{Bound, Origin, Provenance, Query, Record, TimeRange};
use segue_domain::log::ReadError;
use segue_domain::store::Store;
use segue_workers::health;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

/// How many events are looked at together, in search of one that counts.
const PAGE: u64 = 100;
/// How many such pages are looked at.
const PAGES_MAX: u64 = 20;

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
    let groups = ["gateways", "routes", "deployments", "clusters", "services"];
    let mut tags = vec!["health".to_owned()];
    for group in groups {
        let name = request.path(group)?;
        if !name.is_empty() {
            tags.push(format!("{group}:{name}"));
        }
    }
    let [gateway, route, deployment, cluster, service] = groups.map(|group| request.path(group));
    let (deployment, cluster, service) = (deployment?, cluster?, service?);
    let of = if deployment.is_empty() {
        gateway_or_route(gateway?, route?)
    } else if cluster.is_empty() {
        Subject::Deployment(deployment)
    } else if service.is_empty() {
        Subject::Cluster { deployment, cluster }
    } else {
        Subject::Service(ServiceKey { deployment, cluster, service })
    };
    let settings = &request.service.config.settings.operation.health;
    let wanted = Wanted {
        kind: "health",
        window: settings.window.0,
        values: 0.0..=1.0,
        measured: settings.enabled.then_some(of),
    };
    newest(&request, vec![tags], &wanted).await
}

async fn gateway_metric(request: Request) -> Answer {
    let (gateway, route) = (request.path("gateway")?, request.path("route")?);
    let mut tags = vec![format!("gateways:{gateway}")];
    if !route.is_empty() {
        tags.push(format!("routes:{route}"));
    }
    metric(&request, vec![tags], gateway_or_route(gateway, route)).await
}

async fn deployment_metric(request: Request) -> Answer {
    let [deployment, cluster, service, port] =
        ["deployment", "cluster", "service", "port"].map(|name| request.path(name));
    let (cluster, service, port) = (format!("{}/{}", deployment?, cluster?), service?, port?);
    let gateway = format!("{cluster}/{port}");
    let tag = format!("gateways:{gateway}");
    if service.is_empty() {
        return metric(&request, vec![vec![tag]], Subject::Gateway(gateway)).await;
    }
    // Producers name the route by its whole path or without the port.
    let path = format!("{cluster}/{service}/{port}");
    let routes = [format!("routes:{path}"), format!("routes:{cluster}/{service}")];
    let alternatives = routes.map(|route| vec![tag.clone(), route]).into();
    metric(&request, alternatives, Subject::Route { gateway, path }).await
}

fn gateway_or_route(gateway: String, path: String) -> Subject {
    if path.is_empty() { Subject::Gateway(gateway) } else { Subject::Route { gateway, path } }
}

async fn metric(request: &Request, places: Vec<Vec<String>>, of: Subject) -> Answer {
    let name = request.path("metric")?;
    let other = match name.as_str() {
        "response-time" => Some("responseTime"),
        "responseTime" => Some("response-time"),
        _ => None,
    };
    let names = [Some(name.as_str()), other].into_iter().flatten();
    let alternatives = names.flat_map(|name| {
        let measured = |place: &Vec<String>| [&place[..], &[format!("metrics:{name}")]].concat();
        places.iter().map(measured).collect::<Vec<_>>()
    });
    let alternatives = alternatives.collect();
    let settings = &request.service.config.settings.operation.metrics;
    let wanted = Wanted {
        kind: "metrics",
        window: settings.window.0,
        values: f64::NEG_INFINITY..=f64::INFINITY,
        measured: settings.enabled.then_some(of),
    };
    newest(request, alternatives, &wanted).await
}

/// What is looked for.
#[derive(Clone)]
struct Wanted {
    /// The type that the answer has, whatever the event's own is.
    kind: &'static str,
    /// How old it may be, unless Segue measured it.
    window: Duration,
    /// Other values are passed over.
    values: RangeInclusive<f64>,
    /// What Segue measures it of, when it does.
    measured: Option<Subject>,
}

/// Answers with the newest event that carries all tags of one of the `alternatives`.
async fn newest(request: &Request, alternatives: Vec<Vec<String>>, wanted: &Wanted) -> Answer {
    let now = OffsetDateTime::now_utc();
    let bound = |at| Some(Bound { at, inclusive: true });
    let window = TimeRange { from: bound(now - wanted.window), to: bound(now) };
    let store = request.running()?.store.clone();
    let tags = alternatives.first().map(|tags| tags.join(", ")).unwrap_or_default();
    let looked_for = wanted.clone();
    // Records that are not in memory are read from disk.
    let found = web::block(move || {
        let Wanted { values, measured, .. } = looked_for;
        let counts = |record: &Record| {
            record.event.value.as_f64().is_some_and(|number| values.contains(&number))
        };
        let recent = newest_of(&store, &alternatives, window, counts)?;
        let state = store.state();
        if recent.is_some() || !measured.is_some_and(|subject| subject.exists(&state)) {
            return Ok(recent);
        }
        let stands = |record: &Record| is_measured_by_us(record) && counts(record);
        newest_of(&store, &alternatives, TimeRange { from: None, to: bound(now) }, stands)
    });
    let found: Result<_, ReadError> =
        found.await.map_err(|error| Failure::internal(error.to_string()))?;
    let record = found?.ok_or_else(|| {
        let seconds = wanted.window.as_secs_f64();
        Failure::not_found(format!("no event of the last {seconds} s carries {tags}"))
    })?;
    let mut document = events::document(&record);
    document.kind = wanted.kind;
    Ok(request.document(StatusCode::OK, None, &document))
}

/// The newest event that carries all tags of one of the `alternatives`, and counts.
fn newest_of(
    store: &Store,
    alternatives: &[Vec<String>],
    time: TimeRange,
    counts: impl Fn(&Record) -> bool,
) -> Result<Option<Arc<Record>>, ReadError> {
    let queries = alternatives.iter().map(|tags| Query { tags: tags.clone(), kind: None, time });
    let found: Result<Vec<_>, _> = queries.map(|query| first(store, &query, &counts)).collect();
    Ok(found?.into_iter().flatten().max_by_key(|record| (record.event.timestamp, record.position)))
}

/// The newest match that counts. Of very many that do not, no more than a few pages are looked at. Of what Segue measured
/// itself the last that it told is the newest, whatever times it has: the clock may have been put back.
fn first(
    store: &Store,
    query: &Query,
    counts: impl Fn(&Record) -> bool,
) -> Result<Option<Arc<Record>>, ReadError> {
    for page in 1..=PAGES_MAX {
        let found = store.query(query, page, PAGE)?;
        let last = page * PAGE >= found.total;
        let mut counting = found.records.into_iter().filter(|record| counts(record));
        if let Some(newest) = counting.next() {
            if !is_measured_by_us(&newest) {
                return Ok(Some(newest));
            }
            let own = counting.filter(|record| is_measured_by_us(record));
            return Ok(own.chain([newest]).max_by_key(|record| record.position));
        }
        if last {
            break;
        }
    }
    Ok(None)
}

fn is_measured_by_us(record: &Record) -> bool {
    let Provenance { actor, origin, .. } = &record.provenance;
    *origin == Origin::Service && actor == health::ACTOR
}
