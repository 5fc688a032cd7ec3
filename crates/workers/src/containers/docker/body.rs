//! From the description of an instance to the container that Docker is asked for.

use super::Settings;
use super::labels::Labels;
use crate::containers::{InstanceSpec, words};
use crate::driver::Error;
use bollard::models::{
    ContainerCreateBody, HostConfig, ImageInspect, PortBinding, RestartPolicy,
    RestartPolicyNameEnum,
};
use std::collections::HashMap;
use std::net::IpAddr;
use time::OffsetDateTime;

/// Networks that Docker itself provides; documents give them in any letter case.
const NETWORKS: [&str; 3] = ["bridge", "host", "none"];
const NANO_CPUS_PER_MILLI: u64 = 1_000_000;

/// The container for `spec`.
pub(super) fn create(
    spec: &InstanceSpec,
    settings: &Settings,
    labels: &Labels,
    image: &ImageInspect,
    created: OffsetDateTime,
) -> Result<ContainerCreateBody, Error> {
    let network = network(spec)?;
    if network == "none" && !spec.ports.is_empty() {
        return Err(Error::Permanent(format!(
            "on the network `none` nobody reaches a port, but {} declared; give another network or no ports",
            names(spec)
        )));
    }
    let ports: Vec<String> = spec.ports.values().map(|number| format!("{number}/tcp")).collect();
    let binding =
        PortBinding { host_ip: bind_address(&settings.host), host_port: Some(String::new()) };
    let bindings = ports.iter().map(|port| (port.clone(), Some(vec![binding.clone()]))).collect();
    let host_config = HostConfig {
        nano_cpus: Some(limit(spec.cpu.milli().saturating_mul(NANO_CPUS_PER_MILLI))),
        memory: Some(limit(spec.memory.bytes())),
        // With the host's network there is nothing to publish.
        port_bindings: (network != "host").then_some(bindings),
        // The daemon itself starts again what ended, also after its own end, and what Segue or a person stopped stays
        // so. Segue replaces only what the daemon has given up.
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::UNLESS_STOPPED),
            maximum_retry_count: None,
        }),
        network_mode: Some(network),
        privileged: Some(
            argument(spec, "privileged").any(|value| !value.trim().eq_ignore_ascii_case("false")),
        ),
        security_opt: Some(argument(spec, "security-opt").map(str::to_owned).collect()),
        ..HostConfig::default()
    };
    let mut all_labels = dialect_labels(spec)?;
    all_labels.extend(labels.of_new(spec, image, created));
    Ok(ContainerCreateBody {
        image: Some(spec.deployable.definition.trim().to_owned()),
        cmd: command(spec)?,
        env: Some(spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        exposed_ports: Some(ports),
        labels: Some(all_labels),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    })
}

fn names(spec: &InstanceSpec) -> String {
    let names: Vec<String> = spec.ports.keys().map(|name| format!("`{name}`")).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

fn argument<'a>(spec: &'a InstanceSpec, key: &'a str) -> impl Iterator<Item = &'a str> {
    spec.arguments
        .iter()
        .filter(move |argument| argument.key == key)
        .map(|argument| argument.value.as_str())
}

/// The network of `spec`, as Docker calls it.
pub(super) fn network(spec: &InstanceSpec) -> Result<String, Error> {
    let named = match spec.dialect.get("net") {
        None | Some(serde_json::Value::Null) => spec.network.trim(),
        Some(serde_json::Value::String(net)) => net.trim(),
        Some(other) => return Err(refused("net", "a text", other)),
    };
    let lower = named.to_ascii_lowercase();
    Ok(match lower.as_str() {
        "" => "bridge".to_owned(),
        // Names of networks that people made are case sensitive.
        _ if NETWORKS.contains(&lower.as_str()) => lower,
        _ => named.to_owned(),
    })
}

fn command(spec: &InstanceSpec) -> Result<Option<Vec<String>>, Error> {
    match spec.dialect.get("command") {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(line)) => words::split(line).map(Some),
        Some(serde_json::Value::Array(words)) => {
            let word = |word: &serde_json::Value| {
                scalar(word).ok_or_else(|| refused("command", "a text or a list of texts", word))
            };
            words.iter().map(word).collect::<Result<_, _>>().map(Some)
        }
        Some(other) => Err(refused("command", "a text or a list of texts", other)),
    }
}

fn dialect_labels(spec: &InstanceSpec) -> Result<HashMap<String, String>, Error> {
    match spec.dialect.get("labels") {
        None | Some(serde_json::Value::Null) => Ok(HashMap::new()),
        Some(serde_json::Value::Object(labels)) => labels
            .iter()
            .map(|(name, value)| {
                let text =
                    scalar(value).ok_or_else(|| refused("labels", "a map of texts", value))?;
                Ok((name.clone(), text))
            })
            .collect(),
        Some(other) => Err(refused("labels", "a map of texts", other)),
    }
}

fn scalar(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(_) | serde_json::Value::Bool(_) => Some(value.to_string()),
        serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            None
        }
    }
}

fn refused(key: &str, expected: &str, found: &serde_json::Value) -> Error {
    Error::Permanent(format!("`{key}` of the dialect `docker` has to be {expected}, not {found}"))
}

/// What published ports are bound to; a host name that is no address leaves it to Docker, which takes all.
fn bind_address(host: &str) -> Option<String> {
    match host {
        "localhost" => Some("127.0.0.1".to_owned()),
        other => other.parse::<IpAddr>().ok().map(|address| address.to_string()),
    }
}

/// A limit as Docker takes it; 0 is none.
fn limit(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::conformance;
    use segue_domain::artifact::{Argument, Cpu, Memory};

    fn body(change: impl FnOnce(&mut InstanceSpec)) -> Result<ContainerCreateBody, Error> {
        let mut spec = conformance::spec("docker", "acme/web:1", "i1");
        change(&mut spec);
        create(
            &spec,
            &Settings::default(),
            &Labels::new("io.segue", "default"),
            &ImageInspect { id: Some("sha256:ab".to_owned()), ..ImageInspect::default() },
            OffsetDateTime::UNIX_EPOCH,
        )
    }

    fn dialect(text: &str) -> impl FnOnce(&mut InstanceSpec) {
        let value = serde_json::from_str(text).unwrap();
        move |spec| spec.dialect = value
    }

    #[test]
    fn limits_ports_and_labels_are_applied() {
        let body = body(|spec| {
            spec.cpu = Cpu::from_milli(250);
            spec.memory = Memory::from_megabytes(64);
        })
        .unwrap();
        let host = body.host_config.unwrap();
        assert_eq!((host.nano_cpus, host.memory), (Some(250_000_000), Some(64 * 1024 * 1024)));
        assert_eq!(body.exposed_ports.unwrap(), ["8000/tcp"]);
        let binding = &host.port_bindings.unwrap()["8000/tcp"].clone().unwrap()[0];
        assert_eq!(
            (binding.host_ip.as_deref(), binding.host_port.as_deref()),
            (Some("127.0.0.1"), Some(""))
        );
        let labels = body.labels.unwrap();
        assert_eq!(labels["io.segue"], "deployment-service");
        assert_eq!(labels["io.segue.scale"], r#"{"instances":1,"cpu":0.25,"memory":"64.00MB"}"#);
        assert_eq!(labels["io.segue.ports"], r#"{"web":8000}"#);
        assert_eq!(labels["io.segue.image"], r#"{"id":"sha256:ab","digests":[]}"#);
    }

    #[test]
    fn networks_and_arguments_and_dialects_are_understood() {
        let network = |change: &str| {
            body(dialect(change)).unwrap().host_config.unwrap().network_mode.unwrap()
        };
        assert_eq!(network("{}"), "bridge");
        assert_eq!(network(r#"{"net": "HOST"}"#), "host");
        assert_eq!(network(r#"{"net": "MyNet"}"#), "MyNet");
        let unreachable = body(dialect(r#"{"net": "None"}"#)).unwrap_err();
        assert!(
            unreachable.is_permanent() && unreachable.to_string().contains("`web` is declared")
        );
        let closed = body(|spec| {
            spec.ports.clear();
            spec.network = "NONE".to_owned();
        });
        assert_eq!(closed.unwrap().host_config.unwrap().network_mode.as_deref(), Some("none"));
        let command = |change: &str| body(dialect(change)).unwrap().cmd.unwrap();
        assert_eq!(command(r#"{"command": "sh -c 'a b'"}"#), ["sh", "-c", "a b"]);
        assert_eq!(command(r#"{"command": ["sh", 1]}"#), ["sh", "1"]);
        let labels =
            body(dialect(r#"{"labels": {"a": "b", "io.segue.id": "x"}}"#)).unwrap().labels.unwrap();
        assert_eq!(
            (labels["a"].as_str(), labels["io.segue.id"].as_str()),
            ("b", "segue_conformance-i1_web")
        );
        for wrong in
            [r#"{"labels": []}"#, r#"{"net": 1}"#, r#"{"command": {}}"#, r#"{"command": "'"}"#]
        {
            assert!(body(dialect(wrong)).unwrap_err().is_permanent(), "{wrong}");
        }
        let argument =
            |key: &str, value: &str| Argument { key: key.to_owned(), value: value.to_owned() };
        let host = body(|spec| {
            spec.arguments = vec![
                argument("privileged", "true"),
                argument("security-opt", "a=b"),
                argument("x", "y"),
            ];
        });
        let host = host.unwrap().host_config.unwrap();
        assert_eq!(
            (host.privileged, host.security_opt),
            (Some(true), Some(vec!["a=b".to_owned()]))
        );
    }
}
