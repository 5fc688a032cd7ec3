//! Thousands of routes in one request: until HAProxy serves all of them, and the memory that they take in the service.

use super::idle::resident_mb;
use super::{Bench, Measure};
use crate::service;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const GATEWAYS: usize = 50;
const ROUTES_EACH: usize = 100;
const APPLIED_TIME_MAX: Duration = Duration::from_mins(1);
const APPLIED_S_MAX: f64 = 1.0;
const MEMORY_MB_MAX: f64 = 100.0;

/// Stores all gateways with one request.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let mut ports = BTreeSet::new();
    while ports.len() < GATEWAYS {
        ports.insert(service::free_port()?);
    }
    let gateways: Vec<Value> = ports.into_iter().enumerate().map(gateway).collect();
    let last = gateways.last().and_then(|gateway| gateway["name"].as_str());
    let last = last.context("there are gateways")?.to_owned();
    let called = Instant::now();
    bench.api().send("POST", "/api/v1/gateways", &Value::from(gateways), 201)?;
    let answered = called.elapsed();
    // All of them are one append, and one turn of the worker. One is cheaper to ask for than all.
    let path = format!("/api/v1/gateways/{last}");
    bench.progress.wait("the routes are applied", APPLIED_TIME_MAX, || {
        let gateway = bench.api().get(&path)?;
        Ok(if gateway["deployed"] == true {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(format!("deployed {}", gateway["deployed"]))
        })
    })?;
    let applied = called.elapsed();
    let memory = resident_mb(bench.service.pid())?;
    let all = bench.api().list("/api/v1/gateways")?;
    ensure!(
        all.iter().all(|gateway| gateway["deployed"] == true),
        "some gateways are not deployed"
    );
    let routes = GATEWAYS * ROUTES_EACH;
    Ok(vec![
        Measure::at_most(
            format!("{routes} routes applied, answered after {:.2} s", answered.as_secs_f64()),
            applied.as_secs_f64(),
            "s",
            APPLIED_S_MAX,
        ),
        Measure::at_most(
            format!("resident memory with {routes} routes"),
            memory,
            "MB",
            MEMORY_MB_MAX,
        ),
    ])
}

/// A gateway to addresses where nobody listens: nothing is asked there.
fn gateway((number, port): (usize, u16)) -> Value {
    let routes: Map<String, Value> = (0..ROUTES_EACH)
        .map(|route| (format!("[127.1.{number}.{}:9000]", route + 1), json!({"weight": "1%"})))
        .collect();
    json!({"name": format!("many{number:03}"), "port": port, "routes": routes})
}
