//! Every kind of change that a user can make, under load: which requests fail, and when a client sees the change. The same
//! for HAProxy with a file written by hand, in the same run.
//!
//! Half of the clients keep their connection, half make a new one for each request. Every request counts.

mod by_hand;
mod chart;
mod rates;
mod record;
mod report;
mod segue;

use super::{Bench, Measure};
use crate::load::Plan;
use crate::progress;
use crate::service::Service;
use crate::shop::Runtime;
use crate::workspace::Workspace;
use anyhow::Result;
use record::{Kind, Rows};
use report::Report;
use std::path::Path;
use std::time::Duration;

/// About 2,000 requests a second. All of them match the condition that comes and goes.
const PLAN: Plan =
    Plan { kept_alive: 4, fresh: 4, every: Duration::from_millis(4), headers: &[("X-Beta", "1")] };
const SEEN_MEDIAN_MS_MAX: f64 = 10.0;
const SEEN_P99_MS_MAX: f64 = 50.0;

/// Makes all changes, with Segue and by hand, and compares throughput; `write` also writes the reference page.
pub(super) fn measure(
    service: &mut Service,
    runtime: &Runtime,
    folder: &Path,
    progress: &progress::Progress,
    write: Option<&Workspace>,
) -> Result<Vec<Measure>> {
    let ours = segue::change_everything(service, runtime, progress)?;
    let theirs = by_hand::change_everything(runtime, folder, progress)?;
    let rates = rates::compare(&Bench { service, runtime, folder, progress })?;
    let mut measures = limits(&ours)?;
    measures.extend(rates);
    let report = Report { ours: &ours, theirs: &theirs, measures: &measures };
    println!("\n{}", report.table()?);
    if let Some(workspace) = write {
        report.write(workspace.root())?;
    }
    Ok(measures)
}

fn limits(rows: &Rows) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    if let Some(row) = rows.get(&Kind::Weights) {
        for (what, share, limit) in
            [("median", 0.5, SEEN_MEDIAN_MS_MAX), ("p99", 0.99, SEEN_P99_MS_MAX)]
        {
            let words = format!("weights seen by a client, {what} of {}", row.changes);
            measures.push(Measure::at_most(words, row.seen_ms(share)?, "ms", limit));
        }
    }
    for (kind, row) in rows {
        let words = format!("{}: failed of {} requests", kind.words(), row.requests());
        measures.push(Measure::at_most(words, f64::from(row.failed()), "", 0.0));
    }
    Ok(measures)
}
