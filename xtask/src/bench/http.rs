//! The REST API: reads against a bare actix-web handler that returns the same bytes, and large writes.
//!
//! Reads of both are measured in turn, several times, so that a machine that gets slower or faster meanwhile hurts
//! both alike.

use super::throughput::wrk;
use super::{Bench, Measure, quantile};
use crate::load;
use crate::progress;
use crate::service;
use crate::workspace::{self, Workspace};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// Breeds in the collection that pages are read from.
const BREEDS: usize = 100_000;
/// Documents of one request.
const DOCUMENTS: usize = 1_000;
const CONNECTIONS: u32 = 64;
/// Threads that serve HTTP: the default of the service.
const WORKERS: &str = "2";
/// How often a blueprint is validated.
const VALIDATIONS: &str = "50";
const BLUEPRINT_BYTES: usize = 90_000;
/// How long the bare handler may take to come up.
const START_TIME_MAX: Duration = Duration::from_secs(20);

const GET_RATIO_MIN: f64 = 0.8;
const PAGE_RATIO_MIN: f64 = 0.5;
const STORE_MS_MAX: f64 = 300.0;
const VALIDATE_MS_MAX: f64 = 10.0;

/// Fills a collection, and measures writes and reads.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let stored = store(bench)?;
    let validated = validate(bench)?;
    let paths = [
        ("GET one artifact", "/api/v1/breeds/b050000".to_owned(), GET_RATIO_MIN),
        ("first page of 30 of 100,000", "/api/v1/breeds?per_page=30".to_owned(), PAGE_RATIO_MIN),
        (
            "page 1,700 of 30 of 100,000",
            "/api/v1/breeds?per_page=30&page=1700".to_owned(),
            PAGE_RATIO_MIN,
        ),
    ];
    let mut measures = vec![
        Measure::at_most(
            format!("{DOCUMENTS} documents stored by one request, median"),
            stored,
            "ms",
            STORE_MS_MAX,
        ),
        Measure::at_most(
            "a blueprint of 90 KB parsed and validated, median",
            validated,
            "ms",
            VALIDATE_MS_MAX,
        ),
    ];
    let mut bodies = Vec::new();
    for (number, (_, path, _)) in paths.iter().enumerate() {
        let file = bench.folder.join(format!("body-{number}.json"));
        // Compact JSON with members in the same order: the bytes that the service sends.
        fs::write(&file, bench.api().get(path)?.to_string())?;
        bodies.push(file);
    }
    let port = service::free_port()?;
    let mut bare = start_bare(port, &bodies)?;
    let compared = wait_for(bench, &format!("http://127.0.0.1:{port}/0")).and_then(|()| {
        let each = paths.iter().enumerate().map(|(number, (what, path, ratio_min))| {
            let ours = format!("{}{path}", bench.api().base());
            let ratio = compare(bench, &ours, &format!("http://127.0.0.1:{port}/{number}"))?;
            Ok(Measure::at_least(
                format!("{what}, {CONNECTIONS} connections, against bare actix-web"),
                ratio,
                "",
                *ratio_min,
            ))
        });
        each.collect::<Result<Vec<_>>>()
    });
    bare.kill().context("the bare handler cannot be ended")?;
    bare.wait().context("the bare handler does not end")?;
    measures.extend(compared?);
    Ok(measures)
}

/// Stores all breeds, many by each request; the median time of one request in ms.
fn store(bench: &Bench) -> Result<f64> {
    let mut times = Vec::new();
    for first in (0..BREEDS).step_by(DOCUMENTS) {
        let breeds: Vec<Value> = (first..first + DOCUMENTS).map(breed).collect();
        let begun = Instant::now();
        bench.api().send("POST", "/api/v1/breeds", &Value::from(breeds), 201)?;
        times.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    quantile(&times, 0.5).context("nothing was stored")
}

fn breed(number: usize) -> Value {
    json!({
        "name": format!("b{number:06}"),
        "deployable": format!("acme/service:{number}"),
        "ports": { "http": "8000/http" },
        "environment_variables": { "LEVEL": "info" },
    })
}

/// Has a large blueprint parsed and validated, in a process of its own; the median time in ms.
fn validate(bench: &Bench) -> Result<f64> {
    let mut clusters = serde_json::Map::new();
    while Value::Object(clusters.clone()).to_string().len() < BLUEPRINT_BYTES {
        for _ in 0..10 {
            let number = clusters.len();
            let mut breed = breed(number);
            breed["name"] = json!(format!("validated:{number}"));
            let scale = json!({ "cpu": 0.2, "memory": "64MB", "instances": 2 });
            let service = json!({ "breed": breed, "scale": scale });
            clusters.insert(format!("cluster{number}"), json!({ "services": [service] }));
        }
    }
    let blueprint = json!({ "name": "large", "clusters": clusters });
    let begun = Instant::now();
    bench.api().send("POST", "/api/v1/blueprints?validate_only=true", &blueprint, 201)?;
    let whole = begun.elapsed().as_secs_f64() * 1_000.0;
    progress::say(&format!("the whole request with the blueprint: {whole:.1} ms"));
    let file = bench.folder.join("large.json");
    fs::write(&file, blueprint.to_string())
        .with_context(|| format!("{} cannot be written", file.display()))?;
    let example = ["run", "--release", "--package", "segue-domain", "--example", "read_bench"];
    let mut command = Workspace::find()?.cargo(example);
    let output = command.arg("--").arg(&file).arg(VALIDATIONS).output();
    let output = output.context("read_bench cannot be started")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.trim().parse().with_context(|| format!("read_bench printed {printed:?}"))
}

/// The ratio of the medians.
fn compare(bench: &Bench, ours: &str, theirs: &str) -> Result<f64> {
    let (mut our_rates, mut their_rates) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        // Who is first changes from round to round.
        if round % 2 == 0 {
            their_rates.push(wrk(theirs, CONNECTIONS)?);
            our_rates.push(wrk(ours, CONNECTIONS)?);
        } else {
            our_rates.push(wrk(ours, CONNECTIONS)?);
            their_rates.push(wrk(theirs, CONNECTIONS)?);
        }
        bench.progress.pass("between rounds", Duration::from_millis(200))?;
        let (our, their) = (our_rates[round - 1], their_rates[round - 1]);
        progress::say(&format!("round {round}: {our:.0} requests/s from segue, {their:.0} bare"));
    }
    let median = |rates: &[f64]| quantile(rates, 0.5).context("nothing was measured");
    Ok(median(&our_rates)? / median(&their_rates)?)
}

fn start_bare(port: u16, bodies: &[std::path::PathBuf]) -> Result<Child> {
    let workspace = Workspace::find()?;
    workspace::run(&mut workspace.cargo([
        "build",
        "--release",
        "--package",
        "segue-api",
        "--example",
        "bare_handler",
    ]))?;
    let program = workspace.target().join("release/examples/bare_handler");
    ensure!(program.is_file(), "cargo succeeded, but {} is not there", program.display());
    let mut command = Command::new(program);
    command.arg(format!("127.0.0.1:{port}")).arg(WORKERS).args(bodies);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().context("the bare handler cannot be started")
}

fn wait_for(bench: &Bench, url: &str) -> Result<()> {
    let agent = load::agent(load::Connection::Fresh);
    bench.progress.wait(&format!("{url} answers"), START_TIME_MAX, || {
        Ok(match agent.get(url).call() {
            Ok(_) => ControlFlow::Break(()),
            Err(error) => ControlFlow::Continue(error.to_string()),
        })
    })
}
