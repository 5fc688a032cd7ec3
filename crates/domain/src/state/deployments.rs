//! Applies what happened to deployments.

use super::{State, Stored};
use crate::artifact::{Deployment, Service};
use crate::event::{DeploymentFact, Position};
use std::sync::Arc;

impl State {
    pub(super) fn apply_deployment(&mut self, name: &str, fact: &DeploymentFact, at: Position) {
        match fact {
            DeploymentFact::Stated(deployment) => {
                self.deployments.insert(name.to_owned(), Stored::new(at, (**deployment).clone()));
            }
            DeploymentFact::PhaseChanged { cluster, service, phase } => {
                self.change_service(name, cluster, service, |service| {
                    service.status.phase = phase.clone();
                });
            }
            DeploymentFact::InstancesObserved { cluster, service, instances } => {
                self.change_service(name, cluster, service, |service| {
                    service.instances.clone_from(instances);
                });
            }
            DeploymentFact::EnvironmentResolved { cluster, service, environment } => {
                self.change_service(name, cluster, service, |service| {
                    service.environment = Some(environment.clone());
                    service.former_environment.clear();
                });
            }
            DeploymentFact::ServiceRemoved { cluster, service } => {
                self.change_deployment(name, |deployment| {
                    remove_service(deployment, cluster, service);
                });
            }
            DeploymentFact::Deleted => {
                self.deployments.remove(name);
            }
        }
    }

    fn change_service(
        &mut self,
        name: &str,
        cluster: &str,
        service: &str,
        change: impl FnOnce(&mut Service),
    ) {
        self.change_deployment(name, |deployment| {
            if let Some(service) = deployment.service_mut(cluster, service) {
                change(service);
            }
        });
    }

    fn change_deployment(&mut self, name: &str, change: impl FnOnce(&mut Deployment)) {
        if let Some(stored) = self.deployments.get_mut(name) {
            change(Arc::make_mut(&mut stored.artifact));
        }
    }
}

fn remove_service(deployment: &mut Deployment, cluster_name: &str, breed: &str) {
    let Some(cluster) = deployment.clusters.get_mut(cluster_name) else { return };
    cluster.services.retain(|service| service.breed.name != breed);
    if cluster.services.is_empty() {
        deployment.clusters.shift_remove(cluster_name);
    }
}
