//! Instances that wait for their images. A pull may take minutes and goes on beside everything else, so that neither
//! other services of the deployment wait for it nor its removal does.

use super::{Outcome, Shared, Underway, create_and_start};
use crate::containers::{Condition, InstanceSpec, ObservedInstance};
use crate::driver::Error;
use indexmap::IndexMap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use time::OffsetDateTime;
use tokio::task::AbortHandle;

/// The instances of which there is no container yet. They are known to this process only: after its end they are
/// planned anew.
#[derive(Default)]
pub(super) struct Waiting {
    by_name: Mutex<HashMap<String, Wait>>,
}

struct Wait {
    observed: Arc<ObservedInstance>,
    pull: Option<AbortHandle>,
}

impl Waiting {
    /// What waits of `deployment`.
    pub(super) fn of(&self, deployment: &str) -> Vec<Arc<ObservedInstance>> {
        let waiting = self.waiting();
        let observed = waiting.values().map(|wait| &wait.observed);
        observed.filter(|observed| observed.owner.deployment == deployment).cloned().collect()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.waiting().contains_key(name)
    }

    pub(super) fn begin(&self, spec: &InstanceSpec, host: &str) {
        let observed = Arc::new(ObservedInstance {
            name: spec.name.clone(),
            owner: spec.owner.clone(),
            fingerprint: spec.fingerprint.clone(),
            host: host.to_owned(),
            ports: IndexMap::new(),
            created: OffsetDateTime::now_utc(),
            condition: Condition::Starting("waits for its image".to_owned()),
        });
        self.waiting().insert(spec.name.clone(), Wait { observed, pull: None });
    }

    /// By which the pull for an instance is given up.
    pub(super) fn pulled_by(&self, name: &str, pull: AbortHandle) {
        if let Some(wait) = self.waiting().get_mut(name) {
            wait.pull = Some(pull);
        }
    }

    /// Nobody waits for this instance any more; its pull is given up. Says whether there was one.
    pub(super) fn end(&self, deployment: &str, name: &str) -> bool {
        let mut waiting = self.waiting();
        let found = waiting.get(name);
        if found.is_none_or(|wait| wait.observed.owner.deployment != deployment) {
            return false;
        }
        let wait = waiting.remove(name);
        if let Some(pull) = wait.and_then(|wait| wait.pull) {
            pull.abort();
        }
        true
    }

    /// Its container is seen from now on.
    fn started(&self, name: &str) {
        self.waiting().remove(name);
    }

    fn tell(&self, name: &str, condition: Condition) {
        if let Some(wait) = self.waiting().get_mut(name) {
            Arc::make_mut(&mut wait.observed).condition = condition;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Wait>> {
        self.by_name.lock().expect("no holder of the lock panics")
    }
}

/// Pulls the image of an instance that waits, and starts it.
pub(super) async fn pull_and_start(shared: Arc<Shared>, spec: InstanceSpec, underway: Underway) {
    let name = &spec.name;
    let image = spec.deployable.definition.trim();
    let progress = |words: String| {
        shared.waiting.tell(name, Condition::Starting(words));
    };
    let started = async {
        shared.daemon.pull(image, &shared.settings, progress).await?;
        match create_and_start(&shared, &spec).await? {
            Outcome::Started => Ok(()),
            Outcome::NoImage => {
                Err(Error::Transient(format!("the image '{image}' vanished after it was pulled")))
            }
        }
    };
    let outcome = started.await;
    drop(underway);
    match outcome {
        Ok(()) => shared.waiting.started(name),
        Err(Error::Transient(words)) => shared.waiting.tell(name, Condition::Exited(words)),
        Err(Error::Permanent(words)) => shared.waiting.tell(name, Condition::Refused(words)),
    }
    shared.changes.notify_of(&spec.owner.deployment);
}
