//! The example application of the demo and the benches: its documents, and waiting for it.

use crate::api::Api;
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

/// The internal gateway of the example's cluster.
pub const INTERNAL_GATEWAY: &str = "shop/web/http";
/// How long instances and gateways may take to come up or to go.
const CHANGE_TIME_MAX: Duration = Duration::from_mins(2);

/// What the instances are made from.
#[derive(Clone, Debug)]
pub enum Runtime {
    /// The `segue` program's own example service.
    Process(PathBuf),
    /// The local images `segue-example:<version>`.
    Docker,
}

/// The breed `web:<version>`.
pub fn breed(runtime: &Runtime, version: u32) -> Result<Value> {
    let deployable = match runtime {
        Runtime::Process(program) => {
            let program = program.to_str().context("the program's path is not UTF-8")?;
            let words = [program, "example-service", "--version-name", &version.to_string()];
            let line = shlex::try_join(words).context("the program's path cannot be quoted")?;
            json!({"type": "process", "definition": line})
        }
        Runtime::Docker => {
            json!({"type": "docker", "definition": format!("segue-example:{version}")})
        }
    };
    Ok(
        json!({"name": breed_name(version), "deployable": deployable, "ports": {"http": "8080/http"}}),
    )
}

/// A blueprint, or a body to merge, with the services of `versions` in one cluster.
pub fn blueprint(name: &str, runtime: &Runtime, versions: &[u32], instances: u32) -> Result<Value> {
    let scale = json!({"cpu": 0.1, "memory": "32MB", "instances": instances});
    let services: Result<Vec<Value>> = versions
        .iter()
        .map(|version| Ok(json!({"breed": breed(runtime, *version)?, "scale": scale})))
        .collect();
    Ok(json!({"name": name, "clusters": {"web": {"services": services?}}}))
}

/// The body of a delete that names one version of the shop.
pub fn removal(version: u32) -> Value {
    removal_from("shop", version)
}

/// The body of a delete that names one version.
pub fn removal_from(deployment: &str, version: u32) -> Value {
    json!({"name": deployment, "clusters": {"web": {"services": [{"breed": {"ref": breed_name(version)}}]}}})
}

/// A gateway document with other weights for the versions' routes; everything else stays as it was read.
pub fn with_weights(gateway: &Value, weights: &[(u32, u8)]) -> Result<Value> {
    weights.iter().try_fold(gateway.clone(), |gateway, (version, weight)| {
        with_route_field(&gateway, *version, "weight", format!("{weight}%").into())
    })
}

/// A gateway document with another field of one version's route; everything else stays as it was read.
fn with_route_field(gateway: &Value, version: u32, field: &str, value: Value) -> Result<Value> {
    let mut changed = gateway.clone();
    let route = route_name(version);
    let fields = changed["routes"].get_mut(&route).and_then(Value::as_object_mut);
    let fields = fields.with_context(|| format!("the gateway has no route {route}: {gateway}"))?;
    fields.insert(field.to_owned(), value);
    Ok(changed)
}

/// The weight of the route to `version`, as the service prints it.
pub fn weight(gateway: &Value, version: u32) -> Option<&str> {
    gateway["routes"][route_name(version)]["weight"].as_str()
}

/// A gateway document with a condition by which all requests that match go to one version.
pub fn with_condition(gateway: &Value, version: u32, condition: &str) -> Result<Value> {
    let changed = with_route_field(gateway, version, "condition", condition.into())?;
    // What was read has no strength for a route without condition.
    with_route_field(&changed, version, "condition_strength", "100%".into())
}

/// Waits until the service of each version is `Done`, with as many deployed instances as wanted.
pub fn wait_done(
    api: &Api,
    progress: &Progress,
    deployment: &str,
    versions: &[u32],
    instances: usize,
) -> Result<()> {
    let names: Vec<String> = versions.iter().map(|version| breed_name(*version)).collect();
    let what =
        format!("{deployment}: {} with {instances} instance(s) is Done", names.join(" and "));
    progress.wait(&what, CHANGE_TIME_MAX, || {
        let document = api.get(&format!("/api/v1/deployments/{deployment}"))?;
        let mut open = Vec::new();
        for name in &names {
            let service =
                service(&document, name).with_context(|| format!("{name} is not in {document}"))?;
            let phase = &service["status"]["phase"];
            let phase_name = phase["name"].as_str().unwrap_or("without phase");
            if phase_name == "Failed" {
                bail!("{name} Failed: {}", phase["notification"]);
            }
            let deployed =
                instances_of(service).filter(|instance| instance["deployed"] == true).count();
            if phase_name != "Done" || deployed != instances {
                open.push(format!("{name} is {phase_name}, {deployed} of {instances} run"));
            }
        }
        Ok(if open.is_empty() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(open.join(", "))
        })
    })
}

/// Waits until the deployment's `version` is gone.
pub fn wait_gone(api: &Api, progress: &Progress, version: u32) -> Result<()> {
    let name = breed_name(version);
    progress.wait(&format!("{name} is gone"), CHANGE_TIME_MAX, || {
        let document = api.get("/api/v1/deployments/shop")?;
        Ok(match service(&document, &name) {
            None => ControlFlow::Break(()),
            Some(service) => {
                let phase = service["status"]["phase"]["name"].as_str().unwrap_or("there");
                ControlFlow::Continue(format!(
                    "it is {phase}, {} run",
                    instances_of(service).count()
                ))
            }
        })
    })
}

/// Waits until the deployment is gone.
pub fn wait_deployment_gone(api: &Api, progress: &Progress, deployment: &str) -> Result<()> {
    progress.wait(&format!("{deployment} is gone"), CHANGE_TIME_MAX, || {
        Ok(match api.find(&format!("/api/v1/deployments/{deployment}"))? {
            None => ControlFlow::Break(()),
            Some(_) => ControlFlow::Continue("it is there".into()),
        })
    })
}

/// Waits until the gateway is deployed, and says at which port of this host it listens.
pub fn wait_gateway(api: &Api, progress: &Progress, name: &str) -> Result<u16> {
    progress.wait(&format!("gateway {name} is deployed"), CHANGE_TIME_MAX, || {
        let Some(gateway) = api.find(&format!("/api/v1/gateways/{name}"))? else {
            return Ok(ControlFlow::Continue("it is not listed".into()));
        };
        let port = port_number(&gateway["port"]).filter(|port| *port > 0);
        Ok(match (port, gateway["deployed"].as_bool()) {
            (Some(port), Some(true)) => ControlFlow::Break(port),
            _ => ControlFlow::Continue(format!(
                "port {}, deployed {}",
                gateway["port"], gateway["deployed"]
            )),
        })
    })
}

/// The addresses of all instances of a deployment.
pub fn addresses(api: &Api, deployment: &str) -> Result<Vec<String>> {
    let document = api.get(&format!("/api/v1/deployments/{deployment}"))?;
    addresses_in(services(&document).flat_map(instances_of))
        .with_context(|| format!("{deployment} has no instances with addresses: {document}"))
}

/// The addresses of all instances of one version.
pub fn addresses_of(api: &Api, deployment: &str, version: u32) -> Result<Vec<String>> {
    let document = api.get(&format!("/api/v1/deployments/{deployment}"))?;
    let service = service(&document, &breed_name(version));
    addresses_in(service.into_iter().flat_map(instances_of))
        .with_context(|| format!("version {version} has no instances with addresses: {document}"))
}

/// The names of all instances of a deployment.
pub fn instance_names(api: &Api, deployment: &str) -> Result<BTreeSet<String>> {
    let document = api.get(&format!("/api/v1/deployments/{deployment}"))?;
    let names =
        services(&document).flat_map(instances_of).map(|instance| instance["name"].as_str());
    let names: Option<BTreeSet<String>> = names.map(|name| name.map(str::to_owned)).collect();
    names.with_context(|| format!("an instance has no name: {document}"))
}

fn addresses_in<'a>(instances: impl Iterator<Item = &'a Value>) -> Option<Vec<String>> {
    let address = |instance: &Value| {
        let port = port_number(&instance["ports"]["http"])?;
        Some(format!("{}:{port}", instance["host"].as_str()?))
    };
    let found: Option<Vec<String>> = instances.map(address).collect();
    found.filter(|found| !found.is_empty())
}

fn breed_name(version: u32) -> String {
    format!("web:{version}")
}

fn route_name(version: u32) -> String {
    format!("shop/web/{}/http", breed_name(version))
}

fn service<'a>(deployment: &'a Value, breed: &str) -> Option<&'a Value> {
    services(deployment).find(|service| service["breed"]["name"] == breed)
}

fn services(deployment: &Value) -> impl Iterator<Item = &Value> {
    deployment["clusters"]["web"]["services"].as_array().into_iter().flatten()
}

fn instances_of(service: &Value) -> impl Iterator<Item = &Value> {
    service["instances"].as_array().into_iter().flatten()
}

/// A port is printed as a number or as text with its type: `8080`, `"8080/http"`.
fn port_number(port: &Value) -> Option<u16> {
    match port {
        Value::Number(number) => number.as_u64().and_then(|number| number.try_into().ok()),
        Value::String(text) => text.split('/').next()?.parse().ok(),
        _ => None,
    }
}

/// A gateway that leads to the example's cluster.
pub fn edge(name: &str, port: u16) -> Value {
    let routes: Map<String, Value> =
        [(INTERNAL_GATEWAY.to_owned(), json!({"weight": "100%"}))].into_iter().collect();
    json!({"name": name, "port": port, "routes": routes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_blank_in_its_path_stays_one_word() {
        let breed = breed(&Runtime::Process("/opt/my segue".into()), 2).unwrap();
        assert_eq!(
            breed["deployable"]["definition"],
            "'/opt/my segue' example-service --version-name 2"
        );
        assert_eq!(breed["name"], "web:2");
    }

    #[test]
    fn weights_change_and_nothing_else() {
        let gateway = json!({"name": "shop/web/http", "port": "20000/http", "routes": {
            "shop/web/web:1/http": {"weight": "100%", "balance": "default"}, "shop/web/web:2/http": {"weight": "0%"}}});
        let changed = with_weights(&gateway, &[(1, 90), (2, 10)]).unwrap();
        assert_eq!(
            changed["routes"]["shop/web/web:1/http"],
            json!({"weight": "90%", "balance": "default"})
        );
        assert_eq!(weight(&changed, 2), Some("10%"));
        assert_eq!(changed["port"], gateway["port"]);
        assert!(with_weights(&gateway, &[(3, 0)]).is_err());
    }

    #[test]
    fn ports_are_read_in_both_spellings() {
        assert_eq!(port_number(&json!(8080)), Some(8080));
        assert_eq!(port_number(&json!("8080/http")), Some(8080));
        assert_eq!(port_number(&json!("web")), None);
    }
}
