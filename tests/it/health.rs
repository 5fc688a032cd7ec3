//! Health and metrics of real traffic, and what an SLA makes of them.

use segue_domain::event::{Position, Record};
use segue_domain::log::Log;
use segue_tests::load::Load;
use segue_tests::service::{Api, Service, Setup};
use segue_tests::shop;
use segue_tests::wait::{LIMIT, wait_until};
use serde_json::{Value, json};
use std::sync::Arc;

/// Short windows, so that what is measured follows soon.
const WINDOW: &str = "6 s";

fn start() -> Service {
    let windows = [
        ("SEGUE_OPERATION__HEALTH__WINDOW", WINDOW.to_owned()),
        ("SEGUE_OPERATION__METRICS__WINDOW", WINDOW.to_owned()),
    ];
    Service::start_with(Setup { environment: windows.to_vec(), ..Setup::default() })
}

/// A version whose requests all fail, or all take a while.
fn version(name: &str, flags: &str) -> Value {
    shop::process(&format!("web:{name}"), &format!("{} {flags}", shop::command(name)))
}

/// Health of which nothing is missing.
fn is_whole(value: f64) -> bool {
    value > 0.999_95
}

/// Waits until the answer at `path` is an event of the type that the path begins with, whose value is as wished.
#[track_caller]
fn wait_value(api: &Api, path: &str, wished: impl Fn(f64) -> bool) -> f64 {
    wait_until(path, LIMIT, || {
        let answer = api.get(&format!("/api/v1/{path}"));
        let fits = answer.status == 200
            && answer.body["type"].as_str() == path.split('/').next()
            && answer.body["value"].as_f64().is_some_and(&wished);
        let value = answer.body["value"].as_f64();
        value.filter(|_| fits).ok_or_else(|| format!("{answer:?}"))
    })
}

/// Shows: I1-computed, I4.6-gateway, I4.6-route, I4.6-deployment, I4.6-cluster, I4.6-service, I4.6-value
#[test]
fn health_and_metrics_come_from_real_traffic() {
    let mut service = start();
    let port = service.ports.one();
    let api = &service.api;
    let mut body = shop::version("1", 1);
    body["gateways"] = json!({port.to_string(): "web/http"});
    api.put(shop::SHOP, &body).expect(202);
    shop::wait_done(api, "shop", "web:1", 1);
    shop::wait_gateway(api, "shop/web/http");

    // Requests pass HAProxy once, and count for both gateways and both routes.
    let outer = format!("gateways/shop%2F{port}");
    let cluster = "deployments/shop/clusters/web";
    let gateways = [
        outer.clone(),
        format!("{outer}/routes/shop%2Fweb%2Fhttp"),
        "gateways/shop%2Fweb%2Fhttp".to_owned(),
        "gateways/shop%2Fweb%2Fhttp/routes/shop%2Fweb%2Fweb:1%2Fhttp".to_owned(),
    ];
    let ports = [format!("{cluster}/ports/http"), format!("{cluster}/services/web:1/ports/http")];
    let deployments =
        ["deployments/shop".to_owned(), cluster.to_owned(), format!("{cluster}/services/web:1")];
    for subject in gateways.iter().chain(&deployments) {
        wait_value(api, &format!("health/{subject}"), is_whole);
    }
    for subject in gateways.iter().chain(&ports) {
        wait_value(api, &format!("metrics/{subject}/rate"), |value| value == 0.0);
        wait_value(api, &format!("metrics/{subject}/responseTime"), |value| value == 0.0);
    }

    let load = Load::start(port, 2, 2);
    for subject in gateways.iter().chain(&ports) {
        wait_value(api, &format!("metrics/{subject}/rate"), |value| value > 10.0);
        wait_value(api, &format!("metrics/{subject}/responseTime"), |value| value > 0.0);
    }
    wait_value(api, &format!("metrics/{outer}/responseTimeP99"), |value| value > 0.0);
    wait_value(api, &format!("metrics/{outer}/status2xx"), |value| value > 10.0);
    assert_eq!(load.tally().failures.len(), 0, "{:?}", load.tally());
    wait_value(api, "health/deployments/shop", is_whole);

    // A version that answers every request with 500 takes half of them.
    let bad = version("bad", "--fail-rate 1");
    api.put(shop::SHOP, &shop::blueprint("shop", &[bad], 1)).expect(202);
    shop::wait_done(api, "shop", "web:bad", 1);
    let gateway = api.get(shop::GATEWAY).expect(200);
    let weights = shop::with_weights(&gateway, &[("1", 50), ("bad", 50)]);
    api.put(shop::GATEWAY, &weights).expect(200);
    wait_value(api, &format!("health/{cluster}/services/web:bad"), |value| value == 0.0);
    wait_value(api, &format!("health/{cluster}/services/web:1"), is_whole);
    wait_value(api, &format!("health/{cluster}"), |value| value == 0.0);
    wait_value(api, "health/deployments/shop", |value| value == 0.0);
    wait_value(api, &format!("health/{outer}"), |value| (0.4..0.6).contains(&value));
    wait_value(api, "health/gateways/shop%2Fweb%2Fhttp", |value| (0.4..0.6).contains(&value));

    // Without traffic all is well again.
    load.stop();
    for subject in gateways.iter().chain(&deployments) {
        wait_value(api, &format!("health/{subject}"), is_whole);
    }
    for subject in gateways.iter().chain(&ports) {
        wait_value(api, &format!("metrics/{subject}/rate"), |value| value == 0.0);
    }
    let allocation = api
        .wait_event(&["allocation", "deployments:shop"], |event| event["value"]["instances"] == 2);
    assert_eq!(allocation["value"], json!({"cpu": 0.2, "memory": 64, "instances": 2}));
    assert_eq!(allocation["type"], "allocation");
}

/// Shows: D40, D41
#[test]
fn a_slow_cluster_grows_under_load_and_shrinks_without() {
    let mut service = start();
    let port = service.ports.one();
    let api = &service.api;
    let mut body = shop::blueprint("shop", &[version("slow", "--delay-ms 200")], 1);
    body["gateways"] = json!({port.to_string(): "web/http"});
    body["clusters"]["web"]["sla"] = json!({
        "type": "response_time_sliding_window",
        "threshold": {"upper": 150, "lower": 50},
        "window": {"interval": 5, "cooldown": 1},
        "escalations": [{"type": "scale_instances", "minimum": 1, "maximum": 2, "scale_by": 1}],
    });
    api.put(shop::SHOP, &body).expect(202);
    shop::wait_done(api, "shop", "web:slow", 1);
    shop::wait_gateway(api, "shop/web/http");
    let load = Load::start(port, 2, 1);
    shop::wait_done(api, "shop", "web:slow", 2);
    wait_value(api, "metrics/deployments/shop/clusters/web/ports/http/responseTime", |value| {
        (190.0..5_000.0).contains(&value)
    });
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{tally:?}");
    shop::wait_done(api, "shop", "web:slow", 1);

    // Every decision is an event, and names what led to it, back to what was measured.
    service.terminate();
    let log = Log::open(&service.data().join("log")).expect("nobody has it open");
    let records = log.read(Position::START, usize::MAX).expect("it can be read");
    for (verdict, measured) in [("sla:escalate", 150.0..5_000.0), ("sla:deescalate", 0.0..50.0)] {
        let verdict = find(&records, &|record| {
            record.event.tags.contains(verdict) && record.provenance.actor == "worker:sla"
        });
        let cause = verdict.provenance.cause.expect("a verdict has a cause");
        let cause = find(&records, &|record| record.position == cause);
        assert!(cause.event.tags.contains("metrics:responseTime"), "{cause:?}");
        assert_eq!(cause.provenance.actor, "worker:health");
        assert!(measured.contains(&cause.event.value.as_f64().unwrap_or(-1.0)), "{cause:?}");
        let acted = |record: &Record| {
            record.provenance.actor == "worker:escalation"
                && record.provenance.cause == Some(verdict.position)
        };
        find(&records, &acted);
    }
}

#[track_caller]
fn find<'a>(records: &'a [Arc<Record>], wished: &dyn Fn(&Record) -> bool) -> &'a Record {
    records.iter().find(|record| wished(record)).expect("there is such a record")
}

/// Versions that do not pass their check get no traffic; those that pass it only now and then are less healthy.
#[test]
fn instances_serve_once_they_passed_their_check() {
    let setup = Setup {
        environment: vec![
            ("SEGUE_OPERATION__HEALTH__WINDOW", WINDOW.to_owned()),
            ("SEGUE_OPERATION__SYNCHRONISATION__TIMEOUT__READY_FOR_DEPLOYMENT", "15 s".to_owned()),
        ],
        ..Setup::default()
    };
    let service = Service::start_with(setup);
    let api = &service.api;
    let checked = |name: &str, flags: &str| {
        let mut breed = version(name, flags);
        breed["health_checks"] = json!({
            "port": "http", "path": "/", "initial_delay": "0s", "timeout": "2s", "interval": "1s", "failures": 1,
        });
        shop::blueprint("shop", &[breed], 1)
    };
    // Every second request fails.
    api.put(shop::SHOP, &checked("1", "--fail-rate 0.5")).expect(202);
    shop::wait_done(api, "shop", "web:1", 1);
    let path = "health/deployments/shop/clusters/web/services/web:1";
    wait_value(api, path, |value| value == 0.0);
    wait_value(api, path, is_whole);

    api.put(shop::SHOP, &checked("bad", "--fail-rate 1")).expect(202);
    let failed = shop::wait_service(api, "shop", "web:bad", |service| {
        service["status"]["phase"]["name"] == "Failed"
    });
    let words = failed["status"]["phase"]["notification"].as_str().unwrap_or_default();
    let reason = "did not pass its health check yet: it answers with status 500";
    assert!(words.contains(reason), "{words}");
    assert!(api.events(&["services:web:bad", "synchronisation:deployed"]).is_empty());
}
