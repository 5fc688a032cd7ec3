//! The WebSocket API over real sockets (wire, section 13).

use super::Running;
use super::socket::{BINARY, CLOSE, PING, PONG, Socket};
use serde_json::{Value, json};

const BREED: &str = "{name: 'web:1', deployable: a}";

fn wish(action: &str, path: &str, data: &str, parameters: &Value) -> Value {
    json!({
        "api": "v1", "path": path, "action": action, "accept": "JSON", "content": "JSON",
        "transaction": "7", "data": data, "parameters": parameters, "other": "ignored",
    })
}

async fn ask(
    socket: &mut Socket,
    action: &str,
    path: &str,
    data: &str,
    parameters: Value,
) -> Value {
    socket.send(&wish(action, path, data, &parameters).to_string()).await;
    socket.json().await
}

/// Shows: D25
/// Shows: I4.9-websocket
#[tokio::test]
async fn requests_are_answered_as_over_http() {
    let segue = Running::start().await;
    let mut socket = Socket::open(segue.client.address(), "/websocket").await;
    let created = ask(&mut socket, "put", "/breeds", BREED, json!({})).await;
    let tag = segue.get("/api/v1/breeds/web:1").await.headers["etag"].clone();
    assert_eq!(created["status"], "OK", "{created}");
    assert_eq!(created["parameters"]["ETag"], json!(tag));
    assert_eq!((&created["action"], &created["path"]), (&json!("put"), &json!("/breeds")));
    let listed =
        ask(&mut socket, "PEEK", "breeds", "", json!({"page": 1, "x": null, "y": [1, "b"]})).await;
    let over_http = segue.get("/api/v1/breeds").await;
    assert_eq!(listed["data"], json!(over_http.body));
    assert_eq!(listed["content"], "JSON");
    assert_eq!(listed["transaction"], "7");
    assert_eq!(listed["parameters"]["X-Total-Count"], "1");
    let links = listed["parameters"]["Link"].as_str().unwrap();
    assert!(
        links
            .starts_with("<http://segue.test/api/v1/breeds?y=1&y=b&per_page=30&page=1>; rel=first"),
        "{links}"
    );

    let check = async |socket: &mut Socket, action: &str, path: &str, data: &str, status: &str| {
        let answer = ask(socket, action, path, data, json!({})).await;
        assert_eq!(answer["status"], status, "{action} {path}: {answer}");
        answer
    };
    let socket = &mut socket;
    check(socket, "PUT", "/breeds/web:1", BREED, "OK").await;
    check(socket, "PUT", "/", "{kind: breed, name: b, deployable: x}", "ACCEPTED").await;
    check(socket, "PUT", "/gateways/a/b", "{port: 9050, routes: {}}", "ERROR").await;
    check(socket, "PEEK", "/sync", "", "ACCEPTED").await;
    let gone = check(socket, "REMOVE", "/breeds/web:1", "", "NOCONTENT").await;
    assert_eq!(gone.get("data"), None);
    let missing = check(socket, "PEEK", "/breeds/web:1", "", "ERROR").await;
    let problem: Value = serde_json::from_str(missing["data"].as_str().unwrap()).unwrap();
    assert_eq!((&problem["type"], &problem["status"]), (&json!("not-found"), &json!(404)));
    check(socket, "PEEK", "/haproxy/2.6", "", "OK").await;
    check(
        socket,
        "PUT",
        "/deployments",
        "{clusters: {web: {services: [{breed: {name: x, deployable: y}}]}}}",
        "ACCEPTED",
    )
    .await;
    segue.stop().await;
}

#[tokio::test]
async fn segments_are_dropped_before_the_socket_only() {
    let segue = Running::with(&[("api.strip_path_segments", json!(2))]).await;
    let mut socket = Socket::open(segue.client.address(), "/a/b/websocket").await;
    for path in ["/breeds", "/breeds/"] {
        let listed = ask(&mut socket, "PEEK", path, "", json!({})).await;
        assert_eq!((&listed["status"], &listed["data"]), (&json!("OK"), &json!("[]")), "{listed}");
    }
    segue.stop().await;
}

#[tokio::test]
async fn messages_have_several_forms() {
    let segue = Running::start().await;
    segue.post("/api/v1/breeds", BREED).await;
    let mut socket = Socket::open(segue.client.address(), "/default/websocket/").await;
    let yaml = "api: v1\npath: /breeds?per_page=1\naction: peek\naccept: yaml\ncontent: yaml\ntransaction: 7.50\nparameters: {}\n";
    for text in [yaml.to_owned(), format!("---\n{yaml}")] {
        socket.send_in_parts(&text).await;
        let answer = socket.json().await;
        assert_eq!((&answer["transaction"], &answer["content"]), (&json!("7.50"), &json!("YAML")));
        assert!(answer["data"].as_str().unwrap().starts_with("- name: web:1\n"), "{answer}");
    }
    // A list and several documents are several requests; answers are told apart by the transaction.
    let mut many = Vec::new();
    for number in 0..40 {
        let mut one = wish("PEEK", "/breeds/web:1", "", &json!({}));
        one["transaction"] = json!(number);
        many.push(one);
    }
    socket.send(&Value::from(many).to_string()).await;
    let mut answered = Vec::new();
    for _ in 0..40 {
        answered.push(socket.json().await["transaction"].as_str().unwrap().parse::<u32>().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..40).collect::<Vec<_>>());
    for unreadable in ["{", "[]", "text", "{api: v2}", "{api: v1, path: /breeds}", "[1]"] {
        socket.send(unreadable).await;
        let answer = socket.json().await;
        assert_eq!(answer["status"], "ERROR", "{unreadable}");
        assert!(
            answer["error"].as_str().is_some_and(|error| !error.is_empty()),
            "{unreadable}: {answer}"
        );
        assert_eq!(answer.as_object().map(serde_json::Map::len), Some(2), "{unreadable}");
    }
    segue.stop().await;
}

#[tokio::test]
async fn events_come_on_the_same_socket() {
    let segue = Running::start().await;
    let mut socket = Socket::open(segue.client.address(), "/websocket").await;
    socket
        .send(
            &wish("PEEK", "/events/stream", "", &json!({"tag": ["a", "b"], "type": ["x"]}))
                .to_string(),
        )
        .await;
    // The stream has no acknowledgement; an answer to a later request says that it is open.
    assert_eq!(ask(&mut socket, "PEEK", "/breeds", "", json!({})).await["path"], "/breeds");
    segue.post("/api/v1/events", "{tags: [a], type: x}").await;
    let event = segue.post("/api/v1/events", "{tags: [a, b], type: x}").await.json();
    let answer = socket.json().await;
    let expected = json!({
        "api": "v1", "path": "/events/stream", "action": "PEEK", "status": "OK", "content": "JSON",
        "transaction": "7", "data": event.to_string(), "parameters": {},
    });
    assert_eq!(answer, expected);

    // Another stream takes its place: from the body, and from a position on.
    let from = event["id"].as_str().unwrap();
    socket
        .send(&wish("PEEK", "events/stream", "{tags: [a]}", &json!({"from": 0})).to_string())
        .await;
    let first: Value = serde_json::from_str(socket.json().await["data"].as_str().unwrap()).unwrap();
    assert_eq!(first["tags"], json!(["a"]));
    assert_eq!(socket.json().await["data"], json!(event.to_string()));
    socket
        .send(&wish("PEEK", "/events/stream", "{tags: [a]}", &json!({"from": from})).to_string())
        .await;
    // It has taken the other one's place once a later request is answered.
    assert_eq!(ask(&mut socket, "PEEK", "/breeds", "", json!({})).await["path"], "/breeds");
    let later = segue.post("/api/v1/events", "{tags: [a, b], type: x}").await.json();
    assert_eq!(socket.json().await["data"], json!(later.to_string()));
    let refused = ask(&mut socket, "PEEK", "/events/stream", "", json!({"from": "x"})).await;
    assert_eq!(refused["status"], "ERROR");
    segue.stop().await;
}

#[tokio::test]
async fn sockets_end() {
    let settings = [
        ("api.websocket.idle_timeout", json!("3 s")),
        ("api.sse.keep_alive", json!("100 ms")),
        ("api.websocket.sockets_max", json!(2)),
        ("api.max_body", json!("64 KiB")),
    ];
    let segue = Running::with(&settings).await;
    let address = segue.client.address();
    // Idle ones end, those with a stream do not.
    let mut idle = Socket::open(address, "/websocket").await;
    let mut busy = Socket::open(address, "/websocket").await;
    busy.send(&wish("PEEK", "/events/stream", "", &json!({"tag": "late"})).to_string()).await;
    let upgrade = [
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let refused = segue.client.send("GET", "/websocket", &upgrade, "").await;
    assert_eq!(refused.problem(), (429, "too-many-requests".to_owned()));
    assert_eq!(idle.receive().await.map(|(kind, _)| kind), Some(CLOSE));
    assert_eq!(idle.receive().await, None);
    segue.post("/api/v1/events", "{tags: late}").await;
    assert_eq!(busy.json().await["status"], "OK");

    let mut binary = Socket::open(address, "/websocket").await;
    binary.send_message(PING, b"x").await;
    assert_eq!(binary.receive().await, Some((PONG, b"x".to_vec())));
    binary.send_message(BINARY, b"x").await;
    assert_eq!(binary.receive().await.map(|(kind, _)| kind), Some(CLOSE));
    assert_eq!(binary.receive().await, None);
    let mut large = Socket::open(address, "/websocket").await;
    large.send(&" ".repeat(128 * 1024)).await;
    assert_eq!(large.receive().await.map(|(kind, _)| kind), Some(CLOSE));
    drop(large);
    let mut endless = Socket::open(address, "/websocket").await;
    endless.send_for_ever(1 << 40).await;
    drop(endless);
    assert_eq!(segue.get("/websocket").await.problem(), (400, "invalid-parameter".to_owned()));
    // A service that stops ends its sockets.
    segue.stop().await;
    assert_eq!(busy.receive().await.map(|(kind, _)| kind), Some(CLOSE));
}

/// Answers wait for a client that does not read, and so does the reading of its requests; later the socket ends.
#[tokio::test]
async fn a_client_that_does_not_read_is_let_go() {
    let settings = [
        ("api.sse.write_timeout", json!("3 s")),
        ("api.websocket.requests_max", json!(4)),
        ("api.websocket.sockets_max", json!(1)),
    ];
    let segue = Running::with(&settings).await;
    let blob = "x".repeat(256 * 1024);
    segue
        .post(
            "/api/v1/breeds",
            &format!("{{name: big, deployable: a, metadata: {{blob: {blob}}}}}"),
        )
        .await;
    let mut deaf = Socket::open(segue.client.address(), "/websocket").await;
    for _ in 0..100 {
        deaf.send(&wish("PEEK", "/breeds/big", "", &json!({})).to_string()).await;
    }
    // Its place is free again, although it never said goodbye.
    let deadline = tokio::time::Instant::now() + super::client::LIMIT;
    while Socket::try_open(segue.client.address(), "/websocket").await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the socket stays");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    drop(deaf);
    segue.stop().await;
}

/// A stream in place of the earlier one of the same socket needs no place of its own.
#[tokio::test]
async fn a_stream_takes_the_place_of_the_one_before() {
    let segue = Running::with(&[("api.sse.streams_max", json!(1))]).await;
    let mut socket = Socket::open(segue.client.address(), "/websocket").await;
    for tag in ["one", "two", "three"] {
        let stream = wish("PEEK", "/events/stream", "", &json!({"tag": tag}));
        socket.send(&stream.to_string()).await;
    }
    socket.send(&wish("PEEK", "/info", "", &json!({})).to_string()).await;
    assert_eq!(socket.json().await["status"], "OK", "no refusal comes before it");
    segue.post("/api/v1/events", "{tags: [one, two]}").await;
    segue.post("/api/v1/events", "{tags: three, value: last}").await;
    assert!(socket.json().await.to_string().contains("last"));
    segue.stop().await;
}
