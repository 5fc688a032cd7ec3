//! `cargo xtask bench`: measures and compares with the limits. Nothing here fails a build; a person reads it.

mod by_hand;
mod deployments;
mod events;
mod http;
mod idle;
mod intake;
mod routes;
mod sight;
mod throughput;
mod traffic;
mod weights;

use crate::api::Api;
use crate::demo::fresh_folder;
use crate::progress::{self, Progress};
use crate::service::{Containers, Service, Settings};
use crate::setup;
use crate::shop::Runtime;
use crate::workspace::{self, Profile, Workspace};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// How long each of the three measurements of the log takes.
const APPEND_SECONDS: &str = "5";

/// Which benches.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// One bench; without a name all of them run.
    #[arg(value_enum)]
    name: Option<Name>,
    /// Write the figures of `traffic` into its reference page.
    #[arg(long)]
    write: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Name {
    /// The log: durable appends per second, against what the disk can do.
    Append,
    /// Ten million events: found, opened, replayed.
    Queries,
    /// Events posted, against a bare handler, `PostgreSQL` and etcd.
    Events,
    /// Until a thousand subscribers have an event.
    Subscribers,
    /// From a change of weights until a client sees it.
    Weights,
    /// Every kind of change under load: failed requests, and when clients see it, against HAProxy by hand.
    Traffic,
    /// Requests per second through a gateway, against HAProxy configured by hand.
    Throughput,
    /// The REST API: reads against a bare actix-web handler, large writes.
    Http,
    /// Memory and processor time with 20 deployments and nothing to do.
    Idle,
    /// Thousands of routes: until they are applied, and the memory that they take.
    Routes,
    /// Thousands of services, simulated: until they are deployed, and what they take when there is nothing to do.
    Deployments,
    /// Processor time that taking in 20,000 requests a second costs.
    Intake,
}

/// A measured value and its limit.
#[derive(Debug)]
struct Measure {
    what: String,
    value: f64,
    unit: &'static str,
    limit: Limit,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// Measures a service that was started for it.
type Measuring = fn(&Bench) -> Result<Vec<Measure>>;

/// What the benches need to know about the service that is measured.
struct Bench<'a> {
    service: &'a Service,
    runtime: &'a Runtime,
    folder: &'a Path,
    progress: &'a Progress,
}

impl Bench<'_> {
    fn api(&self) -> &Api {
        self.service.api()
    }
}

/// Runs the benches one after the other, each with a service of its own.
pub fn run(workspace: &Workspace, options: Options) -> Result<()> {
    let progress = Progress::new()?;
    setup::run(setup::Options { for_bench: true, ..setup::Options::default() })?;
    let wanted = |name: Name| options.name.is_none_or(|wanted| wanted == name);
    if wanted(Name::Append) {
        // On the disk of the workspace: the temporary directory may be memory, where a sync costs nothing.
        let mut bench = workspace.cargo([
            "run",
            "--release",
            "--package",
            "segue-domain",
            "--example",
            "append_bench",
            "--",
        ]);
        workspace::run(bench.arg(workspace.target()).arg(APPEND_SECONDS))?;
    }
    if wanted(Name::Queries) {
        events::in_process(workspace)?;
    }
    if wanted(Name::Events) {
        events::build_bare(workspace)?;
    }
    let benches: [(Name, Containers, Measuring); 9] = [
        (Name::Events, Containers::Process, events::measure),
        (Name::Subscribers, Containers::Process, events::subscribers::measure),
        (Name::Weights, Containers::Process, weights::measure),
        (Name::Throughput, Containers::Process, throughput::measure),
        (Name::Http, Containers::Process, http::measure),
        (Name::Idle, Containers::Process, idle::measure),
        (Name::Intake, Containers::Process, intake::measure),
        (Name::Routes, Containers::Process, routes::measure),
        (Name::Deployments, Containers::Simulated, deployments::measure),
    ];
    let benches: Vec<_> = benches.into_iter().filter(|(name, ..)| wanted(*name)).collect();
    if benches.is_empty() && !wanted(Name::Traffic) {
        return Ok(());
    }
    let program = workspace.build_segue(Profile::Release)?;
    let mut measures = Vec::new();
    for (number, (name, containers, measure)) in (1..).zip(&benches) {
        progress::step(number, &format!("{name:?}"));
        measures.extend(with_service(
            &program,
            *containers,
            &progress,
            |service, runtime, folder| {
                measure(&Bench { service, runtime, folder, progress: &progress })
            },
        )?);
    }
    if wanted(Name::Traffic) {
        let write = options.write.then_some(workspace);
        progress::step(benches.len() + 1, "Traffic");
        measures.extend(with_service(
            &program,
            Containers::Process,
            &progress,
            |service, runtime, folder| traffic::measure(service, runtime, folder, &progress, write),
        )?);
    }
    println!();
    for measure in &measures {
        println!("{}", measure.line());
    }
    Ok(())
}

fn with_service(
    program: &Path,
    containers: Containers,
    progress: &Progress,
    measure: impl FnOnce(&mut Service, &Runtime, &Path) -> Result<Vec<Measure>>,
) -> Result<Vec<Measure>> {
    let folder = fresh_folder(None)?;
    let settings = Settings { program, folder: &folder, containers, docker_socket: None };
    let mut service = Service::start(&settings, progress)?;
    let runtime = Runtime::Process(program.to_owned());
    let measured = measure(&mut service, &runtime, &folder);
    let measured = measured.with_context(|| service.last_words());
    let stopped = service.stop(progress);
    let found = measured?;
    stopped?;
    fs::remove_dir_all(&folder)
        .with_context(|| format!("{} cannot be removed", folder.display()))?;
    Ok(found)
}

impl Measure {
    fn at_most(what: impl Into<String>, value: f64, unit: &'static str, limit: f64) -> Self {
        Self { what: what.into(), value, unit, limit: Limit::AtMost(limit) }
    }

    fn at_least(what: impl Into<String>, value: f64, unit: &'static str, limit: f64) -> Self {
        Self { what: what.into(), value, unit, limit: Limit::AtLeast(limit) }
    }

    fn line(&self) -> String {
        let (words, limit, kept) = match self.limit {
            Limit::AtMost(limit) => ("at most", limit, self.value <= limit),
            Limit::AtLeast(limit) => ("at least", limit, self.value >= limit),
        };
        let verdict = if kept { "PASS" } else { "MISSED" };
        let Self { what, value, unit, .. } = self;
        let ratio =
            if limit == 0.0 { String::new() } else { format!(" (ratio {:.2})", value / limit) };
        format!("{verdict:<6}  {what:<52} {value:>9.2} {unit:<3} {words} {limit} {unit}{ratio}")
    }
}

/// The value below which `share` (0 to 1) of the values lie, by the nearest rank.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ranks = f64::from(u32::try_from(sorted.len()).ok()?);
    // The rank is between 1 and the number of values; counting up to it needs no cast.
    let rank = (share * ranks).ceil().max(1.0);
    (1..)
        .map(f64::from)
        .zip(sorted)
        .find(|(number, _): &(f64, f64)| *number >= rank)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(100.0));
        assert_eq!(quantile(&values, 0.99), Some(198.0));
        assert_eq!(quantile(&values, 1.0), Some(200.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_measure_says_whether_the_limit_was_kept() {
        let line = Measure::at_most("delay", 10.0, "ms", 20.0).line();
        assert!(
            line.starts_with("PASS") && line.ends_with("10.00 ms  at most 20 ms (ratio 0.50)"),
            "{line}"
        );
        assert!(Measure::at_least("ratio", 0.8, "", 0.9).line().starts_with("MISSED"));
    }
}
