//! All kinds but deployments: artifacts that are stored as they are sent (wire, section 6).

use super::{Wish, Writing, later, required};
use crate::documents::{self, Documents};
use crate::idempotency::Reply;
use crate::paging::Paging;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Command, Verb};
use segue_domain::dsl::{self, References};
use segue_domain::state::State;
use serde_json::Value;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    let all = Route::at(
        "/{collection:blueprints|breeds|conditions|escalations|gateways|rewrites|routes|scales|slas|templates}",
    );
    config
        .service(all.remembered().get(list).post(create).put(update_all).delete(delete_all).done());
    // Names of gateways and routes contain slashes: the whole rest of the path is the name.
    for path in [
        "/{collection:blueprints|breeds|conditions|escalations|rewrites|scales|slas|templates}/{name}",
        "/{collection:gateways|routes}/{name:.+}",
    ] {
        config.service(Route::at(path).remembered().get(get).put(update).delete(delete).done());
    }
    let path = "/{later:workflows}{rest:(/.*)?}";
    config.service(Route::at(path).get(later).post(later).put(later).delete(later).done());
}

async fn list(request: Request) -> Answer {
    let kind = kind(&request)?;
    let references = references(&request)?;
    let paging = request.paging()?;
    let state = request.running()?.store.state();
    let (names, total) = names(&state, kind, paging);
    let items: Result<Vec<Option<Value>>, Failure> = names
        .into_iter()
        .map(|name| shown(&request, &state, &ArtifactKey::new(kind, name), references))
        .collect();
    let items: Vec<Value> = items?.into_iter().flatten().collect();
    Ok(request.page(paging, &items, total))
}

async fn get(request: Request) -> Answer {
    let key = key(&request)?;
    let references = references(&request)?;
    let state = request.running()?.store.state();
    match shown(&request, &state, &key, references)? {
        Some(document) => Ok(request.document(StatusCode::OK, state.revision(&key), &document)),
        None => {
            Err(Failure::not_found(format!("there is no {} '{}'", key.kind.singular(), key.name)))
        }
    }
}

async fn create(request: Request) -> Answer {
    let wishes = stored_all(&request, Verb::Create)?;
    request
        .write(&wishes.0, wishes.1, Writing { status: StatusCode::CREATED, existing: false })
        .await
}

async fn update_all(request: Request) -> Answer {
    let wishes = stored_all(&request, Verb::Update)?;
    request
        .write(
            &wishes.0,
            wishes.1,
            Writing { status: StatusCode::OK, existing: !request.is_legacy() },
        )
        .await
}

async fn update(request: Request) -> Answer {
    let key = key(&request)?;
    let documents = Documents::one(&request.body)?;
    let options = request.options(Some(key.name));
    let state = request.running()?.store.state();
    let wishes = documents.map(|node| {
        let submission = documents.submission(node, Verb::Update);
        documents::store(node, key.kind, (&options, &state), submission)
    });
    request
        .write(
            &documents,
            wishes?,
            Writing { status: StatusCode::OK, existing: !request.is_legacy() },
        )
        .await
}

async fn delete(request: Request) -> Answer {
    let key = key(&request)?;
    // A body is not looked at.
    let documents = Documents::read("")?;
    let wishes = vec![(key.clone(), Command::Delete { key })];
    request.perform(&documents, wishes, false, |_| Ok(Reply::empty(StatusCode::NO_CONTENT))).await
}

async fn delete_all(request: Request) -> Answer {
    let kind = kind(&request)?;
    let documents = Documents::read(&request.body)?;
    let wishes = documents.map(|node| {
        let key = documents::key_of(node, kind)?;
        Ok((key.clone(), Command::Delete { key }))
    })?;
    request.perform(&documents, wishes, false, |_| Ok(Reply::empty(StatusCode::NO_CONTENT))).await
}

/// The documents of a request without name in the path, and what they ask for.
fn stored_all(request: &Request, verb: Verb) -> Result<(Documents, Vec<Wish>), Failure> {
    let kind = kind(request)?;
    let documents = Documents::read(&request.body)?;
    required(&documents)?;
    let options = request.options(None);
    let state = request.running()?.store.state();
    let wishes = documents.map(|node| {
        documents::store(node, kind, (&options, &state), documents.submission(node, verb))
    })?;
    Ok((documents, wishes))
}

/// A stored artifact as the client wants to see it.
fn shown(
    request: &Request,
    state: &State,
    key: &ArtifactKey,
    references: References,
) -> Result<Option<Value>, Failure> {
    let host = &request.running()?.store.rules().gateway_host;
    let mut document = dsl::representation_with(state, key, references, host)?;
    if let Some(document) = &mut document {
        request.finish(document);
    }
    Ok(document)
}

fn kind(request: &Request) -> Result<Kind, Failure> {
    let collection = request.path("collection")?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.collection() == collection);
    kind.ok_or_else(|| {
        Failure::internal(format!("the routes let the collection '{collection}' through"))
    })
}

fn key(request: &Request) -> Result<ArtifactKey, Failure> {
    Ok(ArtifactKey::new(kind(request)?, request.path("name")?))
}

/// Names of a page of a collection, and how many there are in all. Gateways are listed once they are published.
fn names(state: &State, kind: Kind, paging: Paging) -> (Vec<&String>, u64) {
    let (names, total) = match kind {
        Kind::Blueprint => (paging.slice(state.blueprints().keys()), state.blueprints().len()),
        Kind::Breed => (paging.slice(state.breeds().keys()), state.breeds().len()),
        Kind::Condition => (paging.slice(state.conditions().keys()), state.conditions().len()),
        Kind::Rewrite => (paging.slice(state.rewrites().keys()), state.rewrites().len()),
        Kind::Route => (paging.slice(state.routes().keys()), state.routes().len()),
        Kind::Escalation => (paging.slice(state.escalations().keys()), state.escalations().len()),
        Kind::Sla => (paging.slice(state.slas().keys()), state.slas().len()),
        Kind::Scale => (paging.slice(state.scales().keys()), state.scales().len()),
        Kind::Template => (paging.slice(state.templates().keys()), state.templates().len()),
        Kind::Deployment => (paging.slice(state.deployments().keys()), state.deployments().len()),
        Kind::Gateway => {
            let names = state.published_gateways().map(|(name, _)| name);
            (paging.slice(names), state.published_gateways().count())
        }
    };
    (names, total as u64)
}

/// In which form the client wants to see references.
fn references(request: &Request) -> Result<References, Failure> {
    let expand = request.parameters.boolean("expand_references")?;
    let only = request.parameters.boolean("only_references")?;
    Ok(References::of(expand, only))
}

/// How many artifacts of a kind there are.
pub(super) fn count(state: &State, kind: Kind) -> u64 {
    names(state, kind, Paging { page: 1, per_page: 1 }).1
}
