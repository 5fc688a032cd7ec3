//! Deployments and the scales of their services (wire, section 8).

use super::{Writing, required};
use crate::documents::{self, Documents};
use crate::idempotency::Reply;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::artifact::{ArtifactKey, Kind, Scale, ScaleReference};
use segue_domain::command::{Command, Verb};
use segue_domain::dsl::{self, DeploymentBody, Node};
use segue_domain::problem::{Problem, ProblemKind, Problems};
use segue_domain::state::State;
use serde_json::{Value, json};
use uuid::Uuid;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/deployments").remembered().get(list).post(create).done());
    let scale = "/deployments/{deployment}/clusters/{cluster}/services/{service}/scale";
    config.service(Route::at(scale).get(get_scale).post(create_scale).put(update_scale).done());
    let one = Route::at("/deployments/{deployment}");
    config.service(one.remembered().get(get).post(create_named).put(update).delete(delete).done());
}

async fn list(request: Request) -> Answer {
    let paging = request.paging()?;
    let export = Export::read(&request)?;
    let state = request.running()?.store.state();
    let names = paging.slice(state.deployments().keys());
    let items = names.into_iter().filter_map(|name| export.document(&request, &state, name));
    Ok(request.page(paging, &items.collect::<Vec<_>>(), state.deployments().len() as u64))
}

async fn get(request: Request) -> Answer {
    let name = request.path("deployment")?;
    let export = Export::read(&request)?;
    let state = request.running()?.store.state();
    let revision = state.revision(&ArtifactKey::new(Kind::Deployment, &name));
    match export.document(&request, &state, &name) {
        Some(document) => Ok(request.document(StatusCode::OK, revision, &document)),
        None => Err(Failure::not_found(format!("there is no deployment '{name}'"))),
    }
}

async fn create(request: Request) -> Answer {
    let documents = Documents::read(&request.body)?;
    required(&documents)?;
    let options = request.options(None);
    let state = request.running()?.store.state();
    let wishes = documents.map(|node| {
        let name = Uuid::new_v4().to_string();
        let body = documents::deployment_body(node, (&options, &state))?;
        let key = ArtifactKey::new(Kind::Deployment, &name);
        Ok((
            key,
            Command::Deploy { name, body, submission: documents.submission(node, Verb::Create) },
        ))
    })?;
    let status = if request.validate_only()? { StatusCode::CREATED } else { StatusCode::ACCEPTED };
    request.write(&documents, wishes, Writing { status, existing: false }).await
}

async fn create_named(request: Request) -> Answer {
    deploy(request, Verb::Create).await
}

async fn update(request: Request) -> Answer {
    deploy(request, Verb::Update).await
}

async fn deploy(request: Request, verb: Verb) -> Answer {
    let name = request.path("deployment")?;
    let documents = Documents::one(&request.body)?;
    let state = request.running()?.store.state();
    let exists = state.deployment(&name).is_some();
    let options = request.options(None);
    let wishes = documents.map(|node| {
        let body = documents::deployment_body(node, (&options, &state))?;
        if exists && !request.is_legacy() {
            check_name(node, &body, &name)?;
        }
        let key = ArtifactKey::new(Kind::Deployment, &name);
        Ok((
            key,
            Command::Deploy {
                name: name.clone(),
                body,
                submission: documents.submission(node, verb),
            },
        ))
    })?;
    request
        .write(&documents, wishes, Writing { status: StatusCode::ACCEPTED, existing: false })
        .await
}

async fn delete(request: Request) -> Answer {
    let name = request.path("deployment")?;
    let documents =
        if request.body.is_empty() { Documents::read("")? } else { Documents::one(&request.body)? };
    let key = ArtifactKey::new(Kind::Deployment, &name);
    let state = request.running()?.store.state();
    let mut wishes = documents
        .map(|node| Ok((key.clone(), undeploy(&request, &state, &documents, node, &name)?)))?;
    if wishes.is_empty() {
        // Nothing is taken away, under the revision that the request presumes.
        wishes.push((key.clone(), Command::All(Vec::new())));
    }
    let reply =
        |state: &State| Ok(Reply::revised(StatusCode::ACCEPTED, request.revision(state, &key)?));
    request.perform(&documents, wishes, false, reply).await
}

/// The command that takes what `node` names away from deployment `name`.
pub(super) fn undeploy(
    request: &Request,
    state: &State,
    documents: &Documents,
    node: &Node,
    name: &str,
) -> segue_domain::problem::Result<Command> {
    let body = documents::removal_body(node, (&request.options(None), state))?;
    let submission = documents.submission(node, Verb::Delete);
    Ok(Command::Undeploy { name: name.to_owned(), body, submission })
}

/// The name of a deployment that is sent to an existing one is that one's. A reference has no name of its own, and
/// what says that it is a blueprint has the blueprint's.
fn check_name(node: &Node, body: &DeploymentBody, name: &str) -> Result<(), Problems> {
    let DeploymentBody::Blueprint(blueprint) = body else { return Ok(()) };
    let is_blueprint =
        documents::member(node, "kind").as_deref() == Some(Kind::Blueprint.singular());
    if is_blueprint || blueprint.name.is_empty() || blueprint.name == name {
        return Ok(());
    }
    let detail =
        format!("the body is named '{}', the deployment in the path '{name}'", blueprint.name);
    let hint = "leave 'name' out, or add 'kind: blueprint' to deploy a blueprint of another name";
    Err(Problem::new(ProblemKind::InconsistentArtifactName, "/name", detail).hint(hint).into())
}

async fn get_scale(request: Request) -> Answer {
    let service = ServicePath::read(&request)?;
    let state = request.running()?.store.state();
    let scale = service.scale(&state)?;
    let revision = state.revision(&ArtifactKey::new(Kind::Deployment, &service.deployment));
    Ok(request.document(StatusCode::OK, revision, &dsl::write_inline_scale(&scale)))
}

async fn create_scale(request: Request) -> Answer {
    set_scale(request, Verb::Create).await
}

async fn update_scale(request: Request) -> Answer {
    set_scale(request, Verb::Update).await
}

async fn set_scale(request: Request, verb: Verb) -> Answer {
    let service = ServicePath::read(&request)?;
    let documents = Documents::one(&request.body)?;
    let state = request.running()?.store.state();
    service.scale(&state)?;
    let options = request.options(None);
    let key = ArtifactKey::new(Kind::Deployment, &service.deployment);
    let wishes = documents.map(|node| {
        let scale = match dsl::read_inline_scale(node, &options)? {
            ScaleReference::Inline(scale) => scale,
            ScaleReference::Reference(name) => named_scale(&state, &name)?,
        };
        let ServicePath { deployment, cluster, service } = service.clone();
        let submission = documents.submission(node, verb);
        Ok((key.clone(), Command::Scale { deployment, cluster, service, scale, submission }))
    })?;
    let reply = |state: &State| {
        let scale = dsl::write_inline_scale(&service.scale(state)?);
        Reply::document(StatusCode::ACCEPTED, request.revision(state, &key)?, &scale)
    };
    request.perform(&documents, wishes, false, reply).await
}

fn named_scale(state: &State, name: &str) -> Result<Scale, Problems> {
    let stored = state.scales().get(name).map(|stored| stored.artifact.scale);
    stored.ok_or_else(|| {
        let problem =
            Problem::new(ProblemKind::ArtifactNotFound, "", format!("there is no scale '{name}'"));
        problem.hint("store it first, or send cpu, memory and instances").into()
    })
}

/// Where a service stands.
#[derive(Clone, Debug)]
struct ServicePath {
    deployment: String,
    cluster: String,
    service: String,
}

impl ServicePath {
    fn read(request: &Request) -> Result<Self, Failure> {
        let [deployment, cluster, service] =
            ["deployment", "cluster", "service"].map(|name| request.path(name));
        Ok(Self { deployment: deployment?, cluster: cluster?, service: service? })
    }

    fn scale(&self, state: &State) -> Result<Scale, Failure> {
        let Self { deployment, cluster, service } = self;
        let found = state
            .deployment(deployment)
            .and_then(|deployment| deployment.service(cluster, service));
        found.filter(|service| !service.is_undeploying()).map(|service| service.scale).ok_or_else(|| {
            let detail = format!("there is no service '{service}' in cluster '{cluster}' of deployment '{deployment}'");
            Failure::not_found(detail)
        })
    }
}

/// In which form deployments are shown.
struct Export {
    as_blueprint: bool,
    only_references: bool,
}

impl Export {
    fn read(request: &Request) -> Result<Self, Failure> {
        let as_blueprint = request.parameters.boolean("as_blueprint")?;
        let expand_references = request.parameters.boolean("expand_references")?;
        // Both together are none; expansion changes nothing, since deployments hold full breeds.
        let only_references = request.parameters.boolean("only_references")? && !expand_references;
        Ok(Self { as_blueprint, only_references })
    }

    fn document(&self, request: &Request, state: &State, name: &str) -> Option<Value> {
        if !self.as_blueprint {
            return request.representation(state, &ArtifactKey::new(Kind::Deployment, name));
        }
        let mut document = dsl::representation_as_blueprint(state, name)?;
        if self.only_references {
            refer_to_breeds(&mut document);
        }
        request.finish(&mut document);
        Some(document)
    }
}

/// Turns the breeds of all services into references.
fn refer_to_breeds(blueprint: &mut Value) {
    let clusters = blueprint.get_mut("clusters").and_then(Value::as_object_mut);
    let services = clusters.into_iter().flat_map(|clusters| clusters.values_mut());
    let services =
        services.filter_map(|cluster| cluster.get_mut("services")?.as_array_mut()).flatten();
    for breed in services.filter_map(|service| service.get_mut("breed")) {
        *breed = json!({ "ref": breed["name"] });
    }
}
