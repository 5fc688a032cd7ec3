//! The reader of clusters and services, with their short forms (documents, sections 12.2 and 12.4).

use super::{
    blueprint::refuse_name,
    blueprint_rules::rank,
    breed,
    common::{self, KeyAlias},
    fields, gateway,
    reader::{Element, Fields, Reading},
    scale, sla,
    tree::pointer_segment,
};
use crate::{
    artifact::{
        BlueprintCluster, BlueprintService, BreedReference, Gateway, Traits, is_general_name, value,
    },
    problem::{Problem, ProblemKind},
};
use indexmap::IndexMap;

/// A cluster in any of its forms.
pub(super) fn cluster(element: &Element<'_>, reading: &mut Reading) -> Option<BlueprintCluster> {
    let services_pointer = format!("{}/services", element.canonical);
    if element.plain_text().is_some() || element.is_list() {
        let services = services(element, &services_pointer, reading);
        return Some(BlueprintCluster { services, ..BlueprintCluster::default() });
    }
    if !element.is_map() {
        reading.wrong_type(element, "a breed, a list of services or a cluster");
        return None;
    }
    let mut fields = Fields::open(element, reading)?;
    if fields.has_key("services") {
        return Some(full_cluster(fields, &services_pointer, reading));
    }
    let mut service_fields = fields.split_off(&["sla", "gateways"]);
    service_fields.stand_for(format!("{services_pointer}/0"), reading);
    let services: Vec<_> = service(service_fields, reading).into_iter().collect();
    let sla = fields.take("sla", reading).and_then(|sla| sla::sla_reference(&sla, reading));
    let gateways = internal_gateways(&mut fields, &services, reading);
    fields.close(reading);
    Some(BlueprintCluster { services, gateways, sla, ..BlueprintCluster::default() })
}

fn full_cluster(
    mut fields: Fields<'_>,
    services_pointer: &str,
    reading: &mut Reading,
) -> BlueprintCluster {
    let services = match fields.take("services", reading) {
        Some(element) => services(&element, services_pointer, reading),
        None => Vec::new(),
    };
    fields.ignore(&["kind"], reading);
    let sla = fields.take("sla", reading).and_then(|sla| sla::sla_reference(&sla, reading));
    let metadata = fields.metadata(reading);
    let gateways = internal_gateways(&mut fields, &services, reading);
    let health_checks = common::health_checks(&mut fields, rank::HEALTH_CHECKS, reading);
    let network = common::network(&mut fields, reading);
    let dialects = common::dialects(&mut fields, reading);
    fields.close(reading);
    BlueprintCluster { metadata, services, gateways, sla, health_checks, network, dialects }
}

/// Services: a breed, one service, or a list of both.
fn services(
    element: &Element<'_>,
    canonical: &str,
    reading: &mut Reading,
) -> Vec<BlueprintService> {
    let elements = match element.items(reading) {
        Some(items) => items,
        None => vec![element.clone()],
    };
    let mut services = Vec::with_capacity(elements.len());
    for (index, element) in elements.into_iter().enumerate() {
        let element = element.standing_for(format!("{canonical}/{index}"), reading);
        if element.plain_text().is_some() {
            let breed_pointer = format!("{}/breed", element.canonical);
            let element = element.standing_for(breed_pointer, reading);
            services.extend(
                breed::breed_reference(&element, reading).map(BlueprintService::from_breed),
            );
        } else if element.is_map() {
            services.extend(
                Fields::open(&element, reading).and_then(|fields| service(fields, reading)),
            );
        } else {
            reading.wrong_type(&element, "a breed or a service");
        }
    }
    services
}

fn service(mut fields: Fields<'_>, reading: &mut Reading) -> Option<BlueprintService> {
    let breed_pointer = format!("{}/breed", fields.element().canonical);
    let is_reference = fields.has("ref") || fields.has("reference");
    if !fields.has("breed") && !is_reference && (fields.has("name") || fields.has("deployable")) {
        fields.stand_for(breed_pointer, reading);
        let breed = breed::breed(fields, breed::Position::Nested, reading)?;
        return Some(BlueprintService::from_breed(BreedReference::Inline(Box::new(breed))));
    }
    let breed = if !fields.has("breed") && is_reference {
        fields::referred(&mut fields, is_general_name, reading).map(|(name, target)| {
            target.standing_for(breed_pointer, reading);
            BreedReference::Reference(name)
        })
    } else {
        fields
            .require("breed", reading)
            .and_then(|element| breed::breed_reference(&element, reading))
    };
    fields.ignore(&["kind", "health"], reading);
    let is_deployed = reading.is_deployment && deployed_parts(&mut fields, reading);
    let mut environment_variables =
        common::environment_variables(&mut fields, KeyAlias::Dropped, reading);
    if is_deployed {
        make_raw(&mut environment_variables);
    }
    let scale =
        fields.take("scale", reading).and_then(|scale| scale::scale_reference(&scale, reading));
    let arguments = fields.take("arguments", reading);
    let arguments = common::arguments(arguments, reading);
    let health_checks = common::health_checks(&mut fields, rank::HEALTH_CHECKS, reading);
    let network = common::network(&mut fields, reading);
    let dialects = common::dialects(&mut fields, reading);
    fields.close(reading);
    Some(BlueprintService {
        breed: breed?,
        environment_variables,
        scale,
        arguments,
        health_checks,
        network,
        dialects,
    })
}

impl BlueprintService {
    fn from_breed(breed: BreedReference) -> Self {
        Self {
            breed,
            environment_variables: Traits::new(),
            scale: None,
            arguments: Vec::new(),
            health_checks: None,
            network: None,
            dialects: serde_json::Map::new(),
        }
    }
}

/// Takes what only a deployed service has; whether this is one.
fn deployed_parts(fields: &mut Fields<'_>, reading: &mut Reading) -> bool {
    fields.ignore(&["instances", "dependencies"], reading);
    let Some(status) = fields.take("status", reading) else { return false };
    reading.is_printed = true;
    check_status(&status, reading);
    true
}

fn check_status(status: &Element<'_>, reading: &mut Reading) {
    let Some(mut fields) = inner_map(status, reading) else { return };
    if let Some(intention) = fields.take("intention", reading)
        && !matches!(intention.plain_text(), Some("Deployment" | "Undeployment"))
    {
        let problem = intention.problem(
            ProblemKind::UndefinedStateIntention,
            "an intention of this name is not known",
        );
        reading.refuse(problem.hint("write Deployment or Undeployment"));
    }
    let Some(phase) = fields.take("phase", reading) else { return };
    let Some(mut fields) = inner_map(&phase, reading) else { return };
    if let Some(name) = fields.take("name", reading)
        && !matches!(name.plain_text(), Some("Initiated" | "Updating" | "Done" | "Failed"))
    {
        let problem =
            name.problem(ProblemKind::UndefinedStateStep, "a phase of this name is not known");
        reading.refuse(problem.hint("write Initiated, Updating, Done or Failed"));
    }
}

/// A map on the way to a nested field.
pub(super) fn inner_map<'n>(element: &Element<'n>, reading: &mut Reading) -> Option<Fields<'n>> {
    if element.is_map() {
        return Fields::open(element, reading);
    }
    let path = element.pointer.trim_start_matches('/');
    let detail = format!("'{path}' is a map here, found {}", element.node.describe());
    let problem = element.problem(ProblemKind::UnexpectedInnerElement, detail);
    reading.refuse(problem.hint("write a map"));
    None
}

/// The variables of a deployed service are printed interpolated, and null before that: what cannot have been written
/// by a user is made so that it means the same when it is read again.
fn make_raw(variables: &mut Traits) {
    variables.retain(|_, value| value.is_some());
    for value in variables.values_mut().flatten() {
        if value::parse(value).is_err() {
            *value = value.replace('$', "$$");
        }
    }
}

fn internal_gateways(
    fields: &mut Fields<'_>,
    services: &[BlueprintService],
    reading: &mut Reading,
) -> IndexMap<String, Gateway> {
    let mut gateways = IndexMap::new();
    let Some(element) = fields.take("gateways", reading) else { return gateways };
    let Some(gateway_fields) = Fields::open(&element, reading) else { return gateways };
    let is_anonymous = gateway_fields.has_key("routes") || gateway_fields.has_key("sticky");
    let entries = if is_anonymous {
        vec![(String::new(), element.clone())]
    } else {
        let entries = element.entries(reading).unwrap_or_default();
        entries.into_iter().map(|(key, element)| (key.text.clone(), element)).collect()
    };
    for (port, entry) in entries {
        let port = if port.is_empty() {
            BlueprintService::only_port(services).map(str::to_owned).unwrap_or_default()
        } else {
            port
        };
        if entry.is_null() {
            let detail = format!("'{}' is required", entry.pointer.trim_start_matches('/'));
            let problem = Problem::new(ProblemKind::MissingPathValue, &*entry.pointer, detail);
            let problem = problem.at(Some(entry.place));
            reading.refuse(problem.hint("write the gateway, such as {routes: {BREED: {}}}"));
            continue;
        }
        let canonical = format!("{}/{}", element.canonical, pointer_segment(&port));
        let entry = entry.standing_for(canonical, reading);
        let Some(mut fields) = Fields::open(&entry, reading) else { continue };
        refuse_name(&mut fields, reading);
        gateways.insert(port, gateway::body(fields, reading));
    }
    gateways
}
