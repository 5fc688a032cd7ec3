//! The reader of blueprints (documents, section 12): the top level and the external entry points.

use super::{
    Options, blueprint_rules,
    blueprint_rules::Scope,
    cluster,
    common::{self, KeyAlias},
    fields, gateway,
    reader::{Element, Fields, Reading},
    tree::{Node, pointer_segment},
};
use crate::{
    artifact::{
        Blueprint, BlueprintCluster, BlueprintGateway, Gateway, Kind, Route, RoutePath,
        is_general_name,
    },
    problem::{Problem, ProblemKind, Result},
};
use indexmap::IndexMap;

/// Reads a stored blueprint.
pub fn read_blueprint(node: &Node, options: &Options) -> Result<Blueprint> {
    let mut reading = Reading::new(options);
    let blueprint = Fields::open(&Element::root(node), &mut reading).and_then(|mut fields| {
        let name = fields.name(&mut reading);
        let name = name.filter(|(name, element)| fields::general_name(element, name, &mut reading));
        let metadata = fields.top(&[Kind::Blueprint], &mut reading);
        let blueprint = body(fields, Scope::Stored, &mut reading);
        Some(Blueprint { name: name?.0, metadata, ..blueprint })
    });
    reading.finish(blueprint)
}

/// All of a blueprint but its name and metadata, with the rules.
pub(super) fn body(mut fields: Fields<'_>, scope: Scope, reading: &mut Reading) -> Blueprint {
    let rules_begin = reading.rules_begin();
    let clusters = clusters(&mut fields, reading);
    let gateways = gateways(&mut fields, reading);
    let environment_variables =
        common::environment_variables(&mut fields, KeyAlias::Dropped, reading);
    let dialects = common::dialects(&mut fields, reading);
    fields.close(reading);
    let mut blueprint = Blueprint {
        name: String::new(),
        metadata: serde_json::Map::new(),
        gateways,
        clusters,
        environment_variables,
        dialects,
    };
    if reading.is_printed {
        // A deployment keeps variables of services that are gone; a client may send back what it read.
        let mut variables = std::mem::take(&mut blueprint.environment_variables);
        let clusters = blueprint_rules::declarations(&blueprint);
        variables.retain(|key, _| blueprint_rules::unresolved_variable(&clusters, key).is_none());
        blueprint.environment_variables = variables;
    }
    reading.settle_rules(rules_begin, blueprint_rules::broken(&blueprint, scope), false);
    blueprint
}

fn clusters(fields: &mut Fields<'_>, reading: &mut Reading) -> IndexMap<String, BlueprintCluster> {
    let mut clusters = IndexMap::new();
    let Some(element) = fields.take("clusters", reading) else { return clusters };
    let Some(entries) = element.entries(reading) else {
        reading.wrong_type(&element, "a map from cluster name to cluster");
        return clusters;
    };
    for (key, element) in entries.into_iter().filter(|(_, element)| !element.is_null()) {
        if !is_general_name(&key.text) {
            let detail = format!("'{}' is no name of a cluster", key.text);
            let problem = element.problem(ProblemKind::IllegalName, detail).at(Some(key.place));
            reading.refuse(
                problem
                    .hint("a name has one or more characters and no white space, '/', '[' or ']'"),
            );
        }
        if let Some(cluster) = cluster::cluster(&element, reading) {
            clusters.insert(key.text.clone(), cluster);
        }
    }
    clusters
}

/// `gateways`, or `endpoints` when there are none.
fn gateways(fields: &mut Fields<'_>, reading: &mut Reading) -> Vec<BlueprintGateway> {
    let gateways = fields.take("gateways", reading);
    let canonical = format!("{}/gateways", fields.element().canonical);
    let endpoints = fields.take("endpoints", reading);
    let endpoints = endpoints.map(|endpoints| self::endpoints(&endpoints, &canonical, reading));
    let Some(element) = gateways else { return endpoints.unwrap_or_default() };
    let Some(entries) = element.entries(reading) else {
        reading.wrong_type(&element, "a map from port to gateway");
        return Vec::new();
    };
    let mut gateways: Vec<BlueprintGateway> = Vec::with_capacity(entries.len());
    for (key, element) in entries {
        let Some(gateway) = external_gateway(&key.text, element.clone(), reading) else { continue };
        if gateways.iter().any(|other| other.key == gateway.key) {
            let detail = format!("two gateways have the key '{}'", gateway.key);
            let problem = element.problem(ProblemKind::DuplicateGatewayPort, detail);
            reading.refuse(problem.at(Some(element.place)).hint("choose another port"));
        }
        gateways.push(gateway);
    }
    gateways
}

fn external_gateway(
    key: &str,
    element: Element<'_>,
    reading: &mut Reading,
) -> Option<BlueprintGateway> {
    if element.is_null() {
        let detail = format!("'{}' is required", element.pointer.trim_start_matches('/'));
        let problem = Problem::new(ProblemKind::MissingPathValue, &*element.pointer, detail);
        reading
            .refuse(problem.at(Some(element.place)).hint("write the route, such as cluster/port"));
        return None;
    }
    let output_key = key_number(key).map_or_else(|| key.to_owned(), |number| number.to_string());
    let canonical = element
        .canonical
        .rsplit_once('/')
        .map(|(parent, _)| format!("{parent}/{}", pointer_segment(&output_key)))?;
    let element = element.standing_for(canonical, reading);
    let of_key = |reading: &mut Reading| {
        fields::port(&element, key, ProblemKind::InvalidGatewayPort, reading)
    };
    let (port, gateway) = if element.plain_text().is_some() {
        (of_key(reading), gateway::of_text(element.clone(), reading))
    } else if element.is_map() {
        let mut fields = Fields::open(&element, reading)?;
        refuse_name(&mut fields, reading);
        let port = match fields.take("port", reading) {
            Some(port) => gateway::port(&port, reading),
            None => of_key(reading),
        };
        (port, gateway::body(fields, reading))
    } else {
        reading.wrong_type(&element, "a route such as cluster/port, or a gateway");
        return None;
    };
    let port = port?;
    refuse_key(&output_key, &element, reading);
    Some(BlueprintGateway { key: output_key, gateway: Gateway { port, ..gateway } })
}

/// Refuses a key that cannot be the second segment of a gateway's name.
fn refuse_key(output_key: &str, element: &Element<'_>, reading: &mut Reading) {
    if is_general_name(output_key) {
        return;
    }
    let detail = format!("'{output_key}' is no name of an entry");
    let problem = element.problem(ProblemKind::UnsupportedGatewayName, detail);
    reading.refuse(problem.at(Some(element.place)).hint(
        "write a port, or a name without white space, '/', '[' and ']' with 'port' below it",
    ));
}

/// Refuses the name of a gateway inside a blueprint.
pub(super) fn refuse_name(fields: &mut Fields<'_>, reading: &mut Reading) {
    if let Some(name) = fields.take("name", reading) {
        let problem =
            name.problem(ProblemKind::NotAnonymous, "a gateway inside a blueprint has no name");
        reading
            .refuse(problem.hint("leave the name out; the gateway is named after its deployment"));
    }
}

/// The port number that the key of a gateway holds.
fn key_number(key: &str) -> Option<u16> {
    let digits = match key.rsplit_once('/') {
        Some((digits, suffix))
            if suffix.eq_ignore_ascii_case("http") || suffix.eq_ignore_ascii_case("tcp") =>
        {
            digits
        }
        Some(_) => return None,
        None => key,
    };
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The short form of gateways: `cluster.port` to port; entries with the same port form one gateway.
fn endpoints(
    element: &Element<'_>,
    canonical: &str,
    reading: &mut Reading,
) -> Vec<BlueprintGateway> {
    let mut gateways: Vec<BlueprintGateway> = Vec::new();
    let Some(entries) = element.entries(reading) else {
        reading.wrong_type(element, "a map from cluster.port to port");
        return gateways;
    };
    for (key, element) in entries {
        let path = key
            .text
            .split_once('.')
            .and_then(|(cluster, port)| RoutePath::parse(&format!("{cluster}/{port}")));
        let Some(path) = path else {
            let detail = format!("the key '{}' is not of the form cluster.port", key.text);
            let problem = element.problem(ProblemKind::UnexpectedType, detail).at(Some(key.place));
            reading.refuse(problem.hint("write CLUSTER.PORT: 8080"));
            continue;
        };
        let Some(port) = gateway::port(&element, reading) else { continue };
        let output_key =
            key_number(&port.text).map_or_else(|| port.text.clone(), |number| number.to_string());
        refuse_key(&output_key, &element, reading);
        let gateway_pointer = format!("{canonical}/{}", pointer_segment(&output_key));
        let route_pointer = format!("{gateway_pointer}/routes/{}", pointer_segment(path.as_str()));
        element.standing_for(gateway_pointer, reading).standing_for(route_pointer, reading);
        if let Some(same) = gateways.iter_mut().find(|gateway| gateway.key == output_key) {
            same.gateway.routes.insert(path, Route::default());
        } else {
            let routes = [(path, Route::default())].into_iter().collect();
            gateways.push(BlueprintGateway {
                key: output_key,
                gateway: Gateway { port, ..gateway::of_routes(routes) },
            });
        }
    }
    gateways
}
