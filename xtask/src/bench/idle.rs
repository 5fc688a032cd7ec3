//! What the service takes when there is nothing to do: resident memory, and processor time over a while.

use super::{Bench, Measure};
use crate::shop;
use anyhow::{Context as _, Result};
use std::fs;
use std::time::Duration;

const DEPLOYMENTS: u32 = 20;
const WATCHED: Duration = Duration::from_secs(30);
/// What happened while the deployments came up is over then.
const CALM: Duration = Duration::from_secs(5);
const MEMORY_MB_MAX: f64 = 50.0;
const PROCESSOR_PERCENT_MAX: f64 = 1.0;

/// Deploys, waits, and watches the process.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let (api, progress) = (bench.api(), bench.progress);
    let names: Vec<String> = (1..=DEPLOYMENTS).map(|number| format!("idle{number}")).collect();
    for name in &names {
        let blueprint = shop::blueprint(name, bench.runtime, &[1], 1)?;
        api.send("PUT", &format!("/api/v1/deployments/{name}"), &blueprint, 202)?;
    }
    for name in &names {
        shop::wait_done(api, progress, name, &[1], 1)?;
    }
    progress.pass("letting things calm down", CALM)?;
    let share = processor_percent(bench, WATCHED)?;
    let memory = resident_mb(bench.service.pid())?;
    Ok(vec![
        Measure::at_most(
            format!("resident memory with {DEPLOYMENTS} deployments"),
            memory,
            "MB",
            MEMORY_MB_MAX,
        ),
        Measure::at_most(
            format!("processor, of one core, over {} s", WATCHED.as_secs()),
            share,
            "%",
            PROCESSOR_PERCENT_MAX,
        ),
    ])
}

/// The share of one core, in percent, that the service takes over a while.
pub(super) fn processor_percent(bench: &Bench, watched: Duration) -> Result<f64> {
    let pid = bench.service.pid();
    let before = processor_time(pid)?;
    bench.progress.pass("watching the idle service", watched)?;
    let used = processor_time(pid)?.saturating_sub(before);
    Ok(used.as_secs_f64() / watched.as_secs_f64() * 100.0)
}

/// Resident memory of a process, in MB.
pub(super) fn resident_mb(pid: u32) -> Result<f64> {
    memory_mb(&read(pid, "status")?)
}

fn read(pid: u32, file: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
        .with_context(|| format!("process {pid} cannot be watched"))
}

/// Time on a processor of all threads, living and ended.
pub(super) fn processor_time(pid: u32) -> Result<Duration> {
    let ticks = processor_ticks(&read(pid, "stat")?)?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks * 1_000 / per_second))
}

/// The fields after the program's name, which is in parentheses and may hold anything, begin with field 3; `utime`
/// and `stime` are fields 14 and 15.
fn processor_ticks(stat: &str) -> Result<u64> {
    let fields = stat.rsplit_once(')').context("the line of /proc has no name")?.1;
    let ticks: Vec<u64> =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system] => Ok(user + system),
        _ => anyhow::bail!("the line of /proc has no times: {stat}"),
    }
}

fn memory_mb(status: &str) -> Result<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("/proc shows no memory")?;
    let kilobytes: u32 =
        line.trim().trim_end_matches("kB").trim().parse().context("the memory is no number")?;
    Ok(f64::from(kilobytes) / 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_are_read() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 70 30 0 0 20 0 1 0 5";
        assert_eq!(processor_ticks(stat).unwrap(), 100);
        assert!((memory_mb("Name:\tx\nVmRSS:\t   10240 kB\n").unwrap() - 10.0).abs() < 1e-9);
        assert!(memory_mb("Name:\tx\n").is_err());
    }

    #[test]
    fn this_very_process_can_be_watched() {
        let pid = std::process::id();
        assert!(processor_time(pid).is_ok());
        assert!(resident_mb(pid).unwrap() > 0.1);
    }
}
