//! What checks found last, of each instance.

use super::Check;
use crate::driver::Changes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What checks found; shared by those who check and those who want to know.
#[derive(Debug, Default)]
pub struct Results {
    found: Mutex<BTreeMap<Check, Found>>,
    failing: watch::Sender<BTreeSet<String>>,
    changes: Changes,
}

/// What one check found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    passed: bool,
    failures: u32,
    words: Option<String>,
}

impl Check {
    /// Whether what was found is a failure of the instance.
    fn fails(&self, found: &Found) -> bool {
        self.failures > 0 && found.failures >= self.failures
    }
}

impl Results {
    /// Names of instances that fail one of their checks: so many times in a row as it says.
    pub fn failing(&self) -> watch::Receiver<BTreeSet<String>> {
        self.failing.subscribe()
    }

    /// Signals whenever an instance passed for the first time, or new words say why it did not.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// What keeps `instance` from serving, when none of its checks ever failed to say so: `None` when each of `checks`
    /// passed once.
    pub fn obstacle(&self, instance: &str, checks: usize) -> Option<String> {
        let found = self.found();
        let own = found.iter().filter(|(check, _)| check.instance == instance);
        let own: Vec<&Found> = own.map(|(_, found)| found).collect();
        if own.len() >= checks && own.iter().all(|found| found.passed) {
            return None;
        }
        let words = own.iter().filter(|found| !found.passed).find_map(|found| found.words.as_ref());
        Some(match words {
            Some(words) => format!("did not pass its health check yet: {words}"),
            None => "did not pass its health check yet".to_owned(),
        })
    }

    /// From now on these checks count, and no others.
    pub fn expect(&self, checks: &[Check]) {
        let wanted: BTreeSet<&Check> = checks.iter().collect();
        let mut found = self.found();
        found.retain(|check, _| wanted.contains(check));
        for check in checks {
            found.entry(check.clone()).or_default();
        }
        self.tell_failing(&found);
    }

    /// These instances do not run: what was found of them says nothing about them once they run again.
    pub fn forget(&self, instances: &BTreeSet<&str>) {
        if instances.is_empty() {
            return;
        }
        let mut all = self.found();
        let own = all.iter_mut().filter(|(check, _)| instances.contains(check.instance.as_str()));
        own.for_each(|(_, found)| *found = Found::default());
        self.tell_failing(&all);
    }

    /// A check passed, or failed with these words.
    pub fn note(&self, check: &Check, outcome: Result<(), String>) {
        let mut all = self.found();
        let Some(found) = all.get_mut(check) else { return };
        let before = found.clone();
        match outcome {
            Ok(()) => *found = Found { passed: true, failures: 0, words: None },
            Err(words) => {
                found.failures = found.failures.saturating_add(1);
                found.words = Some(words);
            }
        }
        let news = !before.passed && (found.passed || found.words != before.words);
        // Of thousands of checks most find what they found before.
        if check.fails(&before) != check.fails(found) {
            self.tell_failing(&all);
        }
        drop(all);
        if news {
            self.changes.notify_of(&check.deployment);
        }
    }

    fn tell_failing(&self, found: &BTreeMap<Check, Found>) {
        let failing = found.iter().filter(|(check, found)| check.fails(found));
        let failing: BTreeSet<String> = failing.map(|(check, _)| check.instance.clone()).collect();
        self.failing.send_if_modified(|told| {
            let news = *told != failing;
            *told = failing;
            news
        });
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<Check, Found>> {
        // No change takes two steps that belong together.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
