//! Checks of real sockets, and what is made of what they find.

use super::*;
use indexmap::IndexMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn instance(port: u16) -> Instance {
    Instance {
        name: "one".to_owned(),
        host: String::new(),
        ports: IndexMap::from([("http".to_owned(), port)]),
        deployed: false,
        leaving: Leaving::No,
        served: false,
    }
}

fn check(port: u16, path: &str, protocol: &str, failures: u32) -> Check {
    check_of("shop", &instance(port), path, protocol, failures)
}

fn check_of(
    deployment: &str,
    instance: &Instance,
    path: &str,
    protocol: &str,
    failures: u32,
) -> Check {
    let check = HealthCheck {
        path: path.to_owned(),
        port: "http".to_owned(),
        initial_delay_seconds: 0,
        timeout_seconds: 1,
        interval_seconds: 1,
        failures,
        protocol: protocol.to_owned(),
    };
    Check::of(deployment, instance, &check).unwrap()
}

/// Answers one request with `answer`, and then keeps the connection, or breaks it.
async fn answering(answer: &'static str, kept: bool) -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // What is not read when it closes breaks the connection.
        let _ = stream.read(&mut [0; 4]).await;
        let _ = stream.write_all(answer.as_bytes()).await;
        if kept {
            std::future::pending::<()>().await;
        }
    });
    port
}

#[tokio::test]
async fn the_first_line_of_an_answer_is_enough() {
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for kept in [true, false] {
        let port = answering(whole, kept).await;
        assert_eq!(probe::probe(&check(port, "/", "HTTP", 1)).await, Ok(()), "{kept}");
    }
    let port = answering("HTTP/1.1 200 OK", true).await;
    let late = probe::probe(&check(port, "/", "HTTP", 1)).await;
    assert_eq!(late, Err("no answer within 1 s".to_owned()));
}

/// Answers every request for `/good` with 200, and others with 500.
async fn service() -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let good = request[..read].starts_with(b"GET /good HTTP/1.1\r\n");
            let status = if good { "200 OK" } else { "500 Sorry" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn a_check_asks_and_says_what_is_wrong() {
    let port = service().await;
    assert_eq!(probe::probe(&check(port, "/good", "HTTP", 1)).await, Ok(()));
    assert_eq!(probe::probe(&check(port, "good", "http", 1)).await, Ok(()));
    assert_eq!(probe::probe(&check(port, "/", "TCP", 1)).await, Ok(()));
    let bad = probe::probe(&check(port, "/bad\r\nX: y", "HTTP", 1)).await;
    assert_eq!(bad, Err("it answers with status 500".to_owned()));
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = listener.local_addr().unwrap().port();
    let late = probe::probe(&check(silent, "/", "HTTP", 1)).await;
    assert_eq!(late, Err("no answer within 1 s".to_owned()));
    drop(listener);
    let nobody = probe::probe(&check(silent, "/", "TCP", 1)).await;
    assert!(nobody.unwrap_err().contains("refused"));
}

#[test]
fn an_instance_fails_after_so_many_failures_in_a_row() {
    let results = Results::default();
    let (one, two) = (check(1, "/", "HTTP", 2), check(1, "/never", "HTTP", 0));
    let failing = |expected: bool| {
        assert_eq!(results.failing().borrow().contains("one"), expected);
    };
    results.expect(&[one.clone(), two.clone()]);
    assert_eq!(results.obstacle("one", 2).as_deref(), Some("did not pass its health check yet"));
    let wrong = || Err("it answers with status 500".to_owned());
    results.note(&one, wrong());
    failing(false);
    let obstacle = results.obstacle("one", 2).unwrap();
    assert_eq!(obstacle, "did not pass its health check yet: it answers with status 500");
    results.note(&one, wrong());
    failing(true);
    results.note(&one, Ok(()));
    results.note(&two, Ok(()));
    failing(false);
    assert_eq!(results.obstacle("one", 2), None);
    // Whoever passed once serves, and counts as failing again after so many failures.
    for _ in 0..2 {
        results.note(&one, wrong());
        results.note(&two, wrong());
    }
    failing(true);
    assert_eq!(results.obstacle("one", 2), None);
    // Whoever ended has to pass anew.
    results.forget(&BTreeSet::from(["one"]));
    failing(false);
    assert_eq!(results.obstacle("one", 2).as_deref(), Some("did not pass its health check yet"));
    results.expect(&[two]);
    failing(false);
    // What is not known yet has not passed.
    assert!(results.obstacle("other", 1).is_some());
    assert_eq!(results.obstacle("other", 0), None);
}

#[tokio::test]
async fn checks_go_on_until_nobody_wants_them() {
    let port = service().await;
    let results = Arc::new(Results::default());
    let good = check(port, "/good", "HTTP", 1);
    results.expect(std::slice::from_ref(&good));
    let mut changes = results.changes().subscribe();
    let task = tokio::spawn(repeat(good, Arc::clone(&results), Places::default().of("shop")));
    changes.changed().await.unwrap();
    assert_eq!(results.obstacle("one", 1), None);
    task.abort();
    let mut worker = ChecksWorker::new(Arc::clone(&results));
    worker.turn(&State::default(), OffsetDateTime::UNIX_EPOCH).await.unwrap();
    assert!(results.obstacle("one", 1).is_some());
}

/// More instances hang than may be asked at a time; the time limit of those never ends while the test lasts.
#[tokio::test]
async fn a_deployment_whose_instances_hang_holds_up_no_other() {
    let hanging = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = hanging.local_addr().unwrap().port();
    let (results, mut places) = (Arc::new(Results::default()), Places::default());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..=ALL_PROBES_MAX {
        let instance = Instance { name: format!("hangs{number}"), ..instance(silent) };
        let mut check = check_of("hangs", &instance, "/", "HTTP", 1);
        check.timeout = Duration::from_hours(1);
        tasks.spawn(repeat(check, Arc::clone(&results), places.of("hangs")));
    }
    let own = places.of("hangs").own;
    let all_taken = async {
        while own.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), all_taken).await.unwrap();
    let good = check(service().await, "/good", "HTTP", 1);
    results.expect(std::slice::from_ref(&good));
    let mut changes = results.changes().subscribe();
    tasks.spawn(repeat(good, Arc::clone(&results), places.of("shop")));
    tokio::time::timeout(Duration::from_mins(1), changes.changed()).await.unwrap().unwrap();
    assert_eq!(results.obstacle("one", 1), None);
}
