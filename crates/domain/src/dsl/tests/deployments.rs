//! Bodies of deployments, and deployments as they are printed.

use super::{node, options, problems};
use crate::artifact::{
    Blueprint, Cluster, Deployment, Gateway, Instance, Intention, Leaving, Phase, PhaseName, Port,
    PortType, Route, RoutePath, Service, Status,
};
use crate::dsl::{
    DeploymentBody, DeploymentView, ExternalGatewayView, Options, read_blueprint, read_breed,
    read_deployment_body, write_deployment, write_deployment_as_blueprint,
};
use time::macros::datetime;

fn reference(text: &str) -> Option<String> {
    match read_deployment_body(&node(text), &options()) {
        Ok(DeploymentBody::Reference(name)) => Some(name),
        _ => None,
    }
}

fn content(text: &str, options: &Options) -> Blueprint {
    match read_deployment_body(&node(text), options) {
        Ok(DeploymentBody::Blueprint(blueprint)) => *blueprint,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn references_to_blueprints() {
    for text in [
        "x",
        "{name: x}",
        "{name: x, kind: deployment}",
        "{ref: x}",
        "{reference: x}",
        "{ref: x, kind: blueprint}",
    ] {
        assert_eq!(reference(text).as_deref(), Some("x"), "{text}");
    }
    let refuse = |text: &str, expected: &str| {
        assert_eq!(problems(&read_deployment_body(&node(text), &options())), [expected], "{text}");
    };
    refuse("5", "unexpected-type  1:1");
    refuse("[x]", "unexpected-type  1:1");
    refuse("{ref: x, name: y}", "unexpected-element /name 1:10");
    refuse("{name: x, kind: breed}", "inconsistent-artifact-kind /kind 1:17");
    refuse("a/b", "illegal-name  1:1");
}

#[test]
fn content_of_deployments() {
    let body = content("clusters: {c: x}", &options());
    assert_eq!((body.name.as_str(), body.clusters.len()), ("", 1));
    let named = Options { name: Some("d".to_owned()), ..options() };
    assert_eq!(content("clusters: {c: x}", &named).name, "d");
    assert_eq!(content("name: e\nkind: deployment\nclusters: {c: x}", &options()).name, "e");
    content("clusters: {c: {name: x, deployable: d, dependencies: {a: 'y*'}}}", &options());
    let refuse = |text: &str, expected: &str| {
        assert_eq!(problems(&read_deployment_body(&node(text), &options())), [expected], "{text}");
    };
    refuse(
        "clusters: {c: {breed: x, status: {intention: deployment}}}",
        "undefined-state-intention /clusters/c/status/intention 1:46",
    );
    refuse(
        "clusters: {c: {breed: x, status: {phase: {name: done}}}}",
        "undefined-state-step /clusters/c/status/phase/name 1:49",
    );
    refuse(
        "clusters: {c: {breed: x, status: Done}}",
        "unexpected-inner-element /clusters/c/status 1:34",
    );
    refuse("clusters: {c: {breed: x, statu: Done}}", "unexpected-element /clusters/c/statu 1:26");
}

fn deployment() -> (Deployment, DeploymentView) {
    let since = datetime!(2030-01-10 15:33:49.766 UTC);
    let breed = "name: web:1\ndeployable: img\nports: {http: 80}\nenv: {A: 1, B: ~, 'C[D]': x}";
    let service = Service {
        status: Status {
            intention: Intention::Deployment,
            since,
            phase: Phase {
                name: PhaseName::Failed,
                since,
                notification: Some("no image".to_owned()),
            },
        },
        breed: read_breed(&node(breed), &options()).unwrap(),
        environment_variables: [("A", "1"), ("B", "service"), ("C", "y")]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .collect(),
        environment: Some(
            [("A", "1"), ("B", "a$b"), ("C[D]", "y")]
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        ),
        former_environment: indexmap::IndexMap::new(),
        scale: crate::artifact::Scale {
            cpu: crate::artifact::Cpu::from_milli(200),
            memory: crate::artifact::Memory::from_megabytes(64),
            instances: 1,
        },
        arguments: Vec::new(),
        dependencies: [("db".to_owned(), "store".to_owned())].into_iter().collect(),
        health_checks: None,
        network: None,
        dialects: serde_json::Map::new(),
        instances: vec![Instance {
            name: "i1".to_owned(),
            host: "10.0.0.1".to_owned(),
            ports: [("http".to_owned(), 31000)].into_iter().collect(),
            deployed: true,
            leaving: Leaving::No,
            served: false,
        }],
    };
    let cluster = Cluster {
        metadata: serde_json::Map::new(),
        host: "127.0.0.1".to_owned(),
        sla: None,
        services: vec![service],
        health_checks: None,
        network: None,
        dialects: serde_json::Map::new(),
    };
    let deployment = Deployment {
        name: "d".to_owned(),
        metadata: serde_json::Map::new(),
        clusters: [("web".to_owned(), cluster)].into_iter().collect(),
        environment_variables: [("web.B", "deployment"), ("web.gone", "1")]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .collect(),
        dialects: serde_json::Map::new(),
    };
    (deployment, view())
}

fn view() -> DeploymentView {
    let gateway = |name: &str, port: u16, paths: &[&str]| Gateway {
        name: name.to_owned(),
        metadata: serde_json::Map::new(),
        port: Port::new(port, PortType::Http),
        sticky: None,
        virtual_hosts: vec!["h".to_owned()],
        routes: paths
            .iter()
            .map(|path| {
                let weight =
                    crate::artifact::Percentage::new(if paths.len() == 1 { 100 } else { 50 });
                (RoutePath::parse(path).unwrap(), Route { weight, ..Route::default() })
            })
            .collect(),
    };
    let internal = gateway("d/web/http", 20000, &["d/web/web:1/http"]);
    DeploymentView {
        gateways: [("web".to_owned(), [("http".to_owned(), internal)].into_iter().collect())]
            .into_iter()
            .collect(),
        ports: [("web.http".to_owned(), 20000)].into_iter().collect(),
        external: vec![
            ExternalGatewayView {
                key: "8080".to_owned(),
                gateway: gateway("d/8080", 8080, &["d/web/http"]),
            },
            ExternalGatewayView {
                key: "any".to_owned(),
                gateway: gateway("d/any", 0, &["d/web/http", "other/web/http"]),
            },
        ],
    }
}

/// Shows: I2.1-timestamps, I2.2-deployment, I2.2-ports, I2.2-hosts, I2.2-cluster, I2.2-service
/// Shows: I2.2-status, I2.2-scale, I2.2-instances, I2.2-gateway, I2.2-route
#[test]
fn a_deployment_is_printed_and_can_be_sent_back() {
    let (deployment, view) = deployment();
    let written = write_deployment(&deployment, &view);
    insta::assert_snapshot!(serde_json::to_string_pretty(&written).unwrap());
    let body = content(&written.to_string(), &options());
    assert_eq!(body.name, "d");
    assert_eq!(body.clusters["web"].services[0].environment_variables["B"].as_deref(), Some("a$b"));
    assert_eq!(
        body.clusters["web"].gateways["http"].routes.keys().next().unwrap().as_str(),
        "web:1"
    );
}

/// Shows: D15, I2.2-export
#[test]
fn an_export_can_be_stored_as_a_blueprint() {
    let (deployment, view) = deployment();
    let written = write_deployment_as_blueprint(&deployment, &view);
    insta::assert_snapshot!(serde_json::to_string_pretty(&written).unwrap());
    let blueprint = read_blueprint(&node(&written.to_string()), &options()).unwrap();
    assert_eq!(blueprint.gateways.len(), 2);
}
