//! Counts of what is there and of what happened (wire, section 12, stats).

use super::{information, statics};
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::artifact::Kind;
use segue_domain::event::{Query, TimeRange};
use segue_domain::log::ReadError;
use segue_domain::state::State;
use segue_domain::store::Store;
use serde_json::{Map, Value, json};

/// What happened, by the tags that say so.
const OCCASIONS: [(&str, &[&str]); 7] = [
    ("escalation-count", &["sla:escalate"]),
    ("de-escalation-count", &["sla:deescalate"]),
    ("deployed-services", &["synchronisation:deployed"]),
    ("redeployed-services", &["synchronisation:redeploy"]),
    ("undeployed-services", &["synchronisation:undeployed"]),
    ("scheduled-workflows", &["workflows", "scheduled"]),
    ("unscheduled-workflows", &["workflows", "unscheduled"]),
];

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/{path:stats|statistics}").get(statistics).done());
}

async fn statistics(request: Request) -> Answer {
    let store = request.running()?.store.clone();
    let counted = web::block(move || count(&store)).await;
    let (persistence, pulse) = counted.map_err(|error| Failure::internal(error.to_string()))??;
    let document = json!({
        "jvm": information::process(&request.service),
        "system": information::machine(),
        "persistence": persistence,
        "pulse": pulse,
    });
    Ok(request.document(StatusCode::OK, None, &document))
}

fn count(store: &Store) -> Result<(Value, Value), ReadError> {
    let state = store.state();
    let mut persistence = Map::new();
    for kind in Kind::ALL {
        let collection = kind.collection();
        let counts = if kind == Kind::Deployment {
            deployments(&state)
        } else {
            let archived = |action: &str| {
                total(store, Some("archive"), &[collection, &format!("archive:{action}")])
            };
            json!({
                "count": statics::count(&state, kind),
                "created": archived("create")?,
                "updated": archived("update")?,
                "deleted": archived("delete")?,
            })
        };
        persistence.insert(collection.to_owned(), counts);
    }
    let mut pulse = Map::new();
    for (name, tags) in OCCASIONS {
        pulse.insert(name.to_owned(), json!(total(store, None, tags)?));
    }
    Ok((Value::Object(persistence), Value::Object(pulse)))
}

fn deployments(state: &State) -> Value {
    let clusters: usize =
        state.deployments().values().map(|stored| stored.artifact.clusters.len()).sum();
    let services: usize =
        state.deployments().values().map(|stored| stored.artifact.services().count()).sum();
    json!({ "count": state.deployments().len(), "clusters": clusters, "services": services })
}

/// How many events there are.
fn total(store: &Store, kind: Option<&str>, tags: &[&str]) -> Result<u64, ReadError> {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let query = Query { tags, kind: kind.map(str::to_owned), time: TimeRange::default() };
    Ok(store.query(&query, 1, 1)?.total)
}
