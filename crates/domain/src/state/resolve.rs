//! What can be looked up in a state: who satisfies a dependency, what is ready, and what references stand for.

use super::State;
use crate::artifact::value::{ConfigurationValues, ValuePart, interpolate};
use crate::artifact::{Deployment, Service, Traits};
use crate::dsl::split_alias;
use indexmap::IndexMap;

/// The first cluster with a service whose breed satisfies `dependency`, and that service. A dependency that ends with
/// `*` is satisfied by any name with that prefix; services on their way out satisfy nothing.
pub fn satisfying<'a>(
    deployment: &'a Deployment,
    dependency: &str,
) -> Option<(&'a str, &'a Service)> {
    deployment.services().find(|(_, service)| {
        let name = &service.breed.name;
        let matches = match dependency.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix) || name == dependency,
            None => name == dependency,
        };
        matches && !service.is_undeploying()
    })
}

impl State {
    /// `Ok` when everything that `service` depends on runs and has an address; else what is waited for.
    pub fn dependencies_ready(
        &self,
        deployment: &Deployment,
        service: &Service,
    ) -> Result<(), String> {
        for breed in service.breed.dependencies.values() {
            let name = breed.name();
            let Some((cluster, dependency)) = satisfying(deployment, name) else {
                return Err(format!(
                    "waits for a service of breed '{name}', which is not part of the deployment"
                ));
            };
            if !dependency.is_done() {
                let phase = dependency.status.phase.name.as_str();
                return Err(format!(
                    "waits for '{}' in cluster '{cluster}', which is {phase}",
                    dependency.breed.name
                ));
            }
            for port in dependency.breed.ports.keys() {
                let gateway = format!("{}/{cluster}/{port}", deployment.name);
                let known = self.gateways().get(&gateway);
                if !known
                    .is_some_and(|gateway| gateway.deployed && gateway.gateway.port.number != 0)
                {
                    let reason = known.and_then(|gateway| gateway.reason.clone());
                    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    return Err(format!("waits for gateway '{gateway}'{reason}"));
                }
            }
        }
        Ok(())
    }

    /// The variables of a service with interpolated values, keyed as in the breed: service over blueprint level over
    /// breed; variables without value are left out (documents, section 8).
    pub fn environment(
        &self,
        deployment: &Deployment,
        cluster: &str,
        service: &Service,
        configuration: &ConfigurationValues,
    ) -> IndexMap<String, String> {
        let variables = service.breed.environment_variables.keys().filter_map(|key| {
            let raw = raw_variable(deployment, cluster, service, key)?;
            let value = self.interpolated(deployment, cluster, service, raw, configuration);
            Some((key.clone(), value))
        });
        variables.collect()
    }

    /// `text` with its references replaced by what they stand for to `service` of `cluster`; what is not resolved is
    /// empty.
    pub fn interpolated(
        &self,
        deployment: &Deployment,
        cluster: &str,
        service: &Service,
        text: &str,
        configuration: &ConfigurationValues,
    ) -> String {
        interpolate(text, |part| match part {
            ValuePart::Global { scheme, path } => match scheme.as_str() {
                "conf" | "config" | "configuration" => configuration.get(path).map(str::to_owned),
                _ => None,
            },
            part => self.look_up(deployment, cluster, service, part),
        })
    }

    fn look_up(
        &self,
        deployment: &Deployment,
        cluster: &str,
        service: &Service,
        part: &ValuePart,
    ) -> Option<String> {
        match part {
            ValuePart::Literal(text) => Some(text.clone()),
            ValuePart::Local(name) => local(deployment, cluster, service, name),
            ValuePart::Host { alias } => {
                Some(deployment.clusters.get(aliased(service, alias))?.host.clone())
            }
            ValuePart::Trait { alias, group, name } if group == "constants" => {
                constant(deployment, service, alias, name)
            }
            ValuePart::Trait { alias, group, name } => {
                self.look_up_trait(deployment, aliased(service, alias), group, name)
            }
            ValuePart::Address { alias, port } => {
                let cluster = aliased(service, alias);
                let number = self.look_up_trait(deployment, cluster, "ports", port)?;
                Some(format!("{}:{number}", deployment.clusters.get(cluster)?.host))
            }
            // Not part of the state.
            ValuePart::Global { .. } => None,
        }
    }

    fn look_up_trait(
        &self,
        deployment: &Deployment,
        cluster: &str,
        group: &str,
        name: &str,
    ) -> Option<String> {
        let services = &deployment.clusters.get(cluster)?.services;
        match group {
            "ports" => {
                let gateway = self.gateway(&format!("{}/{cluster}/{name}", deployment.name))?;
                Some(gateway.port.number.to_string())
            }
            "hosts" => Some(deployment.clusters.get(cluster)?.host.clone()),
            "environment_variables" => {
                let inherited = deployment
                    .environment_variables
                    .get(&format!("{cluster}.{name}"))
                    .cloned()
                    .flatten();
                inherited.or_else(|| {
                    services.iter().find_map(|service| {
                        value(&service.environment_variables, name)
                            .or_else(|| value(&service.breed.environment_variables, name))
                    })
                })
            }
            _ => None,
        }
    }
}

/// The cluster behind an alias; a name that is no alias is taken as the name of a cluster.
fn aliased<'a>(service: &'a Service, alias: &'a str) -> &'a str {
    service.dependencies.get(alias).map_or(alias, String::as_str)
}

/// The text of the variable `key` of the breed of `service`, before its references are replaced.
pub(crate) fn raw_variable<'a>(
    deployment: &'a Deployment,
    cluster: &str,
    service: &'a Service,
    key: &str,
) -> Option<&'a String> {
    let own = service.breed.environment_variables.get(key)?;
    let (name, _) = split_alias(key);
    let inherited = deployment.environment_variables.get(&format!("{cluster}.{name}"));
    let given = [
        service.environment_variables.get(name),
        service.environment_variables.get(key),
        inherited,
    ];
    given.into_iter().flatten().find_map(Option::as_ref).or(own.as_ref())
}

/// A constant of what `service` depends on as `alias`: of the very breed, since other services of its cluster may have
/// another value.
fn constant(deployment: &Deployment, service: &Service, alias: &str, name: &str) -> Option<String> {
    let dependency = service.breed.dependencies.get(alias);
    let meant = dependency.and_then(|breed| satisfying(deployment, breed.name()));
    let meant = meant.and_then(|(_, service)| value(&service.breed.constants, name));
    meant.or_else(|| {
        let services = &deployment.clusters.get(aliased(service, alias))?.services;
        services.iter().find_map(|service| value(&service.breed.constants, name))
    })
}

/// What the service itself knows as `name`: a variable with the value that it gets (documents, section 8), or a constant.
fn local(deployment: &Deployment, cluster: &str, service: &Service, name: &str) -> Option<String> {
    let inherited = || {
        service.breed.environment_variables.keys().find(|key| split_alias(key).0 == name)?;
        deployment.environment_variables.get(&format!("{cluster}.{name}"))?.clone()
    };
    value(&service.environment_variables, name)
        .or_else(inherited)
        .or_else(|| value(&service.breed.environment_variables, name))
        .or_else(|| value(&service.breed.constants, name))
}

fn value(traits: &Traits, name: &str) -> Option<String> {
    traits.iter().find(|(key, _)| split_alias(key).0 == name).and_then(|(_, value)| value.clone())
}
