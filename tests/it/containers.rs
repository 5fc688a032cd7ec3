//! The Docker driver against a real daemon.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

use rustix::process::Signal;
use segue_domain::artifact::{Cpu, Memory};
use segue_tests::dockerd::{Dockerd, IMAGE};
use segue_tests::processes;
use segue_tests::wait::LIMIT;
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
    networks_are_as_asked_for(&daemon).await;
    limits_that_the_daemon_refuses_are_told_in_its_words(&daemon).await;
    what_dies_is_started_again_by_the_daemon(&daemon).await;
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
    let talks = LISTENS.replace("nc -ll", "echo ready; echo steady; nc -ll");
    let mut spec = spec(IMAGE, "declared", &talks);
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
    let printed = async |lines| {
        let printed = driver.output(&spec.owner.deployment, &spec.name, lines).await.unwrap();
        printed.unwrap_or_default()
    };
    // The daemon takes its time to write down what it prints.
    let written = async {
        while printed(9).await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, written).await.unwrap();
    assert_eq!(printed(9).await, ["ready", "steady"]);
    assert_eq!(printed(1).await, ["steady"]);
    let format = "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}} {{.HostConfig.RestartPolicy.Name}} {{index .Config.Labels \"io.segue.scale\"}}";
    let found = daemon.docker(&["inspect", "-f", format, &spec.name]).unwrap();
    assert_eq!(
        found,
        r#"250000000 33554432 unless-stopped {"instances":1,"cpu":0.25,"memory":"32.00MB"}"#
    );
    stopped(&driver, &spec).await;
}

async fn late_listeners_and_ended_containers_are_told_apart(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    let command = "sh -c \"trap 'echo bye; exit 3' TERM; until [ -e /go ]; do sleep 0.1; done; nc -ll -p 8000 -e cat & wait\"";
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
    daemon.docker(&["exec", &spec.name, "sh", "-c", ": > /go"]).unwrap();
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
    // Names like those of Segue, and labels that are nearly its own, make nobody its own.
    let deployment = format!("io.segue.deployment={}", spec.owner.deployment);
    let almost = ["segue_conformance-foreign_web_1", "nearly"];
    for (name, namespace) in
        almost.iter().zip(["io.segue.namespace=another", "io.seguenamespace=default"])
    {
        let labels = ["-l", "io.segue=deployment-service", "-l", namespace, "-l", &deployment];
        let run = [&["run", "-d", "--name", name], labels.as_slice(), &[IMAGE, "sleep", "1000"]];
        daemon.docker(&run.concat()).unwrap();
        driver.stop(&spec.owner.deployment, name).await.unwrap();
    }
    assert_eq!(driver.observe(&spec.owner.deployment).await.unwrap(), []);
    assert_eq!(driver.images(&spec.owner.deployment).await.unwrap().len(), 0);
    let other = docker::Settings { namespace: "other".to_owned(), ..settings(daemon) };
    let other = DockerDriver::new(other);
    let mut own = spec.clone();
    own.name.push_str("-own");
    other.start(&own).await.unwrap();
    assert_eq!(driver.deployments().await.unwrap().len(), 0);
    driver.stop(&own.owner.deployment, &own.name).await.unwrap();
    reached(&other, &own, &Condition::Running).await;
    stopped(&other, &own).await;
    for name in almost.into_iter().chain([spec.name.as_str()]) {
        let running = daemon.docker(&["inspect", "-f", "{{.State.Running}}", name]).unwrap();
        assert_eq!(running, "true", "{name}");
        daemon.docker(&["rm", "-f", name]).unwrap();
    }
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
    driver.start(&unknown).await.unwrap();
    driver.start(&unknown).await.unwrap();
    let words = "image not found: ";
    let reason = refused(&driver, &unknown).await;
    assert!(reason.contains(words) && reason.contains("manifest unknown"), "{reason}");
    stopped(&driver, &unknown).await;
    serving.abort();
    let _ = serving.await;
    // Without a registry it may work later.
    driver.start(&unknown).await.unwrap();
    let is_exited = |found: &[ObservedInstance]| matches!(&found[0].condition, Condition::Exited(words) if words.contains("registry not reachable: ") && words.contains("connection refused"));
    wait_for(&driver, &unknown.owner.deployment, is_exited).await;
    stopped(&driver, &unknown).await;
    let invalid = conformance::spec("docker", "Not An Image", "invalid");
    let error = driver.start(&invalid).await.unwrap_err();
    assert!(
        error.is_permanent() && error.to_string().contains("invalid reference format"),
        "{error}"
    );
    assert_eq!(driver.deployments().await.unwrap().len(), 0);
}

/// Why an instance will never run.
async fn refused(driver: &DockerDriver, spec: &InstanceSpec) -> String {
    let is_refused =
        |found: &[ObservedInstance]| matches!(found[0].condition, Condition::Refused(_));
    let found = wait_for(driver, &spec.owner.deployment, is_refused).await.remove(0);
    assert_eq!(found.name, spec.name);
    match found.condition {
        Condition::Refused(words) => words,
        other => panic!("{other:?}"),
    }
}

async fn networks_are_as_asked_for(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    daemon.docker(&["network", "create", "--subnet", "10.214.77.0/24", "backstage"]).unwrap();
    let mode = |spec: &InstanceSpec| {
        daemon.docker(&["inspect", "-f", "{{.HostConfig.NetworkMode}}", &spec.name]).unwrap()
    };
    // By the dialect, which wins; the name is taken as it is written.
    let mut own = spec(IMAGE, "own-network", LISTENS);
    own.dialect.insert("net".to_owned(), "backstage".into());
    driver.start(&own).await.unwrap();
    let observed = reached(&driver, &own, &Condition::Running).await;
    assert_eq!(mode(&own), "backstage");
    TcpStream::connect((observed.host.as_str(), observed.ports["web"])).await.unwrap();
    stopped(&driver, &own).await;
    daemon.docker(&["network", "rm", "backstage"]).unwrap();
    let error = driver.start(&own).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("backstage"), "{error}");
    assert_eq!(driver.deployments().await.unwrap().len(), 0, "nothing is left of it");
    // On the host's network ports are what they are inside.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let serve = format!("sh -c \"trap 'exit 0' TERM; nc -ll -p {port} -e cat & wait\"");
    let mut host = spec(IMAGE, "host-network", &serve);
    "HOST".clone_into(&mut host.network);
    host.ports.insert("web".to_owned(), port);
    driver.start(&host).await.unwrap();
    let observed = reached(&driver, &host, &Condition::Running).await;
    assert_eq!((mode(&host).as_str(), observed.ports["web"]), ("host", port));
    stopped(&driver, &host).await;
    // Who is on none has no ports.
    let mut closed = spec(IMAGE, "no-network", LISTENS);
    "none".clone_into(&mut closed.network);
    let error = driver.start(&closed).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("`none`"), "{error}");
    closed.ports.clear();
    driver.start(&closed).await.unwrap();
    reached(&driver, &closed, &Condition::Running).await;
    assert_eq!(mode(&closed), "none");
    stopped(&driver, &closed).await;
}

async fn limits_that_the_daemon_refuses_are_told_in_its_words(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    let mut large = spec(IMAGE, "large", LISTENS);
    large.cpu = Cpu::from_milli(1_000_000);
    let error = driver.start(&large).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("CPUs"), "{error}");
    let mut small = spec(IMAGE, "small", LISTENS);
    small.memory = Memory::from_megabytes(1);
    let error = driver.start(&small).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("emory limit"), "{error}");
    assert_eq!(driver.deployments().await.unwrap().len(), 0);
}

async fn what_dies_is_started_again_by_the_daemon(daemon: &Dockerd) {
    let driver = DockerDriver::new(settings(daemon));
    let again = spec(IMAGE, "again", LISTENS);
    driver.start(&again).await.unwrap();
    let before = reached(&driver, &again, &Condition::Running).await;
    let inspect = |format: &str| daemon.docker(&["inspect", "-f", format, &again.name]).unwrap();
    let (id, first) = (inspect("{{.Id}}"), inspect("{{.State.Pid}}"));
    processes::signal(first.parse().unwrap(), Signal::KILL);
    let is_again = |_: &[ObservedInstance]| inspect("{{.RestartCount}}") == "1";
    wait_for(&driver, &again.owner.deployment, is_again).await;
    let after = reached(&driver, &again, &Condition::Running).await;
    assert_eq!((inspect("{{.Id}}"), &after.name), (id, &before.name), "it is the same container");
    TcpStream::connect((after.host.as_str(), after.ports["web"])).await.unwrap();
    stopped(&driver, &again).await;
    // What keeps dying is told by the words of its last life, not of all of them.
    let dies = spec(IMAGE, "dies", "sh -c 'echo no price list in $HOSTNAME; exit 3'");
    driver.start(&dies).await.unwrap();
    let is_restarting = |found: &[ObservedInstance]| {
        let restarts: u32 = daemon
            .docker(&["inspect", "-f", "{{.RestartCount}}", &dies.name])
            .unwrap()
            .parse()
            .unwrap();
        let said = matches!(&found[0].condition, Condition::Restarting(words)
            if words.starts_with("exited with status 3: no price list") && words.matches("price").count() == 1);
        restarts >= 3 && said
    };
    wait_for(&driver, &dies.owner.deployment, is_restarting).await;
    stopped(&driver, &dies).await;
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
