//! The resources of the API, one file each, and what several of them share.

mod deployments;
mod events;
mod general;
mod information;
mod probes;
mod slas;
mod statics;
mod stream;
mod system;

use crate::documents::{self, Documents};
use crate::problem::Failure;
use crate::request::{Answer, Request, Route, refuse};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Command, RevisionMatch};
use segue_domain::dsl::{self, Options};
use segue_domain::problem::{Problem, ProblemKind, Problems};
use segue_domain::state::State;
use segue_domain::store::ExecuteError;
use serde_json::Value;
use std::sync::Arc;

/// Everything below `/api/v1`.
pub fn configure(config: &mut web::ServiceConfig) {
    general::configure(config);
    statics::configure(config);
    slas::configure(config);
    deployments::configure(config);
    events::configure(config);
    system::configure(config);
    config.default_service(web::to(unknown));
}

/// The probes, outside of `/api/v1`, too.
pub fn configure_probes(config: &mut web::ServiceConfig) {
    config.service(Route::at("/livez").always().get(probes::live).done());
    config.service(Route::at("/readyz").always().get(probes::ready).done());
}

/// Nothing is known at this path.
pub async fn unknown(http: HttpRequest) -> HttpResponse {
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
        let default_deployable_type =
            self.service.config.settings.model.default_deployable_type.clone();
        Options { name, default_deployable_type }
    }

    /// Carries out the wishes that `documents` make, one each, all or nothing, and answers with the artifacts.
    async fn write(&self, documents: &Documents, wishes: Vec<Wish>, writing: Writing) -> Answer {
        let keys: Vec<ArtifactKey> = wishes.iter().map(|(key, _)| key.clone()).collect();
        let state = self.running()?.store.state();
        if let Some(hidden) = keys.iter().find(|key| is_hidden(&state, key)) {
            let failure =
                Failure::not_found(format!("gateway '{}' is not published yet", hidden.name));
            return Err(failure.hint("it is once a service behind it runs"));
        }
        let state = self.perform(documents, wishes, writing.existing).await?;
        let represent = |key: &ArtifactKey| {
            let document = dsl::representation(&state, key);
            document.ok_or_else(|| {
                Failure::internal(format!("{key} is not there after it was written"))
            })
        };
        if documents.many {
            let list: Result<Vec<Value>, Failure> = keys.iter().map(represent).collect();
            return Ok(self.document(writing.status, None, &Value::Array(list?)));
        }
        let [key] = &keys[..] else {
            return Err(Failure::internal("one document made several wishes"));
        };
        Ok(self.document(writing.status, state.revision(key), &represent(key)?))
    }

    /// Carries out wishes under the revision that the request asks for, or only tries them; gives the state that
    /// they make.
    async fn perform(
        &self,
        documents: &Documents,
        wishes: Vec<Wish>,
        existing: bool,
    ) -> Result<Arc<State>, Failure> {
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
        let context = self.context();
        let done = if self.validate_only()? {
            store.validate(&command, &context).map(Arc::new).map_err(ExecuteError::Rejected)
        } else {
            store.execute(&command, &context).await.map(|executed| executed.state)
        };
        done.map_err(|error| match error {
            ExecuteError::Rejected(problems) if existing && !conditional => {
                documents::refused(documents, missing(problems))
            }
            ExecuteError::Rejected(problems) => documents::refused(documents, problems),
            ExecuteError::Append(error) => error.into(),
        })
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
