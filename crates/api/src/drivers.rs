//! Opens the doors to the outside that the configuration asks for.

use crate::config::{ContainerDriverKind, GatewayDriverKind, Settings};
use segue_workers::containers::ContainerDriver;
use segue_workers::containers::docker::{self, DockerDriver};
use segue_workers::containers::process::{self, ProcessDriver};
use segue_workers::containers::simulated::SimulatedContainers;
use segue_workers::driver;
use segue_workers::gateways::GatewayDriver;
use segue_workers::gateways::haproxy::{self, HaproxyDriver};
use segue_workers::gateways::simulated::SimulatedGateways;
use std::sync::Arc;

/// The label of the configuration when there is no program to ask.
const VERSION_UNKNOWN: &str = "2.6";

/// Why a driver cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The driver says why.
    #[error("driver '{name}' cannot start: {error}")]
    Refused {
        /// Which.
        name: &'static str,
        /// Its words.
        error: driver::Error,
    },
}

/// The doors to what runs, in the order of the configuration. Has to be called inside a Tokio runtime.
pub fn containers(settings: &Settings) -> Result<Vec<Arc<dyn ContainerDriver>>, DriverError> {
    settings.container_driver.kinds.iter().map(|kind| container(*kind, settings)).collect()
}

/// The door to processes.
pub fn process(settings: &Settings) -> Result<ProcessDriver, DriverError> {
    let own = &settings.container_driver.process;
    let settings = process::Settings {
        stop_timeout: own.stop_timeout.0,
        ..process::Settings::new(settings.process_directory())
    };
    ProcessDriver::new(settings).map_err(|error| DriverError::Refused { name: "process", error })
}

/// How the HAProxy of this installation is run.
pub fn haproxy_settings(settings: &Settings) -> haproxy::Settings {
    let own = &settings.gateway_driver.haproxy;
    let hosts = &settings.operation.gateway.virtual_hosts;
    haproxy::Settings {
        program: own.program.clone(),
        directory: settings.haproxy_directory(),
        bind_address: own.bind,
        virtual_hosts_port: hosts.enabled.then_some(hosts.port),
        stats_port: (own.stats_port != 0).then_some(own.stats_port),
        hard_stop_after: own.hard_stop_after.0,
        ..haproxy::Settings::default()
    }
}

/// The door to traffic, and the label of its configuration.
pub async fn gateways(
    settings: &Settings,
) -> Result<(Arc<dyn GatewayDriver>, String), DriverError> {
    let own = &settings.gateway_driver;
    let found = haproxy::find(&own.haproxy.program);
    let kind = own.kind.unwrap_or_else(|| {
        // Where it served before, it is only away for a while, as when its package is replaced.
        if found.is_some() || settings.haproxy_directory().is_dir() {
            return GatewayDriverKind::Haproxy;
        }
        let program = own.haproxy.program.display();
        tracing::warn!(
            "HAProxy is not found as '{program}': gateways are simulated, no traffic is routed"
        );
        GatewayDriverKind::Simulated
    });
    let asked = match &found {
        Some(program) => haproxy::program_version(program).await.ok(),
        None => None,
    };
    let version = own.haproxy.version.clone().or(asked);
    let version = version.unwrap_or_else(|| VERSION_UNKNOWN.to_owned());
    match kind {
        GatewayDriverKind::Simulated => Ok((Arc::new(SimulatedGateways::default()), version)),
        GatewayDriverKind::Haproxy => {
            let driver = HaproxyDriver::new(haproxy_settings(settings));
            let driver = driver.map_err(|error| DriverError::Refused { name: "haproxy", error })?;
            Ok((Arc::new(driver), version))
        }
    }
}

fn container(
    kind: ContainerDriverKind,
    settings: &Settings,
) -> Result<Arc<dyn ContainerDriver>, DriverError> {
    match kind {
        ContainerDriverKind::Process => Ok(Arc::new(process(settings)?)),
        ContainerDriverKind::Docker => {
            let own = &settings.container_driver;
            Ok(Arc::new(DockerDriver::new(docker::Settings {
                socket: own.docker.socket.clone(),
                host: own.docker.host.clone(),
                label_namespace: own.label_namespace.clone(),
                namespace: settings.namespace.clone(),
                stop_timeout: own.process.stop_timeout.0,
                pull_timeout: own.docker.pull_timeout.0,
                registries: own.docker.registries.clone(),
            })))
        }
        ContainerDriverKind::Simulated => {
            let simulated = SimulatedContainers::new();
            let clock = simulated.clone();
            tokio::spawn(async move { clock.follow_clock().await });
            Ok(Arc::new(simulated))
        }
    }
}
