//! The reverse proxy: to gateways and instances that Segue knows, and to nothing else (wire, section 12).
//!
//! Which address a path names is decided here; how requests travel is the business of [`forward`].

mod forward;

use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::web;
use segue_domain::artifact::{Gateway, PortType};
use segue_domain::problem::ProblemKind;
use segue_domain::state::{State, StoredGateway};

const ROOT: &str = "/proxy/";
/// Segments that the name of a gateway has at most when its slashes are not encoded.
const GATEWAY_SEGMENTS_MAX: usize = 3;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/proxy/{rest:.*}").unnegotiated().raw().unread().any(pass).done());
}

async fn pass(request: Request) -> Answer {
    let target = {
        let running = request.running()?;
        let path = request.http().uri().path().strip_prefix(ROOT).unwrap_or_default();
        let host = &running.store.rules().gateway_host;
        target(&running.store.state(), host, path)?
    };
    forward::forward(request, target).await
}

/// Where a request goes: an address, and the path that is asked for there.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    path: String,
}

/// The target that `path` names; `gateway_host` is where gateways are reached.
fn target(state: &State, gateway_host: &str, path: &str) -> Result<Target, Failure> {
    let raw: Vec<&str> = path.split('/').collect();
    let segments: Vec<String> = raw.iter().map(|segment| decoded(segment)).collect();
    let names: Vec<&str> = segments.iter().map(String::as_str).collect();
    let found = match names[..] {
        ["host", host, "port", port, ..] => {
            let port = port.parse().ok().filter(|port| is_known(state, gateway_host, host, *port));
            port.map(|port| (host.to_owned(), port, 4))
        }
        ["gateways", ..] => gateway(state, &names[1..])
            .map(|(port, used)| (gateway_host.to_owned(), port, used + 1)),
        [
            "deployments",
            deployment,
            "clusters",
            cluster,
            "services",
            service,
            "instances",
            instance,
            "ports",
            port,
            ..,
        ] => instance_address(state, [deployment, cluster, service, instance, port])
            .map(|(host, port)| (host, port, 10)),
        _ => None,
    };
    let (host, port, used) = found.ok_or_else(|| {
        let failure =
            Failure::new(ProblemKind::BadGateway, format!("nothing is known at /proxy/{path}"));
        failure.hint("name a gateway that is deployed, or an instance of a deployment")
    })?;
    Ok(Target { host, port, path: format!("/{}", raw.get(used..).unwrap_or_default().join("/")) })
}

/// The port of the http gateway that the first of `names` name, the longest name first, and how many they are.
fn gateway(state: &State, names: &[&str]) -> Option<(u16, usize)> {
    (1..=names.len().min(GATEWAY_SEGMENTS_MAX)).rev().find_map(|count| {
        let stored = state.gateways().get(&names[..count].join("/"))?;
        let gateway: &Gateway = &stored.gateway;
        let open = is_open(stored) && gateway.port.kind == PortType::Http;
        open.then_some((gateway.port.number, count))
    })
}

fn instance_address(
    state: &State,
    [deployment, cluster, service, instance, port]: [&str; 5],
) -> Option<(String, u16)> {
    let service = state.deployment(deployment)?.service(cluster, service)?;
    let instance = service.instances.iter().find(|found| found.name == instance)?;
    Some((instance.host.clone(), *instance.ports.get(port)?))
}

/// Whether an instance or a gateway has that address.
fn is_known(state: &State, gateway_host: &str, host: &str, port: u16) -> bool {
    let gateways = || {
        host == gateway_host
            && state
                .gateways()
                .values()
                .any(|stored| is_open(stored) && stored.gateway.port.number == port)
    };
    let instances = || {
        let deployments = state.deployments().values();
        deployments.flat_map(|stored| stored.artifact.services()).any(|(_, service)| {
            service.instances.iter().any(|instance| {
                instance.host == host && instance.ports.values().any(|own| *own == port)
            })
        })
    };
    port != 0 && (gateways() || instances())
}

fn is_open(stored: &StoredGateway) -> bool {
    stored.published && stored.deployed && stored.gateway.port.number != 0
}

fn decoded(segment: &str) -> String {
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned()
}
