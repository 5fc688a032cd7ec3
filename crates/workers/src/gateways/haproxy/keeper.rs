//! Keeps the configuration file in step with what HAProxy serves.
//!
//! A change that the runtime socket takes is served at once; the file, which a restart of HAProxy needs, follows: it
//! is checked by `haproxy -c` and replaced in the background, several changes as one. A change that takes a reload
//! waits for its files. Map files, which the configuration names, are written along with it.

use super::process::{self, CONFIGURATION_FILE, Failure, Process};
use super::slots;
use crate::driver::{Changes, Error};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// The file that is checked before it replaces the one in use.
const CANDIDATE_FILE: &str = "haproxy.cfg.candidate";
/// The file that is only checked.
const TRIED_FILE: &str = "haproxy.cfg.tried";
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What HAProxy reads when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// The configuration.
    pub(super) text: String,
    /// Map files by their paths in HAProxy's directory.
    pub(super) maps: BTreeMap<String, String>,
}

/// The files, and the task that brings them up to date.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    task: StdMutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    process: Arc<Process>,
    /// What is to be there.
    wanted: watch::Sender<Files>,
    /// What is there.
    installed: Mutex<Files>,
    /// Why what is wanted is not there.
    failure: StdMutex<Option<Error>>,
    changes: Changes,
}

impl Keeper {
    /// A keeper of the file of `process`. Failures are told through `changes`, once each.
    pub(super) fn new(process: Arc<Process>, changes: Changes) -> Self {
        let installed = Files::read(&process.directory);
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
        self.shared.wanted.borrow().text.clone()
    }

    /// The files as they are served.
    pub(super) fn files(&self) -> Files {
        self.shared.wanted.borrow().clone()
    }

    /// Lets what is there follow to `files`. That it could not follow so far is an error.
    pub(super) fn follow(&self, files: &Files) -> Result<(), Error> {
        self.shared.wanted.send_if_modified(|wanted| {
            let new = wanted != files;
            if new {
                files.clone_into(wanted);
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

    /// Replaces what is there by `files` now, once HAProxy accepts them.
    pub(super) async fn install(&self, files: &Files) -> Result<(), Failure> {
        let mut installed = self.shared.installed.lock().await;
        self.shared.install(&mut installed, files).await?;
        self.shared.wanted.send_replace(files.clone());
        Ok(())
    }

    /// What HAProxy says against `files`, which are only tried; `None` when it accepts them.
    pub(super) async fn refusal(
        &self,
        files: &Files,
        limit: Duration,
    ) -> Result<Option<String>, Error> {
        let mut installed = self.shared.installed.lock().await;
        self.shared.provide(&mut installed, files)?;
        let path = self.shared.process.directory.join(TRIED_FILE);
        std::fs::write(path, &files.text).map_err(|error| self.shared.unwritten(&error))?;
        self.shared.process.refusal_within(TRIED_FILE, limit).await
    }

    /// Waits until the files are those that are served, for at most `limit`.
    #[cfg(test)]
    pub(super) async fn kept(&self, limit: Duration) -> bool {
        let end = tokio::time::Instant::now() + limit;
        while *self.shared.installed.lock().await != self.files() {
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

impl Files {
    /// What is in `directory`. Without a file there is nothing to keep yet.
    fn read(directory: &Path) -> Self {
        let text = std::fs::read_to_string(directory.join(CONFIGURATION_FILE)).unwrap_or_default();
        let maps = std::fs::read_dir(directory.join(slots::FOLDER)).into_iter().flatten().flatten();
        let maps = maps.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let content = std::fs::read_to_string(entry.path()).ok()?;
            Some((format!("{}/{name}", slots::FOLDER), content))
        });
        Self { text, maps: maps.collect() }
    }
}

impl Shared {
    async fn install(&self, installed: &mut Files, files: &Files) -> Result<(), Failure> {
        if installed == files {
            return Ok(());
        }
        self.provide(installed, files)?;
        let directory = &self.process.directory;
        let fail = |error: std::io::Error| self.unwritten(&error);
        if installed.text != files.text {
            std::fs::write(directory.join(CANDIDATE_FILE), &files.text).map_err(fail)?;
            self.process.check(CANDIDATE_FILE).await?;
        }
        for (file, map) in &files.maps {
            if installed.maps.get(file) != Some(map) {
                self.write_map(installed, file, map)?;
            }
        }
        let configuration = directory.join(CONFIGURATION_FILE);
        process::replace(&configuration, files.text.as_bytes()).map_err(fail)?;
        files.text.clone_into(&mut installed.text);
        for file in installed.maps.keys().filter(|file| !files.maps.contains_key(*file)) {
            // One that stays is in nobody's way.
            std::fs::remove_file(directory.join(file)).ok();
        }
        files.clone_into(installed);
        Ok(())
    }
}

impl Shared {
    /// Writes the maps that `files` name and that are not there. Those of the configuration in use stay as they are: HAProxy
    /// may start with it at any time.
    fn provide(&self, installed: &mut Files, files: &Files) -> Result<(), Error> {
        std::fs::create_dir_all(self.process.directory.join(slots::FOLDER))
            .map_err(|error| self.unwritten(&error))?;
        for (file, map) in &files.maps {
            if !installed.maps.contains_key(file) {
                self.write_map(installed, file, map)?;
            }
        }
        Ok(())
    }

    fn write_map(&self, installed: &mut Files, file: &str, map: &str) -> Result<(), Error> {
        let directory = &self.process.directory;
        // Whole but not synced: what a crash of the machine spoils is noticed when the files are read again, and
        // HAProxy does not outlive such a crash.
        let (path, new) = (directory.join(file), directory.join(format!("{file}.new")));
        std::fs::write(&new, map)
            .and_then(|()| std::fs::rename(&new, path))
            .map_err(|error| self.unwritten(&error))?;
        installed.maps.insert(file.to_owned(), map.to_owned());
        Ok(())
    }

    fn unwritten(&self, error: &std::io::Error) -> Error {
        let directory = self.process.directory.display();
        Error::Transient(format!("cannot write HAProxy's configuration to {directory}: {error}"))
    }
}

/// Brings the files to the wanted ones, again and again, with growing pauses while that fails.
async fn keep(shared: Arc<Shared>) {
    let mut wanted = shared.wanted.subscribe();
    wanted.mark_changed();
    let mut pause = PAUSE_MIN;
    while wanted.changed().await.is_ok() {
        let outcome = {
            let mut installed = shared.installed.lock().await;
            // Read under the lock: an installation that came in between has the last word.
            let files = wanted.borrow_and_update().clone();
            shared.install(&mut installed, &files).await
        };
        let failure = outcome.err().map(Failure::error);
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
