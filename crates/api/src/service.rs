//! What all requests share: the configuration, and, once the log is replayed, the store, the workers and the drivers.

use crate::config::Config;
use crate::memo::Memo;
use crate::routes::Frames;
use actix_web::web;
use segue_domain::store::Store;
use segue_workers::Workers;
use segue_workers::containers::ContainerDriver;
use segue_workers::gateways::GatewayDriver;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// One permit for each stream of events or log lines, and for each proxied connection.
    pub streams: Arc<Semaphore>,
    /// One permit for each socket of the WebSocket API.
    pub sockets: Arc<Semaphore>,
    /// The newest events as streams send them.
    pub frames: Arc<Frames>,
    /// Becomes true when the service is about to stop; streams end then.
    pub stopping: watch::Sender<bool>,
    /// Answers that were made from the state as it is.
    pub memo: Memo,
    running: RwLock<Option<Arc<Running>>>,
    under_way: AtomicUsize,
    body_bytes: AtomicUsize,
    requests: AtomicU64,
}

/// A request that is being answered.
pub struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the body of one request takes of `api.bodies_max`.
pub struct BodyBytes {
    service: web::Data<Service>,
    bytes: usize,
}

impl BodyBytes {
    /// Nothing yet.
    pub fn new(service: web::Data<Service>) -> Self {
        Self { service, bytes: 0 }
    }

    /// Takes more, unless all bodies together would be too many.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let others = self.service.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        others + bytes <= self.service.config.settings.api.bodies_max.0
    }
}

impl Drop for BodyBytes {
    fn drop(&mut self) {
        self.service.body_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
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
        let permits = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        let streams = permits(config.settings.api.sse.streams_max);
        let sockets = permits(config.settings.api.websocket.sockets_max);
        Self {
            config,
            uuid: Uuid::new_v4(),
            running_since: OffsetDateTime::now_utc(),
            streams,
            frames: Arc::default(),
            sockets,
            stopping: watch::Sender::new(false),
            memo: Memo::default(),
            running: RwLock::default(),
            under_way: AtomicUsize::new(0),
            body_bytes: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
        }
    }

    /// Counts one more request under way, unless there are `max` already.
    pub fn enter(&self, max: usize) -> Option<UnderWay<'_>> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(&self.under_way);
        (others < max).then_some(under_way)
    }

    /// Names the next request: unique over restarts, and cheaper than a fresh identifier.
    pub fn request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let (start, _, _, _) = self.uuid.as_fields();
        format!("{start:08x}-{:x}-{number:x}", self.running_since.unix_timestamp())
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
