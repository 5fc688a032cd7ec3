//! The operations that every collection has, and deployments' own, by their codes (wire, sections 6 to 8).

use super::Running;
use serde_json::json;

const COLLECTIONS: [(&str, &str, &str); 4] = [
    ("breeds", "b", "{name: b, deployable: one}"),
    ("scales", "s", "{name: s, cpu: 1, memory: 1GB, instances: 1}"),
    ("blueprints", "p", "{name: p, clusters: {c: {services: [{breed: x}]}}}"),
    ("gateways", "g", "{name: g, port: 9050, routes: {'[127.0.0.1:1]': {}}}"),
];
const DEPLOYMENT: &str = "{clusters: {web: {services: [{breed: {name: 'web:1', deployable: a}}, {breed: {name: 'web:2', deployable: a}}]}}}";

/// Shows: D5, D6, D10, D33, I4.1-create, I4.1-update, I4.1-delete, I4.1-validate-only, I4.1-validate-only-yaml, I7-update-missing, I7-get-missing, I7-idempotent
#[tokio::test]
async fn every_collection_has_the_same_operations() {
    let segue = Running::start().await;
    for (collection, name, document) in COLLECTIONS {
        let all = format!("/api/v1/{collection}");
        let one = format!("{all}/{name}");
        let check = async |method: &str, path: &str, body: &str, expected: u16| {
            let answer = segue.client.send(method, path, &[], body).await;
            assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
            answer
        };
        check("GET", &one, "", 404).await;
        check("PUT", &one, document, 404).await;
        check("PUT", &all, document, 404).await;
        check("DELETE", &one, "", 204).await;
        let validated = check("POST", &format!("{all}?validate_only=true"), document, 201).await;
        check("GET", &one, "", 404).await;
        let created = check("POST", &all, document, 201).await;
        assert_eq!(validated.json()["name"], created.json()["name"]);
        let yaml = [("Accept", "application/x-yaml")];
        let validated =
            segue.client.send("PUT", &format!("{one}?validate_only=true"), &yaml, document).await;
        assert!(
            validated.status == 200 && validated.body.starts_with(&format!("name: {name}\n")),
            "{validated:?}"
        );
        // What succeeded once succeeds again.
        check("POST", &all, document, 201).await;
        check("PUT", &one, document, 200).await;
        check("PUT", &one, &document.replace(&format!("name: {name}, "), ""), 200).await;
        check("PUT", &all, document, 200).await;
        let refused =
            check("PUT", &one, &document.replace(&format!("name: {name}"), "name: other"), 400)
                .await;
        assert_eq!(refused.problem().1, "inconsistent-artifact-name");
        let refused = check("PUT", &one, &format!("{document}\n---\n{document}"), 400).await;
        assert_eq!(refused.problem().1, "unexpected-type");
        assert_eq!(check("GET", &all, "", 200).await.json()[0]["name"], json!(name));
        // What is printed can be sent back, and changes nothing.
        let read = check("GET", &one, "", 200).await;
        let again = check("PUT", &one, &read.body, 200).await;
        assert_eq!((again.json(), &again.headers["etag"]), (read.json(), &read.headers["etag"]));
        check("DELETE", &format!("{one}?validate_only=true"), "", 204).await;
        check("DELETE", &all, "", 204).await;
        check("GET", &one, "", 200).await;
        // A body beside a name is not looked at.
        assert_eq!(check("DELETE", &one, "{name: [", 204).await.body, "");
        check("DELETE", &one, "", 204).await;
        check("GET", &one, "", 404).await;
        check("POST", &all, &format!("[{document}]"), 201).await;
        check("DELETE", &all, &format!("{{name: {name}}}"), 204).await;
        check("GET", &one, "", 404).await;
    }
    segue.stop().await;
}

/// Shows: D7
#[tokio::test]
async fn documents_of_one_request_refer_to_one_another_in_any_order() {
    let segue = Running::start().await;
    let documents = [
        "{kind: gateway, name: d/web/http, routes: {d/web/web/http: {weight: 100%, condition: {ref: c}}}}",
        "{kind: deployment, name: d, clusters: {web: {services: [{breed: web, scale: small}]}}}",
        "{kind: gateway, name: g, port: 9050, routes: {'[127.0.0.1:1]': {ref: r}}}",
        "{kind: route, name: r, weight: 100%}",
        "{kind: condition, name: c, condition: User-Agent = Firefox}",
        "{kind: scale, name: small, cpu: 0.1, memory: 1MB, instances: 1}",
        "{kind: breed, name: web, deployable: a, ports: {http: 8080/http}}",
    ];
    let body = documents.join("\n---\n");
    let answer = segue.put("/api/v1?validate_only=true", &body).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let answer = segue.put("/api/v1", &body).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let stored = answer.json();
    let kinds: Vec<_> = stored.as_array().unwrap().iter().map(|one| one["kind"].clone()).collect();
    assert_eq!(kinds, ["gateway", "deployment", "gateway", "route", "condition", "scale", "breed"]);
    let condition = &stored[0]["routes"]["d/web/web/http"]["condition"];
    assert_eq!(condition["condition"], json!("User-Agent = Firefox"), "{stored}");
    segue.stop().await;
}

/// Shows: D7
#[tokio::test]
async fn the_problems_of_several_documents_are_told_together() {
    let segue = Running::start().await;
    let pointers = async |body: &str| {
        let answer = segue.put("/api/v1", body).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let errors = answer.json()["errors"].clone();
        let each = errors.as_array().unwrap().iter();
        each.map(|error| error["pointer"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let unreadable = "{kind: breed, name: a}\n---\n{kind: breed, name: b, deployable: x}\n---\n{kind: scale, name: c, cpu: x, memory: 1GB}";
    assert_eq!(pointers(unreadable).await, ["/0/deployable", "/2/cpu"]);
    let undecidable = "{kind: deployment, name: a, clusters: {web: {services: [{breed: none}]}}}\n---\n{kind: deployment, name: b, clusters: {web: {services: [{breed: missing}]}}}";
    assert_eq!(
        pointers(undecidable).await,
        ["/0/clusters/web/services/0/breed", "/1/clusters/web/services/0/breed"]
    );
    segue.stop().await;
}

/// Shows: D7, I4.1-several, I4.1-several-collection, I4.1-several-general, I4.1-general-methods
#[tokio::test]
async fn the_general_endpoint_takes_every_kind() {
    let segue = Running::start().await;
    let mut documents = vec![format!("{{kind: deployment, name: d, {}", &DEPLOYMENT[1..])];
    for (collection, _, document) in COLLECTIONS {
        documents.push(format!("{{kind: {}, {}", collection.trim_end_matches('s'), &document[1..]));
    }
    let body = documents.join("\n---\n");
    for (method, query) in [("PUT", "?validate_only=true"), ("PUT", ""), ("PUT", "")] {
        let answer = segue.client.send(method, &format!("/api/v1{query}"), &[], &body).await;
        assert_eq!(answer.status, 202, "{method}: {answer:?}");
        let kinds: Vec<_> =
            answer.json().as_array().unwrap().iter().map(|one| one["kind"].clone()).collect();
        assert_eq!(kinds, ["deployment", "breed", "scale", "blueprint", "gateway"]);
        let expected = if query.is_empty() { 200 } else { 404 };
        assert_eq!(segue.get("/api/v1/deployments/d").await.status, expected);
    }
    // One that is refused keeps all of them from being stored; the problem points into its document.
    let refused = segue
        .post(
            "/api/v1",
            &format!(
                "{{kind: breed, name: new, deployable: x}}\n---\n{}",
                "{kind: scale, name: t, cpu: x, memory: 1GB}"
            ),
        )
        .await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.json()["errors"][0]["pointer"].as_str().unwrap().starts_with("/1/"),
        "{refused:?}"
    );
    assert_eq!(segue.get("/api/v1/breeds/new").await.status, 404);
    let posted = segue.post("/api/v1", &format!("{{kind: deployment, {}", &DEPLOYMENT[1..])).await;
    assert_eq!(
        (posted.status, posted.json()["name"].as_str().map(str::len)),
        (202, Some(36)),
        "{posted:?}"
    );
    let deleted = segue.delete("/api/v1", &body).await;
    assert_eq!((deleted.status, &deleted.body[..]), (202, ""));
    segue.wait("/api/v1/deployments/d", |answer| answer.status == 404).await;
    for (collection, name, _) in COLLECTIONS {
        assert_eq!(segue.get(&format!("/api/v1/{collection}/{name}")).await.status, 404);
    }
    let check = async |method: &str, body: &str, kind: &str| {
        let answer = segue.client.send(method, "/api/v1", &[], body).await;
        assert_eq!(answer.problem(), (400, kind.to_owned()), "{method} {body}");
    };
    for method in ["POST", "PUT", "DELETE"] {
        check(method, "{name: a}", "missing-path-value").await;
        check(method, "{kind: breed}", "missing-path-value").await;
        check(method, "{kind: breeds, name: a}", "unexpected-artifact").await;
    }
    segue.stop().await;
}

/// Shows: D9, D10, I4.3-list, I4.3-get, I4.3-create, I4.3-create-named, I4.3-update, I4.3-update-name, I4.3-delete, I4.3-missing, I4.3-validate-only, I4.3-delete-1, I4.3-delete-2, I4.3-delete-3, I4.1-deployments, I4.4-scale-get, I4.4-scale-set, I4.4-scale-no-delete, I7-delete-empty, I7-name-differs
#[tokio::test]
async fn deployments_have_their_own_codes() {
    let segue = Running::start().await;
    let check = async |method: &str, path: &str, body: &str, expected: u16| {
        let answer = segue.client.send(method, &format!("/api/v1{path}"), &[], body).await;
        assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
        answer
    };
    check("GET", "/deployments/d", "", 404).await;
    check("DELETE", "/deployments/d", "", 202).await;
    check("DELETE", "/deployments/d", DEPLOYMENT, 202).await;
    check("POST", "/deployments?validate_only=true", DEPLOYMENT, 201).await;
    check("PUT", "/deployments/d?validate_only=true", DEPLOYMENT, 202).await;
    check("GET", "/deployments/d", "", 404).await;
    let several = check("POST", "/deployments", &format!("{DEPLOYMENT}\n---\n{DEPLOYMENT}"), 202)
        .await
        .json();
    assert_ne!(several[0]["name"], several[1]["name"]);
    check("POST", "/deployments/d", DEPLOYMENT, 202).await;
    check("PUT", "/deployments/d", DEPLOYMENT, 202).await;
    check("PUT", "/deployments/d", &format!("{{name: other, {}", &DEPLOYMENT[1..]), 400).await;
    let scale = "/deployments/d/clusters/web/services/web:1/scale";
    check("GET", scale, "", 200).await;
    let two = "{cpu: 1, memory: 1GB, instances: 2}";
    check("PUT", &format!("{scale}?validate_only=true"), two, 202).await;
    assert_eq!(check("GET", scale, "", 200).await.json()["instances"], 1);
    check("POST", scale, two, 202).await;
    check("PUT", scale, two, 202).await;
    check("DELETE", scale, "", 405).await;
    check("POST", "/scales", "{name: small, cpu: 0.1, memory: 64MB, instances: 1}", 201).await;
    let small = check("PUT", scale, "{ref: small}", 202).await.json();
    assert_eq!((&small["cpu"], &small["instances"]), (&json!(0.1), &json!(1)));
    for missing in [
        "/deployments/x/clusters/web/services/web:1/scale",
        "/deployments/d/clusters/x/services/web:1/scale",
        "/deployments/d/clusters/web/services/x/scale",
    ] {
        for method in ["GET", "PUT", "POST"] {
            check(method, missing, two, 404).await;
        }
    }
    // A service is named and goes; one that is not there is passed over; an empty body removes nothing.
    let one = "{name: d, clusters: {web: {services: [{breed: {ref: 'web:1'}}]}}}";
    check("DELETE", "/deployments/d?validate_only=true", one, 202).await;
    check("DELETE", "/deployments/d", "", 202).await;
    assert_eq!(
        check("GET", "/deployments/d", "", 200).await.json()["clusters"]["web"]["services"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    check("DELETE", "/deployments/d", one, 202).await;
    check("DELETE", "/deployments/d", one, 202).await;
    let left = segue
        .wait("/api/v1/deployments/d", |answer| {
            answer.json()["clusters"]["web"]["services"]
                .as_array()
                .is_some_and(|services| services.len() == 1)
        })
        .await;
    assert_eq!(left.json()["clusters"]["web"]["services"][0]["breed"]["name"], "web:2");
    check("DELETE", "/deployments/d", &left.body, 202).await;
    segue.wait("/api/v1/deployments/d", |answer| answer.status == 404).await;
    segue.stop().await;
}
