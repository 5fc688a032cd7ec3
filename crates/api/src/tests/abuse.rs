//! Bad input: whatever is sent, the answer is a 4xx that says why, and the service goes on (issue of the interface).
#![expect(clippy::format_collect, reason = "a handful of texts, each made once")]

use super::Running;
use std::fmt::Write as _;

const MEGABYTE: usize = 1024 * 1024;

/// Bodies that no document is, or that are made to hurt.
fn bodies() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let alias = format!("*a{}", level - 1);
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![alias; 9].join(", ")).unwrap();
    }
    let keys: String = (0..300_000).map(|n| format!("k{n}: 1\n")).collect();
    vec![
        ("10 MB", vec![b'x'; 10 * MEGABYTE], "payload-too-large"),
        ("nested lists", vec![b'['; MEGABYTE], "yaml-parsing"),
        ("nested maps", "{a: ".repeat(MEGABYTE / 4).into_bytes(), "yaml-parsing"),
        (
            "nested blocks",
            (0..2000).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>().into_bytes(),
            "yaml-parsing",
        ),
        ("aliases of aliases", bomb.into_bytes(), "yaml-parsing"),
        ("an alias of itself", b"a: &a [*a]".to_vec(), "yaml-parsing"),
        ("an unknown alias", b"a: *b".to_vec(), "yaml-parsing"),
        ("many keys", keys.into_bytes(), "yaml-parsing"),
        ("no UTF-8", b"name: \xff\xfe".to_vec(), "yaml-parsing"),
        ("half a letter", b"name: \xe2\x82".to_vec(), "yaml-parsing"),
        ("control characters", b"name: a\x00b".to_vec(), "yaml-parsing"),
        ("a tag", b"!!python/object:os.system {name: x}".to_vec(), "yaml-parsing"),
        ("a number", b"5".to_vec(), "unexpected-type"),
        ("half a document", b"{name: [".to_vec(), "yaml-parsing"),
        ("a long name", format!("{{name: '{}/'}}", "x".repeat(MEGABYTE)).into_bytes(), ""),
    ]
}

/// Shows: D30
#[tokio::test]
async fn bad_bodies_are_refused() {
    let segue = Running::start().await;
    let paths = [
        "/api/v1/breeds",
        "/api/v1/blueprints",
        "/api/v1/deployments",
        "/api/v1/events",
        "/api/v1",
    ];
    for (what, body, expected) in bodies() {
        for path in paths {
            let mut request = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            )
            .into_bytes();
            request.extend(&body);
            // A client that sends too much may find the connection closed before it reads why.
            let Some(answer) = segue.client.raw(&request).await else { continue };
            assert!((400..500).contains(&answer.status), "{what} to {path}: {answer:?}");
            if !expected.is_empty() && path != "/api/v1" {
                assert_eq!(answer.problem().1, expected, "{what} to {path}: {answer:?}");
            }
        }
    }
    assert_eq!(segue.get("/api/v1/breeds").await.headers["x-total-count"], "0");
    segue.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let segue = Running::start().await;
    let long = "x".repeat(200 * 1024);
    let many: String = (0..500).map(|n| format!("X-{n}: 1\r\n")).collect();
    let cases: Vec<(&str, String)> = vec![
        ("no HTTP", "hello\r\n\r\n".to_owned()),
        ("an unknown version", "GET / HTTP/9.9\r\n\r\n".to_owned()),
        ("a long path", format!("GET /api/v1/breeds/{long} HTTP/1.1\r\nHost: x\r\n\r\n")),
        ("a long query", format!("GET /api/v1/breeds?x={long} HTTP/1.1\r\nHost: x\r\n\r\n")),
        ("a long header", format!("GET /api/v1/breeds HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n")),
        ("many headers", format!("GET /api/v1/breeds HTTP/1.1\r\nHost: x\r\n{many}\r\n")),
        ("two lengths", "POST /api/v1/breeds HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab".to_owned()),
        ("a negative length", "POST /api/v1/breeds HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_owned()),
        ("length and chunks", "POST /api/v1/breeds HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()),
        ("a bad chunk", "POST /api/v1/breeds HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n".to_owned()),
        ("a path that is no UTF-8", "GET /api/v1/breeds/%ff%fe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned()),
        ("a huge page", "GET /api/v1/breeds/x?page=99999999999999999999 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned()),
        ("half a request", "GET /api/v1/breeds HTTP/1.1\r\nHost: x\r\n".to_owned()),
    ];
    for (what, request) in cases {
        // A connection that is closed without an answer is an answer, too, to what is no HTTP.
        let Some(answer) = segue.client.raw(request.as_bytes()).await else { continue };
        assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
    }
    for (header, value) in [
        ("If-Match", "\u{e9}"),
        ("If-Match", "x"),
        ("Accept", "text/html"),
        ("Accept", "a/b/c;;q="),
    ] {
        let answer = segue
            .client
            .send("PUT", "/api/v1/breeds/x", &[(header, value)], "{deployable: a}")
            .await;
        assert!((400..500).contains(&answer.status), "{header}: {value}: {answer:?}");
    }
    for query in ["page=%ff", "per_page=-", "validate_only=%00", "=&&==&"] {
        let answer = segue.get(&format!("/api/v1/events?{query}")).await;
        assert!(answer.status < 500, "{query}: {answer:?}");
    }
    assert_eq!(
        segue
            .get("/api/v1/breeds?page=99999999999999999999&per_page=99999999999999999999")
            .await
            .status,
        200
    );
    assert_eq!(segue.get("/livez").await.status, 200);
    segue.stop().await;
}
