//! A running service changes under load: what is new comes first, what is old is drained, and no request fails.

use segue_tests::load::Load;
use segue_tests::service::{Api, Service, Setup};
use segue_tests::shop;
use segue_tests::wait::{LIMIT, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SAMPLE: usize = 200;

/// A shop of `instances` under load through a gateway.
fn start(instances: u32) -> (Service, Load) {
    start_with(Setup::default(), instances)
}

fn start_with(setup: Setup, instances: u32) -> (Service, Load) {
    let mut service = Service::start_with(setup);
    let port = service.ports.one();
    let api = &service.api;
    api.put(shop::SHOP, &greeting("hello", instances)).expect(202);
    api.post("/api/v1/gateways", &shop::edge("edge", port)).expect(201);
    shop::wait_done(api, "shop", "web:1", instances as usize);
    let client = segue_tests::load::client(false);
    wait_until("the shop answers", LIMIT, || segue_tests::load::ask(&client, port));
    let load = Load::start(port, 4, 2);
    load.next(SAMPLE);
    (service, load)
}

fn greeting(words: &str, instances: u32) -> Value {
    let mut body = shop::version("1", instances);
    let service = &mut body["clusters"]["web"]["services"][0];
    service["breed"]["environment_variables"] = json!({"GREETING": "none"});
    service["environment_variables"] = json!({"GREETING": words});
    body
}

#[track_caller]
fn no_request_failed(load: Load) {
    load.next(SAMPLE);
    let tally = load.stop();
    println!("requests: {}", tally.answered());
    assert_eq!(tally.failures.len(), 0, "{tally:?}");
}

/// Waits until the service is Done and other instances run than `before`; gives them.
#[track_caller]
fn wait_rolled(service: &Service, before: &BTreeSet<String>, count: usize) -> BTreeSet<String> {
    wait_until("all instances are new ones", LIMIT, || {
        let found = service.api.get(shop::SHOP).expect(200);
        let found = shop::service(&found, "web:1").cloned().unwrap_or_default();
        let names: BTreeSet<String> = shop::instances(&found).into_iter().collect();
        let running: BTreeSet<String> = service.instances().into_keys().collect();
        let done = found["status"]["phase"]["name"] == "Done";
        if done && names.len() == count && names.is_disjoint(before) && running == names {
            Ok(names)
        } else {
            Err(format!("{} {names:?}, running {running:?}", found["status"]))
        }
    })
}

/// From the first Done on there were never fewer instances ready to serve than `count`.
#[track_caller]
fn never_fewer_than(api: &Api, count: u64) {
    let events = api.events(&["services:web:1"]);
    let has = |event: &Value, tag: &str| {
        event["tags"].as_array().is_some_and(|tags| tags.iter().any(|found| found == tag))
    };
    let first = events.iter().position(|event| has(event, "synchronisation:deployed"));
    let rest = &events[first.expect("it was Done once")..];
    let ready: Vec<u64> = rest
        .iter()
        .filter(|event| has(event, "instances"))
        .filter_map(|event| event["value"]["deployed"].as_u64())
        .collect();
    assert!(!ready.is_empty() && ready.iter().all(|ready| *ready >= count), "{ready:?}");
    assert!(!rest.iter().any(|event| has(event, "synchronisation:redeploy")), "nothing was lost");
}

/// Shows: D38
#[test]
fn another_environment_rolls_the_service() {
    let (service, load) = start(2);
    let before: BTreeSet<String> = service.instances().into_keys().collect();
    service.api.put(shop::SHOP, &greeting("good morning", 2)).expect(202);
    let rolled = wait_rolled(&service, &before, 2);
    for name in &rolled {
        let pid = service.instances()[name];
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ"));
        let environment = environment.expect("it runs");
        assert!(environment.split('\0').any(|entry| entry == "GREETING=good morning"));
    }
    never_fewer_than(&service.api, 2);
    // The same again changes nothing.
    service.api.put(shop::SHOP, &greeting("good morning", 2)).expect(202);
    load.next(SAMPLE);
    assert_eq!(service.instances().into_keys().collect::<BTreeSet<_>>(), rolled);
    no_request_failed(load);
}

/// Shows: D38
#[test]
fn another_cpu_scale_rolls_the_service() {
    let (service, load) = start(2);
    let before: BTreeSet<String> = service.instances().into_keys().collect();
    let scale = json!({"cpu": 0.2, "memory": "32MB", "instances": 2});
    let answer = service.api.put(&shop::scale_path("1"), &scale).expect(202);
    assert_eq!(answer, json!({"cpu": 0.2, "memory": "32.00MB", "instances": 2}));
    wait_rolled(&service, &before, 2);
    never_fewer_than(&service.api, 2);
    no_request_failed(load);
}

#[test]
fn more_and_fewer_instances() {
    let (service, load) = start(1);
    let api = &service.api;
    let before = service.instances();
    for count in [3, 1] {
        api.put(&shop::scale_path("1"), &shop::scale(count)).expect(202);
        shop::wait_done(api, "shop", "web:1", count as usize);
        wait_until("as many processes run", LIMIT, || match service.instances() {
            found if found.len() == count as usize => Ok(()),
            found => Err(format!("{found:?}")),
        });
        load.next(SAMPLE);
    }
    assert_eq!(service.instances(), before, "the newest were stopped, the oldest one stayed");
    never_fewer_than(api, 1);
    no_request_failed(load);
}

/// The new instances never come up: the old ones keep the traffic, whatever the reason.
#[test]
fn an_update_that_fails_leaves_what_ran() {
    let limit =
        ("SEGUE_OPERATION__SYNCHRONISATION__TIMEOUT__READY_FOR_DEPLOYMENT", "12 s".to_owned());
    let (service, load) = start_with(Setup { environment: vec![limit], ..Setup::default() }, 2);
    let api = &service.api;
    let before = service.instances();
    let cases = [
        ("/no/such/program", "No such file or directory"),
        ("sh -c 'echo no price list; exit 3'", "no price list"),
        ("sleep 1000", "waits for a connection"),
    ];
    for (command, words) in cases {
        let mut body = greeting("hello", 2);
        body["clusters"]["web"]["services"][0]["breed"]["deployable"]["definition"] =
            command.into();
        api.put(shop::SHOP, &body).expect(202);
        let failed = shop::wait_service(api, "shop", "web:1", |service| {
            service["status"]["phase"]["name"] == "Failed"
        });
        let reason = failed["status"]["phase"]["notification"].as_str().unwrap_or_default();
        assert!(reason.contains(words), "{command}: {reason}");
        wait_until("what did not come up is removed", LIMIT, || match service.instances() {
            now if now == before => Ok(()),
            now => Err(format!("{now:?}")),
        });
        load.next(SAMPLE);
    }
    api.put(shop::SHOP, &greeting("hello", 2)).expect(202);
    shop::wait_done(api, "shop", "web:1", 2);
    assert_eq!(service.instances(), before, "what ran is what is wanted again");
    never_fewer_than(api, 2);
    no_request_failed(load);
}
