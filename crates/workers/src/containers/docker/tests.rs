//! The driver against a daemon that the test itself plays, for what a real one does at some moments only.

use super::*;
use crate::containers::conformance;
use bollard::models::ImageInspect;
use futures::future::{BoxFuture, FutureExt};
use serde_json::json;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

/// What a daemon answers to a request, of which it is told the first line.
type Answers = Arc<dyn Fn(String) -> BoxFuture<'static, String> + Send + Sync>;

/// Answers every request at `socket`, but for what each client asks at first.
fn serve(socket: &Path, answers: Answers) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(BufReader::new(stream), Arc::clone(&answers)));
        }
    });
}

async fn answer(mut stream: BufReader<UnixStream>, answers: Answers) {
    let (mut request, mut line) = (String::new(), String::new());
    // The head ends with an empty line.
    while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
        if request.is_empty() {
            request.clone_from(&line);
        }
        line.clear();
    }
    let body = if request.contains("/version") {
        json!({"ApiVersion": "1.44"}).to_string()
    } else {
        answers(request).await
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    // Who asked may not want to know any more.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A driver of a daemon that says `listed` when it is asked what there is, and calls `meanwhile` before it does.
fn driver(
    directory: &tempfile::TempDir,
    listed: impl FnOnce(&Labels) -> serde_json::Value,
    meanwhile: impl Fn(&Shared) + Send + Sync + 'static,
) -> DockerDriver {
    let socket = directory.path().join("socket");
    let driver = DockerDriver::new(Settings { socket: socket.clone(), ..Settings::default() });
    let shared = Arc::clone(&driver.shared);
    let listed = listed(&shared.labels).to_string();
    let answers = move |request: String| {
        if request.contains("/containers/json") {
            meanwhile(&shared);
            return std::future::ready(listed.clone()).boxed();
        }
        if request.contains("/events") {
            return std::future::pending().boxed();
        }
        std::future::ready("{}".to_owned()).boxed()
    };
    serve(&socket, Arc::new(answers));
    driver
}

fn spec(name: &str) -> InstanceSpec {
    InstanceSpec { name: name.to_owned(), ..conformance::spec("docker", "acme/web:1", "played") }
}

/// The container of an instance, as a list has it.
fn listed(labels: &Labels, spec: &InstanceSpec, state: &str) -> serde_json::Value {
    let labels = labels.of_new(spec, &ImageInspect::default(), OffsetDateTime::UNIX_EPOCH);
    let network = json!({"NetworkMode": body::network(spec).unwrap()});
    json!({"Id": spec.name, "State": state, "Labels": labels, "HostConfig": network})
}

#[tokio::test]
async fn what_ended_while_the_daemon_was_asked_is_taken_for_what_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (starts, stops) = (spec("starts"), spec("stops"));
    let both = |labels: &Labels| {
        json!([listed(labels, &starts, "created"), listed(labels, &stops, "exited")])
    };
    let driver = driver(&directory, both, |shared| {
        shared.starting().clear();
        shared.stopping().clear();
    });
    driver.shared.starting().insert(starts.name.clone());
    driver.shared.stopping().insert(stops.name.clone(), None);
    let observed = driver.observe(&starts.owner.deployment).await.unwrap();
    let conditions: Vec<&Condition> = observed.iter().map(|found| &found.condition).collect();
    let starting = Condition::Starting("is being started".to_owned());
    assert_eq!(conditions, [&starting, &Condition::Stopping]);
    // What was given up before is told as it is.
    let observed = driver.observe(&starts.owner.deployment).await.unwrap();
    assert!(
        observed.iter().all(|found| matches!(found.condition, Condition::Exited(_))),
        "{observed:?}"
    );
}

#[tokio::test]
async fn a_port_of_the_hosts_network_belongs_to_one_instance() {
    let directory = tempfile::tempdir().unwrap();
    let on_host = |name: &str| InstanceSpec { network: "HOST".to_owned(), ..spec(name) };
    let old = on_host("old");
    let driver = driver(&directory, |labels| json!([listed(labels, &old, "running")]), |_| {});
    let mut other = on_host("new");
    other.owner.service = "other".to_owned();
    let words = "port 8000 of the network `host` belongs to instance 'old'";
    let refused = driver.start(&other).await.unwrap_err();
    assert!(refused.is_permanent() && refused.to_string().contains(words), "{refused}");
    let of_the_same = driver.start(&on_host("new")).await.unwrap_err();
    assert!(!of_the_same.is_permanent() && of_the_same.to_string().contains(words));
    driver.shared.stopping().insert(old.name.clone(), None);
    let waits = driver.start(&on_host("new")).await.unwrap_err();
    assert!(!waits.is_permanent() && waits.to_string().contains("'old' to end"), "{waits}");
}

#[test]
fn only_what_runs_on_the_hosts_network_has_its_ports() {
    let labels = Labels::new("io.segue", "default");
    let on_host = |name: &str| InstanceSpec { network: "host".to_owned(), ..spec(name) };
    let has_port = |old: &InstanceSpec, state: &str, new: &InstanceSpec| {
        let found = serde_json::from_value(listed(&labels, old, state)).unwrap();
        holder_of_port(&labels, &[found], new).is_some()
    };
    assert!(has_port(&on_host("old"), "running", &on_host("new")));
    assert!(has_port(&on_host("old"), "restarting", &on_host("new")));
    assert!(!has_port(&on_host("old"), "exited", &on_host("new")));
    assert!(!has_port(&spec("old"), "running", &on_host("new")));
    assert!(!has_port(&on_host("old"), "running", &on_host("old")), "it is the same");
    let mut other = on_host("new");
    other.ports.insert("web".to_owned(), 8001);
    assert!(!has_port(&on_host("old"), "running", &other));
}

/// A registry may take minutes until it says anything.
#[tokio::test]
async fn a_pull_may_take_its_time_before_the_daemon_says_anything() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let answers = {
        let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
        move |_: String| {
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            async move {
                asked.notify_one();
                go.notified().await;
                String::new()
            }
            .boxed()
        }
    };
    serve(&socket, Arc::new(answers));
    let pull = tokio::spawn(async move {
        let settings = Settings::default();
        let daemon = Daemon::new(socket, settings.stop_timeout);
        daemon.pull("acme/web:1", &settings, |_| {}).await
    });
    asked.notified().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(5)).await;
    tokio::time::resume();
    go.notify_one();
    assert_eq!(pull.await.unwrap(), Ok(()));
}
