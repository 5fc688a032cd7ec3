//! The canary with containers of a real Docker daemon, and what goes wrong there.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

use segue_tests::dockerd::{Dockerd, IMAGE};
use segue_tests::load::{self, Load};
use segue_tests::service::{Api, Service, Setup};
use segue_tests::shop;
use segue_tests::wait::{LIMIT, wait_until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

const SAMPLE: usize = 100;

/// A breed whose containers say their version. The first process of a container ends on TERM only when it says so.
fn breed(version: &str) -> Value {
    json!({"name": format!("web:{version}"), "deployable": {"type": "docker", "definition": IMAGE},
        "ports": {"http": "8000/http"}})
}

fn body(breed: &Value, version: &str, instances: u32) -> Value {
    let page = format!("echo '{{\"version\":\"{version}\"}}' > /index.html");
    let serve = "trap 'exit 0' TERM; httpd -f -p 8000 -h / & wait";
    let mut body = shop::blueprint("shop", std::slice::from_ref(breed), instances);
    body["clusters"]["web"]["services"][0]["dialects"] =
        json!({"docker": {"command": ["sh", "-c", format!("{page}; {serve}")]}});
    body
}

/// Starting a daemon takes seconds, so that one serves the whole story.
#[test]
fn a_canary_of_containers() {
    let daemon = Dockerd::start().unwrap();
    let foreign =
        daemon.docker(&["run", "-d", "--name", "foreign", IMAGE, "sleep", "1000"]).unwrap();
    let another = ["-l", "io.segue=deployment-service", "-l", "io.segue.namespace=another"];
    let run = ["run", "-d", "--name", "segue_shop_web_1", "-l", "io.segue.deployment=shop"];
    let command = [IMAGE, "sleep", "1000"];
    daemon.docker(&[run.as_slice(), &another, &command].concat()).unwrap();
    let socket = daemon.socket().display().to_string();
    let registries =
        r#"[{"address": "registry.acme.com", "username": "ann", "password": "open sesame"}]"#;
    let mut service = Service::start_with(Setup {
        containers: "docker",
        environment: vec![
            ("SEGUE_CONTAINER_DRIVER__DOCKER__SOCKET", socket),
            ("SEGUE_CONTAINER_DRIVER__DOCKER__REGISTRIES", registries.to_owned()),
        ],
    });
    let port = service.ports.one();
    let api = service.api.clone();
    api.put(shop::SHOP, &body(&breed("1"), "1", 2)).expect(202);
    let one = shop::instances(&shop::wait_done(&api, "shop", "web:1", 2));
    assert_eq!(containers(&daemon), one);
    what_ran_can_be_asked_later(&api, &daemon, &one);
    api.post("/api/v1/gateways", &shop::edge("edge", port)).expect(201);
    let client = load::client(false);
    wait_until("version 1 answers", LIMIT, || load::ask(&client, port));
    let load = Load::start(port, 2, 1);
    shift_to_version_2(&api, &load);
    api.delete(shop::SHOP, &shop::removal("1")).expect(202);
    shop::wait_gone(&api, "shop", "web:1");
    let two = instances(&api);
    assert_eq!(containers(&daemon), two, "only version 2 is left");
    a_restart_adopts(&mut service, &daemon, &two);
    let seen = load.next(SAMPLE);
    assert_eq!(seen.of("2"), seen.answered());
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{tally:?}");
    println!("requests: {:?}, none failed", tally.versions);
    a_killed_container_is_replaced(&api, &daemon);
    an_image_that_is_missing_is_told_in_dockers_words(&api);
    a_slow_pull_holds_up_only_who_waits_for_it(&api);
    for path in ["/api/v1/config", "/api/v1/config?flatten=true", "/api/v1/config?type=environment"]
    {
        let shown = api.get(path).expect(200).to_string();
        assert!(shown.contains("registry.acme.com") && !shown.contains("sesame"), "{shown}");
    }
    assert!(!service.log().contains("sesame"));
    let now = daemon.docker(&["inspect", "-f", "{{.Id}} {{.State.Running}}", "foreign"]).unwrap();
    assert_eq!(now, format!("{foreign} true"), "containers of others are left alone");
    let other =
        daemon.docker(&["inspect", "-f", "{{.State.Running}}", "segue_shop_web_1"]).unwrap();
    assert_eq!(other, "true", "and so are those of another namespace");
}

fn what_ran_can_be_asked_later(api: &Api, daemon: &Dockerd, instances: &[String]) {
    let id = daemon.docker(&["inspect", "-f", "{{.Id}}", IMAGE]).unwrap();
    let event = api.wait_event(&["services:web:1", &format!("images:{id}")], |_| true);
    for name in instances {
        assert_eq!(event["value"][name], json!([id]), "{event}");
    }
}

fn a_slow_pull_holds_up_only_who_waits_for_it(api: &Api) {
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = breed("slow");
    slow["deployable"]["definition"] = format!("{}/slow:1", silent.local_addr().unwrap()).into();
    let mut both = body(&slow, "slow", 1);
    let quick = body(&breed("quick"), "quick", 1)["clusters"]["web"].clone();
    both["clusters"]["quick"] = quick;
    let path = "/api/v1/deployments/slow";
    api.put(path, &both).expect(202);
    shop::wait_done(api, "slow", "web:quick", 1);
    let status = shop::wait_service(api, "slow", "web:slow", |_| true);
    assert_eq!(status["status"]["phase"]["name"], "Updating", "{status}");
    api.delete(path, &both).expect(202);
    shop::wait_gone(api, "slow", "web:slow");
    shop::wait_gone(api, "slow", "web:quick");
}

fn shift_to_version_2(api: &Api, load: &Load) {
    load.next(SAMPLE);
    api.put(shop::SHOP, &body(&breed("2"), "2", 2)).expect(202);
    shop::wait_done(api, "shop", "web:2", 2);
    load.next(SAMPLE);
    assert_eq!(load.tally().of("2"), 0, "version 2 has no weight, but got requests");
    for (one, two) in [(50, 50), (0, 100)] {
        let gateway = api.get(shop::GATEWAY).expect(200);
        let shifted = shop::with_weights(&gateway, &[("1", one), ("2", two)]);
        api.put(shop::GATEWAY, &shifted).expect(200);
        wait_until("clients see it", LIMIT, || {
            let seen = load.next(SAMPLE);
            let fits = if two == 100 { seen.of("1") == 0 } else { seen.of("2") > SAMPLE / 3 };
            if fits { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    }
}

fn a_restart_adopts(service: &mut Service, daemon: &Dockerd, expected: &[String]) {
    service.kill9();
    service.restart();
    service.api.get("/api/v1/sync").expect(202);
    shop::wait_done(&service.api, "shop", "web:2", 2);
    assert_eq!(containers(daemon), expected);
}

fn a_killed_container_is_replaced(api: &Api, daemon: &Dockerd) {
    let before = instances(api);
    daemon.docker(&["kill", &before[0]]).unwrap();
    api.wait_event(&["services:web:2", "synchronisation:redeploy"], |_| true);
    wait_until("another container is there", LIMIT, || {
        shop::wait_done(api, "shop", "web:2", 2);
        let now = instances(api);
        if now.contains(&before[0]) || containers(daemon) != now {
            return Err(format!("{now:?}, running {:?}", containers(daemon)));
        }
        assert!(now.contains(&before[1]), "the other one goes on");
        Ok(())
    });
}

fn an_image_that_is_missing_is_told_in_dockers_words(api: &Api) {
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("{}/no/such:1", registry.local_addr().unwrap());
    // A registry that knows nothing; it lives as long as the test program.
    thread::spawn(move || {
        while let Ok((mut stream, _)) = registry.accept() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let status = if request[..length].starts_with(b"GET /v2/ ") {
                "200 OK"
            } else {
                "404 Not Found"
            };
            let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    let mut missing = breed("3");
    missing["deployable"]["definition"] = image.into();
    api.put(shop::SHOP, &body(&missing, "3", 1)).expect(202);
    let failed = shop::wait_service(api, "shop", "web:3", |service| {
        service["status"]["phase"]["name"] == "Failed"
    });
    let words = failed["status"]["phase"]["notification"].as_str().unwrap_or_default();
    assert!(words.contains("manifest unknown"), "{words}");
    api.wait_event(&["services:web:3", "failed", "container_driver:ERROR"], |event| {
        event["value"]["notification"] == words
    });
    // What ran before is not concerned.
    shop::wait_done(api, "shop", "web:2", 2);
}

fn instances(api: &Api) -> Vec<String> {
    let deployment = api.get(shop::SHOP).expect(200);
    shop::service(&deployment, "web:2").map(shop::instances).unwrap_or_default()
}

/// The names of Segue's containers that run, sorted.
fn containers(daemon: &Dockerd) -> Vec<String> {
    let running = daemon
        .docker(&["ps", "--filter", "label=io.segue.namespace=default", "--format", "{{.Names}}"])
        .unwrap();
    let mut names: Vec<String> = running.lines().map(str::to_owned).collect();
    names.sort();
    names
}
