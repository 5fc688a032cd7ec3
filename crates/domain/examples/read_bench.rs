//! How long a large blueprint takes to be parsed and validated.
//!
//! `read_bench FILE TIMES` reads the blueprint in FILE so often, and prints the median of the times in milliseconds.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures time; the crate itself is handed it"
)]

use segue_domain::dsl::{self, Options};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, times] = arguments.as_slice() else {
        return Err("usage: read_bench FILE TIMES".into());
    };
    let text = std::fs::read_to_string(file)?;
    let mut measured = Vec::new();
    for _ in 0..times.parse::<usize>()?.max(1) {
        let began = Instant::now();
        let document = dsl::document(&text)?;
        let blueprint = dsl::read_blueprint(&document, &Options::default())?;
        measured.push(began.elapsed().as_secs_f64() * 1000.0);
        assert!(!blueprint.clusters.is_empty());
    }
    measured.sort_by(f64::total_cmp);
    println!("{:.3}", measured[measured.len() / 2]);
    Ok(())
}
