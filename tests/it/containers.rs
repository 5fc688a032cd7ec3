//! The Docker driver against a real daemon.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

use segue_domain::artifact::{Cpu, Memory};
use segue_tests::dockerd::{Dockerd, IMAGE};
use segue_workers::containers::conformance::{self, Subject, wait_for};
use segue_workers::containers::{
    Condition, ContainerDriver, DockerDriver, InstanceSpec, ObservedInstance, docker,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Ends at once when asked to, which the first process of a container does only when it says so itself.
const LISTENS: &str = "sh -c \"trap 'exit 0' TERM; nc -ll -p 8000 -e cat & wait\"";

fn settings(daemon: &Dockerd) -> docker::Settings {
    docker::Settings {
        socket: daemon.socket(),
        stop_timeout: Duration::from_secs(1),
        ..docker::Settings::default()
    }
}

fn spec(image: &str, name: &str, command: &str) -> InstanceSpec {
    let mut spec = conformance::spec("docker", image, name);
    spec.dialect.insert("command".to_owned(), command.into());
    spec
}

async fn reached(
    driver: &DockerDriver,
    spec: &InstanceSpec,
    condition: &Condition,
) -> ObservedInstance {
    let is_reached = |found: &[ObservedInstance]| found[0].condition == *condition;
    wait_for(driver, &spec.owner.deployment, is_reached).await.remove(0)
}

async fn stopped(driver: &DockerDriver, spec: &InstanceSpec) {
    driver.stop(&spec.owner.deployment, &spec.name).await.unwrap();
    wait_for(driver, &spec.owner.deployment, <[ObservedInstance]>::is_empty).await;
}

/// Starting a daemon takes seconds, so that one serves all of these.
#[tokio::test(flavor = "multi_thread")]
async fn docker_driver() {
    let daemon = Dockerd::start().unwrap();
    conforms(&daemon).await;
    runs_as_declared(&daemon).await;
    late_listeners_and_ended_containers_are_told_apart(&daemon).await;
    foreign_containers_are_never_touched(&daemon).await;
    half_started_containers_are_finished(&daemon).await;
    images_that_do_not_exist(&daemon).await;
}

async fn conforms(daemon: &Dockerd) {
    let subject = Subject {
        open: &|| {
            let driver: Arc<dyn ContainerDriver> = Arc::new(DockerDriver::new(settings(daemon)));
            Box::pin(async { driver })
        },
        works: spec(IMAGE, "works", LISTENS),
        fails: spec(IMAGE, "fails", "/no/such/program"),
        failure: "no such file or directory",
    };
    conformance::check(&subject).await;
}

async fn runs_as_declared(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    let mut spec = spec(IMAGE, "declared", LISTENS);
    spec.cpu = Cpu::from_milli(250);
    spec.memory = Memory::from_megabytes(32);
    driver.start(&spec).await.unwrap();
    let observed = reached(&driver, &spec, &Condition::Running).await;
    let mut stream =
        TcpStream::connect((observed.host.as_str(), observed.ports["web"])).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"hello");
    let format = "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}} {{index .Config.Labels \"io.segue.scale\"}}";
    let found = daemon.docker(&["inspect", "-f", format, &spec.name]).unwrap();
    assert_eq!(found, r#"250000000 33554432 {"instances":1,"cpu":0.25,"memory":"32.00MB"}"#);
    stopped(&driver, &spec).await;
}

async fn late_listeners_and_ended_containers_are_told_apart(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    let command =
        "sh -c \"trap 'echo bye; exit 3' TERM; sleep 2 & wait; nc -ll -p 8000 -e cat & wait\"";
    let spec = spec(IMAGE, "late", command);
    driver.start(&spec).await.unwrap();
    let observed = driver.observe(&spec.owner.deployment).await.unwrap().remove(0);
    assert!(
        matches!(&observed.condition, Condition::Starting(text) if text.contains("web (127.0.0.1:")),
        "{observed:?}"
    );
    // Docker's own proxy accepts connections already.
    TcpStream::connect((observed.host.as_str(), observed.ports["web"])).await.unwrap();
    let observed = driver.observe(&spec.owner.deployment).await.unwrap().remove(0);
    assert!(matches!(observed.condition, Condition::Starting(_)), "{observed:?}");
    reached(&driver, &spec, &Condition::Running).await;
    daemon.docker(&["kill", "-s", "TERM", &spec.name]).unwrap();
    reached(&driver, &spec, &Condition::Exited("exited with status 3: bye".to_owned())).await;
    stopped(&driver, &spec).await;
}

async fn foreign_containers_are_never_touched(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    let spec = spec(IMAGE, "foreign", LISTENS);
    daemon.docker(&["run", "-d", "--name", &spec.name, IMAGE, "sleep", "1000"]).unwrap();
    let error = driver.start(&spec).await.unwrap_err();
    assert!(
        error.is_permanent() && error.to_string().contains("does not belong to this Segue"),
        "{error}"
    );
    driver.stop(&spec.owner.deployment, &spec.name).await.unwrap();
    let other = docker::Settings { namespace: "other".to_owned(), ..settings(daemon) };
    let other = DockerDriver::new(other);
    let mut own = spec.clone();
    own.name.push_str("-own");
    other.start(&own).await.unwrap();
    assert_eq!(driver.deployments().await.unwrap().len(), 0);
    driver.stop(&own.owner.deployment, &own.name).await.unwrap();
    reached(&other, &own, &Condition::Running).await;
    stopped(&other, &own).await;
    let running = daemon.docker(&["inspect", "-f", "{{.State.Running}}", &spec.name]).unwrap();
    assert_eq!(running, "true");
    daemon.docker(&["rm", "-f", &spec.name]).unwrap();
}

async fn half_started_containers_are_finished(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    let spec = spec(IMAGE, "half", LISTENS);
    driver.start(&spec).await.unwrap();
    reached(&driver, &spec, &Condition::Running).await;
    let label = |name: &str| {
        let format = format!("{{{{index .Config.Labels \"io.segue{name}\"}}}}");
        let value = daemon.docker(&["inspect", "-f", &format, &spec.name]).unwrap();
        format!("io.segue{name}={value}")
    };
    let names = [
        "",
        ".namespace",
        ".deployment",
        ".cluster",
        ".service",
        ".instance",
        ".definition",
        ".ports",
    ];
    let labels = names.map(label);
    stopped(&driver, &spec).await;
    // What a Segue leaves behind that is killed between creating and starting.
    let mut arguments = vec!["create", "--name", &spec.name, "-p", "127.0.0.1::8000"];
    arguments.extend(labels.iter().flat_map(|label| ["-l", label]));
    arguments.extend([IMAGE, "nc", "-ll", "-p", "8000", "-e", "cat"]);
    daemon.docker(&arguments).unwrap();
    let words = "was created, but never started".to_owned();
    reached(&driver, &spec, &Condition::Exited(words)).await;
    driver.start(&spec).await.unwrap();
    reached(&driver, &spec, &Condition::Running).await;
    stopped(&driver, &spec).await;
}

async fn images_that_do_not_exist(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    // A registry that knows nothing; the daemon takes loopback addresses without encryption.
    let registry = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = registry.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = registry.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
            let length = body.len();
            let status = if request.starts_with(b"GET /v2/ ") { "200 OK" } else { "404 Not Found" };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let unknown = conformance::spec("docker", &format!("{address}/no/such:1"), "unknown");
    let error = driver.start(&unknown).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("manifest unknown"), "{error}");
    serving.abort();
    let _ = serving.await;
    // Without a registry it may work later.
    let error = driver.start(&unknown).await.unwrap_err();
    assert!(!error.is_permanent() && error.to_string().contains("connection refused"), "{error}");
    let invalid = conformance::spec("docker", "Not An Image", "invalid");
    let error = driver.start(&invalid).await.unwrap_err();
    assert!(
        error.is_permanent() && error.to_string().contains("invalid reference format"),
        "{error}"
    );
    assert_eq!(driver.deployments().await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_daemon_that_is_not_there_may_come_later() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let driver = DockerDriver::new(docker::Settings {
        socket: socket.clone(),
        ..docker::Settings::default()
    });
    let error = driver.ping().await.unwrap_err();
    assert!(!error.is_permanent(), "{error}");
    assert!(error.to_string().contains(&*socket.to_string_lossy()), "{error}");
}
