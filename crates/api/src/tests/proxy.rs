//! The reverse proxy, in front of a target that tells what it was asked (wire, section 12).

use super::Running;
use super::socket::{Socket, TEXT};
use crate::config::Setting;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server that answers with what it was asked, and with every message that it is sent.
fn target() -> (u16, actix_web::dev::ServerHandle) {
    let server = HttpServer::new(|| {
        App::new()
            .route("/socket", web::get().to(echo_messages))
            .route("/status/{status}", web::get().to(status))
            .default_service(web::to(echo))
    });
    let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
    let port = server.addrs()[0].port();
    let running = server.run();
    let handle = running.handle();
    tokio::spawn(running);
    (port, handle)
}

async fn echo(http: HttpRequest, body: web::Bytes) -> HttpResponse {
    let mine = http.headers().get("x-mine").map(|value| value.to_str().unwrap().to_owned());
    let document = json!({
        "method": http.method().as_str(), "uri": http.uri().to_string(), "mine": mine,
        "body": String::from_utf8_lossy(&body),
    });
    HttpResponse::Accepted().insert_header(("X-Theirs", "t")).body(document.to_string())
}

/// An answer with a status, and little else.
async fn status(status: web::Path<u16>) -> HttpResponse {
    let status = actix_web::http::StatusCode::from_u16(*status).unwrap();
    let mut response = HttpResponse::build(status).insert_header(("X-Request-Id", "own")).finish();
    response.headers_mut().remove("content-type");
    response
}

async fn echo_messages(http: HttpRequest, body: web::Payload) -> actix_web::Result<HttpResponse> {
    let (response, mut session, mut messages) = actix_ws::handle(&http, body)?;
    actix_web::rt::spawn(async move {
        while let Some(Ok(message)) = messages.recv().await {
            if let actix_ws::Message::Text(text) = message
                && session.text(format!("echo {text}")).await.is_err()
            {
                break;
            }
        }
    });
    Ok(response)
}

/// A service whose gateway `a/b/c` and `g` have the target's port, as if it were their own.
async fn with_target() -> (Running, u16, actix_web::dev::ServerHandle) {
    let (port, handle) = target();
    let segue = Running::with(&[("api.max_body", json!("64 KiB"))]).await;
    let gateway = format!("{{name: a/b, port: {port}, routes: {{'[127.0.0.1:1]': {{}}}}}}");
    assert_eq!(segue.post("/api/v1/gateways", &gateway).await.status, 201);
    segue.wait("/api/v1/gateways/a/b", |answer| answer.json()["deployed"] == json!(true)).await;
    (segue, port, handle)
}

#[tokio::test]
async fn requests_and_answers_pass_through() {
    let (segue, port, handle) = with_target().await;
    let check = async |path: &str, uri: &str| {
        let headers = [("X-Mine", "m"), ("Accept-Encoding", "gzip")];
        let answer = segue.client.send("PATCH", path, &headers, "body").await;
        let expected = json!({"method": "PATCH", "uri": uri, "mine": "m", "body": "body"});
        assert_eq!((answer.status, answer.json()), (202, expected), "{path}");
        assert_eq!(answer.headers["x-theirs"], "t");
        for absent in ["content-encoding", "cache-control", "access-control-allow-origin"] {
            assert!(!answer.headers.contains_key(absent), "{path}: {answer:?}");
        }
    };
    check(&format!("/proxy/host/127.0.0.1/port/{port}/x/y%2Fz/?a=1&b=%20"), "/x/y%2Fz/?a=1&b=%20")
        .await;
    check(&format!("/default/proxy/host/127.0.0.1/port/{port}"), "/").await;
    check("/proxy/gateways/a%2Fb/x", "/x").await;
    check("/proxy/gateways/a/b/x/", "/x/").await;
    check("/proxy/gateways/a/b", "/").await;
    // What means something to Segue means what it means to whom it is handed on.
    let headers = [("Idempotency-Key", "k".repeat(300))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let path = "/proxy/gateways/a/b/x?validate_only=maybe";
    assert_eq!(segue.client.send("POST", path, &headers, "body").await.status, 202);
    let unknown = [
        "/proxy/host/127.0.0.1/port/1/x".to_owned(),
        format!("/proxy/host/localhost/port/{port}/x"),
        "/proxy/gateways/nosuch/x".to_owned(),
        "/proxy/gateways/a/x".to_owned(),
        "/proxy/deployments/d/clusters/c/services/s/instances/i/ports/p/x".to_owned(),
        "/proxy/nosuch".to_owned(),
        "/proxy/".to_owned(),
    ];
    for path in unknown {
        assert_eq!(segue.get(&path).await.problem(), (502, "bad-gateway".to_owned()), "{path}");
    }
    let large = segue.post("/proxy/gateways/a/b/x", &"x".repeat(65 * 1024)).await;
    assert_eq!(large.problem(), (413, "payload-too-large".to_owned()));
    handle.stop(false).await;
    assert_eq!(segue.get("/proxy/gateways/a/b/x").await.problem(), (502, "bad-gateway".to_owned()));
    segue.stop().await;
}

/// All that is answered to `requests`, of which the last has the connection closed.
async fn raw(segue: &Running, requests: &str) -> String {
    let mut stream = TcpStream::connect(segue.client.address()).await.unwrap();
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut answers = String::new();
    let read = tokio::time::timeout(super::client::LIMIT, stream.read_to_string(&mut answers));
    read.await.expect("an end in time").unwrap();
    answers
}

/// What has no body leaves nothing on the connection that the next answer could be mistaken for.
#[tokio::test]
async fn answers_without_a_body_end_where_they_end() {
    let (segue, _, handle) = with_target().await;
    let ask = |path: &str, more: &str| {
        format!("GET /proxy/gateways/a/b{path} HTTP/1.1\r\nHost: x\r\n{more}\r\n")
    };
    let requests = ask("/status/204", "") + &ask("/status/304", "") + &ask("/status/200", "");
    let answers = raw(&segue, &(requests + &ask("/x", "Connection: close\r\n"))).await;
    let answers: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).collect();
    let codes: Vec<&str> = answers.iter().map(|answer| &answer[..3]).collect();
    assert_eq!(codes, ["204", "304", "200", "202"], "{answers:?}");
    for answer in &answers[..3] {
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        let head = answer.to_lowercase();
        assert!(head.contains("x-request-id: own") && !head.contains("content-type"), "{head}");
    }
    handle.stop(false).await;
    segue.stop().await;
}

#[tokio::test]
async fn bodies_pass_through_however_they_come() {
    let (segue, _, handle) = with_target().await;
    for (method, more) in [
        ("GET", "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
        ("POST", "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
        ("GET", "Content-Length: 4\r\nConnection: close\r\n\r\nbody"),
        (
            "POST",
            "Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nContent-Length: 4\r\n\r\nbody",
        ),
    ] {
        let request = format!("{method} /proxy/gateways/a/b/x HTTP/1.1\r\nHost: x\r\n{more}");
        let answer = raw(&segue, &request).await;
        assert!(answer.contains(r#""body":"body""#), "{request}\n{answer}");
    }
    handle.stop(false).await;
    segue.stop().await;
}

#[tokio::test]
async fn sockets_pass_through() {
    let (segue, _, handle) = with_target().await;
    let mut socket = Socket::open(segue.client.address(), "/proxy/gateways/a/b/socket").await;
    for text in ["one", "two"] {
        socket.send(text).await;
        assert_eq!(socket.receive().await, Some((TEXT, format!("echo {text}").into_bytes())));
    }
    handle.stop(false).await;
    segue.stop().await;
}

#[tokio::test]
async fn instances_are_reached_by_name() {
    let segue = Running::start_with(
        tempfile::tempdir().unwrap(),
        vec![Setting::flag("api.sse.streams_max", json!(4))],
    )
    .await;
    segue.put("/api/v1/deployments/d", "{clusters: {c: {services: [{breed: {name: 's:1', deployable: a, ports: {web: 80/http}}}]}}}").await;
    let service = "/clusters/c/services/0/instances/0";
    let deployment = segue
        .wait("/api/v1/deployments/d", |answer| answer.json().pointer(service).is_some())
        .await
        .json();
    let instance = deployment.pointer(service).unwrap();
    let name = instance["name"].as_str().unwrap();
    // Simulated instances accept no connection, which is another reason than not being known.
    let path = format!("/proxy/deployments/d/clusters/c/services/s:1/instances/{name}/ports/web/x");
    let refused = segue.get(&path).await;
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        refused.status == 502 && detail.contains(&instance["ports"]["web"].to_string()),
        "{refused:?}"
    );
    segue.stop().await;
}
