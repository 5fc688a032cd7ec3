//! Blueprints, breeds, scales and gateways: artifacts that are stored as they are sent (wire, section 6).

use super::{Wish, Writing, later, required};
use crate::documents::{self, Documents};
use crate::paging::Paging;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Command, Verb};
use segue_domain::problem::ProblemKind;
use segue_domain::state::State;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    let all = Route::at("/{collection:blueprints|breeds|gateways|scales}");
    config
        .service(all.remembered().get(list).post(create).put(update_all).delete(delete_all).done());
    // Names of gateways contain slashes: the whole rest of the path is the name.
    for path in
        ["/{collection:blueprints|breeds|scales}/{name}", "/{collection:gateways}/{name:.+}"]
    {
        config.service(Route::at(path).remembered().get(get).put(update).delete(delete).done());
    }
    let path = "/{later:conditions|escalations|slas|workflows|routes|rewrites|templates|docker-compose}{rest:(/.*)?}";
    config.service(Route::at(path).get(later).post(later).put(later).delete(later).done());
}

async fn list(request: Request) -> Answer {
    let kind = kind(&request)?;
    refuse_references(&request, kind)?;
    let paging = request.paging()?;
    let state = request.running()?.store.state();
    let (names, total) = names(&state, kind, paging);
    let items = names
        .into_iter()
        .filter_map(|name| request.representation(&state, &ArtifactKey::new(kind, name)));
    Ok(request.page(paging, items.collect(), total))
}

async fn get(request: Request) -> Answer {
    let key = key(&request)?;
    refuse_references(&request, key.kind)?;
    let state = request.running()?.store.state();
    match request.representation(&state, &key) {
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
    let wishes = documents.map(|node| {
        documents::store(node, key.kind, &options, documents.submission(node, Verb::Update))
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
    request.perform(&documents, vec![(key.clone(), Command::Delete { key })], false).await?;
    Ok(HttpResponse::NoContent().finish())
}

async fn delete_all(request: Request) -> Answer {
    let kind = kind(&request)?;
    let documents = Documents::read(&request.body)?;
    let wishes = documents.map(|node| {
        let key = documents::key_of(node, kind)?;
        Ok((key.clone(), Command::Delete { key }))
    })?;
    request.perform(&documents, wishes, false).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The documents of a request without name in the path, and what they ask for.
fn stored_all(request: &Request, verb: Verb) -> Result<(Documents, Vec<Wish>), Failure> {
    let kind = kind(request)?;
    let documents = Documents::read(&request.body)?;
    required(&documents)?;
    let options = request.options(None);
    let wishes = documents
        .map(|node| documents::store(node, kind, &options, documents.submission(node, verb)))?;
    Ok((documents, wishes))
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
        Kind::Scale => (paging.slice(state.scales().keys()), state.scales().len()),
        Kind::Deployment => (paging.slice(state.deployments().keys()), state.deployments().len()),
        Kind::Gateway => {
            let names = state.published_gateways().map(|(name, _)| name);
            (paging.slice(names), state.published_gateways().count())
        }
    };
    (names, total as u64)
}

/// Expansion of references comes with a later release; it matters for blueprints and breeds only.
fn refuse_references(request: &Request, kind: Kind) -> Result<(), Failure> {
    if !matches!(kind, Kind::Blueprint | Kind::Breed) {
        return Ok(());
    }
    for name in ["expand_references", "only_references"] {
        if request.parameters.boolean(name)? {
            let detail = format!("parameter '{name}' belongs to a later release of Segue");
            return Err(Failure::new(ProblemKind::NotSupported, detail)
                .hint("leave it out to get references as they were written"));
        }
    }
    Ok(())
}

/// How many artifacts of a kind there are.
pub(super) fn count(state: &State, kind: Kind) -> u64 {
    names(state, kind, Paging { page: 1, per_page: 1 }).1
}
