//! The figures as a picture: for each kind of change when a client saw it, from the median to the 99th percentile, and how
//! many requests failed. Pure.

use super::record::{Row, Rows};
use super::report::{thousands, time};
use anyhow::Result;
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
/// Where times begin and end, and the powers of ten of a millisecond there.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 720.0;
const DECADES: [i32; 2] = [0, 4];
/// Where the numbers of failed requests end.
const COLUMNS: [f64; 2] = [830.0, 930.0];
const TOP: f64 = 86.0;
const LINE: f64 = 36.0;

/// A side of the comparison.
struct Side {
    name: &'static str,
    color: &'static str,
    column: f64,
    /// From the middle of the line.
    offset: f64,
}

const SIDES: [Side; 2] = [
    Side { name: "Segue", color: "#0b62a8", column: COLUMNS[0], offset: -7.0 },
    Side { name: "by hand", color: "#c4570c", column: COLUMNS[1], offset: 7.0 },
];

/// Draws all kinds of changes.
pub(super) fn svg(ours: &Rows, theirs: &Rows) -> Result<String> {
    let mut text = String::new();
    let lines = u32::try_from(ours.len())?;
    let bottom = TOP + LINE * f64::from(lines);
    let height = bottom + 40.0;
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"14\" fill=\"#222\">\n\
         <title>Changes under load: when clients see them, and how many requests fail</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>"
    )?;
    head(&mut text)?;
    scale(&mut text, bottom)?;
    for (number, (kind, row)) in (0_u32..).zip(ours) {
        let middle = TOP + LINE * (f64::from(number) + 0.5);
        if number % 2 == 0 {
            let top = middle - LINE / 2.0;
            writeln!(
                text,
                "<rect y=\"{top}\" width=\"{WIDTH}\" height=\"{LINE}\" fill=\"#000\" fill-opacity=\"0.03\"/>"
            )?;
        }
        writeln!(text, "<text x=\"16\" y=\"{}\">{}</text>", middle + 5.0, kind.words())?;
        for (side, row) in SIDES.iter().zip([Some(row), theirs.get(kind)]) {
            draw(&mut text, side, middle, row)?;
        }
        if row.seen.is_empty() {
            writeln!(
                text,
                "<text x=\"{}\" y=\"{}\" font-size=\"12\" fill=\"#777\">nothing to see</text>",
                LEFT + 8.0,
                middle + 4.0
            )?;
        }
    }
    writeln!(text, "</svg>")?;
    Ok(text)
}

fn head(text: &mut String) -> Result<()> {
    writeln!(
        text,
        "<text x=\"16\" y=\"28\" font-size=\"17\" font-weight=\"bold\">Changes under load</text>"
    )?;
    writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"28\">a client sees it after: median (dot) to 99th percentile (line)</text>"
    )?;
    writeln!(
        text,
        "<text x=\"{}\" y=\"28\" text-anchor=\"end\">requests failed</text>",
        COLUMNS[1]
    )?;
    for Side { name, color, column, .. } in &SIDES {
        writeln!(
            text,
            "<text x=\"{column}\" y=\"52\" text-anchor=\"end\" font-weight=\"bold\" fill=\"{color}\">{name}</text>"
        )?;
    }
    Ok(())
}

/// Lines at the powers of ten, with their times above and below.
fn scale(text: &mut String, bottom: f64) -> Result<()> {
    for power in DECADES[0]..=DECADES[1] {
        let ms = 10_f64.powi(power);
        let words = if ms < 1_000.0 { format!("{ms} ms") } else { format!("{} s", ms / 1_000.0) };
        let x = place(ms);
        writeln!(
            text,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#ccc\"/>"
        )?;
        for y in [TOP - 8.0, bottom + 20.0] {
            writeln!(
                text,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"12\" fill=\"#555\">{words}</text>"
            )?;
        }
    }
    Ok(())
}

fn draw(text: &mut String, side: &Side, middle: f64, row: Option<&Row>) -> Result<()> {
    let Side { color, column, .. } = side;
    let failed = row.map_or("–".to_owned(), |row| thousands(row.failed()));
    let weight = if row.is_some_and(|row| row.failed() > 0) { "bold" } else { "normal" };
    writeln!(
        text,
        "<text x=\"{column}\" y=\"{}\" text-anchor=\"end\" font-weight=\"{weight}\">{failed}</text>",
        middle + 5.0
    )?;
    let Some(row) = row.filter(|row| !row.seen.is_empty()) else { return Ok(()) };
    let (median, p99) = (row.seen_ms(0.5)?, row.seen_ms(0.99)?);
    let (from, to, y) = (place(median), place(p99), middle + side.offset);
    writeln!(
        text,
        "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{color}\" stroke-width=\"3\" stroke-linecap=\"round\"/>\n\
         <circle cx=\"{from:.1}\" cy=\"{y}\" r=\"5\" fill=\"{color}\"/>\n\
         <text x=\"{:.1}\" y=\"{}\" font-size=\"11\" fill=\"{color}\">{}</text>",
        to + 9.0,
        y + 4.0,
        time(median)
    )?;
    Ok(())
}

/// Where a time stands on the scale.
fn place(ms: f64) -> f64 {
    let [first, last] = DECADES.map(f64::from);
    let share = (ms.max(f64::MIN_POSITIVE).log10() - first) / (last - first);
    LEFT + (RIGHT - LEFT) * share.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::traffic::record::Kind;

    #[test]
    fn times_stand_on_a_logarithmic_scale() {
        assert!((place(1.0) - LEFT).abs() < 1e-9 && (place(0.0) - LEFT).abs() < 1e-9);
        assert!((place(100.0) - f64::midpoint(LEFT, RIGHT)).abs() < 1e-9);
        assert!((place(1e9) - RIGHT).abs() < 1e-9);
    }

    #[test]
    fn every_kind_has_a_line_and_failures_stand_out() {
        let row = Row { seen: vec![5.0, 50.0], changes: 2, ..Row::default() };
        let mut failing = row.clone();
        failing.fresh.failed = 1_234;
        let ours = Rows::from([(Kind::Weights, row), (Kind::Killed, Row::default())]);
        let theirs = Rows::from([(Kind::Weights, failing)]);
        let svg = svg(&ours, &theirs).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("font-weight=\"bold\">1,234</text>"), "{svg}");
        assert_eq!(svg.matches("nothing to see").count(), 1);
    }
}
