//! Images from a real registry that wants to know who asks, and pulls that take their time.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

use segue_tests::dockerd::{Dockerd, IMAGE};
use segue_tests::registry::{self, Registry};
use segue_workers::containers::conformance::{self, wait_for};
use segue_workers::containers::{
    Condition, ContainerDriver, DockerDriver, InstanceSpec, ObservedInstance, docker,
};
use std::time::Duration;
use tokio::net::TcpListener;

fn settings(daemon: &Dockerd, known: Option<(&Registry, &str)>) -> docker::Settings {
    let known = known.map(|(registry, password)| docker::Registry {
        address: registry.address(),
        username: registry::USER.to_owned(),
        password: docker::Secret::new(password),
    });
    docker::Settings {
        socket: daemon.socket(),
        stop_timeout: Duration::from_secs(1),
        registries: known.into_iter().collect(),
        ..docker::Settings::default()
    }
}

fn spec(image: &str, name: &str) -> InstanceSpec {
    let mut spec = conformance::spec("docker", image, name);
    let serve = "sh -c \"trap 'exit 0' TERM; nc -ll -p 8000 -e cat & wait\"";
    spec.dialect.insert("command".to_owned(), serve.into());
    spec
}

async fn stopped(driver: &DockerDriver, spec: &InstanceSpec) {
    driver.stop(&spec.owner.deployment, &spec.name).await.unwrap();
    wait_for(driver, &spec.owner.deployment, <[ObservedInstance]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_by_those_who_may() {
    let daemon = Dockerd::start().unwrap();
    let registry = Registry::start().unwrap();
    let image = daemon.push(&registry).unwrap();
    for (who, known) in [("nobody", None), ("somebody else", Some((&registry, "wrong")))] {
        let driver = DockerDriver::new(settings(&daemon, known));
        let spec = spec(&image, "refused");
        driver.start(&spec).await.unwrap();
        let is_refused = |found: &[ObservedInstance]| matches!(&found[0].condition, Condition::Refused(words) if words.contains("unauthorized: "));
        wait_for(&driver, &spec.owner.deployment, is_refused).await;
        stopped(&driver, &spec).await;
        println!("{who} gets nothing");
    }
    let driver = DockerDriver::new(settings(&daemon, Some((&registry, registry::PASSWORD))));
    let spec = spec(&image, "pulled");
    driver.start(&spec).await.unwrap();
    let is_running = |found: &[ObservedInstance]| found[0].condition == Condition::Running;
    wait_for(&driver, &spec.owner.deployment, is_running).await;
    let ran = driver.images(&spec.owner.deployment).await.unwrap().remove(&spec.name).unwrap();
    let inspect =
        |format: &str, what: &str| daemon.docker(&["inspect", "-f", format, what]).unwrap();
    assert_eq!(ran.name, image);
    assert_eq!(ran.id, inspect("{{.Id}}", &image));
    assert_eq!(ran.digests, [inspect("{{index .RepoDigests 0}}", &image)]);
    assert!(ran.digests[0].contains("@sha256:"), "{ran:?}");
    let label = inspect("{{index .Config.Labels \"io.segue.image\"}}", &spec.name);
    assert!(label.contains(&ran.id) && label.contains(&ran.digests[0]), "{label}");
    let told = inspect("{{json .}}", &spec.name);
    assert!(!told.contains("sesame"), "{told}");
    stopped(&driver, &spec).await;
    a_pull_that_hangs_holds_nobody_up(&daemon).await;
}

async fn a_pull_that_hangs_holds_nobody_up(daemon: &Dockerd) {
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let image = format!("{}/slow:1", silent.local_addr().unwrap());
    let driver = DockerDriver::new(settings(daemon, None));
    let (slow, mut other) = (spec(&image, "slow"), spec(IMAGE, "slow"));
    other.name.push_str("-other");
    driver.start(&slow).await.unwrap();
    driver.start(&slow).await.unwrap();
    driver.start(&other).await.unwrap();
    let one_runs_and_one_waits = |found: &[ObservedInstance]| {
        let waits = |found: &&ObservedInstance| {
            found.name == slow.name
                && matches!(&found.condition, Condition::Starting(words) if words.contains("waits for its image"))
        };
        let runs = |found: &&ObservedInstance| {
            found.name == other.name && found.condition == Condition::Running
        };
        found.len() == 2
            && found.iter().any(|found| waits(&found))
            && found.iter().any(|found| runs(&found))
    };
    wait_for(&driver, &slow.owner.deployment, one_runs_and_one_waits).await;
    driver.stop(&slow.owner.deployment, &slow.name).await.unwrap();
    let left = driver.observe(&slow.owner.deployment).await.unwrap();
    assert_eq!(left.len(), 1, "who does not wait any more is gone at once: {left:?}");
    stopped(&driver, &other).await;
    let hasty = docker::Settings { pull_timeout: Duration::from_secs(1), ..settings(daemon, None) };
    let driver = DockerDriver::new(hasty);
    driver.start(&slow).await.unwrap();
    let is_given_up = |found: &[ObservedInstance]| matches!(&found[0].condition, Condition::Exited(words) if words.contains("not done after 1 s"));
    wait_for(&driver, &slow.owner.deployment, is_given_up).await;
    stopped(&driver, &slow).await;
}
