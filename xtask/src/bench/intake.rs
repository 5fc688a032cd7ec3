//! What it costs to take in what HAProxy tells of requests: lines are written where HAProxy writes them, at a steady rate.
//!
//! HAProxy and clients would take most of a small machine's processors; what is measured here is the service alone.

use super::{Bench, Measure, idle};
use crate::shop;
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

const NAME: &str = "intake";
const REQUESTS_PER_SECOND: u32 = 20_000;
/// How often lines are written.
const ROUNDS_PER_SECOND: u32 = 200;
const SECONDS: u32 = 40;
const PROCESSOR_PERCENT_MAX: f64 = 10.0;
/// How much of the rate has to be found again in what the service measured; HAProxy's pipe may lose a line.
const RATE_MIN: f64 = 0.99;

/// Writes lines, and watches the process.
pub fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let (api, progress) = (bench.api(), bench.progress);
    let blueprint = shop::blueprint(NAME, bench.runtime, &[1], 1)?;
    api.send("PUT", &format!("/api/v1/deployments/{NAME}"), &blueprint, 202)?;
    shop::wait_done(api, progress, NAME, &[1], 1)?;
    let gateway = format!("{NAME}/web/http");
    shop::wait_gateway(api, progress, &gateway)?;
    let document = api.get(&format!("/api/v1/gateways/{gateway}"))?;
    let lookup = document["lookup_name"].as_str().context("the gateway has a lookup name")?;
    let pipe = bench.folder.join("data/haproxy/requests.pipe");
    let mut pipe = File::options().write(true).open(&pipe).context("HAProxy has a pipe")?;
    let today = today()?;
    let before = idle::processor_time(bench.service.pid())?;
    let since = Instant::now();
    for round in 0..SECONDS * ROUNDS_PER_SECOND {
        let due = Duration::from_secs(1) * round / ROUNDS_PER_SECOND;
        // Polled: lines are to come at a steady rate, whatever the service does.
        std::thread::sleep(due.saturating_sub(since.elapsed()));
        write(&mut pipe, &today, lookup)?;
    }
    let (used, took) =
        (idle::processor_time(bench.service.pid())?.saturating_sub(before), since.elapsed());
    let share = used.as_secs_f64() / took.as_secs_f64() * 100.0;
    let rate =
        api.get(&format!("/api/v1/metrics/gateways/{}/rate", gateway.replace('/', "%2F")))?;
    let Some(rate) = rate["value"].as_f64() else { bail!("no rate was measured: {rate}") };
    let window = f64::from(SECONDS.min(30)) / 30.0;
    let found = rate / (f64::from(REQUESTS_PER_SECOND) * window);
    let what = format!("processor, of one core, {REQUESTS_PER_SECOND} requests/s");
    Ok(vec![
        Measure::at_most(what, share, "%", PROCESSOR_PERCENT_MAX),
        Measure::at_least("rate that was measured, of what was told", found, "", RATE_MIN),
    ])
}

/// The lines of one round, each in one piece as HAProxy writes them.
fn write(pipe: &mut File, today: &str, gateway: &str) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let (seconds, milliseconds) = (now.as_secs() % 86_400, now.subsec_millis());
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let time = format!("{today}:{hour:02}:{minute:02}:{second:02}.{milliseconds:03}");
    for number in 0..REQUESTS_PER_SECOND / ROUNDS_PER_SECOND {
        let line = line(&time, gateway, number);
        pipe.write_all(line.as_bytes()).context("the pipe takes lines")?;
    }
    Ok(())
}

/// The day in UTC as HAProxy writes it.
fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%d/%b/%Y"]).env("LC_ALL", "C").output();
    Ok(String::from_utf8(output.context("there is a clock")?.stdout)?.trim().to_owned())
}

fn line(time: &str, gateway: &str, number: u32) -> String {
    let status = if number.is_multiple_of(50) { 500 } else { 200 };
    let took = number % 37;
    format!(
        r#"{{"ci":"127.0.0.1","cp":34126,"t":"{time}","ft":"{gateway}","b":"{gateway}","s":"none","Tq":0,"Tw":0,"Tc":0,"Tr":{took},"Tt":{took},"ST":{status},"B":73,"CC":"-","CS":"-","tsc":"----","ac":2,"fc":1,"bc":0,"sc":0,"rc":0,"sq":0,"bq":0,"hr":"","hs":"","r":"GET \/products\/{number}?page=1 HTTP/1.1"}}"#
    ) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_line_is_one_of_json() {
        let line = line("21/Nov/2026:08:37:22.721", "g", 50);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["b"], &value["ST"]), (&Value::from("g"), &Value::from(500)));
        assert!(line.ends_with('\n') && line.len() < 4_000);
    }
}
