//! What all drivers have in common: how they fail, and how they say that something changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Why a driver could not do what it was asked, in the words of the outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may work later; the worker tries again with growing pauses.
    #[error("{0}")]
    Transient(String),
    /// It will never work as asked; the user has to change something.
    #[error("{0}")]
    Permanent(String),
}

impl Error {
    /// Whether trying again is of no use.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Error::Permanent(_))
    }
}

/// Tells workers that something outside changed. It carries no content: workers observe again.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    everything: watch::Sender<u64>,
    /// For whoever looks at one deployment alone: of thousands, only the one that changed is to look again.
    deployments: Mutex<HashMap<String, watch::Sender<u64>>>,
}

impl Changes {
    /// Says that something changed, whatever it concerns.
    pub fn notify(&self) {
        count(&self.shared.everything);
        self.deployments().values().for_each(count);
    }

    /// Says that something of `deployment` changed.
    pub fn notify_of(&self, deployment: &str) {
        count(&self.shared.everything);
        self.deployments().get(deployment).into_iter().for_each(count);
    }

    /// Sees every later change, several at once as one.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.everything.subscribe()
    }

    /// Sees every later change that may concern `deployment`.
    pub fn subscribe_to(&self, deployment: &str) -> watch::Receiver<u64> {
        let mut deployments = self.deployments();
        deployments.retain(|_, sender| !sender.is_closed());
        deployments.entry(deployment.to_owned()).or_default().subscribe()
    }

    fn deployments(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<u64>>> {
        // No change takes two steps that belong together.
        self.shared.deployments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(sender: &watch::Sender<u64>) {
    sender.send_modify(|count| *count += 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_at_one_deployment_sees_what_may_concern_it() {
        let changes = Changes::default();
        let (mut all, mut shop) = (changes.subscribe(), changes.subscribe_to("shop"));
        let seen = |receiver: &mut watch::Receiver<u64>| {
            let news = receiver.has_changed().unwrap();
            receiver.mark_unchanged();
            news
        };
        changes.notify_of("shop");
        assert_eq!((seen(&mut all), seen(&mut shop)), (true, true));
        changes.notify_of("till");
        assert_eq!((seen(&mut all), seen(&mut shop)), (true, false));
        changes.notify();
        assert_eq!((seen(&mut all), seen(&mut shop)), (true, true));
        // Who is gone costs nothing for long.
        drop(shop);
        drop(changes.subscribe_to("till"));
        assert_eq!(changes.deployments().len(), 1);
    }
}
