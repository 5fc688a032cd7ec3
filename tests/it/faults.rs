//! What goes wrong outside is told in its own words, and put right.

use rustix::process::Signal;
use segue_tests::service::{Service, program};
use segue_tests::wait::{LIMIT, wait_until, wait_while};
use segue_tests::{load, processes, shop};
use serde_json::Value;

fn has(event: &Value, words: &str) -> bool {
    event["value"]["notification"].as_str().is_some_and(|found| found.contains(words))
}

/// Shows: D37, I1-deployments
#[test]
fn a_program_that_is_missing_fails_at_once_and_another_one_recovers() {
    let service = Service::start();
    let api = &service.api;
    let words = "cannot start '/no/such/program': No such file or directory";
    let missing = shop::process("web:1", "/no/such/program --port 1");
    api.put(shop::SHOP, &shop::blueprint("shop", &[missing], 2)).expect(202);
    let failed = shop::wait_service(api, "shop", "web:1", |service| {
        service["status"]["phase"]["name"] == "Failed"
    });
    let phase = &failed["status"]["phase"];
    assert!(phase["notification"].as_str().is_some_and(|found| found.contains(words)), "{phase}");
    let tags = [
        "deployments:shop",
        "clusters:web",
        "services:web:1",
        "failed",
        "info",
        "container_driver:ERROR",
    ];
    api.wait_event(&tags, |event| has(event, words));
    let tried = api.events(&["services:web:1", "container_driver:ERROR"]).len();
    assert_eq!(tried, 1, "what is wrong for good is not tried again");
    api.put(shop::SHOP, &shop::version("1", 2)).expect(202);
    let done = shop::wait_done(api, "shop", "web:1", 2);
    assert_eq!(done["status"]["phase"]["notification"], Value::Null);
}

#[test]
fn a_program_that_ends_at_once_is_told_by_its_own_last_words() {
    let service = Service::start();
    let api = &service.api;
    let broken = shop::process("web:1", "sh -c 'echo the price list is missing >&2; exit 3'");
    api.put(shop::SHOP, &shop::blueprint("shop", &[broken], 1)).expect(202);
    let found = shop::wait_service(api, "shop", "web:1", |service| {
        service["status"]["phase"]["notification"] != Value::Null
    });
    let phase = &found["status"]["phase"];
    assert_eq!(phase["name"], "Updating", "it may work later");
    let words = phase["notification"].as_str().unwrap_or_default();
    assert!(
        words.contains("exited with status 3") && words.contains("the price list is missing"),
        "{words}"
    );
    let tags = ["services:web:1", "container_driver:ERROR"];
    api.wait_event(&tags, |event| has(event, "the price list is missing"));
    api.put(shop::SHOP, &shop::version("1", 1)).expect(202);
    shop::wait_done(api, "shop", "web:1", 1);
}

/// Shows: D3, D42, I6.2-synchronisation
#[test]
fn an_instance_that_was_killed_is_replaced() {
    let service = Service::start();
    let api = &service.api;
    api.put(shop::SHOP, &shop::version("1", 2)).expect(202);
    shop::wait_done(api, "shop", "web:1", 2);
    let before = service.instances();
    let (name, pid) = before.iter().next().expect("there are two");
    processes::signal(*pid, Signal::KILL);
    api.wait_event(
        &["services:web:1", "synchronisation:redeploy", "synchronization:redeploy"],
        |_| true,
    );
    shop::wait_done(api, "shop", "web:1", 2);
    wait_until("two processes run, one of them new", LIMIT, || {
        let now = service.instances();
        let others = now.iter().filter(|(found, _)| *found != name).count();
        let replaced = !now.values().any(|found| found == pid);
        if now.len() == 2 && others >= 1 && replaced { Ok(()) } else { Err(format!("{now:?}")) }
    });
    let deployed = || api.events(&["services:web:1", "synchronisation:deployed"]).len();
    wait_until("it is Done a second time", LIMIT, || match deployed() {
        2 => Ok(()),
        other => Err(other.to_string()),
    });
}

/// Nobody tells the next service what ended while there was none: it looks.
#[test]
fn what_ended_while_the_service_was_away_is_replaced() {
    let mut service = Service::start();
    let port = service.ports.one();
    let api = service.api.clone();
    api.put(shop::SHOP, &shop::version("1", 2)).expect(202);
    api.post("/api/v1/gateways", &shop::edge("edge", port)).expect(201);
    shop::wait_done(&api, "shop", "web:1", 2);
    let client = load::client(false);
    wait_until("the shop answers", LIMIT, || load::ask(&client, port));
    let (before, haproxy) = (service.instances(), service.haproxy());
    service.kill9();
    let ended = *before.values().next().expect("there are two");
    for pid in [ended, haproxy] {
        processes::signal(pid, Signal::KILL);
        wait_while("it has ended", LIMIT, || processes::is_alive(pid));
    }
    service.restart();
    wait_until("the shop answers again", LIMIT, || load::ask(&client, port));
    assert_ne!(service.haproxy(), haproxy);
    api.wait_event(&["services:web:1", "synchronisation:redeploy"], |_| true);
    shop::wait_done(&api, "shop", "web:1", 2);
    wait_until("two processes run, one of them new", LIMIT, || {
        let now = service.instances();
        let kept = now.values().filter(|pid| before.values().any(|known| known == *pid)).count();
        if now.len() == 2 && kept == 1 {
            Ok(())
        } else {
            Err(format!("{now:?}, before {before:?}"))
        }
    });
}

#[test]
fn a_second_service_on_the_same_data_refuses_with_a_sentence() {
    let mut service = Service::start();
    let api = service.api.clone();
    api.put(shop::SHOP, &shop::version("1", 1)).expect(202);
    shop::wait_done(&api, "shop", "web:1", 1);
    let before = service.instances();
    let output = service.second();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(words.contains("is in use: stop the other Segue"), "{words}");
    for tool in ["down", "replay"] {
        let output = service.tool(tool, &[]);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && words.contains("is in use"), "{tool}: {words}");
    }
    wait_until("the first one is ready", LIMIT, || {
        let answer = api.get("/readyz");
        if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
    });
    assert_eq!(service.instances(), before);
}

#[test]
fn a_low_limit_on_open_files_is_raised() {
    let data = tempfile::tempdir().expect("a folder can be made");
    let started = std::process::Command::new("sh")
        .args(["-c", "ulimit -S -n 256 && exec \"$@\"", "sh"])
        .arg(program())
        .args(["serve", "--containers", "simulated", "--gateways", "simulated"])
        .args(["--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut child = started.expect("the program can be started");
    let limits = format!("/proc/{}/limits", child.id());
    let raised = std::panic::catch_unwind(|| {
        wait_until("the limit is raised", LIMIT, || {
            let limits = std::fs::read_to_string(&limits).unwrap_or_default();
            let line = limits.lines().find(|line| line.starts_with("Max open files"));
            let soft = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
            soft.filter(|soft| *soft > 256).ok_or(limits)
        })
    });
    processes::signal(child.id(), Signal::TERM);
    child.wait().expect("an own child can be waited for");
    raised.expect("the service raises its limit");
}
