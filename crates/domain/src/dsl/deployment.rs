//! The reader of deployment bodies (documents, section 13.1): a blueprint, a reference to one, or a deployment as it
//! is printed.

use super::{
    Options, blueprint,
    blueprint_rules::Scope,
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    artifact::{Blueprint, Kind},
    problem::Result,
};

/// What a user wants to be deployed, merged or taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentBody {
    /// The content itself. The name is empty when the body has none and the options neither.
    Blueprint(Box<Blueprint>),
    /// The name of a stored blueprint.
    Reference(String),
}

/// Reads the body of a deployment. What Segue itself sets - status, instances, ports, hosts, health - is ignored.
pub fn read_deployment_body(node: &Node, options: &Options) -> Result<DeploymentBody> {
    read(node, Scope::Deployment, options)
}

/// Reads what is to be taken away from a deployment: a part of what was printed is enough, of which the names of clusters
/// and breeds count (interface, 4.3).
pub fn read_removal_body(node: &Node, options: &Options) -> Result<DeploymentBody> {
    read(node, Scope::Removal, options)
}

fn read(node: &Node, scope: Scope, options: &Options) -> Result<DeploymentBody> {
    let mut reading = Reading::new(options);
    reading.is_deployment = true;
    let body = body(&Element::root(node), scope, &mut reading);
    reading.finish(body)
}

fn body(element: &Element<'_>, scope: Scope, reading: &mut Reading) -> Option<DeploymentBody> {
    if let Reference::To(name) = fields::reference(element, &["kind"], reading) {
        return name.map(DeploymentBody::Reference);
    }
    let mut fields = Fields::open(element, reading)?;
    if fields.has("name") && fields.len() == 1 + usize::from(fields.has("kind")) {
        return by_name(fields, reading);
    }
    let is_named = fields.has("name") || reading.options.name.is_some();
    let name = if is_named { fields.name(reading) } else { None };
    let is_legal =
        name.as_ref().is_none_or(|(name, element)| fields::general_name(element, name, reading));
    let metadata = fields.top(&[Kind::Blueprint, Kind::Deployment], reading);
    fields.ignore(&["lookup_name", "ports", "hosts"], reading);
    let blueprint = blueprint::body(fields, scope, reading);
    let name = name.map(|(name, _)| name).unwrap_or_default();
    is_legal.then(|| DeploymentBody::Blueprint(Box::new(Blueprint { name, metadata, ..blueprint })))
}

/// `{name: x}` alone means the stored blueprint `x`.
fn by_name(mut fields: Fields<'_>, reading: &mut Reading) -> Option<DeploymentBody> {
    fields.kind(&[Kind::Blueprint, Kind::Deployment], reading);
    let element = fields.require("name", reading)?;
    fields.close(reading);
    let name = fields::text(&element, reading)?;
    fields::general_name(&element, &name, reading).then_some(DeploymentBody::Reference(name))
}
