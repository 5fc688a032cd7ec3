//! What cannot be put into HAProxy's words, or must not be: names, addresses and texts of documents.
//!
//! Pure. Texts that pass here are shown to HAProxy by [`isolate`](super::isolate).

use super::acl::Matcher;
use super::model;
use crate::gateways::{Conditional, Frontend, RouteModel};
use segue_domain::artifact::Rewrite;
use std::net::IpAddr;

/// Why `gateway` cannot be expressed, if it cannot.
pub(super) fn of_gateway(gateway: &Frontend) -> Option<String> {
    let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    if !word(&gateway.lookup_name) {
        return Some(format!(
            "lookup name {:?} is not made of letters and digits",
            gateway.lookup_name
        ));
    }
    let line = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if let Some(host) = gateway.virtual_hosts.iter().find(|host| !line(host)) {
        return Some(format!("virtual host {host:?} is empty or holds a control character"));
    }
    for wish in &gateway.conditions {
        if let Some(reason) = of_condition(wish) {
            return Some(format!("route {:?}: {reason}", wish.path));
        }
    }
    for route in &gateway.routes {
        let path = &route.path;
        if !word(&route.lookup_name) {
            return Some(format!("route {path:?}: lookup name is not made of letters and digits"));
        }
        if let Some(reason) = of_route(route) {
            return Some(format!("route {path:?}: {reason}"));
        }
        for target in &route.targets {
            let host_is_valid = target.host.parse::<IpAddr>().is_ok()
                || (!target.host.is_empty()
                    && target
                        .host
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
            if !word(&target.lookup_name) || !host_is_valid || target.port == 0 {
                return Some(format!(
                    "route {path:?}: target {:?} has no usable name or address",
                    target.name
                ));
            }
        }
    }
    None
}

/// Why what `route` asks for cannot be expressed, if it cannot.
pub(super) fn of_route(route: &RouteModel) -> Option<String> {
    let line = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if !line(&route.balance) || model::words(&route.balance).is_none_or(|words| words.is_empty()) {
        return Some(format!("balance {:?} cannot be read", route.balance));
    }
    if names_file(&model::words(&route.balance).unwrap_or_default()) {
        return Some(format!("balance {:?} {NAMES_FILE}", route.balance));
    }
    let is_bad = |rewrite: &&Rewrite| {
        !line(&rewrite.path)
            || !line(&rewrite.condition)
            || model::condition(&rewrite.condition).is_none()
    };
    if let Some(bad) = route.rewrites.iter().find(is_bad) {
        return Some(format!("rewrite {:?} if {:?} cannot be read", bad.path, bad.condition));
    }
    route.rewrites.iter().find_map(|Rewrite { path, condition }| {
        let words = model::words(condition).unwrap_or_default();
        let reads_file = names_file(&words) || names_file(std::slice::from_ref(path));
        let why = if reads_file { NAMES_FILE } else { NUMBERED };
        (reads_file || has_flag(&words, "-u"))
            .then(|| format!("rewrite {path:?} if {condition:?} {why}"))
    })
}

/// Why a condition cannot be expressed, if it cannot.
pub(super) fn of_condition(wish: &Conditional) -> Option<String> {
    let is_plain = |matcher: &Matcher| {
        let mut words = matcher.acls.iter().flat_map(|acl| &acl.words);
        words.all(|word| !word.chars().any(char::is_control))
    };
    let text = wish.condition.text();
    let Some(matcher) = Matcher::of(&wish.condition).filter(is_plain) else {
        return Some(format!("condition {text:?} cannot be read"));
    };
    if matcher.acls.iter().any(|acl| names_file(&acl.words)) {
        return Some(format!("condition {text:?} {NAMES_FILE}"));
    }
    let numbers = matcher.acls.iter().any(|acl| has_flag(&acl.words, "-u"));
    numbers.then(|| format!("condition {text:?} {NUMBERED}"))
}

const NAMES_FILE: &str =
    "names a file; write the values themselves, after '--' when one begins with '-'";

const NUMBERED: &str =
    "numbers its test by '-u'; leave that out, two gateways may have the same number";

/// Whether HAProxy would read a file of its machine for these words of a test: by the flag `-f`, by one of the
/// converters `map`, `map_beg` and so on, or by `jwt_verify`. What users write decides about requests, not about what
/// is read where Segue runs.
fn names_file(words: &[String]) -> bool {
    let reads = |text: &str, converter: &str| {
        text.match_indices(converter).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let name = text[at..].split(|c: char| !c.is_ascii_lowercase() && c != '_').next();
            let after = name.and_then(|name| text[at + name.len()..].chars().next());
            before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_') && after == Some('(')
        })
    };
    has_flag(words, "-f")
        || words.iter().any(|word| reads(word, "map") || reads(word, "jwt_verify"))
}

/// Whether a test among `words` has `flag`, which may stand before `--` only.
fn has_flag(words: &[String], flag: &str) -> bool {
    // A test in braces begins anew, also one that must not hold.
    let mut tests = words.split(|word| word.trim_start_matches('!') == "{");
    tests.any(|test| test.iter().take_while(|word| *word != "--").any(|word| word == flag))
}
