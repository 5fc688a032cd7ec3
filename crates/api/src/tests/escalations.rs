//! SLAs over HTTP, from a response time that somebody posts to what runs, simulated.

use super::Running;
use serde_json::{Value, json};

const DEPLOYMENT: &str = "/api/v1/deployments/shop";
const SCALE: &str = "/api/v1/deployments/shop/clusters/web/services/web:1/scale";
const BLUEPRINT: &str = "
clusters:
  web:
    sla:
      type: response_time_sliding_window
      threshold: {upper: 800, lower: 90}
      window: {interval: 1, cooldown: 0}
      escalations: [{type: scale_instances, minimum: 1, maximum: 2, scale_by: 1}]
    services:
    - breed: {name: web:1, deployable: acme/web:1, ports: {http: 8000/http}}
      scale: {cpu: 0.2, memory: 64MB, instances: 1}
";

/// The service runs so many instances, all is as wanted.
async fn runs(segue: &Running, instances: usize) {
    let done = segue.wait(DEPLOYMENT, |answer| {
        let service = &answer.json()["clusters"]["web"]["services"][0];
        let running = service["instances"].as_array().map_or(0, Vec::len);
        service["status"]["phase"]["name"] == "Done" && running == instances
    });
    done.await;
}

async fn measure(segue: &Running, milliseconds: u32) {
    let event = json!({
        "tags": ["gateways:shop/web/http", "metrics:responseTime"],
        "value": milliseconds,
        "type": "metrics",
    });
    assert_eq!(segue.post("/api/v1/events", &event.to_string()).await.status, 201);
}

/// Measures again and again, until as many instances are wanted: the worker may look after a measurement left the window.
async fn measure_until(segue: &Running, milliseconds: u32, instances: u32) {
    let deadline = tokio::time::Instant::now() + super::client::LIMIT;
    while segue.get(SCALE).await.json()["instances"] != instances {
        measure(segue, milliseconds).await;
        assert!(tokio::time::Instant::now() < deadline, "{:?}", events(segue, "sla").await);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn events(segue: &Running, tag: &str) -> Vec<Value> {
    let events = segue.get(&format!("/api/v1/events?tag={tag}&per_page=100")).await.json();
    events.as_array().cloned().unwrap()
}

/// Shows: D20, D41
#[tokio::test]
async fn response_times_scale_a_service_out_and_back_in() {
    let segue = Running::start().await;
    assert_eq!(segue.put(DEPLOYMENT, BLUEPRINT).await.status, 202);
    runs(&segue, 1).await;

    measure_until(&segue, 900, 2).await;
    runs(&segue, 2).await;
    // The window has to pass, and with it what was slow.
    measure_until(&segue, 10, 1).await;
    runs(&segue, 1).await;

    // Each decision is an event, and each says what it is about.
    for (verdict, from, to) in [("sla:escalate", 1, 2), ("sla:deescalate", 2, 1)] {
        let given = events(&segue, verdict).await;
        let tags = given[given.len() - 1]["tags"].to_string();
        for tag in ["sla", "deployment:shop", "cluster:web", "deployments:shop", "clusters:web"] {
            assert!(tags.contains(&format!("\"{tag}\"")), "{tags}");
        }
        let applied = events(&segue, "escalation:applied").await;
        let scaled = applied.iter().map(|event| &event["value"]["scaled"][0]);
        let is_so =
            |scaled: &Value| scaled["from"]["instances"] == from && scaled["to"]["instances"] == to;
        assert_eq!(scaled.filter(|scaled| is_so(scaled)).count(), 1, "{applied:?}");
    }
    // What Segue changes by itself is not archived.
    assert_eq!(events(&segue, "deployment-service-scales").await, Vec::<Value>::new());
    segue.stop().await;
}

/// Shows: D20, D26, I4.8-sla, I4.8-escalation
#[tokio::test]
async fn anybody_may_escalate_and_a_restart_does_not_do_it_again() {
    let segue = Running::start().await;
    assert_eq!(segue.put(DEPLOYMENT, BLUEPRINT).await.status, 202);
    runs(&segue, 1).await;
    let event = json!({"tags": ["sla:escalate", "deployment:shop", "cluster:web"], "type": "mine"});
    assert_eq!(segue.post("/api/v1/events", &event.to_string()).await.status, 201);
    runs(&segue, 2).await;
    let directory = segue.stop().await;

    let segue = Running::start_with(directory, vec![]).await;
    for cycle in ["/api/v1/sla", "/api/v1/escalation"] {
        let answer = segue.get(cycle).await;
        assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    }
    // The next one is refused, so the first was not done again.
    assert_eq!(segue.post("/api/v1/events", &event.to_string()).await.status, 201);
    let ignored = "/api/v1/events?tag=escalation:ignored";
    segue.wait(ignored, |answer| answer.json().as_array().map_or(0, Vec::len) == 1).await;
    assert_eq!(events(&segue, "escalation:applied").await.len(), 1);
    assert_eq!(segue.get(SCALE).await.json()["instances"], 2);
    segue.stop().await;
}
