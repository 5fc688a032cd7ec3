//! Decides the SLAs of running clusters.

use super::archive::archived;
use super::deploy::stated;
use super::{Context, Submission, Verb, check};
use crate::artifact::{ArtifactKey, ClusterSla, Kind};
use crate::dsl::{self, ClusterSlaBody};
use crate::event::Event;
use crate::problem::{Problem, ProblemKind, Problems, Result};
use crate::state::{State, resolve_sla};

/// Sets the SLA of a cluster, or takes it away. The archive says that the deployment was updated.
pub(super) fn set(
    state: &State,
    (name, cluster): (&str, &str),
    sla: Option<&ClusterSlaBody>,
    submission: &Submission,
    context: &Context,
) -> Result<Vec<Event>> {
    let missing = || {
        let detail = format!("there is no cluster '{cluster}' in deployment '{name}'");
        Problem::new(ProblemKind::NotFound, "", detail)
    };
    let mut deployment = state.deployment(name).ok_or_else(missing)?.clone();
    let found = deployment.clusters.get_mut(cluster).ok_or_else(missing)?;
    let before = found.sla.take();
    let representation = match (sla, &before) {
        (Some(_), _) => submission.representation.clone(),
        (None, Some(before)) => dsl::write_cluster_sla(before),
        (None, None) => return Ok(Vec::new()),
    };
    if let Some(body) = sla {
        let resolved = resolve_sla(state, &body.sla, "")?;
        found.sla = Some(ClusterSla { named: body.named.clone().or(resolved.named), ..resolved });
    }
    let changed = found.sla != before;
    let escalations = found.sla.as_ref().map(|sla| sla.sla.escalations.clone());
    let exists = |target: &str| check::stays(&deployment, target);
    Problems::check(dsl::unknown_targets(
        &escalations.unwrap_or_default(),
        "/escalations",
        &exists,
    ))?;
    let submission = Submission { verb: Verb::Update, representation };
    let key = ArtifactKey::new(Kind::Deployment, name);
    let fact = changed.then(|| stated(deployment));
    Ok(vec![archived(&key, &submission, fact, context)])
}

/// The SLA of a cluster after a merge: the body's when it gives one. One that says the same keeps its name.
pub(super) fn merged(old: Option<ClusterSla>, given: Option<&ClusterSla>) -> Option<ClusterSla> {
    let same = |old: &ClusterSla, given: &ClusterSla| given.named.is_none() && old.sla == given.sla;
    match (old, given) {
        (old, None) => old,
        (Some(old), Some(given)) if same(&old, given) => Some(old),
        (_, Some(given)) => Some(given.clone()),
    }
}
