//! What all requests share: the configuration, and, once the log is replayed, the store, the workers and the drivers.

use crate::config::Config;
use segue_domain::store::Store;
use segue_workers::Workers;
use segue_workers::containers::ContainerDriver;
use segue_workers::gateways::GatewayDriver;
use std::sync::{Arc, PoisonError, RwLock};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

/// What all requests share.
pub struct Service {
    /// The configuration.
    pub config: Config,
    /// New at every start.
    pub uuid: Uuid,
    /// When it started.
    pub running_since: OffsetDateTime,
    /// One permit for each event stream.
    pub streams: Arc<Semaphore>,
    /// Becomes true when the service is about to stop; streams end then.
    pub stopping: watch::Sender<bool>,
    running: RwLock<Option<Arc<Running>>>,
}

/// What is there once the log is replayed.
pub struct Running {
    /// Log and state.
    pub store: Store,
    /// The workers.
    pub workers: Workers,
    /// The doors to what runs, the first that supports a deployable runs it.
    pub containers: Vec<Arc<dyn ContainerDriver>>,
    /// The door to traffic.
    pub gateways: Arc<dyn GatewayDriver>,
    /// The label of the generated configuration.
    pub configuration_version: String,
    /// What is done for the log beside all that; ends when it is dropped.
    pub upkeep: JoinSet<()>,
}

impl Service {
    /// A service that is not ready yet.
    pub fn new(config: Config) -> Self {
        let streams = Arc::new(Semaphore::new(
            config.settings.api.sse.streams_max.min(Semaphore::MAX_PERMITS),
        ));
        Self {
            config,
            uuid: Uuid::new_v4(),
            running_since: OffsetDateTime::now_utc(),
            streams,
            stopping: watch::Sender::new(false),
            running: RwLock::default(),
        }
    }

    /// Says that the log is replayed.
    pub fn start(&self, running: Running) {
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(running));
    }

    /// What is there between the replay of the log and the stop.
    pub fn running(&self) -> Option<Arc<Running>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes everything away that runs, to stop it. Requests under way may still hold it.
    pub fn take(&self) -> Option<Arc<Running>> {
        self.running.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}
