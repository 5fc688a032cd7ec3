//! Forms of requests and answers, and problem documents (wire, sections 2 and 3).

use super::Running;

const BREED: &str = "name: web:1\ndeployable: a\n";

/// Shows: D8, I4.1-accept, I1-formats
#[tokio::test]
async fn answers_have_the_form_that_is_accepted() {
    let segue = Running::start().await;
    segue.post("/api/v1/breeds", BREED).await;
    let check = async |accept: &[&str], expected: Option<&str>| {
        let headers: Vec<_> = accept.iter().map(|accept| ("Accept", *accept)).collect();
        let answer = segue.client.send("GET", "/api/v1/breeds/web:1", &headers, "").await;
        match expected {
            None => assert_eq!(answer.problem(), (406, "not-acceptable".to_owned()), "{accept:?}"),
            Some(form) => {
                assert_eq!(answer.status, 200, "{accept:?}");
                assert!(answer.headers["content-type"].starts_with(form), "{accept:?}: {answer:?}");
            }
        }
    };
    let (json, yaml) = (Some("application/json"), Some("application/x-yaml"));
    check(&[], json).await;
    check(&["application/json"], json).await;
    check(&["application/x-yaml"], yaml).await;
    check(&["application/json, text/plain, */*"], json).await;
    check(&["application/x-yaml, application/json"], yaml).await;
    check(&["application/x-yaml;q=0.3, */*;q=0.2"], yaml).await;
    check(&["application/json;q=0.3, application/x-yaml;q=0.4"], yaml).await;
    check(&["text/html", "application/x-yaml"], yaml).await;
    check(&["application/*"], json).await;
    check(&["text/html"], None).await;
    check(&["application/json;q=0"], None).await;
    segue.stop().await;
}

/// Shows: D8, I4.1-content-type
#[tokio::test]
async fn bodies_are_read_whatever_they_are_called() {
    let segue = Running::start().await;
    let check = async |method: &str, path: &str, content_type: &str, expected: u16| {
        let headers = [("Content-Type", content_type)];
        let answer = segue.client.send(method, path, &headers, BREED).await;
        assert_eq!(answer.status, expected, "{method} {path} as {content_type}: {answer:?}");
    };
    check("POST", "/api/v1/breeds", "application/json", 201).await;
    check("POST", "/api/v1/breeds", "application/x-yaml; charset=utf-8", 201).await;
    check("POST", "/api/v1/breeds", "Application/JSON;charset=UTF-8", 201).await;
    check("PUT", "/api/v1/breeds/web:1", "text/plain", 415).await;
    check("POST", "/api/v1/breeds", "application/x-www-form-urlencoded", 415).await;
    check("DELETE", "/api/v1/breeds", "text/plain", 204).await;
    check("GET", "/api/v1/breeds", "text/plain", 200).await;
    segue.stop().await;
}

/// Shows: D30, D31, D32
#[tokio::test]
async fn problems_are_documents() {
    let segue = Running::start().await;
    let refused = segue.post("/api/v1/breeds", "name: a\ndeployable: b\nprots: {}\n").await;
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    let problem = refused.json();
    let members: Vec<_> = problem.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["type", "title", "status", "detail", "message", "errors"]);
    assert_eq!(problem["detail"], problem["message"]);
    let error = &problem["errors"][0];
    assert_eq!(
        (&error["pointer"], &error["line"], &error["column"]),
        (&"/prots".into(), &3.into(), &1.into())
    );
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("ports")), "{problem}");
    let yaml = [("Accept", "application/x-yaml")];
    let refused = segue.client.send("GET", "/api/v1/breeds/nosuch", &yaml, "").await;
    assert!(refused.status == 404 && refused.body.starts_with("type: not-found\n"), "{refused:?}");
    assert!(refused.headers["content-type"].starts_with("application/x-yaml"));
    let twice = segue.post("/api/v1/breeds", "name: a\nname: b\ndeployable: c\n").await;
    assert_eq!(twice.problem(), (400, "duplicate-key".to_owned()));
    // Names and keys come back as they were sent.
    let body = "name: Mixed_Case.1\ndeployable: x\nenvironment_variables: {someName: a, OTHER-name: b}\nmetadata: {camelCase: {snake_case: 1}}\n";
    let created = segue.post("/api/v1/breeds", body).await.json();
    assert_eq!(created["name"], "Mixed_Case.1");
    assert!(created["environment_variables"].get("someName").is_some(), "{created}");
    assert_eq!(created["metadata"]["camelCase"]["snake_case"], 1);
    segue.stop().await;
}
