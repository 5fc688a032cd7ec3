//! How often what happened, over all lives: what never happens tests nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Everything that has to happen at least once in a run over all seeds: wishes of users, what happens outside, what
/// drivers do wrong, what becomes of the service, and what follows from that.
const KINDS: &[&str] = &[
    "action under way at a kill",
    "alarm acted on",
    "alarm ignored",
    "alarm posted",
    "answer of a check: failed",
    "answer of a check: passed",
    "change during a turn",
    "deployment deleted",
    "gateway deleted",
    "gateway of a blueprint deleted",
    "gateway refused",
    "gateway stored",
    "health told",
    "instance crashed",
    "instance vanished",
    "kill",
    "kill between act and report",
    "life with time-outs",
    "measurement posted",
    "merge",
    "metrics told",
    "observation failed",
    "observation lacking instances",
    "observation of the past",
    "pool of ports exhausted",
    "ports taken by others",
    "proxy change carried out and denied",
    "proxy change late",
    "proxy change not carried out",
    "proxy change of the life before",
    "proxy change refused",
    "proxy lost",
    "proxy not answering",
    "requests hanging",
    "requests of another kind",
    "route disabled",
    "scale",
    "scale by an alarm",
    "service deployed",
    "service failed",
    "service failed by time-out",
    "service redeployed",
    "service undeployed",
    "services deleted",
    "shift",
    "SLA set",
    "SLA taken away",
    "start",
    "start carried out and denied",
    "start late",
    "start not carried out",
    "start of the life before",
    "start refused",
    "start refused for good",
    "stop",
    "stop carried out and denied",
    "stop late",
    "stop not carried out",
    "stop of the life before",
    "stop refused",
    "time passes",
    "turn",
    "verdict",
    "wish refused",
];

/// Counts that a life shares with its drivers.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    lives: u64,
    records: u64,
    by_kind: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Something happened once more.
    pub fn count(&self, kind: &'static str) {
        assert!(KINDS.contains(&kind), "'{kind}' is missing in the list of kinds");
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.by_kind.entry(kind).or_default() += 1;
    }

    /// The counts of a life that ended with so many records.
    pub fn of_life(&self, records: u64) -> Counts {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Counts { lives: 1, records, ..counts }
    }
}

impl Counts {
    /// Adds those of other lives.
    pub fn add(&mut self, other: &Self) {
        self.lives += other.lives;
        self.records += other.records;
        for (kind, count) in &other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        KINDS.iter().filter(|kind| !self.by_kind.contains_key(*kind)).copied().collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lives, {} records", self.lives, self.records)?;
        self.by_kind.iter().try_for_each(|(kind, count)| write!(f, "; {kind}: {count}"))
    }
}
