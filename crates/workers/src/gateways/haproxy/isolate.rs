//! Keeps what one route asks for from harming all others: texts that only HAProxy itself can judge. The whole file is
//! checked anyway, so that they are taken on trust first. When HAProxy refuses the file, it is shown the file without what
//! may be to blame, and then with more and more of that, so that everything is judged in its place. What it does not
//! take is left out: the file that comes of it is one that it took.
//!
//! A route whose text is refused gets nothing, and is asked about again after a while: names that HAProxy looks up may
//! be known by then.

use super::acl::Matcher;
use super::render::quote;
use super::{model, refusal};
use crate::gateways::{Conditional, Configuration, Frontend, Passage, RouteModel};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How much of HAProxy's words a reason holds.
const REASON_CHARACTERS_MAX: usize = 500;
/// When HAProxy is asked again about what it refused.
const AGAIN: Duration = Duration::from_mins(5);
/// When it is asked about what there was no time for.
const SOON: Duration = Duration::from_secs(30);

/// What HAProxy refuses of a configuration.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    refused: BTreeMap<Part, Refusal>,
    /// What was in the last file that it took, or would have been, had its gateway been served.
    taken: BTreeSet<Part>,
}

#[derive(Clone, Debug)]
struct Refusal {
    words: String,
    at: Instant,
    /// How long it stands.
    again: Duration,
}

/// By gateway and path of the route: why it gets nothing.
pub(super) type Disabled = BTreeMap<String, BTreeMap<String, String>>;

/// A directive whose content comes from a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    gateway: String,
    line: String,
}

impl Verdicts {
    /// Forgets verdicts on what `configuration` does not ask for.
    pub(super) fn keep(&mut self, configuration: &Configuration) {
        let parts = parts(configuration);
        self.refused.retain(|part, _| parts.contains(part));
    }

    /// Parts to ask about again: those that there was no time for, or else those that were refused a while ago.
    pub(super) fn due(&self, now: Instant) -> Vec<Part> {
        let due = |again: Duration| -> Vec<Part> {
            let is_due = |refusal: &Refusal| {
                refusal.again == again && now.saturating_duration_since(refusal.at) >= again
            };
            let due = self.refused.iter().filter(|(_, refusal)| is_due(refusal));
            due.map(|(part, _)| part.clone()).collect()
        };
        let soon = due(SOON);
        if soon.is_empty() { due(AGAIN) } else { soon }
    }

    /// What may be to blame when HAProxy refuses a file: first what is new in it, then everything.
    pub(super) fn suspects(&self, configuration: &Configuration) -> [Vec<Part>; 2] {
        let open = |part: &Part| !self.refused.contains_key(part);
        let all: Vec<Part> = parts(configuration).into_iter().filter(open).collect();
        let new = all.iter().filter(|part| !self.taken.contains(part)).cloned().collect();
        [new, all]
    }

    /// HAProxy took a file of `configuration`.
    pub(super) fn accept(&mut self, configuration: &Configuration) {
        let open = |part: &Part| !self.refused.contains_key(part);
        self.taken = parts(configuration).into_iter().filter(open).collect();
    }

    /// HAProxy refuses `parts` for `words`.
    pub(super) fn refuse(&mut self, parts: Vec<Part>, words: &str, now: Instant) {
        self.set(parts, &Refusal { words: reason(words), at: now, again: AGAIN });
    }

    /// There was no time to show `parts` to HAProxy; one of them is to blame.
    pub(super) fn leave_open(&mut self, parts: Vec<Part>, now: Instant) {
        let words = "it was not judged in time, and is soon; HAProxy took too long over others";
        self.set(parts, &Refusal { words: words.to_owned(), at: now, again: SOON });
    }

    fn set(&mut self, parts: Vec<Part>, refusal: &Refusal) {
        self.refused.extend(parts.into_iter().map(|part| (part, refusal.clone())));
    }

    /// `parts` stay refused, and are asked about as long after `now` as they were to be after they were refused.
    pub(super) fn postpone(&mut self, parts: &[Part], now: Instant) {
        for part in parts {
            if let Some(refusal) = self.refused.get_mut(part) {
                refusal.at = now;
            }
        }
    }

    /// What was refused of `parts` is so no more.
    pub(super) fn acquit(&mut self, parts: &[Part]) {
        self.refused.retain(|part, _| !parts.contains(part));
    }

    /// `configuration` without what HAProxy refuses, and the routes that were disabled for it. What is not judged stays.
    pub(super) fn sift(&self, configuration: &Configuration) -> (Configuration, Disabled) {
        self.sift_without(configuration, &BTreeSet::new())
    }

    /// The same also without `held`.
    pub(super) fn sift_without(
        &self,
        configuration: &Configuration,
        held: &BTreeSet<Part>,
    ) -> (Configuration, Disabled) {
        let mut sifted = configuration.clone();
        let mut disabled = Disabled::new();
        for gateway in &mut sifted.gateways {
            let reasons = self.disable(gateway, held);
            if !reasons.is_empty() {
                disabled.insert(gateway.name.clone(), reasons);
            }
        }
        (sifted, disabled)
    }

    /// Takes everything from the routes of `gateway` that ask for what is refused, and says why, by path.
    fn disable(&self, gateway: &mut Frontend, held: &BTreeSet<Part>) -> BTreeMap<String, String> {
        let name = gateway.name.clone();
        let refused = |line: String| {
            let part = Part { gateway: name.clone(), line };
            let held = || held.contains(&part).then(|| "it is being judged".to_owned());
            self.refused.get(&part).map(|refusal| refusal.words.clone()).or_else(held)
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

/// All parts of `configuration` that HAProxy has to judge, of those that can be written at all.
fn parts(configuration: &Configuration) -> BTreeSet<Part> {
    configuration.gateways.iter().flat_map(parts_of).collect()
}

fn parts_of(gateway: &Frontend) -> impl Iterator<Item = Part> {
    let routes = gateway.routes.iter().filter(|route| refusal::of_route(route).is_none());
    let conditions = gateway.conditions.iter().filter(|wish| refusal::of_condition(wish).is_none());
    let lines = routes.flat_map(route_lines).chain(conditions.flat_map(condition_lines));
    lines.map(|line| Part { gateway: gateway.name.clone(), line })
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

/// HAProxy's words without where it found what, and in which process: the same reason has the same words.
fn reason(words: &str) -> String {
    let first = words.lines().find(|line| line.starts_with("[ALERT]")).unwrap_or(words);
    let bare = first.rsplit_once(".cfg").map_or(first, |(_, rest)| {
        rest.split_once(']').map_or(rest, |(_, rest)| rest.trim_start_matches([' ', ':']))
    });
    let bare =
        bare.split_once(") : ").filter(|_| bare.starts_with('[')).map_or(bare, |(_, rest)| rest);
    bare.trim().chars().take(REASON_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_the_same_wherever_they_are_found() {
        for words in [
            "[NOTICE]   (1) : haproxy version is 2.6\n\
             [ALERT]    (7) : config : parsing [check.cfg:9] : error detected while parsing ACL 'x' : no.\n\
             [ALERT]    (7) : config : Error(s) found in configuration file : check.cfg",
            "[ALERT]    (8) : config : parsing [haproxy.cfg.candidate:10] : error detected while parsing ACL 'x' : no.",
        ] {
            assert_eq!(reason(words), "error detected while parsing ACL 'x' : no.");
        }
        assert_eq!(reason("[ALERT]    (7) : out of memory"), "out of memory");
        assert_eq!(reason("it did not come to an end"), "it did not come to an end");
    }
}
