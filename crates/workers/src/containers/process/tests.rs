//! Real processes: small programs that Debian has.

use super::*;
use crate::containers::conformance::{self, Subject, wait_for};
use crate::processes::{self, Identity, Marked};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const LISTENS: &str = "busybox sh -c 'echo up; exec busybox httpd -f -p $PORT'";

fn settings(directory: &tempfile::TempDir) -> Settings {
    let first = Duration::from_millis(50);
    let restart = Restart {
        pause_first: first,
        pause_longest: first * 8,
        well_after: Duration::from_mins(1),
    };
    Settings { stop_timeout: Duration::from_secs(5), restart, ..Settings::new(directory.path()) }
}

fn driver(directory: &tempfile::TempDir) -> ProcessDriver {
    ProcessDriver::new(settings(directory)).unwrap()
}

/// A spec with a name of its own.
fn spec(command: &str) -> InstanceSpec {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    conformance::spec("process", command, &format!("process-{}-{number}", std::process::id()))
}

fn text_of(condition: &Condition) -> &str {
    match condition {
        Condition::Starting(text)
        | Condition::Restarting(text)
        | Condition::Exited(text)
        | Condition::Refused(text)
        | Condition::Stuck(text) => text,
        Condition::Running | Condition::Stopping => "",
    }
}

async fn running(driver: &ProcessDriver, spec: &InstanceSpec) -> ObservedInstance {
    let is_running = |found: &[ObservedInstance]| found[0].condition == Condition::Running;
    wait_for(driver, &spec.owner.deployment, is_running).await.remove(0)
}

async fn starting(driver: &ProcessDriver, spec: &InstanceSpec, words: &str) -> String {
    let says = |found: &[ObservedInstance]| text_of(&found[0].condition).contains(words);
    let found = wait_for(driver, &spec.owner.deployment, says).await;
    text_of(&found[0].condition).to_owned()
}

async fn stopped(driver: &ProcessDriver, spec: &InstanceSpec) {
    driver.stop(&spec.owner.deployment, &spec.name).await.unwrap();
    wait_for(driver, &spec.owner.deployment, <[ObservedInstance]>::is_empty).await;
    assert!(processes(driver, spec).is_empty(), "nothing of it runs any more");
}

fn processes(driver: &ProcessDriver, spec: &InstanceSpec) -> Vec<Marked> {
    marks::marked(driver.shared.directory.path(), &spec.name)
}

fn record(driver: &ProcessDriver, spec: &InstanceSpec) -> Record {
    let records = driver.shared.directory.load().unwrap();
    records.into_iter().find(|record| record.spec.name == spec.name).unwrap()
}

#[tokio::test]
async fn conforms() {
    let directory = tempfile::tempdir().unwrap();
    let subject = Subject {
        open: &|| {
            let driver: Arc<dyn ContainerDriver> = Arc::new(driver(&directory));
            Box::pin(async { driver })
        },
        works: spec(LISTENS),
        fails: spec("/no/such/program --at all"),
        failure: "cannot start '/no/such/program': No such file or directory",
    };
    conformance::check(&subject).await;
    let left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "records and logs are removed");
}

#[tokio::test]
async fn what_can_never_be_executed_is_refused_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let driver = driver(&directory);
    fs::write(directory.path().join("text"), "no program").unwrap();
    let not_executable = directory.path().join("text").display().to_string();
    for (command, words) in
        [("sh -c 'x", "does not parse"), (&*not_executable, "Permission denied"), ("a\0b", "nul")]
    {
        let error = driver.start(&spec(command)).await.unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains(words), "{command}: {error}");
    }
    let mut spec = spec(LISTENS);
    spec.environment.insert("A=B".to_owned(), String::new());
    assert!(driver.start(&spec).await.unwrap_err().is_permanent());
}

#[tokio::test]
async fn a_process_gets_its_environment_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let driver = driver(&directory);
    let mut spec = spec("busybox sh -c 'busybox env; exec busybox httpd -f -p $PORT_WEB_UI'");
    spec.ports = [("web-ui".to_owned(), 80), ("admin".to_owned(), 81)].into_iter().collect();
    spec.environment.insert("PORT_ADMIN".to_owned(), "loses".to_owned());
    driver.start(&spec).await.unwrap();
    let text = starting(&driver, &spec, "waits for").await;
    let ports = driver.observe(&spec.owner.deployment).await.unwrap()[0].ports.clone();
    let told = format!("web-ui (127.0.0.1:{}, which it was told as PORT_WEB_UI)", ports["web-ui"]);
    assert!(text.contains(&told), "{text}");
    let printed = async |lines| {
        driver.output(&spec.owner.deployment, &spec.name, lines).await.unwrap().unwrap()
    };
    let deadline = Instant::now() + Duration::from_mins(1);
    let is_there = |output: &[String]| output.iter().any(|line| line.starts_with("SHLVL"));
    while !is_there(&printed(100).await) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let output = printed(100).await;
    assert_eq!(printed(2).await, output[output.len() - 2..]);
    let mut names: Vec<&str> =
        output.iter().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    // What the shell adds by itself, and what this test was started with.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_", "HOME", "LANG", "TZ"].contains(name));
    names.sort_unstable();
    assert_eq!(
        names,
        ["GREETING", "PATH", "PORT_ADMIN", "PORT_WEB_UI", "SEGUE_DIRECTORY", "SEGUE_INSTANCE"]
    );
    assert!(output.contains(&format!("PORT_ADMIN={}", ports["admin"])), "{output:?}");
    assert!(output.contains(&"GREETING=hello world".to_owned()), "{output:?}");
    stopped(&driver, &spec).await;
}

#[tokio::test]
async fn a_process_that_dies_says_why_and_is_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let driver = driver(&directory);
    let spec = spec("busybox sh -c 'echo working; echo broken >&2; exit 7'");
    driver.start(&spec).await.unwrap();
    // It has no ports, and is never taken for running: it ends too soon.
    let text = starting(&driver, &spec, "ended 4 times in a row").await;
    assert_eq!(text, "exited with status 7: working\nbroken; ended 4 times in a row, or more");
    stopped(&driver, &spec).await;
}

#[tokio::test]
async fn a_killed_process_is_noticed_and_comes_back_with_its_ports() {
    let directory = tempfile::tempdir().unwrap();
    let driver = driver(&directory);
    let spec = spec(LISTENS);
    driver.start(&spec).await.unwrap();
    let before = running(&driver, &spec).await;
    processes::signal_group(record(&driver, &spec).process.unwrap().pid, Signal::KILL);
    let text = starting(&driver, &spec, "was ended by signal 9 (SIGKILL)").await;
    assert!(text.contains("up"), "{text}");
    assert_eq!(running(&driver, &spec).await.ports, before.ports);
    stopped(&driver, &spec).await;
}

#[tokio::test]
async fn an_adopted_process_that_dies_is_noticed_and_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(LISTENS);
    let first = driver(&directory);
    first.start(&spec).await.unwrap();
    let before = running(&first, &spec).await;
    drop(first);
    let driver = driver(&directory);
    assert_eq!(driver.observe(&spec.owner.deployment).await.unwrap(), [before.into()]);
    processes::signal_group(record(&driver, &spec).process.unwrap().pid, Signal::KILL);
    starting(&driver, &spec, "its status is unknown").await;
    running(&driver, &spec).await;
    stopped(&driver, &spec).await;
}

#[tokio::test]
async fn an_orphan_that_was_never_recorded_is_found_by_its_mark() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(LISTENS);
    let first = driver(&directory);
    first.start(&spec).await.unwrap();
    running(&first, &spec).await;
    let mut record = record(&first, &spec);
    let identity = record.process.take();
    let path = first.shared.directory.clone();
    drop(first);
    path.save(&record).unwrap();
    let driver = driver(&directory);
    running(&driver, &spec).await;
    assert_eq!(self::record(&driver, &spec).process, identity);
    stopped(&driver, &spec).await;
}

#[tokio::test]
async fn a_process_id_of_another_process_counts_as_dead() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(LISTENS);
    let first = driver(&directory);
    first.start(&spec).await.unwrap();
    running(&first, &spec).await;
    let mut record = record(&first, &spec);
    let (files, identity) = (first.shared.directory.clone(), record.process.unwrap());
    drop(first);
    processes::signal_group(identity.pid, Signal::KILL);
    // The test's own process now has the recorded id, but not the recorded start.
    let mut other = serde_json::to_value(identity).unwrap();
    other["pid"] = std::process::id().into();
    record.process = Some(serde_json::from_value(other).unwrap());
    files.save(&record).unwrap();
    let driver = driver(&directory);
    assert_ne!(
        driver.observe(&spec.owner.deployment).await.unwrap()[0].condition,
        Condition::Running
    );
    running(&driver, &spec).await;
    stopped(&driver, &spec).await;
}

/// The id that a command printed, of a process that came to be `program`.
async fn printed_process(driver: &ProcessDriver, spec: &InstanceSpec, program: &str) -> Identity {
    let found = async {
        loop {
            let output = driver.output(&spec.owner.deployment, &spec.name, 1).await;
            let line = output.unwrap().unwrap_or_default().pop().unwrap_or_default();
            let command = fs::read_to_string(format!("/proc/{line}/cmdline")).unwrap_or_default();
            if command.replace('\0', " ").trim_end() == program {
                return Identity::of(line.parse().unwrap()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), found).await.unwrap()
}

async fn ended(process: Identity) {
    let ended = async {
        while process.is_alive() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), ended).await.unwrap();
}

/// Ends the main process of an instance, and nothing else.
async fn kill_leader(leader: Identity) {
    kill_process(Pid::from_raw(leader.pid).unwrap(), Signal::KILL).unwrap();
    ended(leader).await;
}

#[tokio::test]
async fn what_a_process_leaves_behind_is_killed_also_without_its_marks() {
    let directory = tempfile::tempdir().unwrap();
    let driver = driver(&directory);
    let spec = spec(
        "busybox sh -c 'busybox env -i busybox sleep 1000 & echo $!; exec busybox httpd -f -p $PORT'",
    );
    driver.start(&spec).await.unwrap();
    running(&driver, &spec).await;
    let child = printed_process(&driver, &spec, "busybox sleep 1000").await;
    assert!(processes(&driver, &spec).iter().all(|marked| marked.pid != child.pid));
    kill_leader(record(&driver, &spec).process.unwrap()).await;
    ended(child).await;
    stopped(&driver, &spec).await;
}

#[tokio::test]
async fn a_child_that_outlives_its_recorded_parent_is_not_taken_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(
        "busybox sh -c 'busybox setsid busybox sleep 1000 & echo $!; exec busybox httpd -f -p $PORT'",
    );
    let first = driver(&directory);
    first.start(&spec).await.unwrap();
    running(&first, &spec).await;
    let child = printed_process(&first, &spec, "busybox sleep 1000").await;
    let marked = processes(&first, &spec);
    assert!(marked.contains(&Marked { pid: child.pid, group: child.pid }), "{marked:?}");
    let leader = record(&first, &spec).process.unwrap();
    drop(first);
    kill_leader(leader).await;
    assert!(child.is_alive());
    let driver = driver(&directory);
    running(&driver, &spec).await;
    assert_ne!(record(&driver, &spec).process, Some(child));
    ended(child).await;
    stopped(&driver, &spec).await;
}

#[tokio::test]
async fn a_stop_that_was_interrupted_goes_on_and_the_whole_group_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let settings = || Settings { stop_timeout: Duration::from_millis(300), ..settings(&directory) };
    // Neither the shell nor its child ends when asked to.
    let spec =
        spec("busybox sh -c \"trap '' TERM; busybox httpd -f -p $PORT & while :; do wait; done\"");
    let first = ProcessDriver::new(settings()).unwrap();
    first.start(&spec).await.unwrap();
    running(&first, &spec).await;
    // The server answers each connection by a process of its own, which may not have ended yet.
    let both = async {
        while processes(&first, &spec).len() != 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), both).await.unwrap();
    first.stop(&spec.owner.deployment, &spec.name).await.unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while !record(&first, &spec).stopping && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(first);
    let driver = ProcessDriver::new(settings()).unwrap();
    assert_eq!(
        driver.observe(&spec.owner.deployment).await.unwrap()[0].condition,
        Condition::Stopping
    );
    wait_for(&driver, &spec.owner.deployment, <[ObservedInstance]>::is_empty).await;
    assert!(processes(&driver, &spec).is_empty());
}

#[tokio::test]
async fn a_second_driver_and_a_newer_record_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = driver(&directory);
    let error = ProcessDriver::new(settings(&directory)).err().unwrap();
    assert!(error.to_string().contains("another Segue runs processes from"), "{error}");
    drop(first);
    fs::write(directory.path().join("a.json"), r#"{"format": 2}"#).unwrap();
    let error = ProcessDriver::new(settings(&directory)).err().unwrap();
    assert!(error.to_string().contains("a newer Segue wrote it"), "{error}");
}
