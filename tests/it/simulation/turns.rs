//! What must hold of every turn: what a worker asks for is wanted, and nobody loses what serves.

use super::life::Life;
use super::world::{Taken, Who};
use segue_domain::artifact::{Intention, Leaving, PhaseName, Service};
use segue_domain::state::State;
use segue_workers::containers::{Condition, InstanceSpec, Owner};
use segue_workers::gateways::Configuration;
use segue_workers::routing::configuration;
use std::collections::BTreeSet;

impl Life {
    /// Somebody takes a turn.
    pub(super) fn take_turn(&mut self, who: &Who) {
        self.tally.count("turn");
        let before = self.taking();
        let taken = self.world.turn(who);
        self.check_taken(&taken);
        self.check_last_instances(&before, &taken);
        if taken.who == Who::Gateways && taken.is_ok {
            self.check_routed(&taken.before);
        }
        self.follow();
    }

    /// What a worker asked the container driver for belongs to what the log said when it looked.
    pub(super) fn check_taken(&mut self, taken: &Taken) {
        for spec in &taken.asked.starts {
            let is_new = self.names.insert(spec.name.clone());
            self.hold(is_new, || format!("two instances are called '{}'", spec.name));
            self.check_start(taken, spec);
        }
        for name in &taken.asked.stops {
            self.check_stop(taken, name);
        }
    }

    /// An instance is started only for a service that is worked on, and never more of them than are wanted beside those
    /// that the driver showed.
    fn check_start(&self, taken: &Taken, spec: &InstanceSpec) {
        let words = || format!("nobody wanted '{}' to be started", spec.name);
        let Some(service) = service(&taken.before, &spec.owner) else { self.fail(&words()) };
        let status = &service.status;
        let is_worked_on =
            status.intention == Intention::Deployment && status.phase.name == PhaseName::Updating;
        self.hold(is_worked_on, words);
        let leaves = |name: &str| {
            let known = service.instances.iter().find(|instance| instance.name == name);
            known.is_some_and(|instance| instance.leaving != Leaving::No)
        };
        let staying = taken.asked.seen.iter().filter(|seen| {
            let ends = matches!(seen.condition, Condition::Exited(_) | Condition::Stopping);
            seen.owner == spec.owner
                && seen.fingerprint == spec.fingerprint
                && !ends
                && !leaves(&seen.name)
        });
        let started = taken.asked.starts.iter().filter(|other| other.owner == spec.owner);
        let (staying, started) = (staying.count(), started.count());
        self.hold(staying + started <= service.scale.instances as usize, || {
            format!(
                "{started} started beside {staying} of {} for {:?}",
                service.scale.instances, spec.owner
            )
        });
    }

    /// An instance is stopped only when it ended by itself, when nobody wants its service, or when it was released; and
    /// not while the proxy is said to send it anything.
    ///
    /// One that the driver once hid may still be sent something: then it seemed to be gone, and with it its service, or
    /// that it was on its way out.
    fn check_stop(&mut self, taken: &Taken, name: &str) {
        let Some(seen) = taken.asked.seen.iter().find(|seen| seen.name == name) else {
            self.fail(&format!("'{name}' was to be stopped and nobody saw it"))
        };
        let service = service(&taken.before, &seen.owner);
        let known = service
            .and_then(|service| service.instances.iter().find(|instance| instance.name == name));
        let released = known.is_some_and(|instance| instance.leaving == Leaving::Released);
        let ended = matches!(seen.condition, Condition::Exited(_));
        self.hold(ended || released || service.is_none(), || {
            format!("'{name}' was to be stopped though it is wanted")
        });
        if service.is_none() {
            self.doomed.insert(name.to_owned());
        }
        let excused = ended || self.world.containers.was_hidden(name);
        let serves = serving(&self.world.proxy.claimed()).contains(name);
        self.hold(excused || !serves, || format!("'{name}' was to be stopped in traffic"));
    }

    /// No service that is wanted loses the last instance that takes traffic by a turn.
    ///
    /// A service about whose instances the driver lied in this very turn may: what was left out seems to be gone, and
    /// what is shown as running though it is not seems to be there in its stead.
    fn check_last_instances(&self, before: &BTreeSet<Owner>, taken: &Taken) {
        let state = self.world.store.state();
        for owner in before.difference(&self.taking()) {
            let wanted = service(&state, owner).is_some_and(|service| {
                service.status.intention == Intention::Deployment && service.scale.instances > 0
            });
            let excused = taken.asked.lied.contains(owner);
            self.hold(!wanted || excused, || {
                format!("{owner:?} lost its last instance by a turn of {:?}", taken.who)
            });
        }
    }

    /// After a turn of the gateways that came to an end the proxy is said to serve what the state asks for, but for
    /// gateways of which the state knows why they are not served.
    fn check_routed(&self, seen: &State) {
        let claimed = self.world.proxy.claimed();
        let after = self.world.store.state();
        for wanted in configuration(seen).gateways {
            let served = claimed.gateways.iter().find(|gateway| gateway.name == wanted.name);
            let refused = after.gateways().get(&wanted.name).is_none_or(|stored| {
                // A new port may have been given to it in this turn.
                stored.reason.is_some() || stored.gateway.port.number != wanted.port
            });
            self.hold(served.map_or(refused, |served| *served == wanted), || {
                format!("gateway '{}' is not served as it should be", wanted.name)
            });
        }
    }

    /// Services with an instance that runs and takes traffic.
    fn taking(&self) -> BTreeSet<Owner> {
        let instances = self.world.containers.truth.instances();
        let running: BTreeSet<&str> = instances
            .iter()
            .filter(|instance| instance.condition == Condition::Running)
            .map(|instance| instance.name.as_str())
            .collect();
        let state = self.world.store.state();
        let mut taking = BTreeSet::new();
        for (name, stored) in state.deployments() {
            for (cluster, service) in stored.artifact.services() {
                let takes = service.instances.iter().any(|instance| {
                    instance.deployed
                        && instance.leaving == Leaving::No
                        && running.contains(instance.name.as_str())
                });
                if takes {
                    taking.insert(Owner {
                        deployment: name.clone(),
                        cluster: cluster.to_owned(),
                        service: service.breed.name.clone(),
                    });
                }
            }
        }
        taking
    }
}

/// The names of everything that gets new requests.
pub(super) fn serving(configuration: &Configuration) -> BTreeSet<String> {
    let routes = configuration.gateways.iter().flat_map(|gateway| &gateway.routes);
    let targets = routes.flat_map(|route| &route.targets);
    targets.filter(|target| !target.draining).map(|target| target.name.clone()).collect()
}

pub(super) fn service<'a>(state: &'a State, owner: &Owner) -> Option<&'a Service> {
    state.deployment(&owner.deployment)?.service(&owner.cluster, &owner.service)
}
