//! From the API call that changes weights until a client sees the change.
//!
//! Clients ask through HAProxy as fast as they can. Weights flip between 0/100 and 100/0; a change is seen with the
//! first answer of the version that had no weight before. The next flip waits until the other version fell silent.

use super::sight::Sight;
use super::{Bench, Measure, quantile};
use crate::load::{self, Load, Plan};
use crate::progress;
use crate::service;
use crate::shop::{self, INTERNAL_GATEWAY};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::time::{Duration, Instant};

/// How many changes are measured.
const CHANGES: u32 = 200;
/// As fast as they can: the next request follows the answer.
const PLAN: Plan = Plan { kept_alive: 4, fresh: 0, every: Duration::ZERO, headers: &[] };

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
    Sight::Version(1).settle(progress, &load, Instant::now())?;
    for change in 0..CHANGES {
        let version = if change % 2 == 0 { 2 } else { 1 };
        let document: &Value = if version == 1 { &to_version[0] } else { &to_version[1] };
        let called = Instant::now();
        api.send("PUT", &path, document, 200)?;
        let seen = Sight::Version(version).wait(progress, &load, called)?;
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
