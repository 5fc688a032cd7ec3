//! Keeps what one route asks for from harming all others: texts that only HAProxy itself can judge. The whole file is
//! checked anyway, so that they are taken on trust first; when HAProxy refuses the file, they are shown to it one by
//! one, in files of their own, and what is fine alone but not beside the rest of its gateway, gateway by gateway.
//!
//! A route whose text is refused gets nothing, and is asked about again after a while: names that HAProxy looks up may
//! be known by then. What is fine today may be refused tomorrow for the same reason, so nothing is taken for accepted.

use super::acl::Matcher;
use super::model::Place;
use super::process::{self, Process};
use super::render::quote;
use super::{model, refusal};
use crate::driver::Error;
use crate::gateways::{Conditional, Configuration, Frontend, Passage, Protocol, RouteModel};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;
use tokio::time::Instant;

/// The file that is shown to HAProxy.
const FILE: &str = "parts.cfg";
/// How much of HAProxy's words a reason holds.
const REASON_CHARACTERS_MAX: usize = 500;
/// When HAProxy is asked again about what it refused.
const AGAIN: Duration = Duration::from_mins(5);
/// What stands before the parts: without a listener HAProxy takes no file. A check opens none.
const HEAD: &str = "\
defaults
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend parts
    bind unix@parts.sock
";

/// What HAProxy refuses of a configuration.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    refused: BTreeMap<Part, Refusal>,
    /// By gateway: parts that are refused where they stand together.
    together: BTreeMap<String, (BTreeSet<Part>, Refusal)>,
}

#[derive(Clone, Debug)]
struct Refusal {
    words: String,
    at: Instant,
}

/// By gateway and path of the route: why it gets nothing.
pub(super) type Disabled = BTreeMap<String, BTreeMap<String, String>>;

/// A directive whose content comes from a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    place: Place,
    http: bool,
    line: String,
}

impl Verdicts {
    /// Forgets verdicts on what `configuration` does not ask for, and those on gateways that are to be tried again.
    pub(super) fn keep(&mut self, configuration: &Configuration, now: Instant) {
        let parts: BTreeSet<Part> = configuration.gateways.iter().flat_map(parts).collect();
        self.refused.retain(|part, _| parts.contains(part));
        let asked = |name: &String, together: &BTreeSet<Part>| {
            let mut gateways = configuration.gateways.iter();
            gateways.any(|gateway| gateway.name == *name && parts_of(gateway) == *together)
        };
        self.together.retain(|name, (parts, refusal)| !refusal.is_old(now) && asked(name, parts));
    }

    /// Parts that were refused a while ago.
    pub(super) fn due(&self, now: Instant) -> Vec<Part> {
        let due = self.refused.iter().filter(|(_, refusal)| refusal.is_old(now));
        due.map(|(part, _)| part.clone()).collect()
    }

    /// The parts of `configuration` that are not refused.
    pub(super) fn suspects(&self, configuration: &Configuration) -> Vec<Part> {
        let parts: BTreeSet<Part> = configuration.gateways.iter().flat_map(parts).collect();
        parts.into_iter().filter(|part| !self.refused.contains_key(part)).collect()
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

    /// HAProxy refuses `gateway` for `words`, though none of its parts alone.
    pub(super) fn refuse_together(&mut self, gateway: &Frontend, words: &str, now: Instant) {
        let refusal = Refusal { words: reason(words), at: now };
        self.together.insert(gateway.name.clone(), (parts_of(gateway), refusal));
    }

    /// Shows `parts` to HAProxy, all in one file; those that it names are refused, and the rest is shown again. Says whether
    /// any is refused. An error says that HAProxy could not be asked.
    pub(super) async fn judge(
        &mut self,
        process: &Process,
        mut parts: Vec<Part>,
        now: Instant,
    ) -> Result<bool, Error> {
        let mut refused = BTreeMap::new();
        let all = parts.clone();
        while !parts.is_empty() {
            let Some(words) = refusal(process, &parts).await? else { break };
            let named = named(&words, parts.len());
            if named.is_empty() {
                // It says nothing that tells which, or came to no end.
                for part in parts {
                    if let Some(words) = refusal(process, std::slice::from_ref(&part)).await? {
                        refused.insert(part, reason(&words));
                    }
                }
                break;
            }
            let mut rest = Vec::new();
            for (index, part) in parts.into_iter().enumerate() {
                match named.get(&index) {
                    Some(reason) => drop(refused.insert(part, reason.clone())),
                    None => rest.push(part),
                }
            }
            parts = rest;
        }
        for part in &all {
            self.refused.remove(part);
        }
        let any = !refused.is_empty();
        let refusal = |words| Refusal { words, at: now };
        self.refused.extend(refused.into_iter().map(|(part, words)| (part, refusal(words))));
        Ok(any)
    }

    /// Takes everything from the routes of `gateway` that ask for what is refused, and says why, by path.
    fn disable(&self, gateway: &mut Frontend) -> BTreeMap<String, String> {
        let all = parts_of(gateway);
        let together = self.together.get(&gateway.name).filter(|(parts, _)| *parts == all);
        let together = together.map(|(_, refusal)| refusal);
        let http = gateway.protocol == Protocol::Http;
        let place = model::conditions_place(gateway);
        let refused = |place: Option<Place>, line: String| {
            let part = Part { place: place?, http, line };
            let refusal = self.refused.get(&part).or(together)?;
            Some(refusal.words.clone())
        };
        let mut reasons = BTreeMap::new();
        let mut empty: BTreeSet<usize> = BTreeSet::new();
        gateway.conditions.retain(|wish| {
            let words = refusal::of_condition(wish).or_else(|| {
                condition_lines(wish).into_iter().find_map(|line| refused(place, line))
            });
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
            let backend = Some(Place::Backend);
            let words = refusal::of_route(route)
                .or_else(|| route_lines(route).into_iter().find_map(|line| refused(backend, line)));
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

impl Refusal {
    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= AGAIN
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
        .flat_map(route_lines)
        .map(|line| Part { place: Place::Backend, http, line });
    let place = model::conditions_place(gateway);
    let conditions = gateway
        .conditions
        .iter()
        .filter(|wish| refusal::of_condition(wish).is_none())
        .flat_map(condition_lines)
        .filter_map(|line| Some(Part { place: place?, http, line }));
    routes.chain(conditions).collect()
}

fn parts_of(gateway: &Frontend) -> BTreeSet<Part> {
    parts(gateway).into_iter().collect()
}

/// Whether `gateway` asks for anything that only HAProxy can judge.
pub(super) fn asks(gateway: &Frontend) -> bool {
    !parts(gateway).is_empty()
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

/// What HAProxy says against a file with `parts`, a section for each; `None` when it accepts it.
async fn refusal(process: &Process, parts: &[Part]) -> Result<Option<String>, Error> {
    let mut text = HEAD.to_owned();
    for (number, Part { place, http, line }) in parts.iter().enumerate() {
        let section = match place {
            Place::Frontend => "frontend",
            Place::Backend => "backend",
        };
        let mode = if *http { "http" } else { "tcp" };
        write!(text, "{section} part{number}\n    mode {mode}\n    {line}\n")
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
    let bare = first.rsplit_once(".cfg:").map_or(first, |(_, rest)| {
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
