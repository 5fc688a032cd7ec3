//! The description of the API and of its documents.

use super::Running;
use serde_json::json;

#[tokio::test]
async fn the_description_is_served() {
    let segue = Running::start().await;
    let description = segue.get("/openapi.json").await;
    assert_eq!(
        (description.status, &description.headers["content-type"][..]),
        (200, "application/json")
    );
    let description = description.json();
    assert_eq!(description["openapi"], "3.1.0");
    let created = &description["paths"]["/api/v1/breeds"]["post"]["responses"]["201"]["content"];
    let expected = json!({"$ref": "#/components/schemas/breed"});
    assert_eq!(created["application/x-yaml"]["schema"]["oneOf"][0], expected);
    segue.stop().await;
}

#[tokio::test]
async fn pages_come_from_the_program_itself() {
    let segue = Running::start().await;
    let moved = segue.get("/docs").await;
    assert_eq!((moved.status, &moved.headers["location"][..]), (308, "docs/"));
    let page = segue.get("/docs/").await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.headers["content-type"].starts_with("text/html"));
    let files = page.body.split(['"', '\'']).filter(|text| text.starts_with("./"));
    let files: Vec<_> =
        files.filter(|text| [".js", ".css"].iter().any(|end| text.ends_with(end))).collect();
    assert!(!files.is_empty(), "{page:?}");
    for file in files {
        assert_eq!(segue.get(&format!("/docs/{}", &file[2..])).await.status, 200, "{file}");
    }
    // Nothing is fetched from elsewhere.
    assert!(!page.body.contains("https://"), "{page:?}");
    let start = segue.get("/docs/swagger-initializer.js").await;
    assert!(
        start.body.contains("../openapi.json") && !start.body.contains("petstore"),
        "{start:?}"
    );
    assert_eq!(segue.get("/docs/nosuch.js").await.problem(), (404, "not-found".to_owned()));
    segue.stop().await;
}

#[tokio::test]
async fn every_kind_has_a_schema() {
    let segue = Running::start().await;
    for kind in segue_domain::dsl::schema::PUBLISHED {
        let schema = segue.get(&format!("/schemas/{kind}.json")).await;
        assert_eq!(
            (schema.status, &schema.headers["content-type"][..]),
            (200, "application/schema+json")
        );
        jsonschema::draft202012::new(&schema.json())
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    assert_eq!(segue.get("/schemas/breeds.json").await.problem(), (404, "not-found".to_owned()));
    let created = segue.post("/api/v1/breeds", "{name: b, deployable: d}").await.json();
    let schema = segue.get("/schemas/breed.json").await.json();
    assert!(jsonschema::draft202012::is_valid(&schema, &created), "{created}");
    segue.stop().await;
}
