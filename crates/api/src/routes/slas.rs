//! The SLAs of running clusters (wire, section 8).

use crate::documents::Documents;
use crate::idempotency::Reply;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::artifact::{ArtifactKey, ClusterSla, Kind};
use segue_domain::command::{Command, Submission, Verb};
use segue_domain::dsl;
use segue_domain::state::State;
use serde_json::Value;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    let route = Route::at("/deployments/{deployment}/clusters/{cluster}/sla");
    config.service(route.get(get).post(create).put(update).delete(delete).done());
}

async fn get(request: Request) -> Answer {
    let cluster = ClusterPath::read(&request)?;
    let state = request.running()?.store.state();
    let sla = dsl::write_cluster_sla(cluster.promised(&state)?);
    Ok(request.document(StatusCode::OK, state.revision(&cluster.key()), &sla))
}

async fn create(request: Request) -> Answer {
    set(request, Verb::Create).await
}

async fn update(request: Request) -> Answer {
    set(request, Verb::Update).await
}

async fn set(request: Request, verb: Verb) -> Answer {
    let cluster = ClusterPath::read(&request)?;
    let documents = Documents::one(&request.body)?;
    let options = request.options(None);
    let wishes = documents.map(|node| {
        let sla = Box::new(dsl::read_cluster_sla(node, &options)?);
        Ok((cluster.key(), cluster.wish(Some(sla), documents.submission(node, verb))))
    })?;
    let reply = |state: &State| {
        let sla = dsl::write_cluster_sla(cluster.promised(state)?);
        let revision = request.revision(state, &cluster.key())?;
        Reply::document(StatusCode::ACCEPTED, revision, &sla)
    };
    request.perform(&documents, wishes, false, reply).await
}

async fn delete(request: Request) -> Answer {
    let cluster = ClusterPath::read(&request)?;
    let documents = Documents::read("")?;
    let submission = Submission { verb: Verb::Delete, representation: Value::Null };
    let wish = (cluster.key(), cluster.wish(None, submission));
    let reply = |state: &State| {
        Ok(Reply::revised(StatusCode::ACCEPTED, request.revision(state, &cluster.key())?))
    };
    request.perform(&documents, vec![wish], false, reply).await
}

/// Where a cluster stands.
struct ClusterPath {
    deployment: String,
    cluster: String,
}

impl ClusterPath {
    fn read(request: &Request) -> Result<Self, Failure> {
        Ok(Self { deployment: request.path("deployment")?, cluster: request.path("cluster")? })
    }

    fn key(&self) -> ArtifactKey {
        ArtifactKey::new(Kind::Deployment, &self.deployment)
    }

    fn wish(&self, sla: Option<Box<dsl::ClusterSlaBody>>, submission: Submission) -> Command {
        Command::SetSla {
            deployment: self.deployment.clone(),
            cluster: self.cluster.clone(),
            sla,
            submission,
        }
    }

    fn promised<'s>(&self, state: &'s State) -> Result<&'s ClusterSla, Failure> {
        let Self { deployment, cluster } = self;
        let found = state.deployment(deployment).and_then(|found| found.clusters.get(cluster));
        found.and_then(|found| found.sla.as_ref()).ok_or_else(|| {
            let detail = format!("cluster '{cluster}' of deployment '{deployment}' has no SLA");
            Failure::not_found(detail)
        })
    }
}
