//! Random wishes and reports, legal and not, of few names, so that they meet.

use crate::world::{HOST, delete, deploy, post, service_key, store, submission, undeploy};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use segue_domain::artifact::{Cpu, Instance, Kind, Leaving, Memory, Scale};
use segue_domain::command::{Command, Report, Routed, ServiceKey, ServiceReport, Verb};
use segue_domain::dsl;
use segue_domain::state::State;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const DEPLOYMENTS: [&str; 2] = ["shop", "blog"];
const CLUSTERS: [&str; 2] = ["web", "store"];

/// Something that somebody does. What it is about is looked up in the state of the moment.
#[derive(Clone, Debug)]
pub enum Step {
    Store(Kind, Value),
    Delete(Kind, &'static str),
    Deploy(&'static str, Value),
    Undeploy(&'static str, Vec<bool>),
    /// The whole of a deployment as it is printed, sent back.
    SendBack(&'static str),
    Shift(Index, Vec<u8>),
    Scale(Index, u32),
    Post(&'static str, Vec<&'static str>),
    About(Index, ServiceReport),
    Routed(Vec<bool>, Vec<bool>),
    /// A report of before, once more.
    Again(Index),
}

/// Many steps.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..40)
}

impl Step {
    /// The command that this is in `state`; `None` when there is nothing that it could be about, or when its document
    /// is refused already when it is read.
    pub fn command(&self, state: &State, reports: &[Command]) -> Option<Command> {
        match self {
            Step::Store(kind, document) => store(*kind, &document.to_string()).ok(),
            Step::Delete(kind, name) => Some(delete(*kind, name)),
            Step::Deploy(name, body) => deploy(name, &body.to_string()).ok(),
            Step::Undeploy(name, which) => undeploy(name, &named(state, name, which)?).ok(),
            Step::SendBack(name) => {
                let key = segue_domain::artifact::ArtifactKey::new(Kind::Deployment, *name);
                deploy(name, &dsl::representation(state, &key, HOST)?.to_string()).ok()
            }
            Step::Shift(gateway, weights) => shift(state, *gateway, weights),
            Step::Scale(service, instances) => scale(state, *service, *instances),
            Step::Post(kind, tags) => Some(post(kind, tags)),
            Step::About(service, report) => {
                let keys = services(state);
                let key = if keys.is_empty() {
                    service_key("shop", "web", "nobody:1")
                } else {
                    service.get(&keys).clone()
                };
                let report = report.clone();
                Some(Command::Report(Report::Service { key, report }))
            }
            Step::Routed(served, released) => Some(routed(state, served, released)),
            Step::Again(which) => (!reports.is_empty()).then(|| which.get(reports).clone()),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => breed().prop_map(|breed| Step::Store(Kind::Breed, breed)),
        1 => (0..3_u32).prop_map(|instances| Step::Store(
            Kind::Scale,
            json!({"name": "small", "cpu": 0.5, "memory": "64MB", "instances": instances})
        )),
        1 => body().prop_map(|mut body| {
            body["name"] = json!("plan");
            Step::Store(Kind::Blueprint, body)
        }),
        2 => gateway().prop_map(|gateway| Step::Store(Kind::Gateway, gateway)),
        1 => part(),
        2 => any_name().prop_map(|(kind, name)| Step::Delete(kind, name)),
        8 => (select(&DEPLOYMENTS[..]), body()).prop_map(|(name, body)| Step::Deploy(name, body)),
        1 => select(&DEPLOYMENTS[..]).prop_map(|name| Step::Deploy(name, json!({"name": "plan"}))),
        3 => (select(&DEPLOYMENTS[..]), vec(any::<bool>(), 4)).prop_map(|(name, which)| Step::Undeploy(name, which)),
        1 => select(&DEPLOYMENTS[..]).prop_map(|name| Step::Undeploy(name, vec![true; 4])),
        1 => select(&DEPLOYMENTS[..]).prop_map(Step::SendBack),
        3 => (any::<Index>(), vec(select(&[0_u8, 0, 20, 50, 80, 100, 100][..]), 1..4)).prop_map(|(gateway, weights)| Step::Shift(gateway, weights)),
        2 => (any::<Index>(), 0..4_u32).prop_map(|(service, instances)| Step::Scale(service, instances)),
        2 => forged(),
        12 => (any::<Index>(), report()).prop_map(|(service, report)| Step::About(service, report)),
        4 => (vec(any::<bool>(), 6), vec(any::<bool>(), 4)).prop_map(|(served, released)| Step::Routed(served, released)),
        2 => any::<Index>().prop_map(Step::Again),
    ]
}

/// Breeds of three versions and two clusters; the web may depend on the store.
fn breed() -> impl Strategy<Value = Value> {
    let parts = (select(&CLUSTERS[..]), 1..4_u32, 0..8_u32, any::<bool>(), any::<bool>());
    parts.prop_map(|(cluster, version, variant, depends, argument)| {
        let mut breed = json!({
            "name": format!("{cluster}:{version}"),
            "deployable": format!("acme/{cluster}:{version}"),
            "ports": {"http": "8080/http"},
            "environment_variables": {"MODE": "plain", "LEVEL[LOG_LEVEL]": "info"},
            "constants": {"motto": "fast"},
        });
        match variant {
            0 => breed["ports"]["admin"] = json!("9000/http"),
            1 => breed["ports"] = json!({"admin": "9000/tcp"}),
            2 => breed["environment_variables"]["MODE"] = json!("other $motto"),
            3 => breed["environment_variables"]["MODE"] = Value::Null,
            4 => breed["ports"] = json!({}),
            _ => {}
        }
        if argument {
            breed["arguments"] = json!([{"privileged": "true"}, {"size": variant.to_string()}]);
        }
        if cluster == "web" && depends {
            breed["dependencies"] = json!({"db": "store:*"});
            breed["environment_variables"]["DB"] = json!("http://$db.host:$db.ports.http");
        }
        breed
    })
}

fn service() -> impl Strategy<Value = Value> {
    (breed(), any::<bool>(), 0..6_u32, any::<bool>(), any::<bool>()).prop_map(
        |(breed, reference, scale, variable, argument)| {
            let mut service = json!({});
            service["breed"] = if reference { breed["name"].clone() } else { breed };
            match scale {
                0 => service["scale"] = json!("small"),
                1..4 => {
                    service["scale"] = json!({"cpu": 1, "memory": "1GB", "instances": scale});
                }
                _ => {}
            }
            if variable {
                service["environment_variables"] = json!({"MODE": format!("own {scale}")});
            }
            if argument {
                service["arguments"] = json!([{"size": "own"}]);
            }
            service
        },
    )
}

fn cluster() -> impl Strategy<Value = Value> {
    (vec(service(), 1..3), 0..6_u32).prop_map(|(services, gateways)| {
        let name = |service: &Value| {
            let breed = &service["breed"];
            breed.as_str().or_else(|| breed["name"].as_str()).unwrap_or_default().to_owned()
        };
        let names: Vec<String> = services.iter().map(name).collect();
        let mut cluster = json!({ "services": services });
        if gateways == 0 {
            let routes: serde_json::Map<String, Value> =
                names.iter().map(|name| (name.clone(), json!({}))).collect();
            cluster["gateways"] = json!({"http": {"sticky": "route", "routes": routes}});
        }
        if gateways == 1 {
            cluster["gateways"] = json!({"routes": {&names[0]: {"weight": "100%"}}});
        }
        cluster
    })
}

fn body() -> impl Strategy<Value = Value> {
    let ports = btree_set(select(&["9050", "9051", "20000", "20001", "entry"][..]), 0..3);
    (vec((select(&CLUSTERS[..]), cluster()), 1..3), ports, 0..4_u32).prop_map(
        |(clusters, ports, extras)| {
            let mut body = json!({"clusters": {}});
            for (name, cluster) in clusters {
                for port in &ports {
                    body["gateways"][*port] = json!(format!("{name}/http"));
                }
                if extras == 0 {
                    body["environment_variables"] = json!({format!("{name}.MODE"): "shared"});
                }
                body["clusters"][name] = cluster;
            }
            if extras == 1 && body["gateways"].is_object() {
                let routes = json!({"web/http": {"weight": "70%"}, "store/http": {}});
                body["gateways"]["9052"] = json!({"sticky": "route", "routes": routes});
            }
            body
        },
    )
}

fn gateway() -> impl Strategy<Value = Value> {
    const NAMES: [&str; 5] = ["edge", "shop/9050", "blog/20001", "shop/web/http", "a/b/c/d"];
    const PATHS: [&str; 4] = ["shop/web/http", "shop/web/web:1/http", "edge", "[10.0.0.1:80]"];
    let routes = vec((select(&PATHS[..]), select(&[0_u8, 50, 100][..])), 1..3);
    let port = select(&["0", "0/tcp", "9050", "20000", "20002"][..]);
    (select(&NAMES[..]), port, routes).prop_map(|(name, port, routes)| {
        let routes: serde_json::Map<String, Value> = routes
            .into_iter()
            .map(|(path, weight)| {
                // Some take what the stored route says.
                let route = match weight {
                    100 => json!({"ref": "half"}),
                    weight => json!({"weight": format!("{weight}%")}),
                };
                (path.to_owned(), route)
            })
            .collect();
        json!({"name": name, "port": port, "routes": routes})
    })
}

/// What gateways and documents are made of.
fn part() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..=1_u8, any::<bool>()).prop_map(|(weight, refers)| {
            let rewrites =
                if refers { json!([{"ref": "strip"}]) } else { json!([{"path": "/a if b"}]) };
            let weight = format!("{}%", weight * 100);
            Step::Store(
                Kind::Route,
                json!({"name": "half", "weight": weight, "rewrites": rewrites}),
            )
        }),
        select(&["/x", "/y"][..]).prop_map(|path| Step::Store(
            Kind::Rewrite,
            json!({"name": "strip", "path": format!("{path} if path_beg /z")})
        )),
        (0..3_u32).prop_map(|a| Step::Store(
            Kind::Template,
            json!({"name": "base", "definition": {"a": a}})
        )),
    ]
}

fn any_name() -> impl Strategy<Value = (Kind, &'static str)> {
    select(
        &[
            (Kind::Breed, "web:1"),
            (Kind::Breed, "store:1"),
            (Kind::Scale, "small"),
            (Kind::Route, "half"),
            (Kind::Rewrite, "strip"),
            (Kind::Template, "base"),
            (Kind::Blueprint, "plan"),
            (Kind::Gateway, "edge"),
            (Kind::Gateway, "shop/9050"),
            (Kind::Gateway, "shop/web/http"),
            (Kind::Deployment, "shop"),
        ][..],
    )
}

/// Events that look like those that Segue makes itself.
fn forged() -> impl Strategy<Value = Step> {
    const KINDS: [&str; 5] = ["archive", "synchronisation", "deployment", "gateway", "event"];
    const TAGS: [&str; 8] = [
        "deployments:shop",
        "clusters:web",
        "services:web:1",
        "synchronisation:undeployed",
        "archiving:delete",
        "breeds:web:1",
        "gateways:shop/web/http",
        "phase:Failed",
    ];
    (select(&KINDS[..]), vec(select(&TAGS[..]), 1..4))
        .prop_map(|(kind, tags)| Step::Post(kind, tags))
}

fn report() -> impl Strategy<Value = ServiceReport> {
    prop_oneof![
        3 => Just(ServiceReport::TakenUp),
        3 => Just(ServiceReport::EnvironmentDue),
        4 => instances().prop_map(ServiceReport::Instances),
        4 => Just(ServiceReport::Done),
        1 => Just(ServiceReport::Differs("it differs".to_owned())),
        1 => Just(ServiceReport::Trouble("it does not start".to_owned())),
        1 => Just(ServiceReport::Failed("it never starts".to_owned())),
        3 => Just(ServiceReport::Gone),
    ]
}

fn instances() -> impl Strategy<Value = Vec<Instance>> {
    let leaving = select(&[Leaving::No, Leaving::No, Leaving::Draining, Leaving::Released][..]);
    vec((any::<bool>(), leaving), 0..4).prop_map(|instances| {
        let instance = |(number, (deployed, leaving)): (usize, (bool, Leaving))| Instance {
            name: format!("instance-{number}"),
            host: "127.0.0.1".to_owned(),
            ports: [("http".to_owned(), 31_000)].into_iter().collect(),
            deployed,
            leaving,
            served: false,
        };
        instances.into_iter().enumerate().map(instance).collect()
    })
}

fn services(state: &State) -> Vec<ServiceKey> {
    let all = state.deployments().iter().flat_map(|(name, stored)| {
        stored
            .artifact
            .services()
            .map(|(cluster, service)| service_key(name, cluster, &service.breed.name))
            .collect::<Vec<_>>()
    });
    all.collect()
}

fn named(state: &State, name: &str, which: &[bool]) -> Option<String> {
    let mut body = json!({"clusters": {}});
    for ((cluster, service), _) in
        state.deployment(name)?.services().zip(which).filter(|(_, named)| **named)
    {
        if body["clusters"][cluster].is_null() {
            body["clusters"][cluster] = json!({"services": []});
        }
        let services = body["clusters"][cluster]["services"].as_array_mut()?;
        services.push(json!({"breed": service.breed.name}));
    }
    Some(body.to_string())
}

fn shift(state: &State, gateway: Index, weights: &[u8]) -> Option<Command> {
    let all: Vec<_> = state.published_gateways().map(|(_, stored)| &stored.gateway).collect();
    if all.is_empty() {
        return None;
    }
    let chosen = gateway.get(&all);
    let routes: serde_json::Map<String, Value> = chosen
        .routes
        .keys()
        .zip(weights.iter().chain(std::iter::repeat(&0)))
        .map(|(path, weight)| (path.as_str().to_owned(), json!({"weight": format!("{weight}%")})))
        .collect();
    let document = json!({"name": chosen.name, "port": chosen.port.text, "routes": routes});
    store(Kind::Gateway, &document.to_string()).ok()
}

fn scale(state: &State, service: Index, instances: u32) -> Option<Command> {
    let keys = services(state);
    if keys.is_empty() {
        return None;
    }
    let ServiceKey { deployment, cluster, service } = service.get(&keys).clone();
    let scale =
        Scale { cpu: Cpu::from_milli(1000), memory: Memory::from_megabytes(1024), instances };
    Some(Command::Scale {
        deployment,
        cluster,
        service,
        scale,
        submission: submission(Verb::Update),
    })
}

fn routed(state: &State, served: &[bool], released: &[bool]) -> Command {
    let published = state.published_gateways().zip(served.iter().chain(std::iter::repeat(&true)));
    let served: BTreeSet<String> = published
        .filter(|((_, stored), served)| **served && stored.gateway.port.number != 0)
        .map(|((name, _), _)| name.clone())
        .collect();
    let instances = services(state).into_iter().flat_map(|key| {
        let found = state
            .deployment(&key.deployment)
            .and_then(|found| found.service(&key.cluster, &key.service));
        let names = found.map(|service| service.instances.iter().map(|found| found.name.clone()));
        names.into_iter().flatten().map(move |name| (key.clone(), name)).collect::<Vec<_>>()
    });
    let released =
        instances.zip(released).filter(|(_, released)| **released).map(|(found, _)| found);
    let released = released.collect();
    Command::Report(Report::Routed(Routed { served, released, ..Routed::default() }))
}
