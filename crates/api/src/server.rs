//! Starts and stops the service: the HTTP server at once, store, drivers and workers once the log is replayed.

use crate::admin;
use crate::config::Config;
use crate::drivers::{self, DriverError};
use crate::front;
use crate::inside::Inside;
use crate::routes;
use crate::service::{Running, Service};
use crate::upkeep;
use actix_web::middleware::{Compress, from_fn};
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpServer, web};
use segue_domain::command::Rules;
use segue_domain::store::{OpenStoreError, Store};
use segue_workers::Workers;
use std::any::Any;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};

/// How long requests under way may take once the service stops, in seconds.
const DRAIN_SECONDS: u64 = 5;
/// How long the workers may take to stop after that.
const WORKERS_STOP: Duration = Duration::from_secs(3);

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason}; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        reason: io::Error,
    },
    /// The HTTP server failed.
    #[error("the HTTP server failed: {0}")]
    Http(io::Error),
    /// The log cannot be opened or read.
    #[error(transparent)]
    Store(#[from] OpenStoreError),
    /// A driver cannot be opened.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A part of the program failed in a way that nobody foresaw.
    #[error("the service failed unexpectedly: {0}")]
    Unexpected(String),
}

/// A service that listens.
pub struct Serving {
    address: SocketAddr,
    service: web::Data<Service>,
    server: actix_web::dev::ServerHandle,
    http: JoinHandle<io::Result<()>>,
    starting: Option<JoinHandle<Result<(), ServeError>>>,
}

/// Listens at once; the log is replayed meanwhile, see [`Serving::ready`]. Has to be called inside a Tokio runtime.
pub fn serve(config: Config) -> Result<Serving, ServeError> {
    let api = &config.settings.api;
    let wished = SocketAddr::new(api.interface, api.port);
    let listening = |reason| ServeError::Listen { address: wished, reason };
    let listener = TcpListener::bind(wished).map_err(listening)?;
    let address = listener.local_addr().map_err(listening)?;
    let threads = api.workers.get();
    let write_timeout = api.sse.write_timeout.0;
    let service = web::Data::new(Service::new(config));
    let data = service.clone();
    let http = HttpServer::new(move || {
        App::new()
            .app_data(data.clone())
            .app_data(Inside::new(data.clone()))
            .wrap(Compress::default())
            .wrap(from_fn(front::pass))
            .configure(routes::configure)
    });
    let http = http
        .workers(threads)
        // An event of a stream must not wait until the client has acknowledged the one before it.
        .tcp_nodelay(true)
        // Else a stream on which nothing comes would not notice that its client left.
        .h1_allow_half_closed(false)
        .disable_signals()
        .shutdown_timeout(DRAIN_SECONDS)
        .on_connect(move |connection, _| limit_blocked_writes(connection, write_timeout))
        .listen(listener)
        .map_err(ServeError::Http)?
        .run();
    let server = http.handle();
    let starting = tokio::spawn(start(service.clone()));
    tracing::info!("listening on http://{address}");
    Ok(Serving { address, service, server, http: tokio::spawn(http), starting: Some(starting) })
}

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the log is replayed and everything runs, or says why that will not happen.
    pub async fn ready(&mut self) -> Result<(), ServeError> {
        let Some(starting) = &mut self.starting else { return Ok(()) };
        // Who gives up waiting leaves it to `stop` to end it.
        let started = starting.await;
        self.starting = None;
        started.map_err(|error| ServeError::Unexpected(error.to_string()))?
    }

    /// Finishes requests under way and stops everything but what runs outside: gateways and instances go on.
    pub async fn stop(mut self) -> Result<(), ServeError> {
        self.service.stopping.send_replace(true);
        self.server.stop(true).await;
        let stopped = self.http.await.map_err(|error| ServeError::Unexpected(error.to_string()))?;
        if let Some(starting) = self.starting.take() {
            starting.abort();
            // What it started is stopped below, when it came that far.
            let _ = starting.await;
        }
        // The server is gone and its requests with it, so that nobody else holds what runs.
        if let Some(running) = self.service.take().and_then(Arc::into_inner) {
            let Running { workers, mut upkeep, .. } = running;
            upkeep.shutdown().await;
            if tokio::time::timeout(WORKERS_STOP, workers.stop()).await.is_err() {
                tracing::warn!("the workers did not stop within {} s", WORKERS_STOP.as_secs());
            }
        }
        stopped.map_err(ServeError::Http)
    }
}

/// Replays the log, opens the drivers and starts the workers.
async fn start(service: web::Data<Service>) -> Result<(), ServeError> {
    let settings = &service.config.settings;
    let configuration = service.config.values();
    let rules = Rules { configuration: configuration.clone(), ..settings.rules() };
    let directory = settings.log_directory();
    let began = std::time::Instant::now();
    let store = tokio::task::spawn_blocking(move || Store::open(&directory, rules)).await;
    let store = store.map_err(|error| ServeError::Unexpected(error.to_string()))??;
    let (position, milliseconds) = (store.log().last(), began.elapsed().as_millis());
    tracing::info!("opened the log up to position {position} in {milliseconds} ms");
    let mut upkeep = JoinSet::new();
    upkeep.spawn(admin::serve(settings.data.clone(), store.clone()));
    upkeep.spawn(upkeep::run(store.clone(), settings.log.retention.clone()));
    let containers = drivers::containers(settings)?;
    let (gateways, version) = drivers::gateways(settings).await?;
    let synchronisation = &settings.operation.synchronisation;
    let workers = Workers::start(
        store.clone(),
        containers.clone(),
        gateways.clone(),
        segue_workers::Settings {
            period: synchronisation.period.0,
            sla_period: settings.operation.sla.period.0,
            windows: segue_workers::health::Windows {
                health: settings.operation.health.measured(),
                metrics: settings.operation.metrics.measured(),
            },
            escalation_period: settings.operation.escalation.period.0,
            initial_delay: synchronisation.initial_delay.0,
            ready_for_deployment: synchronisation.timeout.ready_for_deployment.unless_zero(),
            ready_for_undeployment: synchronisation.timeout.ready_for_undeployment.unless_zero(),
            drain: settings.operation.drain.0,
            network: settings.container_driver.network.clone(),
            configuration,
            configuration_name: ("haproxy".to_owned(), version.clone()),
        },
    );
    let configuration_version = version;
    let running = Running { store, workers, containers, gateways, configuration_version, upkeep };
    service.start(running);
    Ok(())
}

/// The operating system closes a connection that takes nothing for so long.
fn limit_blocked_writes(connection: &dyn Any, limit: Duration) {
    let Some(stream) = connection.downcast_ref::<TcpStream>() else { return };
    let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, milliseconds) {
        tracing::debug!("a connection has no limit for blocked writes: {error}");
    }
}
