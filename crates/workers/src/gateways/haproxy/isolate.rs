//! Keeps what one route asks for from harming all others: texts that only HAProxy itself can judge. The whole file is
//! checked anyway, so that they are taken on trust first; when HAProxy refuses the file, they are shown to it one by
//! one, in files of their own.
//!
//! Verdicts are kept as long as somebody asks for them. A route whose text is refused gets nothing.

use super::acl::Matcher;
use super::process::{self, Process};
use super::render::quote;
use super::{model, refusal};
use crate::driver::Error;
use crate::gateways::{Conditional, Configuration, Frontend, Passage, Protocol, RouteModel};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The file that is shown to HAProxy.
const FILE: &str = "parts.cfg";
/// How much of HAProxy's words a reason holds.
const REASON_CHARACTERS_MAX: usize = 500;
/// What stands before the parts: without a listener HAProxy takes no file. A check opens none.
const HEAD: &str = "\
defaults
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend parts
    bind unix@parts.sock
";

/// What HAProxy thinks of parts of a configuration.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// By part: why it is refused, if it is.
    known: BTreeMap<Part, Option<String>>,
    /// Parts with which HAProxy did not come to an end; they are asked about again.
    unsure: BTreeMap<Part, String>,
}

/// By gateway and path of the route: why it gets nothing.
pub(super) type Disabled = BTreeMap<String, BTreeMap<String, String>>;

/// A directive of a backend whose content comes from a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    http: bool,
    line: String,
}

impl Verdicts {
    /// The parts of `configuration` that HAProxy has not judged. Verdicts on other parts are forgotten.
    pub(super) fn unknown(&mut self, configuration: &Configuration) -> Vec<Part> {
        let parts: BTreeSet<Part> = configuration.gateways.iter().flat_map(parts).collect();
        self.known.retain(|part, _| parts.contains(part));
        self.unsure.clear();
        parts.into_iter().filter(|part| !self.known.contains_key(part)).collect()
    }

    /// `configuration` without what HAProxy refuses, and the routes that were disabled for it. What is not judged stays.
    pub(super) fn sift(&self, configuration: &Configuration) -> (Configuration, Disabled) {
        let mut sifted = configuration.clone();
        let mut disabled = Disabled::new();
        for gateway in &mut sifted.gateways {
            let reasons = self.disable(gateway);
            if !reasons.is_empty() {
                disabled.insert(gateway.name.clone(), reasons);
            }
        }
        (sifted, disabled)
    }

    /// HAProxy took a file with `parts`.
    pub(super) fn accept(&mut self, parts: Vec<Part>) {
        self.known.extend(parts.into_iter().map(|part| (part, None)));
    }

    /// Shows `parts` to HAProxy, all in one file; those that it names are refused, and the rest is shown again.
    pub(super) async fn judge(&mut self, process: &Process, mut parts: Vec<Part>) {
        while !parts.is_empty() {
            let words = match refusal(process, &parts).await {
                Ok(Some(words)) => words,
                Ok(None) => return self.accept(parts),
                Err(_) => return self.judge_each(process, parts).await,
            };
            let named = named(&words, parts.len());
            if named.is_empty() {
                return self.judge_each(process, parts).await;
            }
            let mut rest = Vec::new();
            for (index, part) in parts.into_iter().enumerate() {
                match named.get(&index) {
                    Some(reason) => drop(self.known.insert(part, Some(reason.clone()))),
                    None => rest.push(part),
                }
            }
            parts = rest;
        }
    }

    async fn judge_each(&mut self, process: &Process, parts: Vec<Part>) {
        for part in parts {
            match refusal(process, std::slice::from_ref(&part)).await {
                Ok(verdict) => drop(self.known.insert(part, verdict.map(|words| reason(&words)))),
                Err(error) => drop(self.unsure.insert(part, error.to_string())),
            }
        }
    }

    /// Takes everything from the routes of `gateway` that ask for what is refused, and says why, by path.
    fn disable(&self, gateway: &mut Frontend) -> BTreeMap<String, String> {
        let http = gateway.protocol == Protocol::Http;
        let refused = |line: String| {
            let part = Part { http, line };
            self.known.get(&part).cloned().flatten().or_else(|| self.unsure.get(&part).cloned())
        };
        let mut reasons = BTreeMap::new();
        let mut empty: BTreeSet<usize> = BTreeSet::new();
        gateway.conditions.retain(|wish| {
            let words = refusal::of_condition(wish)
                .or_else(|| condition_lines(wish).into_iter().find_map(refused));
            if let Some(words) = &words {
                let own = wish.ways.iter().map(|(index, _)| *index);
                let routes = &gateway.routes;
                empty.extend(own.filter(|index| {
                    routes.get(*index).is_some_and(|route| leads_nowhere_else(route, &wish.path))
                }));
                reasons.insert(wish.path.clone(), format!("its condition is refused: {words}"));
            }
            words.is_none()
        });
        for (index, route) in gateway.routes.iter_mut().enumerate() {
            let words = refusal::of_route(route)
                .or_else(|| route_lines(route).into_iter().find_map(refused));
            if let Some(words) = words {
                reasons.insert(route.path.clone(), words);
                empty.insert(index);
            }
            if empty.contains(&index) {
                "default".clone_into(&mut route.balance);
                route.rewrites.clear();
                route.targets.clear();
            }
        }
        reasons
    }
}

/// Whether no other route than that of `path` leads there.
fn leads_nowhere_else(route: &RouteModel, path: &str) -> bool {
    let is_own = |passage: &&Passage| passage.route.as_deref() == Some(path);
    let gateways: BTreeSet<&String> =
        route.passages.iter().filter(is_own).map(|passage| &passage.gateway).collect();
    let other = |passage: &Passage| {
        gateways.contains(&passage.gateway)
            && passage.route.as_deref().is_some_and(|other| other != path)
    };
    !route.passages.iter().any(other)
}

/// All parts of `gateway` that HAProxy has to judge, of those that can be written at all.
fn parts(gateway: &Frontend) -> Vec<Part> {
    let http = gateway.protocol == Protocol::Http;
    let routes = gateway
        .routes
        .iter()
        .filter(|route| refusal::of_route(route).is_none())
        .flat_map(route_lines);
    let conditions = gateway
        .conditions
        .iter()
        .filter(|wish| refusal::of_condition(wish).is_none())
        .flat_map(condition_lines);
    routes.chain(conditions).map(|line| Part { http, line }).collect()
}

fn route_lines(route: &RouteModel) -> Vec<String> {
    let mut lines = Vec::new();
    if route.balance != "default" {
        lines.push(line("balance", &shlex::split(&route.balance).unwrap_or_default()));
    }
    for rewrite in &route.rewrites {
        let path = quote(&rewrite.path);
        let condition = model::condition(&rewrite.condition).unwrap_or_default();
        lines.push(line(&format!("http-request set-path {path} if"), &condition));
    }
    lines
}

fn condition_lines(wish: &Conditional) -> Vec<String> {
    let acls = Matcher::of(&wish.condition).map(|matcher| matcher.acls).unwrap_or_default();
    acls.into_iter().map(|acl| line(&format!("acl {}", acl.name), &acl.words)).collect()
}

fn line(head: &str, words: &[String]) -> String {
    words.iter().fold(head.to_owned(), |line, word| format!("{line} {}", quote(word)))
}

/// What HAProxy says against a file with `parts`, one backend each; `None` when it accepts it.
async fn refusal(process: &Process, parts: &[Part]) -> Result<Option<String>, Error> {
    let mut text = HEAD.to_owned();
    for (number, Part { http, line }) in parts.iter().enumerate() {
        let mode = if *http { "http" } else { "tcp" };
        write!(text, "backend part{number}\n    mode {mode}\n    {line}\n")
            .expect("a text takes whatever is written to it");
    }
    process::replace(&process.directory.join(FILE), text.as_bytes())
        .map_err(|error| Error::Transient(format!("cannot write {FILE} for HAProxy: {error}")))?;
    process.refusal(FILE).await
}

/// The parts that `words` speak of, by their lines or the names of their backends, with what is said of each.
fn named(words: &str, count: usize) -> BTreeMap<usize, String> {
    let mut named = BTreeMap::new();
    for line in words.lines().filter(|line| line.starts_with("[ALERT]")) {
        let after = |mark: &str| {
            let (_, rest) = line.split_once(mark)?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().ok()
        };
        let of_line = || {
            let number = after(&format!("[{FILE}:"))?;
            Some(number.checked_sub(HEAD.lines().count() + 1)? / 3)
        };
        if let Some(index) = of_line().or_else(|| after("'part")).filter(|index| *index < count) {
            named.entry(index).or_insert_with(|| reason(line));
        }
    }
    named
}

/// HAProxy's words without where it found what.
fn reason(words: &str) -> String {
    let first = words.lines().find(|line| line.starts_with("[ALERT]")).unwrap_or(words);
    let bare = first.rsplit_once(&format!("[{FILE}:")).map_or(first, |(_, rest)| {
        rest.split_once(']').map_or(rest, |(_, rest)| rest.trim_start_matches([' ', ':']))
    });
    bare.trim().chars().take(REASON_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_that_are_spoken_of() {
        let words = "[NOTICE]   (1) : haproxy version is 2.6\n\
            [ALERT]    (1) : config : parsing [parts.cfg:9] : error detected while parsing ACL 'x' : no.\n\
            [ALERT]    (1) : config : backend 'part2' : unable to find table 'y'.\n\
            [ALERT]    (1) : config : Error(s) found in configuration file : parts.cfg\n\
            [ALERT]    (1) : config : parsing [parts.cfg:99] : too far.";
        let named = named(words, 3);
        assert_eq!(named.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(named[&0], "error detected while parsing ACL 'x' : no.");
    }
}
