//! Requests per second through a gateway, against HAProxy with a file written by hand and the same servers.
//!
//! Both are measured in turn, several times, so that a machine that gets slower or faster meanwhile hurts both alike.

use super::by_hand::{ByHand, HAPROXY_TIME_MAX, Server, Setup};
use super::{Bench, Measure, quantile};
use crate::progress;
use crate::service;
use crate::shop::{self, INTERNAL_GATEWAY};
use crate::{load, setup};
use anyhow::{Context as _, Result, bail};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROUNDS: usize = 11;
const ROUND_SECONDS: u32 = 3;
const CONNECTIONS: u32 = 32;
const INSTANCES: u32 = 2;
const RATIO_MIN: f64 = 0.95;

/// How often and how long both are measured.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    pub(super) count: usize,
    pub(super) seconds: u32,
    /// What wrk sends; by default the same request again and again.
    pub(super) scripts: Option<[PathBuf; 2]>,
}

/// Measures both in turn and compares them round by round.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let (api, progress) = (bench.api(), bench.progress);
    let one = shop::blueprint("shop", bench.runtime, &[1], INSTANCES)?;
    api.send("PUT", "/api/v1/deployments/shop", &one, 202)?;
    shop::wait_done(api, progress, "shop", &[1], INSTANCES as usize)?;
    let segue = url(shop::wait_gateway(api, progress, INTERNAL_GATEWAY)?);
    let servers = shop::addresses(api, "shop")?.into_iter().map(Server::at).collect();
    let silent = Setup { port: service::free_port()?, servers, ..Setup::default() };
    let logging = Setup { port: service::free_port()?, log: true, ..silent.clone() };
    let ratio = |setup: &Setup| {
        let rounds = Rounds { count: ROUNDS, seconds: ROUND_SECONDS, scripts: None };
        against_hand(bench, &segue, setup, |_| Ok(rounds))
    };
    let against_silent = ratio(&silent)?;
    progress::say(&format!("against a file without a log: {against_silent:.2}"));
    let what = format!("gateway throughput against HAProxy by hand, {ROUNDS} rounds");
    Ok(vec![Measure::at_least(what, ratio(&logging)?, "", RATIO_MIN)])
}

/// Starts HAProxy as `setup` says and compares; `rounds` are made when both answer. The median of the ratios of the
/// rounds: what slows the machine down for a while slows both sides of a round down.
pub(super) fn against_hand(
    bench: &Bench,
    segue: &str,
    setup: &Setup,
    rounds: impl FnOnce([&str; 2]) -> Result<Rounds>,
) -> Result<f64> {
    let by_hand = url(setup.port);
    wait_for_answer(bench, segue)?;
    let mut haproxy = ByHand::start(bench.folder.join("by-hand.cfg"), setup, bench.progress)?;
    let rates = wait_for_answer(bench, &by_hand)
        .with_context(|| format!("HAProxy's words are in {}", haproxy.log().display()))
        .and_then(|()| compare(bench, [segue, &by_hand], &rounds([segue, &by_hand])?));
    let stopped = haproxy.stop(bench.progress);
    let rates = rates?;
    stopped?;
    let median = |values: Vec<f64>| quantile(&values, 0.5).context("nothing was measured");
    let (segue, by_hand) = (
        median(rates.iter().map(|[segue, _]| *segue).collect())?,
        median(rates.iter().map(|[_, by_hand]| *by_hand).collect())?,
    );
    progress::say(&format!(
        "medians: {segue:.0} requests/s through the gateway, {by_hand:.0} by hand"
    ));
    median(rates.iter().map(|[segue, by_hand]| segue / by_hand).collect())
}

/// What both were in each round.
fn compare(bench: &Bench, urls: [&str; 2], rounds: &Rounds) -> Result<Vec<[f64; 2]>> {
    let mut rates = Vec::with_capacity(rounds.count);
    for round in 1..=rounds.count {
        let mut both = [0.0; 2];
        // Who is first changes from round to round.
        for side in if round % 2 == 0 { [1, 0] } else { [0, 1] } {
            let script = rounds.scripts.as_ref().map(|scripts| scripts[side].as_path());
            both[side] = wrk_with(urls[side], CONNECTIONS, rounds.seconds, script)?;
        }
        bench.progress.pass("between rounds", Duration::from_millis(200))?;
        let [our, their] = both;
        progress::say(&format!(
            "round {round}: {our:.0} requests/s through the gateway, {their:.0} by hand"
        ));
        rates.push(both);
    }
    Ok(rates)
}

pub(super) fn wait_for_answer(bench: &Bench, url: &str) -> Result<()> {
    let agent = load::agent(load::Connection::Fresh);
    bench.progress.wait(&format!("{url} answers"), HAPROXY_TIME_MAX, || {
        Ok(match load::ask(&agent, url, &[]) {
            Ok(_) => ControlFlow::Break(()),
            Err(reason) => ControlFlow::Continue(reason),
        })
    })
}

/// Requests per second that `url` answers, with so many connections.
pub(super) fn wrk(url: &str, connections: u32) -> Result<f64> {
    wrk_with(url, connections, ROUND_SECONDS, None)
}

/// Requests a second that wrk got answered, as its script says.
pub(super) fn wrk_with(
    url: &str,
    connections: u32,
    seconds: u32,
    script: Option<&Path>,
) -> Result<f64> {
    let program =
        setup::program("wrk").context("wrk is not installed; run cargo xtask setup --for-bench")?;
    let mut command = Command::new(program);
    command.args(["--threads", "1", "--connections", &connections.to_string()]);
    command.args(["--duration", &format!("{seconds}s")]);
    if let Some(script) = script {
        command.arg("--script").arg(script);
    }
    command.arg(url);
    let output = command.output().context("wrk cannot be started")?;
    let words = String::from_utf8_lossy(&output.stdout);
    rate(&words)
        .with_context(|| format!("wrk failed: {words}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The rate that wrk prints; none when any request failed.
fn rate(words: &str) -> Result<f64> {
    if words.contains("Non-2xx") || words.contains("Socket errors") {
        bail!("some requests failed");
    }
    let line = words.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    line.context("no rate was printed")?.trim().parse().context("the rate is no number")
}

/// Where a port of this machine is asked.
pub(super) fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_and_failures_are_not_passed_over() {
        let words = "Running 5s test\n  100 requests in 5.00s\nRequests/sec:  12345.67\nTransfer/sec: 1MB\n";
        assert!((rate(words).unwrap() - 12345.67).abs() < 1e-6);
        assert!(rate(&format!("  Non-2xx or 3xx responses: 1\n{words}")).is_err());
        assert!(rate("unable to connect").is_err());
    }
}
