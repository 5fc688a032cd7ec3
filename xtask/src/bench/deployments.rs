//! Thousands of services with simulated containers and gateways: what the control plane alone takes to deploy them, and
//! when there is nothing to do.

use super::events::subscribers::subscribe;
use super::idle::{processor_percent, resident_mb};
use super::{Bench, Measure, quantile};
use crate::progress;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

const SERVICES_EACH: usize = 5;
/// How many deployments are timed, and how many there are in the end.
const TIMED: usize = 1_000;
const ALL: usize = 2_000;
/// How many are under way at once: the next one is sent when one is done.
const UNDER_WAY: usize = 8;
const DONE_TIME_MAX: Duration = Duration::from_mins(1);
/// What happened while the deployments came up is over then.
/// Each value of health and metrics is told once, at most 2,000 in 5 s, which takes minutes for so many services.
const CALM: Duration = Duration::from_mins(5);
const WATCHED: Duration = Duration::from_secs(30);
const DONE_S_MAX: f64 = 2.0;
const PROCESSOR_PERCENT_MAX: f64 = 1.0;

/// Deploys, and watches the idle service.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let address = bench.api().base().trim_start_matches("http://").to_owned();
    let stream = subscribe(&address, "synchronisation:deployed")?;
    let (sender, deployed) = mpsc::channel();
    thread::spawn(move || {
        for event in events(stream) {
            // Whoever measures may be gone when the stream ends.
            if sender.send((event, Instant::now())).is_err() {
                return;
            }
        }
    });
    let begun = Instant::now();
    let times = deploy(bench, 0..TIMED, &deployed)?;
    progress::say(&format!("{TIMED} deployments: {:.1} s", begun.elapsed().as_secs_f64()));
    deploy(bench, TIMED..ALL, &deployed)?;
    bench.progress.pass("letting things calm down", CALM)?;
    let share = processor_percent(bench, WATCHED)?;
    let services = ALL * SERVICES_EACH;
    let memory = resident_mb(bench.service.pid())?;
    progress::say(&format!("resident memory with {services} services: {memory:.0} MB"));
    let time = |share| quantile(&times, share).context("nothing was deployed");
    progress::say(&format!("from the call to Done: median {:.2} s", time(0.5)?));
    Ok(vec![
        Measure::at_most(
            format!("{SERVICES_EACH} services Done, p99 of {TIMED}, {UNDER_WAY} at once"),
            time(0.99)?,
            "s",
            DONE_S_MAX,
        ),
        Measure::at_most(
            format!("processor with {services} idle services, of one core"),
            share,
            "%",
            PROCESSOR_PERCENT_MAX,
        ),
    ])
}

/// Deploys those with these numbers; the seconds that each took from the call until all of its services were Done.
fn deploy(
    bench: &Bench,
    numbers: std::ops::Range<usize>,
    deployed: &Receiver<(Value, Instant)>,
) -> Result<Vec<f64>> {
    let mut open: BTreeMap<String, (Instant, usize)> = BTreeMap::new();
    let mut times = Vec::with_capacity(numbers.len());
    let mut next = numbers.clone();
    while times.len() < numbers.len() {
        while open.len() < UNDER_WAY
            && let Some(number) = next.next()
        {
            let name = format!("many{number:05}");
            open.insert(name.clone(), (Instant::now(), 0));
            let path = format!("/api/v1/deployments/{name}");
            bench.api().send("PUT", &path, &blueprint(&name), 202)?;
        }
        let (event, arrived) =
            deployed.recv_timeout(DONE_TIME_MAX).with_context(|| format!("open: {open:?}"))?;
        let name = deployment(&event).with_context(|| format!("an event of nothing: {event}"))?;
        let Some((called, services)) = open.get_mut(name) else { continue };
        *services += 1;
        if *services == SERVICES_EACH {
            times.push((arrived - *called).as_secs_f64());
            open.remove(name);
        }
    }
    ensure!(open.is_empty(), "some are not deployed: {open:?}");
    Ok(times)
}

fn blueprint(name: &str) -> Value {
    let cluster = |number: usize| {
        let breed = json!({
            "name": format!("simulated:{number}"),
            "deployable": {"type": "docker", "definition": "acme/service:1"},
            "ports": {"http": "8080/http"},
        });
        let scale = json!({"cpu": 0.1, "memory": "32MB", "instances": 1});
        (format!("cluster{number}"), json!({"services": [{"breed": breed, "scale": scale}]}))
    };
    let clusters: Map<String, Value> = (0..SERVICES_EACH).map(cluster).collect();
    json!({"name": name, "clusters": clusters})
}

/// The events of a stream, until it ends.
fn events(stream: BufReader<TcpStream>) -> impl Iterator<Item = Value> {
    let lines = stream.lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
}

fn deployment(event: &Value) -> Option<&str> {
    let tags = event["tags"].as_array()?.iter().filter_map(Value::as_str);
    tags.into_iter().find_map(|tag| tag.strip_prefix("deployments:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_tells_its_deployment() {
        let event =
            json!({"tags": ["deployments", "deployments:many00001", "services:simulated:1"]});
        assert_eq!(deployment(&event), Some("many00001"));
        assert_eq!(deployment(&json!({"tags": []})), None);
    }
}
