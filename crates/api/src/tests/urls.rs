//! Where things are and what holds for every request: prefixes, slashes, encodings, parameters, limits, origins
//! (wire, section 1), and pages (section 4).

use super::Running;
use serde_json::json;

const BREED: &str = "{name: 'web:1', deployable: a}";

/// Shows: I9-prefix
#[tokio::test]
async fn one_resource_has_several_spellings() {
    let segue = Running::start().await;
    segue.post("/api/v1/breeds", BREED).await;
    segue.post("/api/v1/gateways", "{name: a/b, port: 9050, routes: {'[127.0.0.1:1]': {}}}").await;
    segue.post("/api/v1/scales", "{name: 'ä%', cpu: 1, memory: 1GB, instances: 1}").await;
    let check = async |path: &str, status: u16| {
        let answer = segue.get(path).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    };
    for path in [
        "/api/v1/breeds/web:1",
        "/api/v1/breeds/web%3A1",
        "/api/v1/breeds/web%3a1/",
        "/default/api/v1/breeds/web:1",
        "/api/v1/breeds/web:1?page=1&only_reference=true&x=%00&y",
        "/api/v1/gateways/a/b",
        "/api/v1/gateways/a%2Fb/",
        "/api/v1/gateways/a%2fb",
        "/api/v1/scales/%C3%A4%25",
        "/api/v1/deployments/",
    ] {
        check(path, 200).await;
    }
    check("/api/v1/breeds/web%253A1", 404).await;
    check("/api/v1/scales/%C3%A4", 404).await;
    check("/api/v1/breeds/%ff", 400).await;
    check("/Default/api/v1/breeds", 404).await;
    for path in ["/api/v1/breeds/web:1", "/api/v1/gateways/a/b", "/api/v1/info"] {
        let head = segue.client.send("HEAD", path, &[], "").await;
        assert_eq!((head.status, &head.body[..]), (200, ""), "{path}");
    }
    let stream = segue.client.send("HEAD", "/api/v1/events/stream", &[], "").await;
    assert_eq!((stream.status, &stream.body[..]), (200, ""));
    segue.stop().await;
}

#[tokio::test]
async fn leading_segments_can_be_dropped() {
    let segue =
        Running::with(&[("api.strip_path_segments", json!(1)), ("namespace", json!("shop"))]).await;
    for path in ["/x/api/v1/breeds", "/x/shop/api/v1/breeds/", "/x/livez"] {
        assert_eq!(segue.get(path).await.status, 200, "{path}");
    }
    let page = segue.get("/x/shop/api/v1/breeds/?per_page=5").await;
    assert!(
        page.headers["link"]
            .starts_with("<http://segue.test/x/shop/api/v1/breeds/?per_page=5&page=1>; rel=first")
    );
    assert_eq!(segue.get("/api/v1/breeds").await.status, 404);
    segue.stop().await;
}

#[tokio::test]
async fn booleans_have_several_spellings() {
    let segue = Running::start().await;
    for text in ["true", "True", "YES", "on", "1"] {
        let path = format!("/api/v1/breeds?validate_only={text}");
        assert_eq!(segue.post(&path, BREED).await.status, 201, "{text}");
        assert_eq!(segue.get("/api/v1/breeds").await.headers["x-total-count"], "0", "{text}");
    }
    for text in ["", "ja", "2", "tru"] {
        let path = format!("/api/v1/breeds?validate_only={text}");
        assert_eq!(segue.post(&path, BREED).await.problem(), (400, "invalid-parameter".to_owned()));
    }
    assert_eq!(segue.post("/api/v1/breeds?validate_only=off", BREED).await.status, 201);
    segue.stop().await;
}

/// Shows: D16, D17, I4.1-pagination, I4.1-total-count, I4.1-link, I8-per-page, I8-first-page
#[tokio::test]
async fn pages_lead_to_one_another() {
    let segue = Running::start().await;
    let breeds: Vec<String> =
        (100..145).map(|n| format!("{{name: b{n}, deployable: d}}")).collect();
    segue.post("/api/v1/breeds", &format!("[{}]", breeds.join(", "))).await;
    let check = async |query: &str, count: usize, pages: [u64; 4], per_page: u64| {
        let page = segue.get(&format!("/api/v1/breeds{query}")).await;
        assert_eq!(page.json().as_array().map(Vec::len), Some(count), "{query}");
        assert_eq!(page.headers["x-total-count"], "45");
        let kept = query.trim_start_matches('?').split('&');
        let kept: String = kept
            .filter(|part| !part.is_empty() && !part.contains("page"))
            .flat_map(|part| [part, "&"])
            .collect();
        let link = |(relation, page): (&str, u64)| {
            format!(
                "<http://segue.test/api/v1/breeds?{kept}per_page={per_page}&page={page}>; rel={relation}"
            )
        };
        let links = ["first", "prev", "next", "last"].into_iter().zip(pages).map(link);
        assert_eq!(page.headers["link"], links.collect::<Vec<_>>().join(", "), "{query}");
    };
    check("", 30, [1, 1, 2, 2], 30).await;
    check("?per_page=20", 20, [1, 1, 2, 3], 20).await;
    check("?per_page=20&page=3", 5, [1, 2, 3, 3], 20).await;
    check("?page=9&per_page=20", 0, [1, 3, 3, 3], 20).await;
    check("?page=0&per_page=0", 30, [1, 1, 2, 2], 30).await;
    check("?per_page=5000", 45, [1, 1, 1, 1], 1000).await;
    check("?x=a&x=b&y=%20", 30, [1, 1, 2, 2], 30).await;
    for query in ["page=x", "per_page=1.5", "page="] {
        let answer = segue.get(&format!("/api/v1/breeds?{query}")).await;
        assert_eq!(answer.problem(), (400, "invalid-parameter".to_owned()), "{query}");
    }
    let names: Vec<_> = segue
        .get("/api/v1/breeds?per_page=1000")
        .await
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|breed| breed["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.is_sorted());
    let empty = segue.get("/api/v1/deployments").await;
    assert_eq!((&empty.headers["x-total-count"][..], empty.json()), ("0", json!([])));
    segue.stop().await;
}

#[tokio::test]
async fn browsers_get_what_they_ask_for_and_nobody_else_does() {
    let segue = Running::start().await;
    let plain = segue.get("/api/v1/breeds").await;
    assert!(!plain.headers.keys().any(|name| name.starts_with("access-control")), "{plain:?}");
    assert_eq!(
        (&plain.headers["cache-control"][..], &plain.headers["pragma"][..]),
        ("no-store", "no-cache")
    );
    for origin in ["http://ui.test", "null"] {
        for path in ["/api/v1/breeds", "/default/api/v1/nosuch", "/api/v1/breeds/x"] {
            let asked = segue.client.send("GET", path, &[("Origin", origin)], "").await;
            assert_eq!(asked.headers["access-control-allow-origin"], origin);
            assert_eq!(asked.headers["access-control-allow-credentials"], "true");
            assert_eq!(asked.headers["access-control-expose-headers"], "Link, X-Total-Count, ETag");
        }
        let headers = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "PATCH"),
            ("Access-Control-Request-Headers", "x-mine, authorization"),
        ];
        let preflight = segue.client.send("OPTIONS", "/api/v1/breeds/x", &headers, "").await;
        assert_eq!((preflight.status, &preflight.body[..]), (200, ""));
        assert_eq!(
            preflight.headers["access-control-allow-methods"],
            "GET, POST, HEAD, OPTIONS, DELETE, PUT"
        );
        assert_eq!(preflight.headers["access-control-allow-headers"], "x-mine, authorization");
        assert_eq!(preflight.headers["access-control-max-age"], "1800");
    }
    let elsewhere = segue.client.send("GET", "/livez", &[("Origin", "http://ui.test")], "").await;
    assert!(!elsewhere.headers.contains_key("access-control-allow-origin"));
    assert_eq!(segue.client.send("OPTIONS", "/api/v1/breeds", &[], "").await.status, 405);
    segue.stop().await;
}

#[tokio::test]
async fn every_path_tells_its_methods() {
    let segue = Running::start().await;
    let check = async |method: &str, path: &str, allowed: &str| {
        let answer = segue.client.send(method, path, &[], "").await;
        assert_eq!(
            (answer.status, &answer.headers["allow"][..]),
            (405, allowed),
            "{method} {path}"
        );
    };
    check("GET", "/api/v1", "POST, PUT, DELETE").await;
    check("PATCH", "/api/v1/breeds", "GET, HEAD, POST, PUT, DELETE").await;
    check("POST", "/api/v1/gateways/a/b", "GET, HEAD, PUT, DELETE").await;
    check("PUT", "/api/v1/deployments", "GET, HEAD, POST").await;
    check("PATCH", "/api/v1/deployments/x", "GET, HEAD, POST, PUT, DELETE").await;
    check("DELETE", "/api/v1/deployments/a/clusters/b/services/c/scale", "GET, HEAD, POST, PUT")
        .await;
    check("DELETE", "/api/v1/events", "GET, HEAD, POST").await;
    check("POST", "/api/v1/events/stream", "GET, HEAD").await;
    check("POST", "/api/v1/info", "GET, HEAD").await;
    check("POST", "/api/v1/sync", "GET, HEAD").await;
    check("PUT", "/api/v1/health/gateways/x", "GET, HEAD").await;
    segue.stop().await;
}

#[tokio::test]
async fn requests_are_limited_in_number_and_time() {
    let limits = [("api.requests_max", json!(0)), ("api.response_timeout", json!("1 ms"))];
    let segue = Running::with(&limits[..1]).await;
    let refused = segue.get("/api/v1/breeds").await;
    assert_eq!(refused.problem(), (429, "too-many-requests".to_owned()));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(segue.get("/livez").await.status, 200);
    segue.stop().await;
    let segue = Running::with(&[("api.bodies_max", json!("16 B"))]).await;
    assert_eq!(
        segue.post("/api/v1/breeds", BREED).await.problem(),
        (429, "too-many-requests".to_owned())
    );
    assert_eq!(segue.post("/api/v1/breeds", "{name: b}").await.status, 400);
    segue.stop().await;
    let segue = Running::with(&limits[1..]).await;
    // The body never ends, so the answer cannot begin.
    let slow = segue.client.raw(b"POST /api/v1/breeds HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{").await;
    assert_eq!(slow.unwrap().problem(), (503, "timeout".to_owned()));
    segue.stop().await;
}

#[tokio::test]
async fn bodies_come_in_chunks_or_blank() {
    let segue = Running::start().await;
    let chunked = b"POST /api/v1/breeds HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
        10\r\n{name: 'web:1', \r\ne\r\ndeployable: a}\r\n0\r\n\r\n";
    assert_eq!(segue.client.raw(chunked).await.unwrap().status, 201);
    let blank = segue.delete("/api/v1/breeds", " \n\t\n").await;
    assert_eq!((blank.status, segue.get("/api/v1/breeds/web:1").await.status), (204, 200));
    assert_eq!(segue.delete("/api/v1", "\n").await.status, 202);
    assert_eq!(
        segue.post("/api/v1/breeds", "  \n").await.problem(),
        (400, "unexpected-type".to_owned())
    );
    segue.stop().await;
}

#[tokio::test]
async fn files_of_the_user_interface_are_served_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("ui");
    std::fs::create_dir_all(root.join("js")).unwrap();
    std::fs::write(root.join("index.html"), "<html>").unwrap();
    std::fs::write(root.join("js/app.js"), "go()").unwrap();
    std::fs::write(directory.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(directory.path().join("secret"), root.join("link")).unwrap();
    let segue = Running::with(&[("api.ui.directory", json!(root))]).await;
    let index = segue.get("/").await;
    assert_eq!((index.status, &index.body[..]), (200, "<html>"));
    assert!(index.headers["content-type"].starts_with("text/html"), "{index:?}");
    assert_eq!(segue.get("/js/app.js?v=1").await.body, "go()");
    for path in [
        "/nosuch",
        "/js",
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/link",
        "/js/../../secret",
    ] {
        let answer = segue.get(path).await;
        assert!(
            answer.status == 404 && answer.headers["content-type"].starts_with("text/plain"),
            "{path}: {answer:?}"
        );
    }
    assert_eq!(segue.get("/api/v1/breeds").await.status, 200);
    segue.stop().await;
}
