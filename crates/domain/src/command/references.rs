//! Resolves what the routes of a gateway refer to: stored routes, rewrites and conditions (documents, 6.2 and 7).

use super::prepare::not_found;
use crate::artifact::{Gateway, RewriteReference, Route, RouteCondition};
use crate::dsl::pointer_segment;
use crate::problem::{Problem, Problems, Result};
use crate::state::State;

/// Puts stored routes, rewrites and conditions in the place of references to them; `gateway` stands at `pointer`. All that is
/// missing is reported together.
pub(super) fn resolve(state: &State, gateway: &mut Gateway, pointer: &str) -> Result<()> {
    let mut problems = Vec::new();
    for (path, route) in &mut gateway.routes {
        let pointer = format!("{pointer}/routes/{}", pointer_segment(path.as_str()));
        resolve_route(state, route, &pointer, &mut problems);
    }
    Problems::check(problems)
}

fn resolve_route(state: &State, route: &mut Route, pointer: &str, problems: &mut Vec<Problem>) {
    let is_reference = route.reference.is_some();
    if let Some(name) = &route.reference {
        let Some(stored) = state.routes().get(name) else {
            problems.push(not_found(pointer, "route", name));
            return;
        };
        *route = stored.artifact.route.clone();
    }
    // What a stored route refers to does not stand in this document.
    let place = |part: String| {
        if is_reference { pointer.to_owned() } else { format!("{pointer}/{part}") }
    };
    if let Some(RouteCondition::Reference(name)) = &route.condition {
        if let Some(stored) = state.conditions().get(name) {
            route.condition = Some(RouteCondition::Inline(stored.artifact.condition.clone()));
        } else {
            problems.push(not_found(&place("condition".to_owned()), "condition", name));
        }
    }
    for (index, rewrite) in route.rewrites.iter_mut().enumerate() {
        let RewriteReference::Reference(name) = rewrite else { continue };
        if let Some(stored) = state.rewrites().get(name) {
            *rewrite = RewriteReference::Inline(stored.artifact.rewrite.clone());
        } else {
            let pointer = place(format!("rewrites/{index}"));
            problems.push(not_found(&pointer, "rewrite", name));
        }
    }
}
