//! Whether containers accept connections, and what Docker tells about them.

use super::Shared;
use crate::containers::probe::{self, Answer};
use futures::StreamExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// How long a connection through Docker's proxy has to last: the proxy accepts it before it knows whether the
/// container does, and closes it when not.
const HOLD: Duration = Duration::from_millis(200);
const PROBE_PERIOD: Duration = Duration::from_millis(50);
const PROBE_PERIOD_SLOW: Duration = Duration::from_millis(500);
const SLOW_AFTER: Duration = Duration::from_mins(1);
const RECONNECT_FIRST: Duration = Duration::from_millis(500);
const RECONNECT_LONGEST: Duration = Duration::from_secs(5);

/// The two ways to one port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// On the container's own network.
    pub(super) own: Option<(String, u16)>,
    /// On the host.
    pub(super) published: Option<(String, u16)>,
}

impl Address {
    async fn is_ready(&self) -> bool {
        if let Some((host, port)) = &self.own {
            match probe::connect(host, *port, CONNECT_LIMIT).await {
                Answer::Accepted => return true,
                Answer::Refused => return false,
                // The network of the container is not reached from here.
                Answer::Unreachable => {}
            }
        }
        match &self.published {
            Some((host, port)) => {
                probe::connect_and_hold(host, *port, CONNECT_LIMIT, HOLD).await == Answer::Accepted
            }
            None => false,
        }
    }
}

/// Which containers are known to accept connections, and which are being asked.
#[derive(Default)]
pub(super) struct Readiness {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By container, under which addresses: one that is started again has others.
    ready: HashMap<String, Vec<Address>>,
    asked: HashMap<String, Vec<Address>>,
}

impl Readiness {
    pub(super) fn is_ready(&self, id: &str, addresses: &[Address]) -> bool {
        self.known().ready.get(id).is_some_and(|known| known == addresses)
    }

    pub(super) fn set_ready(&self, id: &str, addresses: Vec<Address>) {
        let mut known = self.known();
        known.asked.remove(id);
        known.ready.insert(id.to_owned(), addresses);
    }

    /// Whether somebody has to begin asking there; from then on nobody else has.
    pub(super) fn begin(&self, id: &str, addresses: &[Address]) -> bool {
        let mut known = self.known();
        let is_known = |list: &HashMap<String, Vec<Address>>| {
            list.get(id).is_some_and(|known| known == addresses)
        };
        if is_known(&known.ready) || is_known(&known.asked) {
            return false;
        }
        known.asked.insert(id.to_owned(), addresses.to_vec());
        true
    }

    /// A container ended: what was known of it says nothing about its next life.
    pub(super) fn forget(&self, id: &str) {
        let mut known = self.known();
        known.asked.remove(id);
        known.ready.remove(id);
    }

    fn forget_all(&self) {
        *self.known() = Known::default();
    }

    fn is_asked(&self, id: &str, addresses: &[Address]) -> bool {
        self.known().asked.get(id).is_some_and(|asked| asked == addresses)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("no holder of the lock panics")
    }
}

/// Whether all of `addresses` accept connections now.
pub(super) async fn all_ready_now(addresses: &[Address]) -> bool {
    for address in addresses {
        if !address.is_ready().await {
            return false;
        }
    }
    true
}

/// Asks until a container accepts connections on all of its ports, or has ended.
pub(super) async fn wait_until_ready(
    shared: Arc<Shared>,
    deployment: String,
    id: String,
    addresses: Vec<Address>,
) {
    let since = Instant::now();
    while shared.readiness.is_asked(&id, &addresses) {
        if all_ready_now(&addresses).await {
            shared.readiness.set_ready(&id, addresses);
            shared.changes.notify_of(&deployment);
            return;
        }
        let slow = since.elapsed() > SLOW_AFTER;
        sleep(if slow { PROBE_PERIOD_SLOW } else { PROBE_PERIOD }).await;
    }
}

/// Follows what happens to the containers of this installation, for as long as the driver lives.
pub(super) async fn follow_events(shared: Arc<Shared>) {
    let mut filters = shared.labels.of_all();
    filters.extend(HashMap::from([
        ("type".to_owned(), vec!["container".to_owned()]),
        (
            "event".to_owned(),
            ["start", "die", "destroy", "pause", "unpause"].map(str::to_owned).to_vec(),
        ),
    ]));
    let mut pause = RECONNECT_FIRST;
    loop {
        match shared.daemon.events(filters.clone()).await {
            Ok(events) => {
                let mut events = std::pin::pin!(events);
                while let Some(Ok(event)) = events.next().await {
                    pause = RECONNECT_FIRST;
                    let Some(actor) = event.actor else { continue };
                    if matches!(event.action.as_deref(), Some("die" | "destroy")) {
                        shared.readiness.forget(actor.id.as_deref().unwrap_or_default());
                    }
                    match shared.labels.deployment_of(&actor) {
                        Some(deployment) => shared.changes.notify_of(deployment),
                        None => shared.changes.notify(),
                    }
                }
                tracing::debug!("the connection to the Docker daemon's events ended");
            }
            Err(error) => tracing::debug!(%error, "the Docker daemon's events cannot be followed"),
        }
        // What happened in the meantime was not seen.
        shared.readiness.forget_all();
        shared.changes.notify();
        sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_LONGEST);
    }
}
