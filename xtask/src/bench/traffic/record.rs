//! A load, and what is written down of it: each request belongs to the change during which it ended.

use super::PLAN;
use crate::bench::quantile;
use crate::bench::sight::Sight;
use crate::load::{Connection, Load, Sample};
use crate::progress::{self, Progress};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How many requests have to be sent and answered after a change before it is over.
const AFTERWARDS: usize = 100;
const AFTERWARDS_TIME_MAX: Duration = Duration::from_secs(30);
/// How many failures of one change are printed.
const FAILURES_SHOWN: usize = 5;

/// What is changed, in the order of the report.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    Weights,
    ConditionAdded,
    ConditionRemoved,
    StickyOn,
    StickyOff,
    VersionMerged,
    VersionDeleted,
    ScaledUp,
    ScaledDown,
    CommandChanged,
    VariableChanged,
    NeighbourDeployed,
    NeighbourDeleted,
    Restarted,
    Killed,
    Reloaded,
}

impl Kind {
    /// How the report calls it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::ConditionAdded => "condition added",
            Self::ConditionRemoved => "condition removed",
            Self::StickyOn => "sticky on",
            Self::StickyOff => "sticky off",
            Self::VersionMerged => "new version merged",
            Self::VersionDeleted => "one version deleted",
            Self::ScaledUp => "scaled up",
            Self::ScaledDown => "scaled down",
            Self::CommandChanged => "other command, rolling",
            Self::VariableChanged => "other variable, rolling",
            Self::NeighbourDeployed => "neighbour deployed",
            Self::NeighbourDeleted => "neighbour deleted",
            Self::Restarted => "Segue restarted",
            Self::Killed => "Segue killed (-9)",
            Self::Reloaded => "HAProxy reloaded",
        }
    }
}

/// All that was written down.
pub(super) type Rows = BTreeMap<Kind, Row>;

/// All changes of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// How many.
    pub(super) changes: u32,
    /// Requests on connections that were kept.
    pub(super) kept_alive: Count,
    /// Requests on connections of their own.
    pub(super) fresh: Count,
    /// From each call until a client saw the change; none where there is nothing to see.
    pub(super) seen: Vec<f64>,
}

/// How many requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) sent: u32,
    pub(super) failed: u32,
}

impl Row {
    pub(super) fn requests(&self) -> u32 {
        self.kept_alive.sent + self.fresh.sent
    }

    pub(super) fn failed(&self) -> u32 {
        self.kept_alive.failed + self.fresh.failed
    }

    /// The time in ms within which a client saw `share` (0 to 1) of the changes.
    pub(super) fn seen_ms(&self, share: f64) -> Result<f64> {
        quantile(&self.seen, share).context("nothing was seen")
    }

    fn add(&mut self, sample: &Sample) {
        let count = match sample.connection {
            Connection::KeptAlive => &mut self.kept_alive,
            Connection::Fresh => &mut self.fresh,
        };
        count.sent += 1;
        count.failed += u32::from(sample.answer.is_err());
    }
}

/// A load under which changes are made.
#[derive(Debug)]
pub(super) struct Record<'a> {
    progress: &'a Progress,
    load: Load,
    rows: Rows,
}

/// A change that is over.
#[derive(Debug)]
pub(super) struct Change {
    called: Instant,
    samples: Vec<Sample>,
}

impl<'a> Record<'a> {
    /// Starts the load on `url`, and waits until `sight` is all there is.
    pub(super) fn start(url: &str, sight: &Sight, progress: &'a Progress) -> Result<Self> {
        let load = Load::start(url, PLAN);
        sight.settle(progress, &load, Instant::now())?;
        load.take();
        Ok(Self { progress, load, rows: Rows::new() })
    }

    /// Calls `make`, waits until `sight` is seen and `finish` returns, and for some requests more.
    pub(super) fn change(
        &mut self,
        kind: Kind,
        sight: Option<&Sight>,
        make: impl FnOnce() -> Result<()>,
        finish: impl FnOnce() -> Result<()>,
    ) -> Result<Change> {
        let called = Instant::now();
        make()?;
        let seen = sight.map(|sight| sight.wait(self.progress, &self.load, called)).transpose()?;
        finish()?;
        self.wait_for_more()?;
        let samples = self.load.take();
        let row = self.rows.entry(kind).or_default();
        row.changes += 1;
        for sample in &samples {
            row.add(sample);
        }
        row.seen.extend(seen.map(|seen| milliseconds(seen - called)));
        tell_failures(kind, called, &samples);
        Ok(Change { called, samples })
    }

    /// Writes down when the last of the instances fell silent that left with this change.
    pub(super) fn silence(&mut self, kind: Kind, change: &Change, left: &BTreeSet<String>) {
        let of_left = |sample: &&Sample| {
            sample.answer.as_ref().is_ok_and(|answer| left.contains(&answer.instance))
        };
        let last = change.samples.iter().rev().find(of_left).map(|sample| sample.received);
        let last = last.filter(|last| *last > change.called).unwrap_or(change.called);
        self.rows.entry(kind).or_default().seen.push(milliseconds(last - change.called));
    }

    /// Ends the load.
    pub(super) fn end(self) -> Rows {
        drop(self.load);
        self.rows
    }

    fn wait_for_more(&self) -> Result<()> {
        let since = Instant::now();
        self.progress.wait_quietly("more requests", AFTERWARDS_TIME_MAX, || {
            Ok(if self.load.ends_with(AFTERWARDS, since, |_| true) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue("not yet".into())
            })
        })
    }
}

fn tell_failures(kind: Kind, called: Instant, samples: &[Sample]) {
    let failed = samples.iter().filter_map(|sample| Some((sample, sample.answer.as_ref().err()?)));
    for (sample, reason) in failed.take(FAILURES_SHOWN) {
        let after = |time: Instant| milliseconds(time.saturating_duration_since(called));
        progress::say(&format!(
            "{}: failed from {:.1} to {:.1} ms after the call, {:?}: {reason}",
            kind.words(),
            after(sample.sent),
            after(sample.received),
            sample.connection
        ));
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
