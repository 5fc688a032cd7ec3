//! What one instance of a service is made from, and the fingerprint that says so.

use crate::Settings;
use crate::containers::{InstanceSpec, Owner};
use indexmap::IndexMap;
use segue_domain::artifact::{Cluster, Deployment, Metadata, Service, short_hash};
use segue_domain::command::ServiceKey;
use segue_domain::dsl::split_alias;
use segue_domain::state::State;
use serde_json::{Value, json};

/// Everything that is needed to start instances of a service, but for their names; `None` while its variables are not
/// interpolated yet.
pub fn template(
    state: &State,
    key: &ServiceKey,
    deployment: &Deployment,
    service: &Service,
    driver: &str,
    settings: &Settings,
) -> Option<InstanceSpec> {
    let cluster = deployment.clusters.get(&key.cluster)?;
    let environment = service.environment.as_ref()?;
    let injected = |(name, value): (&String, &String)| {
        let (own, alias) = split_alias(name);
        (alias.unwrap_or(own).to_owned(), value.clone())
    };
    let interpolate = |text: &str| {
        state.interpolated(deployment, &key.cluster, service, text, &settings.configuration)
    };
    let network = service.network.as_ref().or(cluster.network.as_ref());
    let mut spec = InstanceSpec {
        name: String::new(),
        owner: Owner {
            deployment: key.deployment.clone(),
            cluster: key.cluster.clone(),
            service: key.service.clone(),
        },
        fingerprint: String::new(),
        deployable: service.breed.deployable.clone(),
        ports: service.breed.ports.iter().map(|(name, port)| (name.clone(), port.number)).collect(),
        environment: environment.iter().map(injected).collect(),
        arguments: service.arguments.clone(),
        dialect: dialect(deployment, cluster, service, driver)
            .into_iter()
            .map(|(key, value)| (key, interpolated(value, &interpolate)))
            .collect(),
        network: network.unwrap_or(&settings.network).clone(),
        cpu: service.scale.cpu,
        memory: service.scale.memory,
        instances: service.scale.instances,
    };
    spec.fingerprint = fingerprint(&spec, cluster, service);
    Some(spec)
}

/// The name of an instance: `segue_<deployment>_<breed>_<suffix>` (runtime, 12.3).
pub fn instance_name(key: &ServiceKey, suffix: &str) -> String {
    format!("segue_{}_{}_{suffix}", part(&key.deployment), part(&key.service))
}

/// A part of a name is kept when every platform takes it, else it is replaced by a hash.
fn part(text: &str) -> String {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let inner = !text.is_empty() && !text.starts_with('-') && !text.ends_with('-');
    if inner && text.len() < 64 && text.bytes().all(legal) {
        text.to_owned()
    } else {
        short_hash(text).chars().take(32).collect()
    }
}

/// Two instances of equal definition have equal fingerprints; how many there are is no part of it.
fn fingerprint(spec: &InstanceSpec, cluster: &Cluster, service: &Service) -> String {
    let environment: IndexMap<_, _> = spec.environment.iter().collect();
    short_hash(
        &json!([
            spec.deployable,
            spec.ports,
            environment,
            spec.arguments,
            spec.dialect,
            spec.network,
            spec.cpu,
            spec.memory,
            cluster.effective_health_checks(service),
        ])
        .to_string(),
    )
}

/// The dialect for `driver`: service level wins over cluster level over deployment level.
fn dialect(
    deployment: &Deployment,
    cluster: &Cluster,
    service: &Service,
    driver: &str,
) -> Metadata {
    let levels = [&service.dialects, &cluster.dialects, &deployment.dialects];
    let own = |level: &&Metadata| {
        level.iter().find(|(name, _)| name.eq_ignore_ascii_case(driver)).map(|(_, v)| v.clone())
    };
    match levels.iter().find_map(own) {
        Some(Value::Object(map)) => map,
        Some(_) | None => Metadata::new(),
    }
}

fn interpolated(value: Value, interpolate: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(interpolate(&text)),
        Value::Array(items) => {
            items.into_iter().map(|item| interpolated(item, interpolate)).collect()
        }
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (key, interpolated(value, interpolate))).collect()
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_platform() {
        let key = |service: &str| ServiceKey {
            deployment: "shop".into(),
            cluster: "web".into(),
            service: service.into(),
        };
        assert_eq!(instance_name(&key("web-1"), "x"), "segue_shop_web-1_x");
        let hashed = instance_name(&key("web:1.0"), "x");
        assert!(
            hashed.starts_with("segue_shop_") && hashed.ends_with("_x") && !hashed.contains(':'),
            "{hashed}"
        );
        assert_ne!(hashed, instance_name(&key("web:1.1"), "x"));
    }
}
