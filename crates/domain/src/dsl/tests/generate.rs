//! Generated artifacts: everything that a reader can give, in small.

use crate::artifact::NamedScale;
use crate::artifact::{
    Argument, Balance, Blueprint, BlueprintCluster, BlueprintGateway, BlueprintService, Breed,
    BreedReference, Cpu, Deployable, Gateway, HealthCheck, Memory, Metadata, Percentage, Port,
    PortType, Rewrite, Route, RoutePath, Scale, ScaleReference, Sticky,
};
use indexmap::IndexMap;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::Value as Json;

/// Texts that YAML is tempted to read as something else.
fn text() -> impl Strategy<Value = String> {
    const ODD: &[&str] = &[
        "", "~", "yes", "010", "1:30", "<<", "a: b", "# c", "$$", "- x", "😀", "\"", "\\", "x\ny",
        "\u{7f}", "é", "1.50",
    ];
    prop_oneof![select(ODD).prop_map(str::to_owned), "[a-z ~!@#%&*(){}|<>?:;,.'\"-]{0,12}"]
}

pub(super) fn name() -> impl Strategy<Value = String> {
    const NAMES: &[&str] = &["yes", "~", "1.0", "8080", "<<", "é"];
    prop_oneof!["[a-z][a-z0-9.:*@_-]{0,6}", select(NAMES).prop_map(str::to_owned)]
}

fn strict_name() -> impl Strategy<Value = String> {
    "[a-zA-Z_][a-zA-Z0-9_:-]{0,6}"
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        (-1e9..1e9_f64).prop_map(Json::from),
        text().prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Json::from),
            vec((text(), inner), 0..3)
                .prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
}

pub(super) fn metadata() -> impl Strategy<Value = Metadata> {
    vec((text(), json()), 0..3).prop_map(|entries| entries.into_iter().collect())
}

fn map<T: std::fmt::Debug>(
    key: impl Strategy<Value = String>,
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = IndexMap<String, T>> {
    vec((key, value), 0..3).prop_map(|entries| entries.into_iter().collect())
}

fn port() -> impl Strategy<Value = Port> {
    let http = any::<u16>().prop_map(|number| Port {
        text: number.to_string(),
        number,
        kind: PortType::Http,
    });
    let typed = (any::<u16>(), any::<bool>()).prop_map(|(number, tcp)| {
        Port::new(number, if tcp { PortType::Tcp } else { PortType::Http })
    });
    prop_oneof![http, typed]
}

fn arguments() -> impl Strategy<Value = Vec<Argument>> {
    let key = text().prop_filter("has rules of its own", |key| key != "privileged");
    vec((key, text()).prop_map(|(key, value)| Argument { key, value }), 0..3)
}

pub(super) fn breed() -> impl Strategy<Value = Breed> {
    let dependency = prop_oneof![name().prop_map(|name| format!("dep-{name}"))];
    let parts = (
        (name(), metadata(), text(), text()),
        (
            map(strict_name(), port()),
            map(strict_name(), option::of(text())),
            map(strict_name(), text()),
        ),
        (
            arguments(),
            map(text(), dependency),
            any::<Option<bool>>(),
            any::<(u16, u16, u16, u16)>(),
            text(),
        ),
    );
    parts.prop_map(
        |(
            (name, metadata, kind, definition),
            (ports, variables, constants),
            (arguments, dependencies, checks, times, path),
        )| {
            let health_checks = checks.map(|with_check| {
                let port = ports.keys().next().filter(|_| with_check);
                port.into_iter()
                    .map(|port| HealthCheck {
                        path: path.clone(),
                        port: port.clone(),
                        initial_delay_seconds: times.0.into(),
                        timeout_seconds: times.1.into(),
                        interval_seconds: times.2.into(),
                        failures: times.3.into(),
                        protocol: "HTTP".to_owned(),
                    })
                    .collect()
            });
            Breed {
                name,
                metadata,
                deployable: Deployable { kind, definition },
                ports,
                environment_variables: variables.into_iter().collect(),
                constants: constants.into_iter().map(|(name, value)| (name, Some(value))).collect(),
                arguments,
                dependencies: dependencies
                    .into_iter()
                    .map(|(alias, name)| (alias, BreedReference::Reference(name)))
                    .collect(),
                health_checks,
            }
        },
    )
}

fn values() -> impl Strategy<Value = Scale> {
    (0..100_000_u64, 0..1_000_000_u64, any::<u32>()).prop_map(|(centi, megabytes, instances)| {
        Scale {
            cpu: Cpu::from_milli(centi * 10),
            memory: Memory::from_megabytes(megabytes),
            instances,
        }
    })
}

pub(super) fn scale() -> impl Strategy<Value = NamedScale> {
    (name(), metadata(), values()).prop_map(|(name, metadata, scale)| NamedScale {
        name,
        metadata,
        scale,
    })
}

fn route() -> impl Strategy<Value = Route> {
    let rewrite = ("[a-z/]{1,8}", "[a-z{} ]{0,4}[a-z]")
        .prop_map(|(path, condition)| Rewrite { path, condition });
    (text(), option::of(0..=100_u8), vec(rewrite, 0..2)).prop_map(
        |(balance, strength, rewrites)| Route {
            weight: None,
            balance: Balance(balance),
            condition_strength: strength.and_then(Percentage::new),
            rewrites,
            metadata: Metadata::new(),
        },
    )
}

fn sticky() -> impl Strategy<Value = Option<Sticky>> {
    option::of(prop_oneof![Just(Sticky::Route), Just(Sticky::Instance)])
}

pub(super) fn gateway() -> impl Strategy<Value = Gateway> {
    let path = prop_oneof![
        vec(name(), 1..=4).prop_map(|segments| segments.join("/")),
        "\\[[a-z0-9./:]{1,8}\\]"
    ];
    let name = vec(name(), 1..=4).prop_map(|segments| segments.join("/"));
    (name, metadata(), port(), sticky(), vec(text(), 0..3), map(path, route())).prop_map(
        |(name, metadata, port, sticky, virtual_hosts, routes)| Gateway {
            name,
            metadata,
            sticky: sticky.filter(|_| port.kind == PortType::Http),
            port,
            virtual_hosts,
            routes: routes
                .into_iter()
                .map(|(path, route)| (RoutePath::parse(&path).unwrap(), route))
                .collect(),
        },
    )
}

/// Blueprints with clusters `c0`, `c1`, ... whose breeds are `b0`, `b1`, ... and of which the first is inline.
pub(super) fn blueprint() -> impl Strategy<Value = Blueprint> {
    let service = (
        option::of(prop_oneof![
            name().prop_map(ScaleReference::Reference),
            values().prop_map(ScaleReference::Inline)
        ]),
        arguments(),
        option::of(text()),
        metadata(),
        map(strict_name(), text()),
    );
    let gateway = (port(), vec(text(), 0..2), sticky());
    let sla = option::of(super::generate_slas::sla_reference());
    let service = (service, sla);
    (name(), metadata(), metadata(), breed(), vec(service, 1..4), vec(gateway, 0..3)).prop_map(
        |(name, metadata, dialects, breed, services, gateways)| {
            let gateways = external(gateways, breed.ports.keys().next().map(String::as_str));
            let mut clusters = IndexMap::new();
            for (index, ((scale, arguments, network, dialects, variables), sla)) in
                services.into_iter().enumerate()
            {
                let is_inline = index == 0;
                let breed =
                    Breed { name: "b0".to_owned(), dependencies: IndexMap::new(), ..breed.clone() };
                let service = BlueprintService {
                    breed: if is_inline {
                        BreedReference::Inline(Box::new(breed))
                    } else {
                        BreedReference::Reference(format!("b{index}"))
                    },
                    environment_variables: variables
                        .into_iter()
                        .filter(|_| !is_inline)
                        .map(|(name, value)| (name, Some(value)))
                        .collect(),
                    scale,
                    arguments,
                    health_checks: None,
                    network: network.clone(),
                    dialects: dialects.clone(),
                };
                let cluster = BlueprintCluster {
                    metadata: dialects.clone(),
                    sla,
                    services: vec![service],
                    network,
                    dialects,
                    ..BlueprintCluster::default()
                };
                clusters.insert(format!("c{index}"), cluster);
            }
            Blueprint {
                name,
                metadata,
                gateways,
                clusters,
                environment_variables: IndexMap::new(),
                dialects,
            }
        },
    )
}

fn external(
    gateways: Vec<(Port, Vec<String>, Option<Sticky>)>,
    port_name: Option<&str>,
) -> Vec<BlueprintGateway> {
    let mut out: Vec<BlueprintGateway> = Vec::new();
    for (port, virtual_hosts, sticky) in gateways {
        let key = port.number.to_string();
        if out.iter().any(|entry| entry.key == key) {
            continue;
        }
        let routes = port_name.and_then(|port| RoutePath::parse(&format!("c0/{port}")));
        let gateway = Gateway {
            name: String::new(),
            metadata: Metadata::new(),
            sticky: sticky.filter(|_| port.kind == PortType::Http),
            port,
            virtual_hosts,
            routes: routes.into_iter().map(|path| (path, Route::default())).collect(),
        };
        out.push(BlueprintGateway { key, gateway });
    }
    out
}
