//! `/api/v1` itself: documents of mixed kinds in one atomic write (wire, section 7).

use super::{Wish, Writing, deployments, required};
use crate::documents::{self, Documents};
use crate::idempotency::Reply;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Command, Verb};
use segue_domain::dsl::Node;
use segue_domain::problem::Result as Reading;
use segue_domain::state::State;
use uuid::Uuid;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("").post(create).put(update).delete(delete).done());
}

async fn create(request: Request) -> Answer {
    write(request, Verb::Create).await
}

async fn update(request: Request) -> Answer {
    write(request, Verb::Update).await
}

async fn write(request: Request, verb: Verb) -> Answer {
    let documents = Documents::read(&request.body)?;
    required(&documents)?;
    let state = request.running()?.store.state();
    let wishes = documents.map(|node| wish(&request, &state, &documents, node, verb))?;
    request
        .write(&documents, wishes, Writing { status: StatusCode::ACCEPTED, existing: false })
        .await
}

async fn delete(request: Request) -> Answer {
    let documents = Documents::read(&request.body)?;
    let state = request.running()?.store.state();
    let wishes = documents.map(|node| {
        let key = documents::key(node)?;
        let command = if key.kind == Kind::Deployment {
            deployments::undeploy(&request, &state, &documents, node, &key.name)?
        } else {
            Command::Delete { key: key.clone() }
        };
        Ok((key, command))
    })?;
    request.perform(&documents, wishes, false, |_| Ok(Reply::empty(StatusCode::ACCEPTED))).await
}

fn wish(
    request: &Request,
    state: &State,
    documents: &Documents,
    node: &Node,
    verb: Verb,
) -> Reading<Wish> {
    let options = request.options(None);
    let submission = documents.submission(node, verb);
    // A deployment that is posted is given a name, so it needs none.
    if verb == Verb::Create && documents::kind(node)? == Some(Kind::Deployment) {
        let name = Uuid::new_v4().to_string();
        let body = documents::deployment_body(node, (&options, state))?;
        let key = ArtifactKey::new(Kind::Deployment, &name);
        return Ok((key, Command::Deploy { name, body, submission }));
    }
    let key = documents::key(node)?;
    if key.kind == Kind::Deployment {
        let body = documents::deployment_body(node, (&options, state))?;
        return Ok((key.clone(), Command::Deploy { name: key.name, body, submission }));
    }
    documents::store(node, key.kind, (&options, state), submission)
}
