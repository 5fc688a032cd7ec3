//! The steps of the tutorial and of the README are run as they stand, by a shell, against the real program. Only
//! ports are replaced, by some that are free.

use segue_tests::ports::Ports;
use segue_tests::service::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a reader does not type: commands that fail end the script, and answers that are refusals are failures.
const PREAMBLE: &str =
    "set -euo pipefail\nset -m\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n";
/// No step waits longer than this; the shell's own loops have no limit.
const LIMIT_SECONDS: &str = "120";

/// Shows: I1-deployments, I1-traffic, I1-events
#[test]
fn the_tutorial_works_as_written() {
    let page = read("docs/tutorial.md");
    let script = blocks(&page, "sh").join("\n");
    let folder = tempfile::tempdir().expect("a folder is made");
    let mut ports = Ports::take();
    let output = run(&script, folder.path(), &mut ports);
    down(&folder.path().join("tutorial"));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{printed}\n{words}", output.status);
    for expected in blocks(&page, "text") {
        assert!(printed.contains(&expected), "{expected} is not in\n{printed}");
    }
    let shares =
        printed.lines().filter(|line| line.contains("\"version\":\"2\"") && !line.contains('{'));
    let shares: Vec<u32> =
        shares.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    assert!(matches!(shares[..], [5..=15]), "{printed}");
    assert!(
        printed.contains("archiving:update") && printed.contains("synchronisation:undeployed"),
        "{printed}"
    );
}

#[test]
fn the_readmes_steps_work_as_written() {
    let page = read("README.md");
    let (_, by_hand) = page.split_once("## By hand").expect("the README has steps");
    let steps = blocks(by_hand, "sh").remove(0);
    let (start, steps) = steps.split_once("\n\n").expect("the service is started first");
    let blueprint = blocks(&page, "yaml blueprint").remove(0);
    let folder = tempfile::tempdir().expect("a folder is made");
    std::fs::write(folder.path().join("shop-1.yaml"), &blueprint).expect("it is written");
    // From here on a refusal ends the script; before, it says that the service is not there yet.
    let checked = "curl() { command curl -sS --fail-with-body \"$@\"; echo; }";
    let script = format!("{start}\n{checked}\n{steps}\n");
    let output = run(&script, folder.path(), &mut Ports::take());
    down(&folder.path().join("segue-data"));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{printed}\n{words}", output.status);
    assert!(printed.contains("\"weight\":\"90%\""), "{printed}");
}

fn run(script: &str, folder: &Path, ports: &mut Ports) -> Output {
    let (api, entry, virtual_hosts) = (ports.one(), ports.one(), ports.one());
    let script = script
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{api}"))
        .replace("9080", &entry.to_string());
    let gateways = ports.gateways();
    // Readers call it `segue`, whatever it is called here.
    let programs = folder.join("programs");
    std::fs::create_dir(&programs).expect("a folder is made");
    std::os::unix::fs::symlink(program(), programs.join("segue")).expect("a link is made");
    let path = std::env::join_paths(
        std::iter::once(programs)
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut command = Command::new("timeout");
    for (name, _) in std::env::vars_os() {
        // What configures this test is no setting of the service.
        if name.to_string_lossy().starts_with("SEGUE_") {
            command.env_remove(name);
        }
    }
    command
        .args(["--kill-after=20", LIMIT_SECONDS, "bash", "-c", &format!("{PREAMBLE}{script}")])
        .current_dir(folder)
        .env("PATH", path.expect("folders without colons"))
        .env(
            "SEGUE_OPERATION__GATEWAY__PORT_RANGE",
            format!("{}-{}", gateways.start(), gateways.end()),
        )
        .env("SEGUE_OPERATION__GATEWAY__VIRTUAL_HOSTS__PORT", virtual_hosts.to_string())
        .env("SEGUE_GATEWAY_DRIVER__HAPROXY__BIND", "127.0.0.1")
        .output()
        .expect("a shell runs")
}

/// Ends what a failed tutorial left running.
fn down(data: &Path) {
    if data.exists() {
        let _ = Command::new(program()).args(["down", "--data"]).arg(data).output();
    }
}

fn read(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from);
    std::fs::read_to_string(root.expect("the crate is in the workspace").join(file))
        .expect("a page is text")
}

/// The blocks of `page` in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(found) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
        if found == language {
            blocks.push(block.join("\n"));
        }
    }
    blocks
}
