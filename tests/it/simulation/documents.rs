//! Random documents: what users send.

use super::drivers::NONSENSE;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use segue_domain::artifact::{
    Amount, Argument, Blueprint, BlueprintCluster, BlueprintGateway, BlueprintService, Breed,
    BreedReference, Condition, Cpu, Deployable, Escalation, EscalationReference, Gateway,
    HealthCheck, Memory, Metadata, Percentage, Port, PortType, Route, RouteCondition, RoutePath,
    Scale, ScaleReference, ScaleStep, Sla, SlaCheck, SlaReference, Sticky, Traits,
};
use serde_json::json;

pub const CLUSTERS: [&str; 3] = ["front", "back", "store"];
const STAND_ALONE: [&str; 4] = ["edge", "public", "inner", "a/b/c/d"];
const CONDITIONS: [&str; 4] =
    ["User-Agent = Chrome", "has cookie beta", "Host = a.example OR has header X", "< hdr(a) b >"];

pub fn blueprint(random: &mut StdRng) -> Blueprint {
    let mut blueprint = empty_blueprint();
    let clusters: Vec<&str> = CLUSTERS.into_iter().filter(|_| random.random_bool(0.5)).collect();
    for cluster in &clusters {
        let version = random.random_range(1..4);
        let sla =
            random.random_bool(0.3).then(|| SlaReference::Inline(Box::new(sla(random, &clusters))));
        let services = vec![service(random, cluster, version)];
        let content = BlueprintCluster { services, sla, ..BlueprintCluster::default() };
        blueprint.clusters.insert((*cluster).to_owned(), content);
    }
    if let Some(cluster) = clusters.first().filter(|_| random.random_bool(0.5)) {
        let number = random.random_range(9000..9004);
        let routes = [(RoutePath::of([cluster, "http"]), Route::default())].into_iter().collect();
        let gateway = Gateway { routes, ..plain_gateway("", number) };
        blueprint.gateways.push(BlueprintGateway { key: number.to_string(), gateway });
    }
    blueprint
}

/// A gateway of its own with routes to some of `known`, and outside.
pub fn gateway(random: &mut StdRng, known: &[String]) -> Gateway {
    let name = *STAND_ALONE.choose(random).expect("there are some");
    // Most leave the port to Segue; some want one that others may have.
    let number = if random.random_bool(0.7) { 0 } else { random.random_range(9000..9005) };
    let is_tcp = random.random_bool(0.15);
    let mut gateway = plain_gateway(name, number);
    for _ in 0..random.random_range(1..4) {
        let path = if known.is_empty() || random.random_bool(0.2) {
            format!("[10.0.0.{}:80]", random.random_range(1..4))
        } else {
            known.choose(random).expect("there are some").clone()
        };
        let Some(path) = RoutePath::parse(&path) else { continue };
        let mut route = Route::default();
        if !is_tcp && random.random_bool(0.4) {
            route.condition = Some(RouteCondition::Inline(condition(random)));
            route.condition_strength = Percentage::new(random.random_range(0..=100));
        }
        gateway.routes.insert(path, route);
    }
    weigh(random, &mut gateway);
    if is_tcp {
        gateway.port = Port::new(number, PortType::Tcp);
    } else {
        gateway.sticky = *[None, Some(Sticky::Route), Some(Sticky::Instance)]
            .choose(random)
            .expect("there are some");
        if random.random_bool(0.3) {
            gateway.virtual_hosts.push(format!("{}.example", random.random_range(0..3)));
        }
    }
    gateway
}

/// All to one of the routes, or some to each.
pub fn weigh(random: &mut StdRng, gateway: &mut Gateway) {
    let count = gateway.routes.len();
    let full = random.random_range(0..count.max(1));
    let given: u8 = if count == 2 && random.random_bool(0.5) { 30 } else { 0 };
    for (index, route) in gateway.routes.values_mut().enumerate() {
        route.weight = Percentage::new(if index == full { 100 - given } else { given });
    }
}

fn condition(random: &mut StdRng) -> Condition {
    if random.random_bool(0.2) {
        return Condition::raw(NONSENSE);
    }
    let text = CONDITIONS.choose(random).expect("there are some");
    Condition::parse(text).expect("it is a condition")
}

/// What a cluster promises; steps may scale the others of `clusters`.
pub fn sla(random: &mut StdRng, clusters: &[&str]) -> Sla {
    let check = if random.random_bool(0.8) {
        SlaCheck::ResponseTimeSlidingWindow {
            upper_ms: 500,
            lower_ms: 100,
            interval_seconds: random.random_range(5..10),
            cooldown_seconds: random.random_range(0..10),
        }
    } else {
        SlaCheck::EscalationOnly
    };
    Sla { check, escalations: escalations(random, clusters, 0) }
}

fn escalations(random: &mut StdRng, clusters: &[&str], depth: u32) -> Vec<EscalationReference> {
    let target = |random: &mut StdRng| {
        clusters.choose(random).filter(|_| random.random_bool(0.3)).map(|name| (*name).to_owned())
    };
    let mut list = Vec::new();
    for _ in 0..random.random_range(1..3) {
        let target = target(random);
        let kind = random.random_range(0..if depth == 0 { 6 } else { 4 });
        list.push(EscalationReference::Inline(Box::new(match kind {
            0..3 => {
                let (minimum, scale_by) = (random.random_range(0..2), random.random_range(1..3));
                let maximum = minimum + random.random_range(1..4);
                Escalation::ScaleInstances(ScaleStep { target, minimum, maximum, scale_by })
            }
            3 => {
                let [minimum, maximum, scale_by] = [100, 300, 100].map(Amount::from_milli);
                Escalation::ScaleCpu(ScaleStep { target, minimum, maximum, scale_by })
            }
            4 => Escalation::ToOne(escalations(random, clusters, depth + 1)),
            _ => Escalation::ToAll(escalations(random, clusters, depth + 1)),
        })));
    }
    list
}

fn service(random: &mut StdRng, cluster: &str, version: u32) -> BlueprintService {
    let breed = breed(random, cluster, version);
    let scale = random.random_bool(0.7).then(|| ScaleReference::Inline(any_scale(random)));
    let delay = match random.random_range(0..20) {
        0..7 => 0,
        19 => 40,
        other => other % 3 + 1,
    };
    let mut dialects = Metadata::new();
    if delay > 0 {
        dialects.insert("simulated".to_owned(), json!({ "delay": delay }));
    }
    BlueprintService { scale, dialects, ..plain_service(BreedReference::Inline(Box::new(breed))) }
}

/// The front depends on any version of the store; definitions of one name differ now and then.
fn breed(random: &mut StdRng, cluster: &str, version: u32) -> Breed {
    let mut environment_variables = Traits::new();
    let mut dependencies = indexmap::IndexMap::new();
    if cluster == "front" && random.random_bool(0.3) {
        dependencies.insert("store".to_owned(), BreedReference::Reference("store:*".to_owned()));
        environment_variables
            .insert("STORE".to_owned(), Some("$store.host:$store.ports.http".to_owned()));
    }
    environment_variables.insert("MODE".to_owned(), Some(random.random_range(0..2).to_string()));
    let check = HealthCheck {
        path: "/".to_owned(),
        port: "http".to_owned(),
        initial_delay_seconds: 0,
        timeout_seconds: 1,
        interval_seconds: 1,
        failures: 2,
        protocol: "HTTP".to_owned(),
    };
    Breed {
        name: format!("{cluster}:{version}"),
        metadata: Metadata::new(),
        deployable: Deployable {
            kind: "container/docker".to_owned(),
            definition: format!("{cluster}:{version}"),
        },
        ports: [("http".to_owned(), Port::new(8080, PortType::Http))].into_iter().collect(),
        environment_variables,
        constants: Traits::new(),
        arguments: Vec::<Argument>::new(),
        dependencies,
        health_checks: random.random_bool(0.3).then(|| vec![check]),
    }
}

pub fn any_scale(random: &mut StdRng) -> Scale {
    Scale {
        cpu: Cpu::from_milli(random.random_range(1..3) * 100),
        memory: Memory::from_megabytes(64),
        instances: random.random_range(0..4),
    }
}

pub fn empty_blueprint() -> Blueprint {
    Blueprint {
        name: String::new(),
        metadata: Metadata::new(),
        gateways: Vec::new(),
        clusters: indexmap::IndexMap::new(),
        environment_variables: Traits::new(),
        dialects: Metadata::new(),
    }
}

pub fn plain_service(breed: BreedReference) -> BlueprintService {
    BlueprintService {
        breed,
        environment_variables: Traits::new(),
        scale: None,
        arguments: Vec::new(),
        health_checks: None,
        network: None,
        dialects: Metadata::new(),
    }
}

fn plain_gateway(name: &str, number: u16) -> Gateway {
    Gateway {
        name: name.to_owned(),
        metadata: Metadata::new(),
        port: Port::new(number, PortType::Http),
        sticky: None,
        virtual_hosts: Vec::new(),
        routes: indexmap::IndexMap::new(),
    }
}
