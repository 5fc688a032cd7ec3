//! The reverse proxy, in front of a target that tells what it was asked (wire, section 12).

use super::Running;
use super::socket::{Socket, TEXT};
use crate::config::Setting;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde_json::json;

/// A server that answers with what it was asked, and with every message that it is sent.
fn target() -> (u16, actix_web::dev::ServerHandle) {
    let server = HttpServer::new(|| {
        App::new().route("/socket", web::get().to(echo_messages)).default_service(web::to(echo))
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
