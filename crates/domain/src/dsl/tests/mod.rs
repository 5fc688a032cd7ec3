//! Tests of the document layer: one line for each row of the tables in the documents' reference.

mod blueprints;
mod breeds;
mod conditions;
mod deployments;
mod events;
mod gateways;
mod generate;
mod generate_slas;
mod laws;
mod schemas;
mod slas;
mod stored;
mod tree;

use super::{Node, Options, document};
use crate::problem::{Problems, Result};

/// The problem types of `result` with pointers and places: `type /pointer line:column`.
fn problems<T: std::fmt::Debug>(result: &Result<T>) -> Vec<String> {
    result
        .as_ref()
        .err()
        .into_iter()
        .flat_map(Problems::iter)
        .map(|problem| {
            let place = problem
                .place
                .map(|place| format!(" {}:{}", place.line, place.column))
                .unwrap_or_default();
            format!("{} {}{place}", problem.kind.name(), problem.pointer)
        })
        .collect()
}

/// Full text of the problems, for snapshots.
fn report<T: std::fmt::Debug>(result: &Result<T>) -> String {
    let problems = result.as_ref().err().into_iter().flat_map(Problems::iter);
    let lines = problems.map(|problem| {
        let place = problem
            .place
            .map(|place| format!("{}:{}", place.line, place.column))
            .unwrap_or_default();
        let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{place} {} {}: {}{hint}\n", problem.kind.name(), problem.pointer, problem.detail)
    });
    lines.collect()
}

fn node(text: &str) -> Node {
    document(text).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

fn options() -> Options {
    Options::default()
}
