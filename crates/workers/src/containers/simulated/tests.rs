//! The simulation behaves as a driver should, and fails as it is told.

use super::*;
use crate::containers::conformance::{self, Subject};

fn spec(name: &str, dialect: &str) -> InstanceSpec {
    let mut spec = conformance::spec("process", "anything", name);
    "d".clone_into(&mut spec.owner.deployment);
    name.clone_into(&mut spec.name);
    spec.dialect = serde_json::from_str(dialect).unwrap();
    spec
}

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::seconds(seconds)
}

async fn conditions(world: &SimulatedContainers) -> Vec<(String, Condition)> {
    world
        .observe("d")
        .await
        .unwrap()
        .into_iter()
        .map(|found| (found.name.clone(), found.condition.clone()))
        .collect()
}

#[tokio::test]
async fn conforms() {
    let world = SimulatedContainers::new();
    let mut fails = conformance::spec("docker", "image", "fails");
    fails.dialect = serde_json::from_str(r#"{"error": "no such thing"}"#).unwrap();
    let subject = Subject {
        open: &|| {
            let driver: Arc<dyn ContainerDriver> = Arc::new(world.clone());
            Box::pin(async { driver })
        },
        works: conformance::spec("docker", "image", "works"),
        fails,
        failure: "no such thing",
    };
    conformance::check(&subject).await;
}

#[tokio::test]
async fn delays_and_ends_follow_the_time_handed_in() {
    let world = SimulatedContainers::new();
    world.start(&spec("a", r#"{"delay": 3, "exit_after": "2"}"#)).await.unwrap();
    world.start(&spec("b", "{}")).await.unwrap();
    assert_eq!(world.running(), 1);
    assert_eq!(world.next_due(), Some(at(3)));
    world.advance(at(3));
    assert_eq!(world.running(), 2);
    world.advance(at(4));
    assert_eq!(world.running(), 2);
    // A step over several things lets them happen in order: a time that goes back changes nothing.
    world.advance(at(1));
    world.advance(at(100));
    assert_eq!(conditions(&world).await, [("b".to_owned(), Condition::Running)]);
    assert_eq!(world.next_due(), None);
}

#[tokio::test]
async fn calls_fail_as_often_as_asked() {
    let world = SimulatedContainers::new();
    let error = Error::Transient("busy".to_owned());
    world.fail(Operation::Start, 2, &error);
    world.fail(Operation::Observe, 1, &error);
    world.fail(Operation::Stop, 1, &error);
    assert_eq!(world.start(&spec("a", "{}")).await, Err(error.clone()));
    assert_eq!(world.start(&spec("a", "{}")).await, Err(error.clone()));
    assert_eq!(world.start(&spec("a", "{}")).await, Ok(()));
    assert_eq!(world.observe("d").await, Err(error.clone()));
    assert_eq!(world.stop("d", "a").await, Err(error));
    assert_eq!(world.running(), 1);
}

#[tokio::test]
async fn instances_crash_vanish_and_take_their_time_to_stop() {
    let world = SimulatedContainers::new();
    for name in ["a", "b", "c"] {
        world.start(&spec(name, "{}")).await.unwrap();
    }
    let ports: BTreeSet<u16> = world.instances().iter().map(|found| found.ports["web"]).collect();
    assert_eq!(ports.len(), 3);
    assert!(world.instances().is_sorted_by_key(|found| found.created));
    assert!(world.crash("a", "exited with status 1") && world.vanish("b") && !world.crash("x", ""));
    world.stop_takes(Duration::seconds(5));
    world.stop("d", "c").await.unwrap();
    let crashed = Condition::Exited("exited with status 1".to_owned());
    assert_eq!(
        conditions(&world).await,
        [("a".to_owned(), crashed), ("c".to_owned(), Condition::Stopping)]
    );
    world.advance(at(5));
    assert_eq!(world.instances().len(), 1);
}

#[tokio::test]
async fn a_real_server_lets_it_follow_the_clock() {
    let world = SimulatedContainers::new();
    let clock = tokio::spawn({
        let world = world.clone();
        async move { world.follow_clock().await }
    });
    world.start(&spec("a", r#"{"delay": 0.05}"#)).await.unwrap();
    conformance::wait_for(&world, "d", |found| found[0].condition == Condition::Running).await;
    clock.abort();
}
