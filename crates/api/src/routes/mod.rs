//! The resources of the API, one file each, and what several of them share.

mod compose;
mod configuration;
mod deployments;
mod description;
mod events;
mod frames;
mod general;
mod information;
mod instances;
mod log;
mod newest;
mod probes;
mod proxy;
mod slas;
mod statics;
mod statistics;
mod stream;
mod system;
mod ui;
mod websocket;

use crate::documents::{self, Documents};
use crate::front;
use crate::idempotency::Reply;
use crate::legacy;
use crate::problem::Failure;
use crate::request::{Answer, Request, refuse};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Command, RevisionMatch};
use segue_domain::dsl::{self, Options};
use segue_domain::event::Position;
use segue_domain::problem::{Problem, ProblemKind, Problems};
use segue_domain::state::State;
use segue_domain::store::ExecuteError;
use serde_json::Value;

pub use frames::Frames;

/// Everything that the service answers.
pub fn configure(config: &mut web::ServiceConfig) {
    config.configure(configure_api).configure(configure_description);
    probes::configure(config);
    websocket::configure(config);
    proxy::configure(config);
    ui::configure(config);
}

/// Everything below `/api/v1`, there.
pub fn configure_api(config: &mut web::ServiceConfig) {
    config.service(web::scope(front::API).configure(|api| {
        api.configure(resources).default_service(web::to(unknown));
    }));
}

/// The resources below `/api/v1`.
pub fn resources(api: &mut web::ServiceConfig) {
    // The router tries them in this order, so what is called most often comes first.
    events::configure(api);
    statics::configure(api);
    compose::configure(api);
    general::configure(api);
    slas::configure(api);
    deployments::configure(api);
    instances::configure(api);
    newest::configure(api);
    log::configure(api);
    configuration::configure(api);
    statistics::configure(api);
    system::configure(api);
    probes::configure(api);
}

/// The description of the API and of its documents, outside of `/api/v1`.
pub fn configure_description(config: &mut web::ServiceConfig) {
    description::configure(config);
}

/// What tells whether the service lives and is ready.
pub fn configure_probes(config: &mut web::ServiceConfig) {
    probes::configure(config);
}

/// Nothing is known at this path.
async fn unknown(http: HttpRequest) -> HttpResponse {
    let detail = format!("nothing is known at {}", http.path());
    refuse(http, Failure::not_found(detail)).await
}

/// Something that belongs to a later release.
async fn later(request: Request) -> Answer {
    let what = request.path("later")?;
    Err(Failure::new(
        ProblemKind::NotSupported,
        format!("'{what}' belongs to a later release of Segue"),
    ))
}

/// How a write is answered, and what it presumes.
#[derive(Clone, Copy, Debug)]
struct Writing {
    status: StatusCode,
    /// Whether what is written has to be there already; a missing one is 404.
    existing: bool,
}

/// A wish and the artifact that it is about.
type Wish = (ArtifactKey, Command);

impl Request {
    /// How documents are read that `name`, the name in the path, belongs to.
    fn options(&self, name: Option<String>) -> Options {
        let settings = &self.service.config.settings;
        let default_deployable_type = settings.model.default_deployable_type.clone();
        Options { name, default_deployable_type, legacy_clients: settings.api.legacy_clients }
    }

    /// Carries out the wishes that `documents` make, one each, all or nothing, and answers with the artifacts.
    async fn write(&self, documents: &Documents, wishes: Vec<Wish>, writing: Writing) -> Answer {
        let keys: Vec<ArtifactKey> = wishes.iter().map(|(key, _)| key.clone()).collect();
        let store = &self.running()?.store;
        let (state, host) = (store.state(), &store.rules().gateway_host);
        if let Some(hidden) = keys.iter().find(|key| is_hidden(&state, key)) {
            let failure =
                Failure::not_found(format!("gateway '{}' is not published yet", hidden.name));
            return Err(failure.hint("it is once a service behind it runs"));
        }
        let reply = |state: &State| {
            let represent = |key: &ArtifactKey| {
                let document = dsl::representation_of_written(state, key, host);
                let mut document = document.ok_or_else(|| {
                    Failure::internal(format!("{key} is not there after it was written"))
                })?;
                self.finish(&mut document);
                Ok(document)
            };
            if documents.many {
                let list: Result<Vec<Value>, Failure> = keys.iter().map(represent).collect();
                return Reply::document(writing.status, None, &Value::Array(list?));
            }
            let [key] = &keys[..] else {
                return Err(Failure::internal("one document made several wishes"));
            };
            let revision = self.revision(state, key)?;
            Reply::document(writing.status, revision, &represent(key)?)
        };
        self.perform(documents, wishes, writing.existing, reply).await
    }

    /// The document of a stored artifact, as this client expects it.
    fn representation(&self, state: &State, key: &ArtifactKey) -> Option<Value> {
        let host = &self.running().ok()?.store.rules().gateway_host;
        let mut document = dsl::representation(state, key, host)?;
        self.finish(&mut document);
        Some(document)
    }

    /// Gives clients of the predecessor what they look for in a document.
    fn finish(&self, document: &mut Value) {
        if self.is_legacy() {
            legacy::name_references_twice(document);
        }
    }

    /// The revision that an answer to a write tells. What was only validated has none: its number may become
    /// another write's.
    fn revision(&self, state: &State, key: &ArtifactKey) -> Result<Option<Position>, Failure> {
        Ok(if self.validate_only()? { None } else { state.revision(key) })
    }

    /// Carries out wishes under the revision that the request asks for, or only tries them; answers with what `reply`
    /// makes of the state after them.
    async fn perform(
        &self,
        documents: &Documents,
        wishes: Vec<Wish>,
        existing: bool,
        reply: impl Fn(&State) -> Result<Reply, Failure>,
    ) -> Answer {
        let store = &self.running()?.store;
        let state = store.state();
        let mut conditional = false;
        let mut commands = Vec::with_capacity(wishes.len());
        for (key, command) in wishes {
            let asked = self.if_match(state.revision(&key))?;
            conditional |= asked.is_some();
            let revision = asked.or(existing.then_some(RevisionMatch::Exists));
            commands.push(match revision {
                Some(_) => Command::If { key, revision, command: Box::new(command) },
                None => command,
            });
        }
        let command = documents::together(documents, commands);
        let refused = |error| match error {
            ExecuteError::Rejected(problems) if existing && !conditional => {
                documents::refused(documents, missing(problems))
            }
            ExecuteError::Rejected(problems) => documents::refused(documents, problems),
            ExecuteError::Append(_) | ExecuteError::Read(_) => error.into(),
        };
        if self.validate_only()? {
            let state = store.validate(&command, &self.context());
            let state = state.map_err(|problems| refused(problems.into()))?;
            return Ok(self.reply(&reply(&state)?));
        }
        self.carry_out(&command, refused, |executed| reply(&executed.state)).await
    }
}

/// Whether the artifact is a gateway that users do not see yet.
fn is_hidden(state: &State, key: &ArtifactKey) -> bool {
    key.kind == Kind::Gateway
        && state.gateways().get(&key.name).is_some_and(|gateway| !gateway.published)
}

/// A failed presumption that an artifact exists is a missing artifact, as long as the client presumed nothing.
fn missing(problems: Problems) -> Problems {
    problems.map(|problem| match problem.kind {
        ProblemKind::PreconditionFailed => Problem {
            kind: ProblemKind::NotFound,
            hint: Some("create it with POST".to_owned()),
            ..problem
        },
        _ => problem,
    })
}

/// Refuses a body that holds no document where one is needed.
fn required(documents: &Documents) -> Result<(), Failure> {
    if documents.is_empty() {
        let problem = Problem::new(
            ProblemKind::UnexpectedType,
            "",
            "a document is expected, the body is empty",
        );
        return Err(Problems::from(problem).into());
    }
    Ok(())
}
