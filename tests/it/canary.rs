//! The canary: version 2 takes over from version 1 under load, step by step, and nobody notices.

use rustix::process::Signal;
use segue_tests::load::{self, Load};
use segue_tests::service::{Api, Service};
use segue_tests::wait::{LIMIT, wait_until, wait_while};
use segue_tests::{processes, shop};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How many requests show a share.
const SAMPLE: usize = 300;

/// Shows: D2, D3, D39, I1-traffic, I1-events, I4.3-delete-1, I4.3-delete-3, I6.1-actions
/// Shows: I6.1-triggers, I6.1-id, I6.3-2
#[test]
fn a_canary_from_the_first_post_to_the_last_event() {
    let mut service = Service::start();
    let api = service.api.clone();
    let edge = deploy_version_1(&mut service);
    let load = Load::start(edge, 4, 2);
    load.next(SAMPLE);
    merge_version_2(&api, &load);
    shift(&api, &load, [90, 10]);
    shift(&api, &load, [50, 50]);
    let refused = api.delete(shop::SHOP, &shop::removal("1"));
    assert_eq!(refused.body["type"], "invalid-route-weight", "{refused:?}");
    refused.expect(400);
    shift(&api, &load, [0, 100]);
    remove_version_1(&service, &load);
    everything_printed_can_be_put_back(&service);
    let tally = load.stop();
    assert_eq!(tally.failures.len(), 0, "{tally:?}");
    println!("requests: {:?}, none failed", tally.versions);
    the_events_tell_the_story(&api);
    delete_the_rest(&service);
}

fn deploy_version_1(service: &mut Service) -> u16 {
    let api = &service.api;
    api.post("/api/v1/scales", &json!({"name": "small", "cpu": 0.1, "memory": "32MB"})).expect(201);
    let blueprint = shop::blueprint("shop:1", &[shop::breed("1")], 2);
    api.post("/api/v1/blueprints", &blueprint).expect(201);
    api.put(shop::SHOP, &json!({"ref": "shop:1"})).expect(202);
    let found = shop::wait_done(api, "shop", "web:1", 2);
    assert_eq!(shop::instances(&found), service.instances().into_keys().collect::<Vec<_>>());
    shop::wait_gateway(api, "shop/web/http");
    let port = service.ports.one();
    let api = &service.api;
    api.post("/api/v1/gateways", &shop::edge("edge", port)).expect(201);
    assert_eq!(shop::wait_gateway(api, "edge"), port);
    let client = load::client(false);
    wait_until("version 1 answers through HAProxy", LIMIT, || load::ask(&client, port));
    port
}

fn merge_version_2(api: &Api, load: &Load) {
    api.put(shop::SHOP, &shop::version("2", 2)).expect(202);
    shop::wait_done(api, "shop", "web:2", 2);
    load.next(SAMPLE);
    assert_eq!(load.tally().of("2"), 0, "version 2 has no weight, but got requests");
    let weights = shop::weights(&api.get(shop::GATEWAY).expect(200));
    let expected = [("1", "100%"), ("2", "0%")];
    assert_eq!(
        weights,
        expected.map(|(version, weight)| (shop::route(version), weight.to_owned()))
    );
}

fn shift(api: &Api, load: &Load, [one, two]: [u8; 2]) {
    let gateway = api.get(shop::GATEWAY).expect(200);
    let changed = shop::with_weights(&gateway, &[("1", one), ("2", two)]);
    api.put(shop::GATEWAY, &changed).expect(200);
    // The share that version 2 has to have among the next requests, once the change has arrived.
    let wanted = f64::from(two) / 100.0;
    wait_until(&format!("clients see {one}/{two}"), LIMIT, || {
        let tally = load.next(SAMPLE);
        let count = |count: usize| f64::from(u32::try_from(count).expect("few requests"));
        let share = count(tally.of("2")) / count(tally.answered());
        let tolerance = if two == 100 { f64::EPSILON } else { 0.05 };
        if (share - wanted).abs() <= tolerance { Ok(()) } else { Err(format!("{tally:?}")) }
    });
}

fn remove_version_1(service: &Service, load: &Load) {
    let api = &service.api;
    let before = service.instances();
    let found = api.get(shop::SHOP).expect(200);
    let leaving = shop::instances(shop::service(&found, "web:1").expect("version 1 runs"));
    let staying = shop::instances(shop::service(&found, "web:2").expect("version 2 runs"));
    api.delete(shop::SHOP, &shop::removal("1")).expect(202);
    let weights = shop::weights(&api.get(shop::GATEWAY).expect(200));
    assert_eq!(weights, [(shop::route("2"), "100%".to_owned())], "its route goes at once");
    shop::wait_gone(api, "shop", "web:1");
    for instance in &leaving {
        wait_while("its processes end", LIMIT, || processes::is_alive(before[instance]));
    }
    let after = service.instances();
    assert_eq!(after.keys().cloned().collect::<Vec<_>>(), staying);
    assert!(staying.iter().all(|name| before[name] == after[name]), "version 2 is not touched");
    assert_eq!(load.next(SAMPLE).of("1"), 0);
}

/// What GET answers is accepted by PUT and changes nothing.
fn everything_printed_can_be_put_back(service: &Service) {
    let api = &service.api;
    let (instances, processes) = (shop_instances(api), service.instances());
    let paths = [
        ("/api/v1/breeds/web:2", 200),
        ("/api/v1/scales/small", 200),
        ("/api/v1/blueprints/shop:1", 200),
        ("/api/v1/gateways/edge", 200),
        (shop::GATEWAY, 200),
        (shop::SHOP, 202),
    ];
    for (path, status) in paths {
        let read = api.get(path);
        assert!(read.etag.is_some(), "{path}: {read:?}");
        let written = api.put(path, &read.body);
        assert_eq!(written.status, status, "{path}: {:#}", written.body);
        let again = api.get(path);
        assert_eq!((again.etag, again.body), (read.etag.clone(), read.body), "{path}");
        assert_eq!(written.etag, read.etag, "{path}");
    }
    let export = api.get(&format!("{}?as_blueprint=true", shop::SHOP)).expect(200);
    let revision = api.get(shop::SHOP).etag;
    api.put(shop::SHOP, &export).expect(202);
    assert_eq!(api.get(shop::SHOP).etag, revision, "an export put back: {export:#}");
    // A turn of every worker later still nothing was restarted.
    api.get("/api/v1/sync").expect(202);
    shop::wait_done(api, "shop", "web:2", 2);
    assert_eq!((shop_instances(api), service.instances()), (instances, processes));
}

fn shop_instances(api: &Api) -> Vec<String> {
    let found = api.get(shop::SHOP).expect(200);
    shop::service(&found, "web:2").map(shop::instances).unwrap_or_default()
}

fn the_events_tell_the_story(api: &Api) {
    let events = api.events(&[]);
    let ids: BTreeSet<&str> = events.iter().filter_map(|event| event["id"].as_str()).collect();
    assert_eq!(ids.len(), events.len(), "every event has an id of its own");
    let story: [&[&str]; 14] = [
        &["archive", "scales:small", "archiving:create"],
        &["archive", "blueprints:shop:1", "archiving:create", "archive:create"],
        &["archive", "deployments:shop", "archiving:update", "archive:update"],
        &[
            "synchronisation",
            "services:web:1",
            "synchronisation:deployed",
            "synchronization:deployed",
        ],
        &["event", "gateways:shop/web/http", "deployed"],
        &["archive", "gateways:edge", "archiving:create"],
        &["event", "marshaller:configuration", "type:haproxy"],
        &["event", "gateways:edge", "deployed"],
        &["archive", "deployments:shop", "archiving:update"],
        &["synchronisation", "services:web:2", "synchronisation:deployed"],
        &["archive", "gateways:shop/web/http", "archiving:update"],
        &["archive", "gateways:shop/web/http", "archiving:update"],
        &["archive", "deployments:shop", "archiving:update"],
        &["synchronisation", "services:web:1", "synchronisation:undeployed"],
    ];
    let mut rest = events.iter();
    for step in story {
        let found = rest.by_ref().find(|event| is(event, step));
        assert!(found.is_some(), "no event {step:?} after those before it:\n{}", lines(&events));
    }
    let redeployed = events.iter().any(|event| is(event, &["synchronisation", "redeploy"]));
    assert!(!redeployed, "nothing was ever lost:\n{}", lines(&events));
}

/// Whether an event has this type, the first word, and all of these tags.
fn is(event: &Value, words: &[&str]) -> bool {
    let tags = event["tags"].as_array().cloned().unwrap_or_default();
    event["type"] == words[0] && words[1..].iter().all(|word| tags.iter().any(|tag| tag == word))
}

fn lines(events: &[Value]) -> String {
    let line = |event: &Value| format!("{} {}", event["type"], event["tags"]);
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn delete_the_rest(service: &Service) {
    let api = &service.api;
    let all = api.get(shop::SHOP).expect(200);
    api.delete(shop::SHOP, &all).expect(202);
    wait_until("the deployment is gone", LIMIT, || match api.get(shop::SHOP) {
        answer if answer.status == 404 => Ok(()),
        answer => Err(answer.body.to_string()),
    });
    api.wait_event(&["deployments:shop", "archiving:delete"], |_| true);
    wait_until("no instance is left", LIMIT, || match service.instances() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    let gateways = api.get("/api/v1/gateways").expect(200);
    let names: Vec<&Value> =
        gateways.as_array().into_iter().flatten().map(|gateway| &gateway["name"]).collect();
    assert_eq!(names, ["edge"]);
}

/// Shares are exact, not a matter of chance, when they were set before the first request.
#[test]
fn fifty_requests_at_80_to_20_are_40_and_10() {
    let mut service = Service::start();
    let port = service.ports.one();
    let api = &service.api;
    let mut body = shop::blueprint("shop", &[shop::breed("1"), shop::breed("2")], 1);
    body["clusters"]["web"]["gateways"] =
        json!({"http": {"routes": {"web:1": {"weight": "80%"}, "web:2": {"weight": "20%"}}}});
    body["gateways"] = json!({(port.to_string()): "web/http"});
    api.put(shop::SHOP, &body).expect(202);
    for breed in ["web:1", "web:2"] {
        shop::wait_done(api, "shop", breed, 1);
    }
    for gateway in ["shop/web/http".to_owned(), format!("shop/{port}")] {
        let port = shop::wait_gateway(api, &gateway);
        wait_for_both_versions(port);
        let client = load::client(true);
        let answers: Vec<String> = (0..50)
            .map(|_| load::ask(&client, port).expect("a request is answered"))
            .map(|answer| answer["version"].as_str().unwrap_or("none").to_owned())
            .collect();
        let of = |version: &str| answers.iter().filter(|answer| *answer == version).count();
        assert_eq!((of("1"), of("2")), (40, 10), "{gateway}: {answers:?}");
    }
}

/// Both versions are Done, but HAProxy may still be on its way.
fn wait_for_both_versions(port: u16) {
    let mut seen = BTreeSet::new();
    wait_until("both versions answer", LIMIT, || {
        let answer = load::ask(&load::client(false), port)?;
        seen.insert(answer["version"].as_str().unwrap_or("none").to_owned());
        if seen.len() == 2 { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}

#[test]
fn traffic_goes_on_after_sigterm_and_a_restart_adopts_what_runs() {
    let mut service = Service::start();
    let port = deploy_version_1(&mut service);
    let load = Load::start(port, 3, 1);
    load.next(SAMPLE);
    let (instances, master, worker) =
        (service.instances(), service.haproxy(), service.haproxy_worker());
    let took = service.terminate();
    println!("stopped {took:?} after SIGTERM");
    load.next(SAMPLE);
    service.restart();
    load.next(SAMPLE);
    shop::wait_done(&service.api, "shop", "web:1", 2);
    shop::wait_gateway(&service.api, "edge");
    assert_eq!(service.instances(), instances);
    assert_eq!((service.haproxy(), service.haproxy_worker()), (master, worker));
    let tally = load.stop();
    assert_eq!(tally.failures.len(), 0, "{tally:?}");
    // What it adopted it also ends.
    let (name, pid) = instances.iter().next().expect("there are two");
    processes::signal(*pid, Signal::KILL);
    service.api.wait_event(&["services:web:1", "synchronisation:redeploy"], |_| true);
    wait_until("the killed instance is replaced", LIMIT, || {
        let now = service.instances();
        if now.len() == 2 && now.get(name) != Some(pid) { Ok(()) } else { Err(format!("{now:?}")) }
    });
}
