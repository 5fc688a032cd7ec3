//! What every container driver does, real or simulated, as one test.
//!
//! Each driver brings a [`Subject`]: how it is opened, and what works and what fails with it.

use super::{Condition, ContainerDriver, InstanceSpec, ObservedInstance, Owner};
use crate::driver::Error;
use futures::future::BoxFuture;
use indexmap::IndexMap;
use segue_domain::artifact::{Cpu, Deployable, Memory, Metadata};
use std::sync::Arc;
use std::time::Duration;

/// How long anything may take before the test gives up.
const LIMIT: Duration = Duration::from_mins(1);
/// How long it is waited for a signal before looking anyway, as workers do.
const PERIOD: Duration = Duration::from_secs(5);

/// A driver to be tested. Its specs stand for deployments of their own, as [`spec`] makes them.
pub struct Subject<'a> {
    /// Opens the driver on the same directory, daemon or world; the one before is dropped first.
    pub open: &'a (dyn Fn() -> BoxFuture<'a, Arc<dyn ContainerDriver>> + Send + Sync),
    /// An instance that starts and listens on its port.
    pub works: InstanceSpec,
    /// An instance that cannot be started.
    pub fails: InstanceSpec,
    /// Part of what the driver says about it, in the words of the system underneath.
    pub failure: &'static str,
}

/// An instance of deployment `conformance-<name>` with one port, `web`, number 8000.
pub fn spec(kind: &str, definition: &str, name: &str) -> InstanceSpec {
    InstanceSpec {
        name: format!("segue-conformance-{name}"),
        owner: Owner {
            deployment: format!("conformance-{name}"),
            cluster: "front".to_owned(),
            service: "web".to_owned(),
        },
        fingerprint: "f1".to_owned(),
        deployable: Deployable { kind: kind.to_owned(), definition: definition.to_owned() },
        ports: IndexMap::from([("web".to_owned(), 8000)]),
        environment: IndexMap::from([("GREETING".to_owned(), "hello world".to_owned())]),
        arguments: Vec::new(),
        dialect: Metadata::new(),
        network: "BRIDGE".to_owned(),
        cpu: Cpu::from_milli(100),
        memory: Memory::from_megabytes(64),
        instances: 1,
    }
}

/// Runs the whole test; panics where the driver does not conform.
pub async fn check(subject: &Subject<'_>) {
    let driver = (subject.open)().await;
    driver.ping().await.expect("the runtime answers");
    check_unknown(driver.as_ref()).await;
    check_failure(driver.as_ref(), subject).await;
    let running = check_start(driver.as_ref(), &subject.works).await;
    drop(driver);

    let driver = (subject.open)().await;
    check_adoption(driver.as_ref(), &subject.works, &running).await;
    check_stop(driver.as_ref(), &subject.works).await;
}

/// Waits until `wanted` holds for what is observed of `deployment`, woken by the driver's own signals.
pub async fn wait_for(
    driver: &dyn ContainerDriver,
    deployment: &str,
    wanted: impl Fn(&[ObservedInstance]) -> bool,
) -> Vec<ObservedInstance> {
    let mut changes = driver.changes().subscribe_to(deployment);
    let mut last = Vec::new();
    let waiting = async {
        loop {
            changes.mark_unchanged();
            match driver.observe(deployment).await {
                Ok(found) => last = found.into_iter().map(Arc::unwrap_or_clone).collect(),
                // Workers ask again, too.
                Err(Error::Transient(_)) => {}
                Err(error) => panic!("what runs cannot be observed: {error}"),
            }
            if wanted(&last) {
                return;
            }
            // A missed signal costs a period, as it does in a worker.
            let _ = tokio::time::timeout(PERIOD, changes.changed()).await;
        }
    };
    let done = tokio::time::timeout(LIMIT, waiting).await;
    assert!(done.is_ok(), "not reached within {LIMIT:?}; last seen: {last:#?}");
    last
}

/// What is observed of `deployment`, to keep.
async fn observed(driver: &dyn ContainerDriver, deployment: &str) -> Vec<ObservedInstance> {
    let observed = driver.observe(deployment).await.expect("what runs can be observed");
    observed.into_iter().map(Arc::unwrap_or_clone).collect()
}

async fn check_unknown(driver: &dyn ContainerDriver) {
    let nobodys = driver.output("conformance-nobody", "nothing", 10).await;
    assert_eq!(nobodys, Ok(None), "nobody prints nothing");
    assert_eq!(
        driver.observe("conformance-nobody").await,
        Ok(Vec::new()),
        "an unknown deployment is empty"
    );
    assert_eq!(
        driver.stop("conformance-nobody", "nothing").await,
        Ok(()),
        "stopping nothing is no error"
    );
    assert!(!driver.supports("conformance/unknown"), "an unknown type is not supported");
    let error = driver.start(&spec("conformance/unknown", "x", "unsupported")).await;
    let error = error.expect_err("an unsupported type is refused");
    assert!(
        error.is_permanent() && error.to_string().starts_with("Unsupported deployable type"),
        "{error}"
    );
}

async fn check_failure(driver: &dyn ContainerDriver, subject: &Subject<'_>) {
    let mut empty = subject.fails.clone();
    "  ".clone_into(&mut empty.deployable.definition);
    let error = driver.start(&empty).await.expect_err("an empty definition is refused");
    assert!(error.is_permanent(), "{error}");

    let error = driver.start(&subject.fails).await.expect_err("what cannot be started is refused");
    assert!(error.is_permanent(), "it is of no use to try again: {error}");
    assert!(
        error.to_string().contains(subject.failure),
        "'{error}' does not contain '{}'",
        subject.failure
    );
    let left = driver.observe(&subject.fails.owner.deployment).await;
    assert_eq!(left, Ok(Vec::new()), "nothing is left of what could not be started");
}

async fn check_start(driver: &dyn ContainerDriver, spec: &InstanceSpec) -> ObservedInstance {
    driver.start(spec).await.expect("it can be started");
    driver.start(spec).await.expect("starting it again is no error");
    let running = |observed: &[ObservedInstance]| {
        assert!(observed.len() == 1, "it is there once: {observed:#?}");
        observed[0].condition == Condition::Running
    };
    let observed = wait_for(driver, &spec.owner.deployment, running).await.remove(0);
    driver.start(spec).await.expect("starting what runs is no error");
    assert_eq!(observed.name, spec.name);
    assert_eq!(observed.owner, spec.owner);
    assert_eq!(observed.fingerprint, spec.fingerprint);
    assert_eq!(observed.host, "127.0.0.1");
    assert!(observed.ports.keys().eq(spec.ports.keys()), "{observed:?}");
    assert!(observed.ports.values().all(|port| *port != 0), "{observed:?}");
    let deployments = driver.deployments().await.expect("deployments can be listed");
    assert!(deployments.contains(&spec.owner.deployment), "{deployments:?}");
    observed
}

async fn check_adoption(
    driver: &dyn ContainerDriver,
    spec: &InstanceSpec,
    before: &ObservedInstance,
) {
    let observed = self::observed(driver, &spec.owner.deployment).await;
    assert_eq!(observed, std::slice::from_ref(before), "a new driver sees the same at once");
    driver.start(spec).await.expect("starting what was adopted is no error");
    let observed = self::observed(driver, &spec.owner.deployment).await;
    assert_eq!(observed, std::slice::from_ref(before), "and starts nothing twice");
}

async fn check_stop(driver: &dyn ContainerDriver, spec: &InstanceSpec) {
    let deployment = &spec.owner.deployment;
    driver
        .stop("conformance-other", &spec.name)
        .await
        .expect("another deployment's name is no error");
    let observed = driver.observe(deployment).await.expect("what runs can be observed");
    assert!(
        observed.iter().all(|found| found.condition == Condition::Running),
        "only its own deployment stops it"
    );
    driver.stop(deployment, &spec.name).await.expect("it can be stopped");
    let observed = driver.observe(deployment).await.expect("what runs can be observed");
    assert!(observed.iter().all(|found| found.condition == Condition::Stopping), "{observed:#?}");
    driver.stop(deployment, &spec.name).await.expect("stopping it again is no error");
    wait_for(driver, deployment, <[ObservedInstance]>::is_empty).await;
    driver.stop(deployment, &spec.name).await.expect("stopping what is gone is no error");
    let deployments = driver.deployments().await.expect("deployments can be listed");
    assert!(!deployments.contains(deployment), "{deployments:?}");
}
