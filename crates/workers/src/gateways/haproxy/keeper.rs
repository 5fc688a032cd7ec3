//! Keeps the configuration file in step with what HAProxy serves.
//!
//! A change that the runtime socket takes is served at once; the file, which a restart of HAProxy needs, follows: it
//! is checked by `haproxy -c` and replaced in the background, several changes as one. A change that takes a reload
//! waits for its file.

use super::process::{self, CONFIGURATION_FILE, Process};
use crate::driver::{Changes, Error};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// The file that is checked before it replaces the one in use.
const CANDIDATE_FILE: &str = "haproxy.cfg.candidate";
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The file, and the task that brings it up to date.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    task: StdMutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    process: Arc<Process>,
    /// The text that the file is to have.
    wanted: watch::Sender<String>,
    /// The text that it has.
    installed: Mutex<String>,
    /// Why it does not have the wanted text.
    failure: StdMutex<Option<Error>>,
    changes: Changes,
}

impl Keeper {
    /// A keeper of the file of `process`. Failures are told through `changes`, once each.
    pub(super) fn new(process: Arc<Process>, changes: Changes) -> Self {
        let file = process.directory.join(CONFIGURATION_FILE);
        // Without a file there is nothing to keep yet.
        let installed = std::fs::read_to_string(file).unwrap_or_default();
        let shared = Shared {
            process,
            wanted: watch::Sender::new(installed.clone()),
            installed: Mutex::new(installed),
            failure: StdMutex::default(),
            changes,
        };
        Self { shared: Arc::new(shared), task: StdMutex::default() }
    }

    /// The text that is served.
    pub(super) fn text(&self) -> String {
        self.shared.wanted.borrow().clone()
    }

    /// Lets the file follow to `text`. That it could not follow so far is an error.
    pub(super) fn follow(&self, text: &str) -> Result<(), Error> {
        self.shared.wanted.send_if_modified(|wanted| {
            let new = wanted != text;
            if new {
                text.clone_into(wanted);
            }
            new
        });
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(keep(Arc::clone(&self.shared))));
        }
        match &*self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Replaces the file by `text` now, once HAProxy accepts it.
    pub(super) async fn install(&self, text: &str) -> Result<(), Error> {
        let mut installed = self.shared.installed.lock().await;
        self.shared.install(&mut installed, text).await?;
        self.shared.wanted.send_replace(text.to_owned());
        Ok(())
    }

    /// Waits until the file has the text that is served, for at most `limit`.
    #[cfg(test)]
    pub(super) async fn kept(&self, limit: Duration) -> bool {
        let end = tokio::time::Instant::now() + limit;
        while *self.shared.installed.lock().await != self.text() {
            if tokio::time::Instant::now() > end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

impl Shared {
    async fn install(&self, installed: &mut String, text: &str) -> Result<(), Error> {
        if installed == text {
            return Ok(());
        }
        let directory = &self.process.directory;
        let fail = |error: std::io::Error| {
            let directory = directory.display();
            Error::Transient(format!(
                "cannot write HAProxy's configuration to {directory}: {error}"
            ))
        };
        std::fs::write(directory.join(CANDIDATE_FILE), text).map_err(fail)?;
        self.process.check(CANDIDATE_FILE).await?;
        process::replace(&directory.join(CONFIGURATION_FILE), text.as_bytes()).map_err(fail)?;
        text.clone_into(installed);
        Ok(())
    }
}

/// Brings the file to the wanted text, again and again, with growing pauses while that fails.
async fn keep(shared: Arc<Shared>) {
    let mut wanted = shared.wanted.subscribe();
    wanted.mark_changed();
    let mut pause = PAUSE_MIN;
    while wanted.changed().await.is_ok() {
        let outcome = {
            let mut installed = shared.installed.lock().await;
            // Read under the lock: an installation that came in between has the last word.
            let text = wanted.borrow_and_update().clone();
            shared.install(&mut installed, &text).await
        };
        let failure = outcome.err();
        let failed = failure.is_some();
        let before = {
            let mut last = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *last, failure.clone())
        };
        if before != failure {
            shared.changes.notify();
        }
        if failed {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            wanted.mark_changed();
        } else {
            pause = PAUSE_MIN;
        }
    }
}
