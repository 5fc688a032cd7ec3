//! The reference page: the table between its markers, and the chart beside it.

use super::chart;
use super::record::{Row, Rows};
use super::{Measure, PLAN};
use crate::setup;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

const PAGE: &str = "docs/reference/traffic.md";
const CHART: &str = "docs/reference/traffic.svg";
const BEGIN: &str = "<!-- traffic:begin -->\n";
const END: &str = "<!-- traffic:end -->";

/// What was measured.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) ours: &'a Rows,
    pub(super) theirs: &'a Rows,
    pub(super) measures: &'a [Measure],
}

impl Report<'_> {
    /// A Markdown table, one line for each kind of change.
    pub(super) fn table(&self) -> Result<String> {
        let mut text = String::from(
            "| change | times | requests | failed | seen p50 | p99 | by hand: times | requests | failed | seen p50 | p99 |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for (kind, ours) in self.ours {
            let theirs = self.theirs.get(kind).map_or(Ok("– | | | |".to_owned()), cells)?;
            writeln!(text, "| {} | {} | {theirs} |", kind.words(), cells(ours)?)?;
        }
        Ok(text)
    }

    /// Replaces what the page says, and the chart.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let lines: Vec<String> = self.measures.iter().map(Measure::line).collect();
        let load = format!(
            "Load: {} clients that keep their connection and {} that make a new one for each request, each with a request \
             every {} ms.",
            PLAN.kept_alive,
            PLAN.fresh,
            PLAN.every.as_millis()
        );
        let new = format!(
            "{}\n{load}\n\n{}\n```text\n{}\n```\n",
            machine()?,
            self.table()?,
            lines.join("\n")
        );
        let page = root.join(PAGE);
        let text = fs::read_to_string(&page).with_context(|| format!("{PAGE} cannot be read"))?;
        fs::write(&page, replaced(&text, &new)?)
            .with_context(|| format!("{PAGE} cannot be written"))?;
        fs::write(root.join(CHART), chart::svg(self.ours, self.theirs)?)
            .with_context(|| format!("{CHART} cannot be written"))?;
        println!("{PAGE} and {CHART} are written");
        Ok(())
    }
}

/// `| times | requests | failed | p50 | p99 |` without the outer bars.
fn cells(row: &Row) -> Result<String> {
    let both = |kept, fresh| format!("{} + {}", thousands(kept), thousands(fresh));
    let (kept, fresh) = (row.kept_alive, row.fresh);
    let seen = |share| {
        Ok(if row.seen.is_empty() { "–".to_owned() } else { time(row.seen_ms(share)?) })
            as Result<String>
    };
    Ok(format!(
        "{} | {} | {} | {} | {}",
        row.changes,
        both(kept.sent, fresh.sent),
        both(kept.failed, fresh.failed),
        seen(0.5)?,
        seen(0.99)?
    ))
}

/// `6.3 ms`, `138 ms`, `1.2 s`.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1_000.0),
    }
}

/// `12,345`.
pub(super) fn thousands(number: u32) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn replaced(text: &str, new: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).context("the page has no place for figures")?;
    let (_, after) = rest.split_once(END).context("the place for figures has no end")?;
    Ok(format!("{before}{BEGIN}{new}{END}{after}"))
}

/// What this machine is.
fn machine() -> Result<String> {
    let cores = thread::available_parallelism().context("the cores cannot be counted")?;
    let processors = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo cannot be read")?;
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unknown processor", |(_, model)| model.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let program = setup::program("haproxy").context("haproxy is not installed")?;
    let words = Command::new(program).arg("-v").output().context("haproxy cannot be started")?;
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    let version = words.split_whitespace().skip_while(|word| *word != "version").nth(1);
    let version = version.context("haproxy tells no version")?;
    Ok(format!("Machine: {cores} cores of {model}, Linux {}, HAProxy {version}.", kernel.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::traffic::record::{Count, Kind};

    #[test]
    fn the_table_has_both_sides_and_says_where_there_is_nothing() {
        let row = Row {
            changes: 2,
            kept_alive: Count { sent: 1_234, failed: 1 },
            fresh: Count { sent: 99, failed: 0 },
            seen: vec![6.25, 1_500.0],
        };
        let unseen = Row { seen: Vec::new(), ..row.clone() };
        let ours = Rows::from([(Kind::Weights, row.clone()), (Kind::Killed, unseen)]);
        let theirs = Rows::from([(Kind::Weights, row)]);
        let table = Report { ours: &ours, theirs: &theirs, measures: &[] }.table().unwrap();
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| weights | 2 | 1,234 + 99 | 1 + 0 | 6.2 ms | 1.5 s | 2 | 1,234 + 99 | 1 + 0 | 6.2 ms | 1.5 s |",
                "| Segue killed (-9) | 2 | 1,234 + 99 | 1 + 0 | – | – | – | | | | |",
            ]
        );
        let bars = |line: &str| line.matches('|').count();
        assert!(table.lines().all(|line| bars(line) == 12), "{table}");
    }

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let page = format!("a\n{BEGIN}old\n{END}\nz\n");
        assert_eq!(replaced(&page, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}\nz\n"));
        assert!(replaced("a\n", "new\n").is_err());
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1.25, 138.2, 2_000.0].map(time), ["1.2 ms", "138 ms", "2.0 s"]);
    }
}
