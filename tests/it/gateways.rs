//! Gateways as clients see them: ports that are taken, HAProxy that dies, and addresses that other services are told.

use rustix::process::Signal;
use segue_tests::service::{Api, Service};
use segue_tests::wait::{LIMIT, wait_until};
use segue_tests::{load, processes, shop};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Instant;

#[track_caller]
fn answers(port: u16) -> Value {
    let client = load::client(false);
    wait_until(&format!("port {port} answers"), LIMIT, || load::ask(&client, port))
}

#[test]
fn a_port_that_another_program_has_is_told_and_taken_later() {
    let mut service = Service::start();
    let (taken, free) = (service.ports.one(), service.ports.one());
    let api = &service.api;
    api.put(shop::SHOP, &shop::version("1", 1)).expect(202);
    shop::wait_done(api, "shop", "web:1", 1);
    let other = TcpListener::bind(("127.0.0.1", taken)).expect("the port belongs to this test");
    api.post("/api/v1/gateways", &shop::edge("blocked", taken)).expect(201);
    let reason = format!("port {taken} ");
    api.wait_event(&["gateways:blocked", "gateway_driver:ERROR", "failed", "info"], |event| {
        let words = event["value"]["notification"].as_str().unwrap_or_default();
        words.contains(&reason) && words.contains("used by another program")
    });
    assert_eq!(api.get("/api/v1/gateways/blocked").expect(200)["deployed"], false);
    api.post("/api/v1/gateways", &shop::edge("free", free)).expect(201);
    shop::wait_gateway(api, "free");
    assert_eq!(answers(free)["version"], "1");
    assert!(api.events(&["gateways:blocked", "deployed"]).is_empty(), "it is not deployed yet");
    drop(other);
    shop::wait_gateway(api, "blocked");
    assert_eq!(answers(taken)["version"], "1");
    let deployed = api.wait_event(&["gateways:blocked", "deployed"], |_| true);
    assert_eq!(deployed["value"]["deployed"], true, "what is told is what it is now: {deployed}");
}

#[test]
fn haproxy_that_was_killed_serves_again() {
    let mut service = Service::start();
    let port = service.ports.one();
    let api = &service.api;
    api.put(shop::SHOP, &shop::version("1", 1)).expect(202);
    api.post("/api/v1/gateways", &shop::edge("edge", port)).expect(201);
    shop::wait_done(api, "shop", "web:1", 1);
    answers(port);
    shop::wait_gateway(api, "edge");
    for find in [Service::haproxy, Service::haproxy_worker] {
        let killed = find(&service);
        processes::signal(killed, Signal::KILL);
        let since = Instant::now();
        let client = load::client(false);
        wait_until("a new HAProxy serves", LIMIT, || {
            let (master, workers) = (service.haproxy(), service.haproxy_workers());
            if master == killed || workers.is_empty() || workers.contains(&killed) {
                return Err(format!("HAProxy is {master} with {workers:?}"));
            }
            load::ask(&client, port).map(drop)
        });
        shop::wait_gateway(api, "edge");
        println!("HAProxy serves again {:?} after process {killed} was killed", since.elapsed());
    }
}

/// `web` is told where `db` is reached: at its gateway.
#[test]
fn what_others_depend_on_comes_first_and_is_reached_at_its_gateway() {
    let mut service = Service::start();
    let port = service.ports.one();
    let api = &service.api;
    let slow = format!("sh -c \"sleep 1; exec {}\"", shop::command("db"));
    let db = json!({"name": "db:1", "deployable": {"type": "process", "definition": slow}, "ports": {"api": "7000/http"}});
    let mut web = shop::breed("1");
    web["environment_variables"] = json!({"DB": "http://$db.host:$db.ports.api"});
    web["dependencies"] = json!({"db": "db:1"});
    let blueprint = json!({"name": "shop", "gateways": {(port.to_string()): "web/http"},
        "clusters": {"web": {"services": [{"breed": web}]}, "db": {"services": [{"breed": db}]}}});
    api.put(shop::SHOP, &blueprint).expect(202);
    shop::wait_done(api, "shop", "web:1", 1);
    shop::wait_done(api, "shop", "db:1", 1);
    assert_eq!(answers(port)["version"], "1");
    let steps = [
        place(api, &["services:db:1", "synchronisation:deployed"]),
        place(api, &["gateways:shop/db/api", "deployed"]),
        place(api, &["services:web:1", "environment"]),
        place(api, &["services:web:1", "instances"]),
        place(api, &["services:web:1", "synchronisation:deployed"]),
        place(api, &["gateways:shop/web/http", "deployed"]),
    ];
    assert!(steps.is_sorted(), "{steps:?}");
    let deployment = api.get(shop::SHOP).expect(200);
    let db_port = shop::wait_gateway(api, "shop/db/api");
    let expected = format!("http://127.0.0.1:{db_port}");
    assert_eq!(deployment["environment_variables"]["web.DB"], expected);
    assert_eq!(deployment["ports"]["db.api"], db_port.to_string());
    let instance = shop::instances(shop::service(&deployment, "web:1").expect("it runs")).remove(0);
    assert_eq!(environment(service.instances()[&instance])["DB"], expected);
    assert_eq!(answers(db_port)["version"], "db");
}

/// Where the first event with these tags stands among all.
#[track_caller]
fn place(api: &Api, tags: &[&str]) -> usize {
    let first = api.wait_event(tags, |_| true);
    let all = api.events(&[]);
    all.iter().position(|event| event["id"] == first["id"]).expect("events are kept")
}

/// What a process was started with.
fn environment(pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap_or_default();
    let entries = text.split('\0').filter_map(|entry| entry.split_once('='));
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
