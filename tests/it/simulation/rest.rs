//! What must hold when everything was quiet for a while, and drivers were honest.

use super::life::Life;
use super::measures::Key;
use super::world::{PORTS, Who, rules};
use segue_domain::artifact::{Deployment, Intention, PhaseName, Service};
use segue_domain::command::{Command, Context, decide};
use segue_domain::state::{State, satisfying};
use segue_domain::store::replay;
use segue_workers::containers::{Condition, Owner};
use segue_workers::routing::configuration;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

impl Life {
    /// What runs is what is wanted, and nothing else; what is served is what is stored; what was told is so.
    pub fn check_rest(&mut self) {
        // What changes when nothing else does is told, too; and clusters that get requests now may need fewer instances.
        self.send_traffic(&[20]);
        self.come_to_rest();
        let state = self.world.store.state();
        self.check_services(&state);
        self.hold(self.follow.is_done(), || "an alarm was not acted on".to_owned());
        self.check_told(&state);
        let served = self.world.served();
        self.hold(served == configuration(&state), || "something else is served".to_owned());
        self.check_routes(&state);
        self.check_gateways(&state);
        let replayed = replay(self.world.store.log()).expect("the log reads");
        let is_same = replayed == *state && replayed.hash() == state.hash();
        self.hold(is_same, || "the log says something else".to_owned());
    }

    /// At rest a proxy that lost everything gets it back, and another life of the service finds everything as it is:
    /// it starts nothing, stops nothing and changes nothing.
    pub fn check_restart(&mut self) {
        let wanted = configuration(&self.world.store.state());
        self.lose_proxy();
        self.take_turn(&Who::Gateways);
        self.hold(self.world.served() == wanted, || "a proxy stays without anything".to_owned());
        let before = (self.world.store.state(), self.world.containers.truth.instances());
        let started = self.world.containers.truth.started();
        self.kill();
        for _ in 0..3 {
            self.pass_second();
        }
        let after = (self.world.store.state(), self.world.containers.truth.instances());
        let is_same = before.0.deployments() == after.0.deployments()
            && before.0.gateways() == after.0.gateways()
            && before.1 == after.1
            && self.world.containers.truth.started() == started;
        self.hold(is_same, || "a restart at rest changes something".to_owned());
        self.hold(self.world.served() == wanted, || "a restart serves something else".to_owned());
    }

    /// As many instances run as are wanted. A service that failed, and one that waits for what it depends on, may have
    /// fewer; what it has is known, serves and stays.
    fn check_services(&self, state: &State) {
        let mut running: BTreeMap<Owner, BTreeSet<String>> = BTreeMap::new();
        for instance in self.world.containers.truth.instances() {
            self.hold(instance.condition == Condition::Running, || {
                format!("'{}' is {:?}", instance.name, instance.condition)
            });
            running.entry(instance.owner).or_default().insert(instance.name);
        }
        for (name, stored) in state.deployments() {
            for (cluster, service) in stored.artifact.services() {
                let owner = Owner {
                    deployment: name.clone(),
                    cluster: cluster.to_owned(),
                    service: service.breed.name.clone(),
                };
                let found = running.remove(&owner).unwrap_or_default();
                self.hold(service.status.intention == Intention::Deployment, || {
                    format!("{owner:?} stays")
                });
                let known: BTreeSet<String> =
                    service.instances.iter().map(|instance| instance.name.clone()).collect();
                self.hold(known == found, || format!("{owner:?} has {found:?}, not {known:?}"));
                let is_full = found.len() == service.scale.instances as usize;
                let is_right = match service.status.phase.name {
                    PhaseName::Done => is_full,
                    PhaseName::Failed => true,
                    PhaseName::Updating => waits(state, &stored.artifact, service),
                    PhaseName::Initiated => false,
                };
                self.hold(is_right, || {
                    format!("{owner:?} is {:?} with {found:?}", service.status.phase)
                });
            }
        }
        self.hold(running.is_empty(), || format!("wanted by nobody: {running:?}"));
    }

    /// Every route with a share that leads to a service has all of its instances as targets.
    fn check_routes(&self, state: &State) {
        for gateway in self.world.served().gateways {
            for route in gateway.routes.iter().filter(|route| route.weight > 0) {
                let [deployment, cluster, breed, _] = route.path.split('/').collect::<Vec<_>>()[..]
                else {
                    continue;
                };
                let found =
                    state.deployment(deployment).and_then(|found| found.service(cluster, breed));
                let wanted = found.filter(|service| service.is_done());
                let wanted = wanted.map_or(0, |service| service.scale.instances);
                let ready = route.targets.iter().filter(|target| !target.draining).count();
                self.hold(ready >= wanted as usize, || {
                    let (path, name) = (&route.path, &gateway.name);
                    format!("'{path}' of '{name}' has {ready} of {wanted} targets")
                });
            }
        }
    }

    /// A gateway without a port is there only when all ports of the pool are given away, and what the state says of
    /// being served is so.
    fn check_gateways(&self, state: &State) {
        let used: BTreeSet<u16> =
            state.gateways().values().map(|stored| stored.gateway.port.number).collect();
        let is_full = PORTS.clone().all(|port| used.contains(&port));
        let served = self.world.served();
        for (name, stored) in state.published_gateways() {
            self.hold(stored.gateway.port.number != 0 || is_full, || {
                format!("gateway '{name}' has no port though there are some")
            });
            let is_served = served.gateways.iter().any(|gateway| gateway.name == *name);
            self.hold(stored.deployed == is_served && stored.reason.is_none(), || {
                format!("gateway '{name}' is served: {is_served}, which the state does not say")
            });
        }
    }

    /// What was told last of health and metrics is what a worker tells that knows nothing yet; what it does not tell
    /// any more was told to be nothing.
    ///
    /// What was measured of something that somebody took away in that very turn is not recorded. When it is back before
    /// it is looked again, the worker takes it for told until it changes, or five minutes are over.
    fn check_told(&self, state: &State) {
        let told = self.told(state, &self.world.told_anew());
        for (key, value) in told.iter().filter(|(key, _)| !self.unrecorded.contains(key)) {
            let last = self.follow.measures.last(key);
            self.hold(last == Some(value), || format!("{key:?} is {value}, and told was {last:?}"));
        }
        for (key, value) in self.follow.measures.all(state) {
            self.hold(told.contains_key(key) || *value == 0, || {
                format!("{key:?} is nothing, and told was {value}")
            });
        }
    }
}

impl Life {
    /// What `reports` tell of health and metrics when they are decided on `state`.
    pub(super) fn told(&self, state: &State, reports: &Command) -> BTreeMap<Key, Value> {
        let context = Context {
            now: self.world.now(),
            actor: segue_workers::health::ACTOR.to_owned(),
            cause: None,
            correlation: "anew".to_owned(),
        };
        let events = decide(state, reports, &context, &rules()).expect("reports are not refused");
        let measured = events.iter().filter(|event| event.fact.is_none());
        measured.map(|event| (Key::of(event), event.value.clone())).collect()
    }
}

/// Whether a service waits for ever, which is right: for a service of its deployment that somebody scaled to nothing,
/// that failed, that waits itself, or whose gateway found no port in the pool.
fn waits(state: &State, deployment: &Deployment, service: &Service) -> bool {
    let for_ever = service.breed.dependencies.values().any(|breed| {
        satisfying(deployment, breed.name()).is_some_and(|(cluster, dependency)| {
            let all = &deployment.clusters[cluster].services;
            let nothing_behind = all.iter().all(|service| service.scale.instances == 0);
            let gateway = state.gateway(&format!("{}/{cluster}/http", deployment.name));
            let without_port = gateway.is_some_and(|gateway| gateway.port.number == 0);
            let failed = dependency.status.phase.name == PhaseName::Failed;
            nothing_behind || failed || without_port
        })
    });
    for_ever && state.dependencies_ready(deployment, service).is_err()
}
