//! From the API call that changes weights until a client sees the change.
//!
//! Clients ask through HAProxy as fast as they can. Weights flip between 0/100 and 100/0; a change is seen with the
//! first answer of the version that had no weight before. The next flip waits until the other version fell silent.

use super::{Bench, Measure, quantile};
use crate::load::{self, Load, Plan};
use crate::progress;
use crate::service;
use crate::shop::{self, INTERNAL_GATEWAY};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How many changes are measured.
const CHANGES: u32 = 200;
/// As fast as they can: the next request follows the answer.
const PLAN: Plan = Plan { kept_alive: 4, fresh: 0, every: Duration::ZERO };
/// How many answers of one version in a row tell that a change has settled.
const SETTLED: usize = 100;
/// How long one change may take.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(10);

const MEDIAN_MS_MAX: f64 = 20.0;
const P99_MS_MAX: f64 = 100.0;

/// Deploys two versions, flips the weights and measures each flip.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let (api, progress) = (bench.api(), bench.progress);
    let both = shop::blueprint("shop", bench.runtime, &[1, 2], 1)?;
    api.send("PUT", "/api/v1/deployments/shop", &both, 202)?;
    shop::wait_done(api, progress, "shop", &[1, 2], 1)?;
    api.send("POST", "/api/v1/gateways", &shop::edge("edge", service::free_port()?), 201)?;
    let port = shop::wait_gateway(api, progress, "edge")?;
    shop::wait_gateway(api, progress, INTERNAL_GATEWAY)?;
    let path = format!("/api/v1/gateways/{INTERNAL_GATEWAY}");
    let gateway = api.get(&path)?;
    let to_version = [
        shop::with_weights(&gateway, &[(1, 100), (2, 0)])?,
        shop::with_weights(&gateway, &[(1, 0), (2, 100)])?,
    ];
    api.send("PUT", &path, &to_version[0], 200)?;
    let load = Load::start(&format!("http://127.0.0.1:{port}/"), PLAN);
    let mut times = Vec::new();
    settle(bench, &load, 1)?;
    for change in 0..CHANGES {
        let version = if change % 2 == 0 { 2 } else { 1 };
        let document: &Value = if version == 1 { &to_version[0] } else { &to_version[1] };
        let called = Instant::now();
        api.send("PUT", &path, document, 200)?;
        let seen = settle_since(bench, &load, version, called)?;
        times.push(seen.duration_since(called).as_secs_f64() * 1_000.0);
    }
    let failures = load::failures(&load.stop());
    let failed = u32::try_from(failures.values().sum::<usize>())?;
    for (reason, count) in &failures {
        progress::say(&format!("{count} x {reason}"));
    }
    let value = |share| quantile(&times, share).context("nothing was measured");
    Ok(vec![
        Measure::at_most(
            format!("weights seen by a client, median of {CHANGES}"),
            value(0.5)?,
            "ms",
            MEDIAN_MS_MAX,
        ),
        Measure::at_most(
            format!("weights seen by a client, p99 of {CHANGES}"),
            value(0.99)?,
            "ms",
            P99_MS_MAX,
        ),
        Measure::at_most("requests failed meanwhile", f64::from(failed), "", 0.0),
    ])
}

/// When `version` answered first since the call; returns once the other version fell silent.
fn settle_since(bench: &Bench, load: &Load, version: u32, called: Instant) -> Result<Instant> {
    settle(bench, load, version)?;
    let samples = load.ended_since(called);
    let first = load::first_of(&samples, version).context("the version never answered")?;
    ensure!(first.received >= called, "an answer came before the call");
    Ok(first.received)
}

fn settle(bench: &Bench, load: &Load, version: u32) -> Result<()> {
    let begun = Instant::now();
    bench.progress.wait_quietly(
        &format!("version {version} answers everything"),
        CHANGE_TIME_MAX,
        || {
            let samples = load.ended_since(begun);
            let last = &samples[samples.len().saturating_sub(SETTLED)..];
            let settled =
                last.len() == SETTLED && last.iter().all(|sample| sample.answer == Ok(version));
            Ok(if settled {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(format!("{:?}", load::split(last)))
            })
        },
    )
}
