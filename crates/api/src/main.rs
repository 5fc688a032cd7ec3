//! The `segue` binary: reads the command line and hands over to the library.

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use segue_api::config::{Config, Setting, Settings};
use segue_api::{Serving, example_service, limits, logs, serve, tools};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Records are made by one thread and freed by another, which the allocator of the C library does under a lock.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long what blocks a thread may go on once the service has stopped.
const BLOCKING_STOP: Duration = Duration::from_secs(2);

/// Deploys services from blueprints, routes their traffic, and records every action.
#[derive(Parser)]
#[command(name = "segue", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service.
    Serve(Serve),
    /// Fold the log and print its last position and the hash of the state.
    Replay {
        #[command(flatten)]
        place: Place,
        /// Check every byte, fold it in several ways, and fail when anything does not fit.
        #[arg(long)]
        verify: bool,
    },
    /// Bring the log to this release's format.
    Migrate(Place),
    /// Copy the log to another directory, also while the service runs.
    Backup {
        #[command(flatten)]
        place: Place,
        /// Where to; it must not exist or be empty.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Make the log of a data directory that has none of a backup, and check all of it.
    Restore {
        #[command(flatten)]
        place: Place,
        /// The backup.
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
    },
    /// End what a stopped service left running on purpose: its HAProxy and its process instances.
    Down(Place),
    /// Run a tiny service to deploy in demos and tests.
    ExampleService(example_service::Options),
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    place: Place,
    /// Address and port to listen on [default: 127.0.0.1:8080]; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// What runs instances.
    #[arg(long)]
    containers: Option<Containers>,
    /// What routes traffic [default: haproxy when it is found].
    #[arg(long)]
    gateways: Option<Gateways>,
}

#[derive(Args)]
struct Place {
    /// Directory of the log [default: ./segue-data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Configuration in YAML; the environment and flags win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Containers {
    Process,
    Docker,
    Simulated,
}

#[derive(Clone, Copy, ValueEnum)]
enum Gateways {
    Haproxy,
    Simulated,
}

fn main() -> ExitCode {
    match execute(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            fail(&error);
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::Serve(serve) => {
            let config = serve.config()?;
            logs::start(&config.settings.log).map_err(anyhow::Error::msg)?;
            limits::raise_open_files();
            let runtime = runtime()?;
            let outcome = runtime.block_on(run(config));
            // A backup under way is not waited for: there is none until it is whole.
            runtime.shutdown_timeout(BLOCKING_STOP);
            outcome
        }
        Command::Replay { place, verify } => {
            print(&tools::fold(&place.settings()?, verify)?);
            Ok(())
        }
        Command::Migrate(place) => {
            print(&tools::migrate(&place.settings()?)?);
            Ok(())
        }
        Command::Backup { place, to } => {
            let settings = place.settings()?;
            print(&runtime()?.block_on(tools::backup(&settings, &to))?);
            Ok(())
        }
        Command::Restore { place, from } => {
            print(&tools::restore(&place.settings()?, &from)?);
            Ok(())
        }
        Command::Down(place) => {
            let settings = place.settings()?;
            // Each instance that is found is held by a descriptor.
            limits::raise_open_files();
            print(&runtime()?.block_on(tools::down(&settings))?);
            Ok(())
        }
        Command::ExampleService(options) => example_service::run(&options),
    }
}

impl Serve {
    fn config(self) -> Result<Config> {
        let mut flags = Vec::new();
        if let Some(listen) = self.listen {
            flags.push(Setting::flag("api.interface", json!(listen.ip())));
            flags.push(Setting::flag("api.port", json!(listen.port())));
        }
        let name = |value: &dyn ValueName| json!(value.name());
        flags.extend(
            self.containers.map(|value| Setting::flag("container_driver.type", name(&value))),
        );
        flags.extend(self.gateways.map(|value| Setting::flag("gateway_driver.type", name(&value))));
        self.place.config(flags)
    }
}

impl Place {
    fn settings(self) -> Result<Settings> {
        Ok(self.config(Vec::new())?.settings)
    }

    fn config(self, mut flags: Vec<Setting>) -> Result<Config> {
        flags.extend(self.data.map(|data| Setting::flag("data", json!(data))));
        Ok(Config::load(self.config.as_deref(), std::env::vars(), flags)?)
    }
}

/// The name of a choice, as configuration spells it.
trait ValueName {
    fn name(&self) -> String;
}

impl<T: ValueEnum> ValueName for T {
    fn name(&self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Runs the service until it is asked to end.
async fn run(config: Config) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be listened to")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be listened to")?;
    let mut serving: Serving = serve(config)?;
    let started = tokio::select! {
        started = serving.ready() => started,
        _ = terminate.recv() => return Ok(serving.stop().await?),
        _ = interrupt.recv() => return Ok(serving.stop().await?),
    };
    if let Err(error) = started {
        // What made the start fail says more than what the stop might.
        let _ = serving.stop().await;
        return Err(error.into());
    }
    tracing::info!("ready");
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping, what runs goes on"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping, what runs goes on"),
    }
    Ok(serving.stop().await?)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("the runtime cannot start")
}

#[expect(clippy::print_stdout, reason = "the answer of a tool belongs on standard output")]
fn print(line: &str) {
    println!("{line}");
}

/// One sentence; where in the program it comes from helps nobody who runs it.
#[expect(clippy::print_stderr, reason = "there may be no log yet to write to")]
fn fail(error: &anyhow::Error) {
    eprintln!("segue: {error:#}");
}
