//! Documents: text to document tree to typed artifacts, and back to the canonical form.
//!
//! [`documents`] turns text into trees that know the line and column of every element; the `read_` functions turn a
//! tree into an artifact and refuse what the language does not allow; the `write_` functions print artifacts so that
//! reading them again gives the same. Whether what an artifact refers to exists is not known here.

mod blueprint;
mod blueprint_rules;
mod breed;
mod breed_rules;
mod cluster;
mod common;
mod compose;
mod condition;
mod deployment;
mod event;
mod event_plain;
mod event_time;
mod expand;
mod fields;
mod gateway;
mod import;
mod import_merge;
mod parse;
mod reader;
mod representation;
mod rewrite;
mod routes;
mod scalar;
mod scale;
pub mod schema;
mod sla;
mod spelling;
mod template;
#[cfg(test)]
mod tests;
mod tree;
mod write;
mod write_deployment;
mod write_sla;

pub use blueprint::read_blueprint;
pub use breed::read_breed;
pub use common::split_alias;
pub use compose::{Composed, read_compose};
pub use condition::read_condition;
pub use deployment::{DeploymentBody, read_deployment_body, read_removal_body};
pub use event::{EventQuery, PostedEvent, read_event_query, read_posted_event};
pub use event_plain::read_plain_event;
pub use expand::{References, representation_with};
pub use gateway::read_gateway;
pub use import::import;
pub use parse::{Limits, parse};
pub(crate) use representation::printed_variables;
pub use representation::{representation, representation_as_blueprint, representation_of_written};
pub use rewrite::{read_rewrite, rewrite};
pub(crate) use routes::condition_problems;
pub use routes::{complete_weights, read_route};
pub use scale::{read_inline_scale, read_scale};
pub(crate) use sla::unknown_targets;
pub use sla::{ClusterSlaBody, read_cluster_sla, read_escalation, read_sla};
pub use template::read_template;
pub(crate) use tree::pointer_segment;
pub use tree::{Key, Node, Scalar, ScalarKind, Spelling, Value};
pub use write::{
    GatewayView, TargetView, write_blueprint, write_breed, write_condition, write_gateway,
    write_inline_scale, write_rewrite, write_route, write_scale, write_template,
};
pub use write_deployment::{
    DeploymentView, ExternalGatewayView, write_deployment, write_deployment_as_blueprint,
};
pub use write_sla::{write_cluster_sla, write_escalation, write_sla};

use crate::{
    artifact::Kind,
    problem::{Problem, ProblemKind, Result},
};

/// How a document is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The name in the path: fills in a missing name; another one is refused.
    pub name: Option<String>,
    /// The type of a deployable that says none (`model.default_deployable_type`).
    pub default_deployable_type: String,
    /// What old clients need and the interface forbids (`api.legacy_clients`).
    pub legacy_clients: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            default_deployable_type: "container/docker".to_owned(),
            legacy_clients: false,
        }
    }
}

/// Reads `text` with the default limits. One list of maps is as many documents as it has items.
pub fn documents(text: &str) -> Result<Vec<Node>> {
    let documents = parse(text, &Limits::default())?;
    match <[Node; 1]>::try_from(documents) {
        Ok([Node { value: Value::Sequence(items), .. }])
            if !items.is_empty()
                && items.iter().all(|item| matches!(item.value, Value::Mapping(_))) =>
        {
            Ok(items)
        }
        Ok(single) => Ok(single.into()),
        Err(documents) => Ok(documents),
    }
}

/// Reads `text`, which holds exactly one document.
pub fn document(text: &str) -> Result<Node> {
    let documents = parse(text, &Limits::default())?;
    let count = documents.len();
    match <[Node; 1]>::try_from(documents) {
        Ok([document]) => Ok(document),
        Err(documents) => {
            let detail = format!("one document is expected here, found {count}");
            let place = documents.get(1).map(|document| document.place);
            let problem = Problem::new(ProblemKind::UnexpectedType, "", detail).at(place);
            Err(problem.hint("send one document at a time").into())
        }
    }
}

/// The kind and the name that a document gives itself, as far as it does, for bodies with several kinds.
pub fn document_key(node: &Node) -> Result<(Option<Kind>, Option<String>)> {
    let Value::Mapping(entries) = &node.value else {
        let detail = format!("expected a map, found {}", node.describe());
        return Err(Problem::new(ProblemKind::UnexpectedType, "", detail)
            .at(Some(node.place))
            .into());
    };
    let scalar = |name: &str| {
        let (_, node) = entries.iter().find(|(key, _)| key.text == name)?;
        Some((node.text()?, node.place))
    };
    let name = scalar("name").map(|(name, _)| name);
    let Some((text, place)) = scalar("kind") else { return Ok((None, name)) };
    if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.singular() == text) {
        return Ok((Some(kind), name));
    }
    let problem = if LATER_KINDS.contains(&text.as_str()) {
        Problem::new(
            ProblemKind::NotSupported,
            "/kind",
            format!("this release does not support the kind '{text}' yet"),
        )
    } else {
        Problem::new(
            ProblemKind::UnexpectedArtifact,
            "/kind",
            format!("'{text}' is no kind of artifact"),
        )
    };
    Err(problem.at(Some(place)).into())
}

/// Kinds of the full language that this release does not know yet.
const LATER_KINDS: [&str; 1] = ["workflow"];
