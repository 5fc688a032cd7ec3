//! Which checks the instances of a service get: its own, its cluster's, its breed's (documents, 2.6).

use crate::world::{World, deploy};

/// The paths of the effective checks of a service whose breed, service and cluster say these.
fn effective(breed: &str, service: &str, cluster: &str) -> Vec<String> {
    let body = format!(
        "clusters: {{c: {{services: [{{breed: {{name: b, deployable: d, ports: {{w: 1, x: 2}}{breed}}}{service}}}, {{name: other, deployable: d, ports: {{y: 3}}}}]{cluster}}}}}"
    );
    let mut world = World::new();
    world.must(&deploy("d", &body).unwrap_or_else(|problems| panic!("{body}\n{problems:?}")));
    let state = world.state();
    let deployment = state.deployment("d").unwrap();
    let checks =
        deployment.clusters["c"].effective_health_checks(deployment.service("c", "b").unwrap());
    checks.into_iter().map(|check| format!("{}{}", check.port, check.path)).collect()
}

#[test]
fn checks_of_service_cluster_and_breed_are_combined() {
    let check = |port: &str, path: &str| {
        format!(
            "{{port: {port}, path: {path}, initial_delay: 1s, timeout: 1s, interval: 1s, failures: 1}}"
        )
    };
    let with = |checks: &[String]| format!(", health_checks: [{}]", checks.join(", "));
    let breed = with(&[check("w", "/breed")]);
    let service = with(&[check("w", "/own")]);
    let cluster = with(&[check("w", "/own"), check("x", "/more"), check("y", "/theirs")]);
    assert_eq!(effective(&breed, "", ""), ["w/breed"]);
    assert_eq!(effective(&breed, "", &cluster), ["w/own", "x/more"]);
    assert_eq!(effective(&breed, &service, ""), ["w/own"]);
    assert_eq!(effective(&breed, &service, &cluster), ["w/own", "x/more"]);
    assert!(effective(&breed, &with(&[]), &cluster).is_empty());
    assert!(effective("", "", "").is_empty());
}
