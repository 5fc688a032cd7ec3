//! Requests per second through a gateway, against HAProxy with a file written by hand and the same servers.
//!
//! Both are measured in turn, several times, so that a machine that gets slower or faster meanwhile hurts both alike.

use super::{Bench, Measure, quantile};
use crate::progress;
use crate::service;
use crate::shop::{self, INTERNAL_GATEWAY};
use crate::{load, setup};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROUNDS: usize = 7;
const ROUND_SECONDS: u32 = 5;
const CONNECTIONS: u32 = 32;
const INSTANCES: u32 = 2;
const RATIO_MIN: f64 = 0.9;
/// How long HAProxy may take to come up and to go.
const HAPROXY_TIME_MAX: Duration = Duration::from_secs(20);

/// Measures both in turn and compares the medians.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let (api, progress) = (bench.api(), bench.progress);
    let one = shop::blueprint("shop", bench.runtime, &[1], INSTANCES)?;
    api.send("PUT", "/api/v1/deployments/shop", &one, 202)?;
    shop::wait_done(api, progress, "shop", &[1], INSTANCES as usize)?;
    let segue = url(shop::wait_gateway(api, progress, INTERNAL_GATEWAY)?);
    let port = service::free_port()?;
    let file = bench.folder.join("by-hand.cfg");
    fs::write(&file, configuration(port, &shop::addresses(api, "shop")?))?;
    let by_hand = url(port);
    wait_for_answer(bench, &segue)?;
    let mut haproxy = start_haproxy(&file)?;
    let rates = wait_for_answer(bench, &by_hand)
        .with_context(|| format!("HAProxy's words are in {}", file.with_extension("log").display()))
        .and_then(|()| compare(bench, &segue, &by_hand));
    let stopped = stop(&mut haproxy, bench);
    let (segue, by_hand) = rates?;
    stopped?;
    progress::say(&format!(
        "medians: {segue:.0} requests/s through the gateway, {by_hand:.0} by hand"
    ));
    let what = format!("gateway throughput against HAProxy by hand, {ROUNDS} rounds");
    Ok(vec![Measure::at_least(what, segue / by_hand, "", RATIO_MIN)])
}

fn compare(bench: &Bench, segue: &str, by_hand: &str) -> Result<(f64, f64)> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        // Who is first changes from round to round.
        if round % 2 == 0 {
            theirs.push(wrk(by_hand, CONNECTIONS)?);
            ours.push(wrk(segue, CONNECTIONS)?);
        } else {
            ours.push(wrk(segue, CONNECTIONS)?);
            theirs.push(wrk(by_hand, CONNECTIONS)?);
        }
        bench.progress.pass("between rounds", Duration::from_millis(200))?;
        let (our, their) = (ours[round - 1], theirs[round - 1]);
        progress::say(&format!(
            "round {round}: {our:.0} requests/s through the gateway, {their:.0} by hand"
        ));
    }
    let median = |rates: &[f64]| quantile(rates, 0.5).context("nothing was measured");
    Ok((median(&ours)?, median(&theirs)?))
}

fn wait_for_answer(bench: &Bench, url: &str) -> Result<()> {
    let agent = load::agent(load::Connection::Fresh);
    bench.progress.wait(&format!("{url} answers"), HAPROXY_TIME_MAX, || {
        Ok(match load::ask(&agent, url) {
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

/// What one would write by hand for these servers.
fn configuration(port: u16, servers: &[String]) -> String {
    let mut text = format!(
        "global\n  maxconn 1000\n\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 50s\n  timeout server 50s\n\n\
         frontend front\n  bind 127.0.0.1:{port}\n  option forwardfor\n  default_backend servers\n\n\
         backend servers\n  balance roundrobin\n"
    );
    for (number, address) in servers.iter().enumerate() {
        writeln!(text, "  server s{number} {address}").expect("a text can always grow");
    }
    text
}

fn start_haproxy(file: &Path) -> Result<Child> {
    let program =
        setup::program("haproxy").context("haproxy is not installed; run cargo xtask setup")?;
    let mut command = Command::new(program);
    let words = file.with_extension("log");
    let words = fs::File::create(&words)
        .with_context(|| format!("{} cannot be written", words.display()))?;
    command.arg("-db").arg("-f").arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
    command.spawn().context("haproxy cannot be started")
}

fn stop(haproxy: &mut Child, bench: &Bench) -> Result<()> {
    kill_process(Pid::from_child(haproxy), Signal::TERM).context("haproxy cannot be signalled")?;
    bench.progress.for_cleanup().wait_quietly("haproxy ends", HAPROXY_TIME_MAX, || {
        Ok(haproxy
            .try_wait()?
            .map_or(ControlFlow::Continue("it runs".into()), |_| ControlFlow::Break(())))
    })
}

fn url(port: u16) -> String {
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

    #[test]
    fn haproxy_accepts_the_file_written_by_hand() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(
            file.path(),
            configuration(18_080, &["127.0.0.1:1".into(), "127.0.0.1:2".into()]),
        )
        .unwrap();
        let program = setup::program("haproxy").unwrap();
        let output = Command::new(program).arg("-c").arg("-f").arg(file.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
