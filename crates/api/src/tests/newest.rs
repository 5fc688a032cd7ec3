//! Health and metrics: the newest event of the window (wire, section 11.1).

use super::Running;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

async fn post(segue: &Running, tags: &[&str], value: Value, seconds_ago: i64) {
    let at = OffsetDateTime::now_utc() - time::Duration::seconds(seconds_ago);
    let event = json!({"tags": tags, "value": value, "type": "mine", "timestamp": at.format(&Rfc3339).unwrap()});
    let posted = segue.post("/api/v1/events", &event.to_string()).await;
    assert_eq!(posted.status, 201, "{posted:?}");
}

/// Shows: D23
/// Shows: I1-computed, I2.4-health, I4.6-gateway, I4.6-route, I4.6-deployment, I4.6-cluster, I4.6-service, I4.6-value
#[tokio::test]
async fn health_is_the_newest_event_that_carries_all_tags() {
    let segue = Running::start().await;
    let service = ["deployments:d", "clusters:c", "service", "services:s:1", "health"];
    post(&segue, &service, json!(0.5), 5).await;
    post(&segue, &["gateways:a/b/c", "routes:a/b/s:1/c", "health"], json!(1), 5).await;
    post(&segue, &["gateways:g", "health"], json!(0.1), 40).await;
    let check = async |path: &str, expected: Option<Value>| {
        let answer = segue.get(&format!("/api/v1/health/{path}")).await;
        match expected {
            None => assert_eq!(answer.problem(), (404, "not-found".to_owned()), "{path}"),
            Some(value) => {
                let event = answer.json();
                assert_eq!(
                    (answer.status, &event["value"], &event["type"]),
                    (200, &value, &json!("health")),
                    "{path}"
                );
                for field in ["id", "tags", "timestamp"] {
                    assert!(event.get(field).is_some(), "{path}: {event}");
                }
            }
        }
    };
    check("deployments/d/clusters/c/services/s:1", Some(json!(0.5))).await;
    // A less specific question finds it, too.
    check("deployments/d/clusters/c", Some(json!(0.5))).await;
    check("deployments/d", Some(json!(0.5))).await;
    check("gateways/a%2Fb%2Fc", Some(json!(1))).await;
    check("gateways/a%2Fb%2Fc/routes/a%2Fb%2Fs:1%2Fc", Some(json!(1))).await;
    check("gateways/g", None).await;
    check("deployments/d/clusters/x", None).await;
    check("gateways/a%2Fb%2Fc/routes/x", None).await;
    // Newer values that are none are passed over.
    for value in [json!("well"), json!(1.5), json!(-1), json!({"health": 1}), json!("")] {
        post(&segue, &service, value, 1).await;
    }
    check("deployments/d", Some(json!(0.5))).await;
    post(&segue, &service, json!(0), 0).await;
    check("deployments/d", Some(json!(0))).await;
    segue.stop().await;
}

/// Shows: D23
/// Shows: I4.7-gateway, I4.7-route, I4.7-port, I4.7-service-port
#[tokio::test]
async fn metrics_are_the_newest_events_that_carry_all_tags() {
    let segue = Running::with(&[("operation.metrics.window", json!("20 s"))]).await;
    post(&segue, &["gateways:g", "metrics:rate"], json!(7), 5).await;
    post(&segue, &["gateways:g", "metrics:rate"], json!(9), 25).await;
    post(&segue, &["gateways:g", "metrics:rate", "routes:r"], json!(3), 6).await;
    post(&segue, &["gateways:d/c/p", "metrics:rate"], json!(11), 5).await;
    post(&segue, &["gateways:d/c/p", "metrics:rate", "routes:d/c/s"], json!(12), 6).await;
    post(&segue, &["gateways:d/c/p", "metrics:rate", "routes:d/c/t/p"], json!(2000.5), 7).await;
    post(&segue, &["gateways:d/c/p", "metrics:rate", "routes:d/c/t"], json!(5), 8).await;
    let check = async |path: &str, expected: Option<Value>| {
        let answer = segue.get(&format!("/api/v1/metrics/{path}")).await;
        let found = answer.json();
        let value = (answer.status == 200).then(|| found["value"].clone());
        assert_eq!(value, expected, "{path}");
        assert!(answer.status == 404 || found["type"] == "metrics", "{found}");
    };
    check("gateways/g/rate", Some(json!(7))).await;
    check("gateways/g/routes/r/rate", Some(json!(3))).await;
    check("gateways/g/responseTime", None).await;
    // One measure has two spellings.
    post(&segue, &["gateways:g", "metrics:responseTime"], json!(70), 6).await;
    check("gateways/g/response-time", Some(json!(70))).await;
    post(&segue, &["gateways:g", "metrics:response-time"], json!(80), 5).await;
    check("gateways/g/responseTime", Some(json!(80))).await;
    check("deployments/d/clusters/c/ports/p/rate", Some(json!(11))).await;
    check("deployments/d/clusters/c/services/s/ports/p/rate", Some(json!(12))).await;
    check("deployments/d/clusters/c/services/t/ports/p/rate", Some(json!(2000.5))).await;
    check("deployments/d/clusters/c/services/u/ports/p/rate", None).await;
    check("deployments/d/clusters/c/ports/q/rate", None).await;
    segue.stop().await;
}

/// What was measured stands as long as nothing else is told, also when that was before the window.
#[tokio::test]
async fn what_was_measured_stands() {
    let window = ("operation.health.window", json!("1 s"));
    let segue = Running::with(&[window]).await;
    let gateway = "{name: g, port: 9050, routes: {'[127.0.0.1:1]': {}}}";
    assert_eq!(segue.post("/api/v1/gateways", gateway).await.status, 201);
    let is_old = |event: &Value| {
        let timestamp = event["timestamp"].as_str().unwrap_or_default();
        OffsetDateTime::parse(timestamp, &Rfc3339)
            .is_ok_and(|at| OffsetDateTime::now_utc() - at > time::Duration::milliseconds(1500))
    };
    let answer = segue
        .wait("/api/v1/health/gateways/g", |answer| answer.status == 200 && is_old(&answer.json()))
        .await;
    assert_eq!(answer.json()["value"], json!(1));
    // What others post does not.
    post(&segue, &["gateways:g", "health"], json!(0.5), 3).await;
    assert_eq!(segue.get("/api/v1/health/gateways/g").await.json()["value"], json!(1));
    assert_eq!(segue.delete("/api/v1/gateways/g", "").await.status, 204);
    let gone = segue.get("/api/v1/health/gateways/g").await;
    assert_eq!(gone.problem(), (404, "not-found".to_owned()));
    segue.stop().await;
}
