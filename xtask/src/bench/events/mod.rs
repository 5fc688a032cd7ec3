//! Events: how fast they are found, posted and streamed, next to a bare handler, `PostgreSQL` and etcd in the same run.
//!
//! Queries are measured inside of a process by an example of the domain, and `PostgreSQL` with the same events by pgbench on
//! its own socket; both without HTTP.

mod etcd;
mod postgres;
pub(super) mod subscribers;

use super::{Bench, Measure, throughput};
use crate::progress;
use crate::service;
use crate::shop::Runtime;
use crate::workspace::{self, Workspace};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How many events the queries are asked of.
const EVENTS: &str = "10000000";
const QUERIES: &str = "2000";
const CONNECTIONS: u32 = 64;
const SECONDS: u32 = 10;
/// How long a peer may take to come up and to go.
pub(super) const PEER_TIME_MAX: Duration = Duration::from_mins(1);
const BARE_RATIO_MIN: f64 = 0.6;
const POSTGRES_RATIO_MIN: f64 = 2.5;
const ETCD_RATIO_MIN: f64 = 5.0;
const EVENT: &str = r#"{"tags":["gateways:front","metrics:rate"],"type":"metrics","value":12.5}"#;

/// A program that is measured beside the service.
#[derive(Debug)]
pub(super) struct Peer {
    name: &'static str,
    child: Child,
}

/// Fills a log, asks it, and prints what that took.
pub fn in_process(workspace: &Workspace) -> Result<()> {
    let mut bench = workspace.cargo([
        "run",
        "--release",
        "--package",
        "segue-domain",
        "--example",
        "query_bench",
        "--",
    ]);
    workspace::run(bench.arg(workspace.target()).args([EVENTS, QUERIES]))
}

/// Builds the bare handler.
pub fn build_bare(workspace: &Workspace) -> Result<()> {
    let bare = ["build", "--release", "--package", "segue-api", "--example", "bare_events"];
    workspace::run(&mut workspace.cargo(bare))
}

/// Measures the service and its peers one after the other.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let script = script(bench.folder, "post.lua", EVENT)?;
    let url = format!("{}/api/v1/events", bench.api().base());
    let ours = throughput::wrk_with(&url, CONNECTIONS, SECONDS, Some(&script))?;
    progress::say(&format!("segue: {ours:.0} events/s, each durable before it is answered"));
    let bare = bare(bench, &script)?;
    progress::say(&format!("a bare handler: {bare:.0} answers/s"));
    let mut measures = vec![Measure::at_least(
        "POST /events against a bare handler",
        ours / bare,
        "",
        BARE_RATIO_MIN,
    )];
    let (inserted, queried) = postgres::measure(bench)?;
    progress::say(&format!("PostgreSQL: {inserted:.0} inserts/s, {queried:.1} queries/s"));
    measures.push(Measure::at_least(
        "POST /events against PostgreSQL",
        ours / inserted,
        "",
        POSTGRES_RATIO_MIN,
    ));
    let put = etcd::measure(bench)?;
    progress::say(&format!("etcd: {put:.0} puts/s"));
    measures.push(Measure::at_least("POST /events against etcd", ours / put, "", ETCD_RATIO_MIN));
    Ok(measures)
}

fn bare(bench: &Bench, script: &Path) -> Result<f64> {
    let address = format!("127.0.0.1:{}", service::free_port()?);
    let Runtime::Process(program) = bench.runtime else {
        bail!("benches run processes");
    };
    let folder = program.parent().context("a program lies in a folder")?;
    let mut command = Command::new(folder.join("examples/bare_events"));
    command.arg(&address);
    let peer = Peer::start("the bare handler", &mut command, bench.folder)?;
    let measured =
        peer.wait(bench, || std::net::TcpStream::connect(&address).is_ok()).and_then(|()| {
            let url = format!("http://{address}/api/v1/events");
            throughput::wrk_with(&url, CONNECTIONS, SECONDS, Some(script))
        });
    peer.stop(bench, Signal::KILL)?;
    measured
}

/// A script that makes wrk post `body` each time.
pub(super) fn script(folder: &Path, name: &str, body: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    let text = format!(
        "wrk.method = \"POST\"\nwrk.body = [=[{body}]=]\nwrk.headers[\"Content-Type\"] = \"application/json\"\n"
    );
    fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

impl Peer {
    /// Starts `command`; its words go to a file in `folder`.
    pub fn start(name: &'static str, command: &mut Command, folder: &Path) -> Result<Self> {
        let words = folder.join(format!("{}.log", name.replace(' ', "-")));
        let output = fs::File::create(&words)
            .with_context(|| format!("{} cannot be written", words.display()))?;
        let errors = output.try_clone().context("a file cannot be opened twice")?;
        progress::say(&workspace::shown(command));
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        Ok(Self { name, child: child.with_context(|| format!("{name} cannot be started"))? })
    }

    /// Waits until it answers.
    pub fn wait(&self, bench: &Bench, is_ready: impl Fn() -> bool) -> Result<()> {
        let what = format!("{} answers", self.name);
        bench.progress.wait(&what, PEER_TIME_MAX, || {
            Ok(if is_ready() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue("not yet".into())
            })
        })
    }

    /// Ends it.
    pub fn stop(mut self, bench: &Bench, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("{} cannot be signalled", self.name))?;
        let what = format!("{} ends", self.name);
        bench.progress.for_cleanup().wait_quietly(&what, PEER_TIME_MAX, || {
            let ended = self.child.try_wait()?;
            Ok(ended.map_or(ControlFlow::Continue("it runs".into()), |_| ControlFlow::Break(())))
        })
    }
}
