//! One life: what happens in which order, and what must hold meanwhile and in the end.

use super::world::World;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use segue_domain::artifact::{
    Argument, Blueprint, BlueprintCluster, BlueprintGateway, BlueprintService, Breed,
    BreedReference, Cpu, Deployable, Deployment, Gateway, Intention, Leaving, Memory, Metadata,
    Percentage, PhaseName, Port, PortType, Route, RoutePath, Scale, ScaleReference, Service,
    Traits,
};
use segue_domain::command::{Artifact, Command, Store, Submission, Verb};
use segue_domain::dsl::DeploymentBody;
use segue_domain::event::Position;
use segue_domain::store::replay;
use segue_workers::containers::Condition;
use segue_workers::driver::Error;
use segue_workers::routing::configuration;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};

const DEPLOYMENTS: [&str; 2] = ["shop", "blog"];
const CLUSTERS: [&str; 3] = ["front", "back", "store"];
/// How many quiet seconds everything may take to come to rest.
const QUIET_SECONDS_MAX: u32 = 400;

/// A world, and the chance that drives it.
pub struct Life {
    random: StdRng,
    world: World,
    /// Instances that ended by themselves: what happens to traffic to those is not Segue's doing.
    crashed: BTreeSet<String>,
    /// Instances that requests keep.
    kept: BTreeSet<String>,
    /// Since when instances were seen on their way out.
    draining: BTreeMap<String, OffsetDateTime>,
}

impl Life {
    pub fn new(random: StdRng) -> Self {
        Self {
            random,
            world: World::new(),
            crashed: BTreeSet::new(),
            kept: BTreeSet::new(),
            draining: BTreeMap::new(),
        }
    }

    /// Something happens.
    pub fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..12 => self.merge(),
            12..18 => self.shift(),
            18..22 => self.scale(),
            22..28 => self.delete(),
            28..32 => self.crash_instance(),
            32..36 => self.fail_driver(),
            36..38 => self.calm(),
            38..40 => self.carry(),
            40..43 => self.world.kill_service(),
            43..46 => self.killed_in_the_middle_of_a_turn(),
            46..48 => self.lose_proxy(),
            48..50 => self.take_ports(),
            50..58 => self.pass_time(),
            58..63 => self.turn_overtaken(),
            _ => self.turn(),
        }
        self.check_always();
        self.check_drained();
    }

    /// Nobody does anything any more; the workers get as many turns as they want.
    pub fn settle(&mut self) {
        self.calm();
        let mut calm = 0;
        for _ in 0..QUIET_SECONDS_MAX {
            let before = self.world.store.log().last();
            for _ in 0..4 {
                self.watched(World::turn_all);
                self.check_always();
            }
            self.world.advance(Duration::seconds(1));
            calm = if self.world.store.log().last() == before { calm + 1 } else { 0 };
            // A pause after failures lasts 30 s at the most.
            if calm > 35 {
                // Also at rest, a proxy that lost everything gets it back.
                self.lose_proxy();
                self.watched(World::turn_all);
                return;
            }
        }
        panic!("no rest after {QUIET_SECONDS_MAX} s:\n{}", self.world.story());
    }

    /// What runs is what is wanted, and nothing else.
    pub fn check_settled(&self) {
        let state = self.world.store.state();
        let mut running: BTreeMap<(String, String, String), u32> = BTreeMap::new();
        for instance in self.world.containers.instances() {
            let owner = instance.owner.clone();
            assert_eq!(
                instance.condition,
                Condition::Running,
                "{}\n{}",
                instance.name,
                self.world.story()
            );
            *running.entry((owner.deployment, owner.cluster, owner.service)).or_default() += 1;
        }
        for (name, stored) in state.deployments() {
            for (cluster, service) in stored.artifact.services() {
                let key = (name.clone(), cluster.to_owned(), service.breed.name.clone());
                let found = running.remove(&key).unwrap_or_default();
                if self.waits_for_ever(&stored.artifact, service) {
                    continue;
                }
                assert_eq!(
                    service.status.intention,
                    Intention::Deployment,
                    "{key:?} stays\n{}",
                    self.world.story()
                );
                assert_eq!(
                    service.status.phase.name,
                    PhaseName::Done,
                    "{key:?}\n{}",
                    self.world.story()
                );
                assert_eq!(found, service.scale.instances, "{key:?}\n{}", self.world.story());
                assert_eq!(
                    service.instances.len(),
                    found as usize,
                    "{key:?}\n{}",
                    self.world.story()
                );
            }
        }
        assert!(running.is_empty(), "wanted by nobody: {running:?}\n{}", self.world.story());
        assert_eq!(self.world.served(), configuration(&state), "{}", self.world.story());
        self.check_routes();
        self.check_provenance();
        let replayed = replay(self.world.store.log()).expect("the log reads");
        assert_eq!(replayed, *state, "{}", self.world.story());
        assert_eq!(replayed.hash(), state.hash());
    }

    /// Every route with a share that leads to a service has all of its instances as targets.
    fn check_routes(&self) {
        let state = self.world.store.state();
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
                assert!(
                    ready >= wanted as usize,
                    "'{}' of '{}' has {ready} of {wanted} targets\n{}",
                    route.path,
                    gateway.name,
                    self.world.story()
                );
            }
        }
    }

    /// Every record says who, for what request or turn, and, when a worker made it, what led to it.
    fn check_provenance(&self) {
        let records = self.world.store.log().read(Position::START, usize::MAX);
        for record in records.expect("the log reads") {
            let from = &record.provenance;
            let by_worker = from.actor.starts_with("worker:");
            let caused = from.cause.is_some_and(|cause| cause < record.position);
            assert!(
                !from.actor.is_empty() && !from.correlation.is_empty() && (caused || !by_worker),
                "record {} does not say where it comes from\n{}",
                record.position,
                self.world.story()
            );
        }
    }

    /// Whether a service depends on one that somebody scaled to nothing: that it waits, until the time-out, is right.
    fn waits_for_ever(&self, deployment: &Deployment, service: &Service) -> bool {
        let state = self.world.store.state();
        let nothing_behind = service.breed.dependencies.values().any(|breed| {
            segue_domain::state::satisfying(deployment, breed.name()).is_some_and(|(cluster, _)| {
                let services = &deployment.clusters[cluster].services;
                services.iter().all(|service| service.scale.instances == 0)
            })
        });
        nothing_behind && state.dependencies_ready(deployment, service).is_err()
    }

    /// What holds at any time.
    fn check_always(&self) {
        let alive: BTreeSet<String> = self
            .world
            .containers
            .instances()
            .into_iter()
            .filter(|instance| instance.condition == Condition::Running)
            .map(|instance| instance.name)
            .collect();
        for gateway in self.world.served().gateways {
            for route in gateway.routes {
                for target in route.targets.iter().filter(|target| !target.draining) {
                    assert!(
                        alive.contains(&target.name) || self.crashed.contains(&target.name),
                        "'{}' gets traffic of '{}' and was taken away\n{}",
                        target.name,
                        gateway.name,
                        self.world.story()
                    );
                }
            }
        }
        let state = self.world.store.state();
        let mut ports = BTreeSet::new();
        for stored in state.gateways().values() {
            let number = stored.gateway.port.number;
            assert!(
                number == 0 || ports.insert(number),
                "port {number} was given twice\n{}",
                self.world.story()
            );
        }
        for stored in state.deployments().values() {
            for (_, service) in stored.artifact.services() {
                let phase = &service.status.phase;
                let silent = phase.name == PhaseName::Failed && phase.notification.is_none();
                assert!(!silent, "a failure without reason\n{}", self.world.story());
            }
        }
    }

    fn merge(&mut self) {
        let name = self.pick(&DEPLOYMENTS);
        let body = self.blueprint();
        self.execute(&Command::Deploy {
            name: name.to_owned(),
            body: Box::new(DeploymentBody::Blueprint(Box::new(body))),
            submission: submission(Verb::Update),
        });
    }

    /// Other weights at some gateway.
    fn shift(&mut self) {
        let state = self.world.store.state();
        let published: Vec<_> =
            state.published_gateways().map(|(_, stored)| stored.gateway.clone()).collect();
        let Some(gateway) = published.choose(&mut self.random) else { return };
        let mut gateway = (**gateway).clone();
        let full = self.random.random_range(0..gateway.routes.len());
        for (index, route) in gateway.routes.values_mut().enumerate() {
            route.weight = Some(if index == full { Percentage::HUNDRED } else { Percentage::ZERO });
        }
        self.store(Artifact::Gateway(Box::new(gateway)));
    }

    fn scale(&mut self) {
        let state = self.world.store.state();
        let services: Vec<(String, String, String)> = state
            .deployments()
            .iter()
            .flat_map(|(name, stored)| {
                let services = stored.artifact.services();
                services.map(|(cluster, service)| {
                    (name.clone(), cluster.to_owned(), service.breed.name.clone())
                })
            })
            .collect::<Vec<_>>();
        let Some((deployment, cluster, service)) = services.choose(&mut self.random).cloned()
        else {
            return;
        };
        let scale = self.any_scale();
        self.execute(&Command::Scale {
            deployment,
            cluster,
            service,
            scale,
            submission: submission(Verb::Update),
        });
    }

    fn delete(&mut self) {
        let name = self.pick(&DEPLOYMENTS);
        let state = self.world.store.state();
        let Some(deployment) = state.deployment(name) else { return };
        let whole = self.random.random_bool(0.4);
        let mut body = empty_blueprint();
        for (cluster, service) in deployment.services() {
            if whole || self.random.random_bool(0.4) {
                let named = BlueprintService {
                    breed: BreedReference::Inline(Box::new(service.breed.clone())),
                    ..plain_service(BreedReference::Reference(String::new()))
                };
                body.clusters.entry(cluster.to_owned()).or_default().services.push(named);
            }
        }
        self.execute(&Command::Undeploy {
            name: name.to_owned(),
            body: Box::new(DeploymentBody::Blueprint(Box::new(body))),
            submission: submission(Verb::Delete),
        });
    }

    fn crash_instance(&mut self) {
        let instances = self.world.containers.instances();
        let Some(instance) = instances.choose(&mut self.random) else { return };
        self.crashed.insert(instance.name.clone());
        if self.random.random_bool(0.5) {
            self.world.containers.crash(&instance.name, "exited with status 1");
        } else {
            self.world.containers.vanish(&instance.name);
        }
    }

    fn fail_driver(&mut self) {
        let times = self.random.random_range(1..4);
        let error = Error::Transient("the driver is out to lunch".to_owned());
        self.world.fail_something(self.random.random_range(0..4), times, &error);
    }

    /// Other programs sit on some ports of the pool.
    fn take_ports(&mut self) {
        let ports = (20_000..20_006).filter(|_| self.random.random_bool(0.5)).collect();
        self.world.take_ports(ports);
    }

    /// Requests under way keep some instances for a while.
    fn carry(&mut self) {
        let names = self.world.containers.instances().into_iter().map(|instance| instance.name);
        let kept: BTreeSet<String> = names.filter(|_| self.random.random_bool(0.3)).collect();
        // What is on its way out already gets no new requests.
        let state = self.world.store.state();
        let staying = state.deployments().values().flat_map(|stored| {
            let services = stored.artifact.services();
            services.flat_map(|(_, service)| &service.instances).collect::<Vec<_>>()
        });
        let staying: BTreeSet<&String> = staying
            .filter(|instance| instance.leaving == Leaving::No)
            .map(|instance| &instance.name)
            .collect();
        let kept: BTreeSet<String> =
            kept.into_iter().filter(|name| staying.contains(name)).collect();
        self.kept.clone_from(&kept);
        self.world.carry(kept);
    }

    /// The proxy works again, and no request hangs.
    fn calm(&mut self) {
        self.kept.clear();
        self.world.calm();
    }

    /// Somebody writes between what a worker did and what it reports.
    fn turn_overtaken(&mut self) {
        let which = self.random.next_u32() as usize;
        let turn = self.world.turn_overtaken(which);
        match self.random.random_range(0..4) {
            0 => self.merge(),
            1 => self.shift(),
            2 => self.scale(),
            _ => self.delete(),
        }
        if let Some((context, reports)) = turn {
            self.world.report(&context, reports);
        }
    }

    /// What requests keep is not stopped before its time is over.
    fn check_drained(&mut self) {
        let now = self.world.now();
        let state = self.world.store.state();
        for stored in state.deployments().values() {
            for (_, service) in stored.artifact.services() {
                for instance in
                    service.instances.iter().filter(|found| found.leaving != Leaving::No)
                {
                    self.draining.entry(instance.name.clone()).or_insert(now);
                }
            }
        }
        let instances = self.world.containers.instances();
        for name in self.kept.iter().filter(|name| !self.crashed.contains(*name)) {
            let there = instances.iter().any(|instance| instance.name == **name);
            let had_its_time =
                self.draining.get(name).is_some_and(|since| now - *since >= World::drain());
            assert!(
                there || had_its_time,
                "'{name}' was stopped under way\n{}",
                self.world.story()
            );
        }
    }

    fn lose_proxy(&mut self) {
        self.world.gateways.lose();
    }

    fn killed_in_the_middle_of_a_turn(&mut self) {
        let which = self.random.next_u32() as usize;
        self.world.turn_without_report(which);
        self.world.kill_service();
    }

    fn pass_time(&mut self) {
        let milliseconds = self.random.random_range(1..3_000);
        self.world.advance(Duration::milliseconds(milliseconds));
    }

    fn turn(&mut self) {
        let which = self.random.next_u32() as usize;
        self.watched(|world| world.turn(which));
    }

    /// Workers take turns, and no service that is wanted loses the last instance that takes traffic by that.
    fn watched(&mut self, turns: impl FnOnce(&mut World)) {
        let before = self.taking();
        turns(&mut self.world);
        let state = self.world.store.state();
        let after = self.taking();
        for (deployment, cluster, breed) in before.difference(&after) {
            let found =
                state.deployment(deployment).and_then(|found| found.service(cluster, breed));
            let wanted = found.is_some_and(|service| {
                service.status.intention == Intention::Deployment && service.scale.instances > 0
            });
            assert!(
                !wanted,
                "'{breed}' of '{deployment}' lost its last instance by a turn\n{}",
                self.world.story()
            );
        }
    }

    /// Services with an instance that runs and takes traffic.
    fn taking(&self) -> BTreeSet<(String, String, String)> {
        let instances = self.world.containers.instances();
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
                    taking.insert((name.clone(), cluster.to_owned(), service.breed.name.clone()));
                }
            }
        }
        taking
    }

    fn store(&mut self, artifact: Artifact) {
        self.execute(&Command::Store(Store { artifact, submission: submission(Verb::Update) }));
    }

    /// A user's wish; being refused is part of life.
    fn execute(&mut self, command: &Command) {
        self.world.execute(command);
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.choose(&mut self.random).expect("there is something to pick")
    }

    fn blueprint(&mut self) -> Blueprint {
        let mut blueprint = empty_blueprint();
        for cluster in CLUSTERS {
            if self.random.random_bool(0.5) {
                let version = self.random.random_range(1..4);
                let service = self.service(cluster, version);
                let content =
                    BlueprintCluster { services: vec![service], ..BlueprintCluster::default() };
                blueprint.clusters.insert(cluster.to_owned(), content);
            }
        }
        if let Some(cluster) =
            blueprint.clusters.keys().next().cloned().filter(|_| self.random.random_bool(0.5))
        {
            let number = self.random.random_range(9000..9004);
            let path = RoutePath::of([&cluster, "http"]);
            let gateway = Gateway {
                name: String::new(),
                metadata: Metadata::new(),
                port: Port::new(number, PortType::Http),
                sticky: None,
                virtual_hosts: Vec::new(),
                routes: [(path, Route::default())].into_iter().collect(),
            };
            blueprint.gateways.push(BlueprintGateway { key: number.to_string(), gateway });
        }
        blueprint
    }

    fn service(&mut self, cluster: &str, version: u32) -> BlueprintService {
        let breed = self.breed(cluster, version);
        let scale = self.random.random_bool(0.7).then(|| ScaleReference::Inline(self.any_scale()));
        let delay = self.random.random_range(0..3);
        let mut dialects = Metadata::new();
        if delay > 0 {
            dialects.insert("simulated".to_owned(), json!({ "delay": delay }));
        }
        BlueprintService {
            scale,
            dialects,
            ..plain_service(BreedReference::Inline(Box::new(breed)))
        }
    }

    /// The front depends on any version of the store; definitions of one name differ now and then.
    fn breed(&mut self, cluster: &str, version: u32) -> Breed {
        let mut environment_variables = Traits::new();
        let mut dependencies = indexmap::IndexMap::new();
        if cluster == "front" && self.random.random_bool(0.3) {
            dependencies
                .insert("store".to_owned(), BreedReference::Reference("store:*".to_owned()));
            environment_variables
                .insert("STORE".to_owned(), Some("$store.host:$store.ports.http".to_owned()));
        }
        environment_variables
            .insert("MODE".to_owned(), Some(self.random.random_range(0..2).to_string()));
        Breed {
            name: format!("{cluster}:{version}"),
            metadata: Metadata::new(),
            deployable: Deployable {
                kind: "container/docker".to_owned(),
                definition: format!("{cluster}:{version}"),
            },
            ports: [("http".to_owned(), Port::new(8080, PortType::Http))].into_iter().collect(),
            environment_variables,
            constants: Traits::new(),
            arguments: Vec::<Argument>::new(),
            dependencies,
            health_checks: None,
        }
    }

    fn any_scale(&mut self) -> Scale {
        Scale {
            cpu: Cpu::from_milli(self.random.random_range(1..3) * 100),
            memory: Memory::from_megabytes(64),
            instances: self.random.random_range(0..4),
        }
    }
}

fn submission(verb: Verb) -> Submission {
    Submission { verb, representation: json!("") }
}

fn empty_blueprint() -> Blueprint {
    Blueprint {
        name: String::new(),
        metadata: Metadata::new(),
        gateways: Vec::new(),
        clusters: indexmap::IndexMap::new(),
        environment_variables: Traits::new(),
        dialects: Metadata::new(),
    }
}

fn plain_service(breed: BreedReference) -> BlueprintService {
    BlueprintService {
        breed,
        environment_variables: Traits::new(),
        scale: None,
        arguments: Vec::new(),
        health_checks: None,
        network: None,
        dialects: Metadata::new(),
    }
}
