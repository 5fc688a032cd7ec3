//! The example of most tests: deployment `shop` with cluster `web`, whose versions are processes.

use crate::service::{Api, program};
use crate::wait::{LIMIT, wait_until};
use serde_json::{Map, Value, json};

/// The deployment.
pub const SHOP: &str = "/api/v1/deployments/shop";
/// The internal gateway of its cluster.
pub const GATEWAY: &str = "/api/v1/gateways/shop/web/http";

/// The command line of the example service.
pub fn command(version: &str) -> String {
    format!("'{}' example-service --host 127.0.0.1 --version-name {version}", program().display())
}

/// The breed `web:<version>`.
pub fn breed(version: &str) -> Value {
    process(&format!("web:{version}"), &command(version))
}

/// A breed that runs a command line, with one port.
pub fn process(name: &str, command: &str) -> Value {
    json!({"name": name, "deployable": {"type": "process", "definition": command}, "ports": {"http": "8080/http"}})
}

/// A scale.
pub fn scale(instances: u32) -> Value {
    json!({"cpu": 0.1, "memory": "32.00MB", "instances": instances})
}

/// A blueprint with these breeds in cluster `web`.
pub fn blueprint(name: &str, breeds: &[Value], instances: u32) -> Value {
    let service = |breed: &Value| json!({"breed": breed, "scale": scale(instances)});
    let services: Vec<Value> = breeds.iter().map(service).collect();
    json!({"name": name, "clusters": {"web": {"services": services}}})
}

/// A body to merge into the shop.
pub fn version(version: &str, instances: u32) -> Value {
    blueprint("shop", &[breed(version)], instances)
}

/// The body of a DELETE that names one version.
pub fn removal(version: &str) -> Value {
    json!({"name": "shop", "clusters": {"web": {"services": [{"breed": {"ref": format!("web:{version}")}}]}}})
}

/// A gateway in front of the shop.
pub fn edge(name: &str, port: u16) -> Value {
    json!({"name": name, "port": port, "routes": {"shop/web/http": {"weight": "100%"}}})
}

/// Where the scale of a version is.
pub fn scale_path(version: &str) -> String {
    format!("{SHOP}/clusters/web/services/web:{version}/scale")
}

/// A gateway document with other weights; everything else stays as it was read.
#[track_caller]
pub fn with_weights(gateway: &Value, weights: &[(&str, u8)]) -> Value {
    let mut changed = gateway.clone();
    for (version, weight) in weights {
        let route = route(version);
        let known = changed["routes"].as_object().is_some_and(|routes| routes.contains_key(&route));
        assert!(known, "there is no route {route}: {gateway:#}");
        changed["routes"][route]["weight"] = format!("{weight}%").into();
    }
    changed
}

/// The weights of a gateway by route, in order.
pub fn weights(gateway: &Value) -> Vec<(String, String)> {
    let routes = gateway["routes"].as_object().cloned().unwrap_or_else(Map::new);
    let weight = |route: &Value| route["weight"].as_str().unwrap_or("none").to_owned();
    routes.iter().map(|(path, route)| (path.clone(), weight(route))).collect()
}

/// The path of the route to a version.
pub fn route(version: &str) -> String {
    format!("shop/web/web:{version}/http")
}

/// The service of a breed, wherever it is in a deployment.
pub fn service<'a>(deployment: &'a Value, breed: &str) -> Option<&'a Value> {
    let clusters = deployment["clusters"].as_object()?;
    let services = clusters.values().filter_map(|cluster| cluster["services"].as_array()).flatten();
    services.into_iter().find(|service| service["breed"]["name"] == breed)
}

/// The names of a service's instances, sorted.
pub fn instances(service: &Value) -> Vec<String> {
    let instances = service["instances"].as_array().into_iter().flatten();
    let mut names: Vec<String> =
        instances.filter_map(|instance| Some(instance["name"].as_str()?.to_owned())).collect();
    names.sort();
    names
}

/// Waits until the service of `breed` is Done with `instances` deployed instances; gives the service.
#[track_caller]
pub fn wait_done(api: &Api, deployment: &str, breed: &str, instances: usize) -> Value {
    wait_service(api, deployment, breed, |service| {
        let found = service["instances"].as_array().into_iter().flatten();
        let deployed = found.filter(|instance| instance["deployed"] == true).count();
        let done = service["status"]["phase"]["name"] == "Done";
        done && service["status"]["intention"] == "Deployment" && deployed == instances
    })
}

/// Waits until the service of `breed` is as `fits` says; gives the service.
#[track_caller]
pub fn wait_service(
    api: &Api,
    deployment: &str,
    breed: &str,
    fits: impl Fn(&Value) -> bool,
) -> Value {
    wait_until(&format!("{breed} of {deployment} is as expected"), LIMIT, || {
        let answer = api.get(&format!("/api/v1/deployments/{deployment}"));
        let found = service(&answer.body, breed).filter(|service| fits(service)).cloned();
        found.ok_or_else(|| {
            let status = service(&answer.body, breed)
                .map(|service| format!("{} {}", service["status"], service["instances"]));
            status.unwrap_or_else(|| format!("{} {}", answer.status, answer.body))
        })
    })
}

/// Waits until nothing of `breed` is left in the deployment.
#[track_caller]
pub fn wait_gone(api: &Api, deployment: &str, breed: &str) {
    wait_until(&format!("{breed} of {deployment} is gone"), LIMIT, || {
        let answer = api.get(&format!("/api/v1/deployments/{deployment}"));
        match service(&answer.body, breed) {
            None => Ok(()),
            Some(service) => Err(format!("{} {}", service["status"], service["instances"])),
        }
    });
}

/// Waits until the gateway takes traffic; says at which port.
#[track_caller]
pub fn wait_gateway(api: &Api, name: &str) -> u16 {
    wait_until(&format!("gateway {name} is deployed"), LIMIT, || {
        let answer = api.get(&format!("/api/v1/gateways/{name}"));
        let port = port(&answer.body["port"]).filter(|port| *port > 0);
        port.filter(|_| answer.body["deployed"] == true).ok_or_else(|| format!("{:?}", answer.body))
    })
}

/// A port as it is printed: `8080`, `"8080/http"`.
pub fn port(port: &Value) -> Option<u16> {
    match port {
        Value::Number(number) => number.as_u64()?.try_into().ok(),
        Value::String(text) => text.split('/').next()?.parse().ok(),
        _ => None,
    }
}
