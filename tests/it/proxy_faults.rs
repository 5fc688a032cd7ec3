//! HAProxy that is missing, too old, wedged, or cannot have its files: what it serves goes on, an event says why nothing
//! new is served, the rest of Segue goes on, and all is well again once the cause ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

use rustix::process::Signal;
use segue_tests::service::{Api, Service, Setup};
use segue_tests::wait::{LIMIT, wait_until};
use segue_tests::{load, processes, shop};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const HAPROXY: &str = "/usr/sbin/haproxy";

/// A service with version 1 of the shop behind a gateway.
struct Stage {
    service: Service,
    /// The port of the gateway.
    edge: u16,
}

impl Stage {
    fn new(environment: Vec<(&'static str, String)>) -> Self {
        let setup = Setup { environment, ..Setup::default() };
        let mut service = Service::start_with(setup);
        let edge = service.ports.one();
        let api = &service.api;
        api.put(shop::SHOP, &shop::version("1", 1)).expect(202);
        api.post("/api/v1/gateways", &shop::edge("edge", edge)).expect(201);
        shop::wait_done(api, "shop", "web:1", 1);
        // With both gateways there, HAProxy is not about to be reloaded.
        shop::wait_gateway(api, "shop/web/http");
        shop::wait_gateway(api, "edge");
        let stage = Self { service, edge };
        answers(stage.edge);
        stage
    }

    fn api(&self) -> &Api {
        &self.service.api
    }

    /// Asks for another gateway, which takes another file. Gives its port.
    fn ask_for_another(&mut self, name: &str) -> u16 {
        let port = self.service.ports.one();
        self.api().post("/api/v1/gateways", &shop::edge(name, port)).expect(201);
        port
    }

    /// What is wrong with HAProxy is told in these words, and nobody else is concerned.
    fn is_told(&self, words: &str, other: &str) {
        self.api().wait_event(&["info", "gateway_driver:ERROR"], |event| {
            event["value"]["notification"].as_str().is_some_and(|found| found.contains(words))
        });
        let body = shop::blueprint(other, &[shop::breed("1")], 1);
        self.api().put(&format!("/api/v1/deployments/{other}"), &body).expect(202);
        shop::wait_done(self.api(), other, "web:1", 1);
    }
}

#[track_caller]
fn answers(port: u16) -> Value {
    let client = load::client(false);
    wait_until(&format!("port {port} answers"), LIMIT, || load::ask(&client, port))
}

/// Puts a program of `text` where HAProxy is expected.
fn put(program: &Path, text: &str) {
    let new = program.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, program).unwrap();
}

#[test]
fn a_program_that_is_missing_or_too_old_is_told_and_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = folder.path().join("haproxy");
    symlink(HAPROXY, &program).unwrap();
    let path = program.display().to_string();
    let mut stage = Stage::new(vec![("SEGUE_GATEWAY_DRIVER__HAPROXY__PROGRAM", path.clone())]);
    fs::remove_file(&program).unwrap();
    let more = stage.ask_for_another("more");
    stage.is_told(&format!("HAProxy is not found as '{path}'"), "one");
    answers(stage.edge);
    put(&program, "#!/bin/sh\necho 'HA-Proxy version 1.8.8-1 2018/04/19'\n");
    stage.is_told("is HAProxy 1.8, which is too old: 2.6 or later is needed", "two");
    answers(stage.edge);
    fs::remove_file(&program).unwrap();
    // Also a service that starts meanwhile serves what it can.
    stage.service.kill9();
    stage.service.restart();
    answers(stage.edge);
    assert_eq!(stage.api().get("/api/v1/gateways/more").expect(200)["deployed"], false);
    // With HAProxy away as well there is nothing to serve with, and the rest still goes on.
    let master = stage.service.haproxy();
    processes::signal(master, Signal::KILL);
    wait_until("the service is not ready", LIMIT, || {
        let answer = stage.api().get("/readyz");
        if answer.status == 503 { Ok(()) } else { Err(answer.status.to_string()) }
    });
    stage.is_told(&format!("HAProxy is not found as '{path}'"), "three");
    symlink(HAPROXY, &program).unwrap();
    answers(stage.edge);
    answers(more);
    shop::wait_gateway(stage.api(), "more");
}

#[test]
fn haproxy_that_is_wedged_is_told_and_waited_for() {
    let mut stage = Stage::new(Vec::new());
    let worker = stage.service.haproxy_worker();
    processes::freeze(worker);
    let more = stage.ask_for_another("more");
    stage.is_told("HAProxy's runtime socket does not answer", "one");
    processes::signal(worker, Signal::CONT);
    answers(stage.edge);
    answers(more);
    // Wedged as a master, it takes no other file, and its worker serves on.
    let master = stage.service.haproxy();
    processes::freeze(master);
    let last = stage.ask_for_another("last");
    stage.is_told("HAProxy serves no new configuration after 10s", "two");
    answers(stage.edge);
    processes::signal(master, Signal::CONT);
    answers(last);
    assert_eq!(stage.service.haproxy(), master, "it is the same HAProxy");
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_last_good_one() {
    let mut stage = Stage::new(Vec::new());
    let candidate = stage.service.data().join("haproxy/haproxy.cfg.candidate");
    fs::remove_file(&candidate).unwrap();
    fs::create_dir(&candidate).unwrap();
    let more = stage.ask_for_another("more");
    stage.is_told("cannot write HAProxy's configuration to ", "one");
    answers(stage.edge);
    // What takes no other listener changes at once, and is told not to be kept.
    let two = shop::version("2", 1);
    stage.api().put(shop::SHOP, &two).expect(202);
    shop::wait_done(stage.api(), "shop", "web:2", 1);
    fs::remove_dir(&candidate).unwrap();
    answers(more);
    answers(stage.edge);
}

#[test]
fn requests_that_cannot_be_counted_are_routed() {
    let mut stage = Stage::new(Vec::new());
    stage.service.terminate();
    // Nothing of it runs any more: the next HAProxy starts with what it finds.
    let down = stage.service.tool("down", &[]);
    assert!(down.status.success(), "{down:?}");
    let pipe = stage.service.data().join("haproxy/requests.pipe");
    fs::remove_file(&pipe).unwrap();
    fs::create_dir(&pipe).unwrap();
    stage.service.restart();
    answers(stage.edge);
    let more = stage.ask_for_another("more");
    answers(more);
    stage.is_told("cannot take in what HAProxy tells of requests", "one");
}

#[test]
fn a_file_that_is_refused_leaves_the_last_good_one() {
    const TEMPLATE: &str = "/api/v1/vga/haproxy/2.6/template";
    let mut stage = Stage::new(Vec::new());
    let ours = stage.api().get(TEMPLATE).expect(200);
    let ours = ours.as_str().unwrap();
    // Refused at once, in HAProxy's words.
    let refused =
        stage.api().put_text(TEMPLATE, &ours.replace("timeout client", "time-out client"));
    let problem = refused.expect(400);
    assert_eq!(problem["type"], "invalid-configuration-template", "{problem:#}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("unknown keyword 'time-out'"), "{problem:#}");
    // Good now, and refused once there is one more gateway.
    let fragile = "{% if model.listeners | length > 2 %}nonsense{% endif %}\n";
    stage.api().put_text(TEMPLATE, &format!("{ours}\n{fragile}")).expect(202);
    answers(stage.edge);
    let more = stage.ask_for_another("more");
    stage.is_told("unknown keyword 'nonsense'", "one");
    answers(stage.edge);
    stage.service.kill9();
    stage.service.restart();
    answers(stage.edge);
    stage.api().put_text(TEMPLATE, "").expect(202);
    answers(more);
    answers(stage.edge);
    shop::wait_gateway(stage.api(), "more");
}
