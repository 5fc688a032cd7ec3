//! Compositions of docker-compose, stored as blueprints (documents, section 15).

use super::Wish;
use crate::documents::Documents;
use crate::idempotency::Reply;
use crate::negotiation::Format;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Artifact, Command, Store, Verb};
use segue_domain::dsl;
use segue_domain::state::State;
use std::fmt::Write;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/docker-compose").unnegotiated().post(create).done());
}

async fn create(request: Request) -> Answer {
    let name = request.parameters.first("name").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| {
        Failure::parameter("the parameter 'name' is missing")
            .hint("say what the blueprint is called: /docker-compose?name=shop")
    })?;
    let documents = Documents::one(&request.body)?;
    let mut text = String::new();
    let wishes: Vec<Wish> = documents.map(|node| {
        let composed = dsl::read_compose(node, name)?;
        for note in composed.notes {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "# {note}");
        }
        let mut blueprint = dsl::write_blueprint(&composed.blueprint);
        request.finish(&mut blueprint);
        text.push_str(&Format::Yaml.write(&blueprint));
        let artifact = Artifact::Blueprint(Box::new(composed.blueprint));
        let submission = documents.submission(node, Verb::Create);
        let key = ArtifactKey::new(Kind::Blueprint, name);
        Ok((key, Command::Store(Store { artifact, submission })))
    })?;
    let reply = |_: &State| Ok(Reply::text(StatusCode::CREATED, text.as_str()));
    request.perform(&documents, wishes, false, reply).await
}
