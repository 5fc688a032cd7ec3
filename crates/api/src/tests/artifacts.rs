//! Blueprints, breeds, scales and gateways over HTTP.

use super::Running;
use serde_json::json;

const BREED: &str = "name: web:1\ndeployable: acme/web:1\nports: {http: 8000/http}\n";

/// Shows: D10, I4.1-create, I4.1-update, I4.1-delete, I7-update-missing, I7-get-missing
/// Shows: I7-idempotent
#[tokio::test]
async fn a_breed_is_created_read_updated_and_deleted() {
    let segue = Running::start().await;
    let created = segue.post("/api/v1/breeds", BREED).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.json()["name"], "web:1");
    assert_eq!(created.headers["cache-control"], "no-store");
    let tag = created.headers["etag"].clone();

    let read = segue.get("/api/v1/breeds/web:1").await;
    assert_eq!((read.status, read.json()), (200, created.json()));
    assert_eq!(read.headers["etag"], tag);
    assert_eq!(segue.get("/default/api/v1/breeds/web%3A1/").await.json(), created.json());

    // The same again changes nothing, also when it is overwritten.
    assert_eq!(segue.post("/api/v1/breeds", BREED).await.headers["etag"], tag);
    let changed = BREED.replace("acme/web:1", "acme/web:2");
    let updated = segue.put("/api/v1/breeds/web:1", &changed).await;
    assert_eq!(
        (updated.status, &updated.json()["deployable"]["definition"]),
        (200, &json!("acme/web:2"))
    );
    assert_ne!(updated.headers["etag"], tag);

    let stale =
        segue.client.send("PUT", "/api/v1/breeds/web:1", &[("If-Match", &tag)], BREED).await;
    assert_eq!(stale.problem(), (412, "precondition-failed".to_owned()));
    let any = segue.client.send("PUT", "/api/v1/breeds/web:1", &[("If-Match", "*")], BREED).await;
    assert_eq!(any.status, 200, "{any:?}");

    let removed = segue.delete("/api/v1/breeds/web:1", "").await;
    assert_eq!((removed.status, &removed.body[..]), (204, ""));
    assert_eq!(segue.delete("/api/v1/breeds/web:1", "").await.status, 204);
    assert_eq!(segue.get("/api/v1/breeds/web:1").await.problem(), (404, "not-found".to_owned()));
    assert_eq!(
        segue.put("/api/v1/breeds/web:1", BREED).await.problem(),
        (404, "not-found".to_owned())
    );
    segue.stop().await;
}

/// Shows: I4.1-validate-only
#[tokio::test]
async fn nothing_is_stored_when_only_validated() {
    let segue = Running::start().await;
    let validated = segue.post("/api/v1/breeds?validate_only=true", BREED).await;
    assert_eq!((validated.status, &validated.json()["name"]), (201, &json!("web:1")));
    assert_eq!(segue.get("/api/v1/breeds").await.json(), json!([]));
    segue.post("/api/v1/breeds", BREED).await;
    assert_eq!(segue.delete("/api/v1/breeds/web:1?validate_only=yes", "").await.status, 204);
    assert_eq!(segue.get("/api/v1/breeds/web:1").await.status, 200);
    let unclear = segue.post("/api/v1/breeds?validate_only=perhaps", BREED).await;
    assert_eq!(unclear.problem(), (400, "invalid-parameter".to_owned()));
    segue.stop().await;
}

/// Shows: D6, D7, I4.1-several, I4.1-several-collection
#[tokio::test]
async fn several_documents_are_stored_together_or_not_at_all() {
    let segue = Running::start().await;
    let second = BREED.replace("web:1", "web:2");
    let both = segue.post("/api/v1/breeds", &format!("{BREED}---\n{second}")).await;
    assert_eq!(both.status, 201, "{both:?}");
    let names: Vec<_> =
        both.json().as_array().unwrap().iter().map(|breed| breed["name"].clone()).collect();
    assert_eq!(names, ["web:1", "web:2"]);

    let third = BREED.replace("web:1", "web:3");
    let refused = segue
        .post("/api/v1/breeds", &format!("{third}---\nname: web:4\ndeployable: x\nprots: {{}}\n"))
        .await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let unknown =
        refused.json()["errors"].as_array().unwrap().iter().any(|error| {
            error["pointer"] == "/1/prots" && error["line"] == 7 && error["column"] == 1
        });
    assert!(unknown, "{refused:?}");
    assert_eq!(segue.get("/api/v1/breeds/web:3").await.status, 404);

    let list = segue.put("/api/v1/breeds", "[{name: web:1, deployable: b}]").await;
    assert_eq!((list.status, &list.json()[0]["name"]), (200, &json!("web:1")));
    assert_eq!(segue.delete("/api/v1/breeds", "name: web:1\n---\nname: web:2\n").await.status, 204);
    assert_eq!(segue.get("/api/v1/breeds").await.headers["x-total-count"], "0");
    segue.stop().await;
}

/// Shows: D31, I4.1-several-general, I4.1-general-methods
#[tokio::test]
async fn documents_of_mixed_kinds_and_their_problems() {
    let segue = Running::start().await;
    let body = "kind: scale\nname: small\ncpu: 0.2\nmemory: 64MB\n---\nkind: breed\nname: web:1\ndeployable: a\n";
    let created = segue.post("/api/v1", body).await;
    assert_eq!(
        (created.status, created.json().as_array().map(Vec::len)),
        (202, Some(2)),
        "{created:?}"
    );
    let put = segue.put("/api/v1/", "{kind: breed, name: web:9, deployable: a}").await;
    assert_eq!((put.status, &put.json()["name"]), (202, &json!("web:9")));
    let check = async |body: &str, kind: &str| {
        assert_eq!(segue.post("/api/v1", body).await.problem(), (400, kind.to_owned()), "{body}");
    };
    check("{kind: workflow, name: a}", "not-supported").await;
    check("{kind: breeds, name: a}", "unexpected-artifact").await;
    check("{name: a}", "missing-path-value").await;
    check("{kind: breed}", "missing-path-value").await;
    check("a: [", "yaml-parsing").await;
    check("a: 1\na: 2", "duplicate-key").await;
    let deleted = segue.delete("/api/v1", "{kind: breed, name: web:9}").await;
    assert_eq!((deleted.status, &deleted.body[..]), (202, ""));
    let refused = segue.get("/api/v1").await;
    assert_eq!((refused.status, &refused.headers["allow"][..]), (405, "POST, PUT, DELETE"));
    segue.stop().await;
}

/// Shows: D16, D17, I4.1-pagination, I4.1-total-count, I4.1-link
#[tokio::test]
async fn lists_come_in_pages() {
    let segue = Running::start().await;
    let breeds: Vec<String> = (10..15).map(|n| format!("{{name: b{n}, deployable: d}}")).collect();
    segue.post("/api/v1/breeds", &format!("[{}]", breeds.join(", "))).await;
    let page = segue.get("/api/v1/breeds?per_page=2&page=2&x=a%20b").await;
    let names: Vec<_> =
        page.json().as_array().unwrap().iter().map(|breed| breed["name"].clone()).collect();
    assert_eq!(names, ["b12", "b13"]);
    assert_eq!(page.headers["x-total-count"], "5");
    let link = |relation: &str, page: u64| {
        format!("<http://segue.test/api/v1/breeds?x=a%20b&per_page=2&page={page}>; rel={relation}")
    };
    let links = [link("first", 1), link("prev", 1), link("next", 3), link("last", 3)].join(", ");
    assert_eq!(page.headers["link"], links);
    assert_eq!(segue.get("/api/v1/breeds?page=9").await.json(), json!([]));
    assert_eq!(
        segue.get("/api/v1/breeds?page=x").await.problem(),
        (400, "invalid-parameter".to_owned())
    );
    segue.stop().await;
}

#[tokio::test]
async fn names_of_gateways_hold_slashes() {
    let segue = Running::start().await;
    let gateway = "{name: shop/9050, port: 9050, routes: {'[127.0.0.1:1]': {}}}";
    let created = segue.post("/api/v1/gateways", gateway).await;
    assert_eq!(created.status, 201, "{created:?}");
    let raw = segue.get("/api/v1/gateways/shop/9050").await;
    assert_eq!((raw.status, &raw.json()["name"]), (200, &json!("shop/9050")));
    assert_eq!(segue.get("/api/v1/gateways/shop%2F9050").await.json()["name"], raw.json()["name"]);
    assert_eq!(segue.put("/api/v1/gateways/shop%2F9050/", gateway).await.status, 200);
    assert_eq!(segue.delete("/api/v1/gateways/shop/9050", "").await.status, 204);
    assert_eq!(segue.get("/api/v1/gateways/shop%2F9050").await.status, 404);
    segue.stop().await;
}

#[tokio::test]
async fn what_is_stored_survives_a_restart() {
    let segue = Running::start().await;
    let tag = segue.post("/api/v1/breeds", BREED).await.headers["etag"].clone();
    let before = segue.get("/api/v1/breeds/web:1").await;
    let directory = segue.stop().await;
    let segue = Running::start_with(directory, vec![]).await;
    let after = segue.get("/api/v1/breeds/web:1").await;
    assert_eq!((after.json(), &after.headers["etag"]), (before.json(), &tag));
    segue.stop().await;
}

/// Shows: D14, I2.1-expand, I2.1-only, I4.2-expand, I4.2-expand-incomplete, I4.2-only, I7-expand
#[tokio::test]
async fn references_are_shown_in_the_form_that_is_asked_for() {
    let segue = Running::start().await;
    segue.post("/api/v1/breeds", "[{name: a, deployable: d, dependencies: {b: b}}]").await;
    let missing = segue.get("/api/v1/breeds/a?expand_references=true").await;
    assert_eq!(missing.problem(), (400, "artifact-not-found".to_owned()));
    assert!(missing.body.contains("there is no breed 'b'"), "{missing:?}");
    assert_eq!(segue.get("/api/v1/breeds?expand_references=true").await.status, 400);
    segue.post("/api/v1/breeds", "{name: b, deployable: d}").await;
    let expanded = segue.get("/api/v1/breeds/a?expand_references=true").await.json();
    assert_eq!(expanded["dependencies"]["b"]["name"], json!("b"));
    let both = segue.get("/api/v1/breeds/a?expand_references=true&only_references=true").await;
    assert_eq!(both.json()["dependencies"]["b"], json!({"ref": "b"}));
    let scales = segue.get("/api/v1/scales?expand_references=true").await;
    assert_eq!((scales.status, scales.json()), (200, json!([])));
    segue.stop().await;
}

#[tokio::test]
async fn routes_rewrites_and_templates_are_stored_and_used() {
    let segue = Running::start().await;
    for (collection, text) in [
        ("rewrites", "{name: strip, path: /a if path_beg /b}"),
        ("routes", "{name: '[127.0.0.1:1/x]', weight: 100%, rewrites: [strip]}"),
        ("templates", "{name: base, definition: {deployable: d, env: {A: 1}}}"),
    ] {
        let created = segue.post(&format!("/api/v1/{collection}"), text).await;
        assert_eq!(created.status, 201, "{created:?}");
        let listed = segue.get(&format!("/api/v1/{collection}")).await;
        assert_eq!(listed.json(), json!([created.json()]));
    }
    let route = segue.get("/api/v1/routes/%5B127.0.0.1:1%2Fx%5D").await;
    assert_eq!((route.status, &route.json()["weight"]), (200, &json!("100%")), "{route:?}");
    let gateway = "{name: edge, port: 9050, routes: {'[127.0.0.1:1]': {ref: '[127.0.0.1:1/x]'}}}";
    let gateway = segue.post("/api/v1/gateways", gateway).await;
    let rewrites = &gateway.json()["routes"]["[127.0.0.1:1]"]["rewrites"];
    assert_eq!(*rewrites, json!([{"path": "/a if path_beg /b"}]));
    let breed = segue.post("/api/v1/breeds", "{name: web, import: base, env: {B: 2}}").await;
    assert_eq!(breed.json()["environment_variables"], json!({"A": "1", "B": "2"}), "{breed:?}");
    let refused = segue.post("/api/v1/breeds", "{name: web, import: gone}").await;
    assert_eq!(refused.problem(), (400, "import-reference".to_owned()));
    assert_eq!(refused.json()["errors"][0]["column"], json!(21), "{refused:?}");
    segue.stop().await;
}

#[tokio::test]
async fn a_composition_is_stored_as_a_blueprint() {
    let segue = Running::start().await;
    let text = "version: '2'\nservices: {web: {image: acme/web, ports: ['80:8080']}}\n";
    let unnamed = segue.post("/api/v1/docker-compose", text).await;
    assert_eq!(unnamed.problem(), (400, "invalid-parameter".to_owned()));
    let tried = segue.post("/api/v1/docker-compose?name=shop&validate_only=true", text).await;
    assert_eq!(segue.get("/api/v1/blueprints/shop").await.status, 404);
    let made = segue.post("/api/v1/docker-compose?name=shop", text).await;
    assert_eq!((made.status, &made.body), (201, &tried.body));
    assert!(made.headers["content-type"].starts_with("text/plain"));
    assert!(
        made.body.starts_with("# compose version: 2\n# service 'web': '80' before"),
        "{made:?}"
    );
    let stored = segue.get("/api/v1/blueprints/shop").await.json();
    let breed = &stored["clusters"]["web"]["services"][0]["breed"];
    assert_eq!(
        (&breed["name"], &breed["ports"]),
        (&json!("web:1.0.0"), &json!({"port_8080": "8080"}))
    );
    // The answer is a document itself.
    assert_eq!(segue.put("/api/v1/blueprints/shop", &made.body).await.status, 200);
    let refused = segue.post("/api/v1/docker-compose?name=shop", "version: 2").await;
    assert_eq!(refused.problem(), (400, "no-service".to_owned()));
    segue.stop().await;
}

/// What YAML takes for a boolean names the same artifact wherever it is written (documents, section 1.4).
#[tokio::test]
async fn a_name_that_is_a_boolean_has_one_spelling() {
    let segue = Running::start().await;
    let created = segue.post("/api/v1/breeds", "{name: on, deployable: x}").await;
    assert_eq!((created.status, &created.json()["name"]), (201, &json!("true")));
    let updated = segue.put("/api/v1/breeds", "{name: yes, deployable: y}").await;
    assert_eq!((updated.status, &updated.json()["name"]), (200, &json!("true")));
    let updated = segue.put("/api/v1/breeds/true", "{name: on, deployable: z}").await;
    assert_eq!(updated.status, 200, "{updated:?}");
    assert_eq!(segue.delete("/api/v1/breeds", "{name: on}").await.status, 204);
    assert_eq!(segue.get("/api/v1/breeds/true").await.status, 404);
    segue.stop().await;
}
