//! The story: version 2 takes over from version 1 under load, and nobody notices. Each step is a function.

use crate::api::Api;
use crate::load::{self, Connection, Load, Plan, Sample};
use crate::progress::{self, Progress, seconds};
use crate::service::{self, Service};
use crate::shop::{self, INTERNAL_GATEWAY, Runtime};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How many instances each version has.
const INSTANCES: u32 = 2;
/// About 900 requests per second.
const PLAN: Plan = Plan { kept_alive: 8, fresh: 2, every: Duration::from_millis(11), headers: &[] };
/// Over how many requests a split is measured.
const SPLIT_REQUESTS: usize = 500;
/// How far a measured split may lie from the weights, in percentage points.
const SPLIT_TOLERANCE: f64 = 5.0;
/// How many consecutive answers show that half of the traffic arrived at the other version.
const WINDOW: usize = 20;
/// How many answers in a row show that a version gets nothing any more.
const SILENCE: usize = 300;
/// How long traffic may take to follow a change.
const TRAFFIC_TIME_MAX: Duration = Duration::from_secs(30);
/// Events of these types come by themselves all the time.
const NOISE: [&str; 3] = ["health", "metrics", "allocation"];

/// How it ended.
#[derive(Debug)]
pub struct Ending {
    /// Where the shop is reached.
    pub port: u16,
    /// What was not as told.
    pub problems: Vec<String>,
}

/// Tells the whole story.
pub fn tell(service: &Service, runtime: &Runtime, progress: &Progress) -> Result<Ending> {
    let mut story = Story { api: service.api(), runtime, progress, problems: Vec::new() };
    story.deploy_version_1()?;
    let port = story.put_gateway_in_front()?;
    let load = story.start_load(port)?;
    story.merge_version_2(&load)?;
    let shifts = story.shift_all(&load)?;
    story.remove_version_1(&load)?;
    let samples = load.stop();
    story.sum_up(&samples, &shifts)?;
    Ok(Ending { port, problems: story.problems })
}

/// What is true from when on, as seen by a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sight {
    /// The first answer of version 2, which had no weight before.
    FirstAnswer,
    /// The first window of consecutive answers of which 40 to 60 % are version 2.
    Window,
    /// The last answer of version 1.
    LastAnswer,
}

impl Sight {
    fn words(self) -> String {
        match self {
            Self::FirstAnswer => "until the first answer of version 2".into(),
            Self::Window => format!(
                "until the first {WINDOW} answers in a row of which 40 to 60 % are version 2"
            ),
            Self::LastAnswer => {
                format!("until the last answer of version 1 ({SILENCE} of version 2 followed)")
            }
        }
    }

    /// When it was seen in `samples`, which begin with the call.
    fn find(self, samples: &[Sample], called: Instant) -> Option<Instant> {
        match self {
            Self::FirstAnswer => Some(load::first_of(samples, 2)?.received),
            Self::Window => {
                let sent_after: Vec<Sample> =
                    samples.iter().filter(|sample| sample.sent >= called).cloned().collect();
                let window = load::first_window(&sent_after, WINDOW, 2, 40.0, 60.0)?;
                Some(window.last()?.received)
            }
            Self::LastAnswer => {
                let last = load::last_of(samples, 1);
                let after = last.map_or(called, |sample| sample.received);
                let rest = samples.iter().filter(|sample| sample.received > after).count();
                // Without any answer of version 1 the first of version 2 tells that the shift is over.
                let seen = last.or_else(|| load::first_of(samples, 2))?.received;
                (rest >= SILENCE).then_some(seen)
            }
        }
    }
}

/// A change of weights and what the client saw of it.
struct Shift {
    weights: [u8; 2],
    sight: Sight,
    answered_after: Duration,
    seen_after: Duration,
    measured: String,
}

struct Story<'a> {
    api: &'a Api,
    runtime: &'a Runtime,
    progress: &'a Progress,
    problems: Vec<String>,
}

impl Story<'_> {
    fn deploy_version_1(&mut self) -> Result<()> {
        progress::step(1, "Version 1: store a blueprint, deploy it, wait until it is Done");
        let blueprint = shop::blueprint("shop:1", self.runtime, &[1], INSTANCES)?;
        progress::say(&format!("POST /api/v1/blueprints {blueprint}"));
        self.api.send("POST", "/api/v1/blueprints", &blueprint, 201)?;
        progress::say("PUT /api/v1/deployments/shop {\"ref\":\"shop:1\"}");
        self.api.send("PUT", "/api/v1/deployments/shop", &json!({"ref": "shop:1"}), 202)?;
        shop::wait_done(self.api, self.progress, "shop", &[1], INSTANCES as usize)
    }

    fn put_gateway_in_front(&mut self) -> Result<u16> {
        progress::step(2, "An external gateway in front of it, and steady load through HAProxy");
        let gateway = shop::edge("edge", service::free_port()?);
        progress::say(&format!("POST /api/v1/gateways {gateway}"));
        self.api.send("POST", "/api/v1/gateways", &gateway, 201)?;
        let port = shop::wait_gateway(self.api, self.progress, "edge")?;
        let (url, agent) = (url(port), load::agent(Connection::Fresh));
        self.progress.wait("version 1 answers through HAProxy", TRAFFIC_TIME_MAX, || {
            Ok(match load::ask(&agent, &url, &[]).map(|answer| answer.version) {
                Ok(1) => ControlFlow::Break(()),
                other => ControlFlow::Continue(format!("{other:?}")),
            })
        })?;
        Ok(port)
    }

    fn start_load(&mut self, port: u16) -> Result<Load> {
        let load = Load::start(&url(port), PLAN);
        self.wait_for_answers(&load, Instant::now(), SPLIT_REQUESTS)?;
        let (kept_alive, fresh) = (PLAN.kept_alive, PLAN.fresh);
        progress::say(&format!(
            "load on {}: {kept_alive} clients keep their connection, {fresh} make a new one for each request",
            url(port)
        ));
        Ok(load)
    }

    fn merge_version_2(&mut self, load: &Load) -> Result<()> {
        progress::step(
            3,
            "Version 2 is merged into the running deployment; it comes up with weight 0 %",
        );
        let merged = Instant::now();
        let body = shop::blueprint("shop", self.runtime, &[2], INSTANCES)?;
        progress::say(&format!("PUT /api/v1/deployments/shop {body}"));
        self.api.send("PUT", "/api/v1/deployments/shop", &body, 202)?;
        shop::wait_done(self.api, self.progress, "shop", &[1, 2], INSTANCES as usize)?;
        let samples = self.wait_for_answers(load, Instant::now(), SPLIT_REQUESTS)?;
        let gateway = self.gateway()?;
        let weights = [shop::weight(&gateway, 1), shop::weight(&gateway, 2)];
        progress::say(&format!(
            "weights now: {}; measured at the client: {}",
            weights.map(|weight| weight.unwrap_or("none")).join(" and "),
            split_words(&samples)
        ));
        self.expect(weights == [Some("100%"), Some("0%")], || {
            format!("the weights after the merge are {weights:?}")
        });
        let early = load::split(&load.ended_since(merged)).get(&2).copied().unwrap_or(0);
        self.expect(early == 0, || format!("version 2 answered {early} requests at weight 0 %"));
        Ok(())
    }

    fn shift_all(&mut self, load: &Load) -> Result<Vec<Shift>> {
        progress::step(4, "Traffic is shifted step by step through the API");
        let steps = [
            ([90, 10], Sight::FirstAnswer),
            ([50, 50], Sight::Window),
            ([0, 100], Sight::LastAnswer),
        ];
        steps.into_iter().map(|(weights, sight)| self.shift(load, weights, sight)).collect()
    }

    fn shift(&mut self, load: &Load, weights: [u8; 2], sight: Sight) -> Result<Shift> {
        let [one, two] = weights;
        let gateway = shop::with_weights(&self.gateway()?, &[(1, one), (2, two)])?;
        progress::say(&format!("PUT /api/v1/gateways/{INTERNAL_GATEWAY} with weights {one}/{two}"));
        let called = Instant::now();
        self.api.send("PUT", &format!("/api/v1/gateways/{INTERNAL_GATEWAY}"), &gateway, 200)?;
        let answered_after = called.elapsed();
        let what = format!("a client sees {one}/{two}");
        let seen = self.progress.wait_quietly(&what, TRAFFIC_TIME_MAX, || {
            let samples = load.ended_since(called);
            Ok(match sight.find(&samples, called) {
                Some(seen) => ControlFlow::Break(seen),
                None => ControlFlow::Continue(split_words(&samples)),
            })
        })?;
        let samples = self.wait_for_answers(load, seen, SPLIT_REQUESTS)?;
        let seen_after = seen.duration_since(called);
        progress::say(&format!(
            "  seen {} after the call; measured at the client: {}",
            seconds(seen_after),
            split_words(&samples)
        ));
        let share = load::percent(&samples, 2)?;
        let tolerance = if two == 100 { 0.0 } else { SPLIT_TOLERANCE };
        self.expect((share - f64::from(two)).abs() <= tolerance, || {
            format!("at {one}/{two} version 2 answered {share:.1} % of {} requests", samples.len())
        });
        Ok(Shift { weights, sight, answered_after, seen_after, measured: split_words(&samples) })
    }

    fn remove_version_1(&mut self, load: &Load) -> Result<()> {
        progress::step(5, "Version 1 is removed with a partial delete");
        let body = shop::removal(1);
        progress::say(&format!("DELETE /api/v1/deployments/shop {body}"));
        self.api.send("DELETE", "/api/v1/deployments/shop", &body, 202)?;
        shop::wait_gone(self.api, self.progress, 1)?;
        let samples = self.wait_for_answers(load, Instant::now(), SPLIT_REQUESTS)?;
        progress::say(&format!("measured at the client: {}", split_words(&samples)));
        let late = load::split(&samples).get(&1).copied().unwrap_or(0);
        self.expect(late == 0, || format!("version 1 answered {late} requests after its removal"));
        Ok(())
    }

    fn sum_up(&mut self, samples: &[Sample], shifts: &[Shift]) -> Result<()> {
        progress::step(6, "What happened");
        let failures = load::failures(samples);
        let failed: usize = failures.values().sum();
        progress::say(&format!("requests sent: {}, failed: {failed}", samples.len()));
        for (reason, count) in &failures {
            progress::say(&format!("  {count} x {reason}"));
        }
        self.expect(failed == 0, || format!("{failed} of {} requests failed", samples.len()));
        progress::say("from the API call until a client saw the new weights:");
        for shift in shifts {
            let [one, two] = shift.weights;
            progress::say(&format!(
                "  {:<6} {:>9}  {}; the call itself took {}; then {}",
                format!("{one}/{two}"),
                seconds(shift.seen_after),
                shift.sight.words(),
                seconds(shift.answered_after),
                shift.measured
            ));
        }
        self.print_events()
    }

    fn print_events(&mut self) -> Result<()> {
        progress::say("the event log, oldest first (without health, metrics and allocation):");
        let events = self.events()?;
        for event in &events {
            progress::say(&format!("  {}", event_line(event)));
        }
        for (service, what) in
            [("web:1", "deployed"), ("web:2", "deployed"), ("web:1", "undeployed")]
        {
            let tags = [format!("services:{service}"), format!("synchronisation:{what}")];
            let logged = events.iter().any(|event| tags.iter().all(|tag| has_tag(event, tag)));
            self.expect(logged, || format!("no event has the tags {tags:?}"));
        }
        Ok(())
    }

    /// Everything that concerns the shop and its gateways, oldest first.
    fn events(&self) -> Result<Vec<Value>> {
        let mut seen = BTreeSet::new();
        let mut events = Vec::new();
        for tag in ["blueprints:shop:1", "breeds", "deployments:shop", "gateways", "marshaller"] {
            let mut found = self.api.list(&format!("/api/v1/events?tag={tag}"))?;
            // Each list comes newest first.
            found.reverse();
            found.retain(|event| !NOISE.iter().any(|noise| event["type"] == *noise));
            found.retain(|event| seen.insert(event["id"].to_string()));
            events.extend(found);
        }
        events.sort_by(|one, other| one["timestamp"].as_str().cmp(&other["timestamp"].as_str()));
        Ok(events)
    }

    fn gateway(&self) -> Result<Value> {
        self.api.get(&format!("/api/v1/gateways/{INTERNAL_GATEWAY}"))
    }

    /// The requests that were sent from `since` on, as soon as there are `count`.
    fn wait_for_answers(&self, load: &Load, since: Instant, count: usize) -> Result<Vec<Sample>> {
        let what = format!("{count} requests more");
        self.progress.wait_quietly(&what, TRAFFIC_TIME_MAX, || {
            let samples = load.since(since);
            let found = samples.len();
            Ok(if found < count {
                ControlFlow::Continue(found.to_string())
            } else {
                ControlFlow::Break(samples)
            })
        })
    }

    fn expect(&mut self, so: bool, problem: impl FnOnce() -> String) {
        if !so {
            let problem = problem();
            progress::say(&format!("NOT SO: {problem}"));
            self.problems.push(problem);
        }
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/")
}

/// `version 1: 451 (90.2 %), version 2: 49 (9.8 %)`.
fn split_words(samples: &[Sample]) -> String {
    let words: Vec<String> = load::split(samples)
        .into_iter()
        .map(|(version, count)| {
            let share = load::percent(samples, version).unwrap_or(0.0);
            format!("version {version}: {count} ({share:.1} %)")
        })
        .collect();
    if words.is_empty() { "no answers".into() } else { words.join(", ") }
}

/// Time, type, and the tags that say something: a group tag is left out where its specific one is there.
fn event_line(event: &Value) -> String {
    let tags: Vec<&str> =
        event["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_group = |tag: &str| {
        tags.iter().any(|other| other.strip_prefix(tag).is_some_and(|rest| rest.starts_with(':')))
    };
    let specific: Vec<&str> = tags.iter().copied().filter(|tag| !is_group(tag)).collect();
    let text = |key: &str| event[key].as_str().unwrap_or("?").to_owned();
    format!("{} {:<16} {}", text("timestamp"), text("type"), specific.join(" "))
}

fn has_tag(event: &Value, tag: &str) -> bool {
    event["tags"].as_array().is_some_and(|tags| tags.iter().any(|other| other == tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request each millisecond, from the call on.
    fn samples(called: Instant, versions: impl IntoIterator<Item = u32>) -> Vec<Sample> {
        let sample = |(index, version)| {
            let sent = called + Duration::from_millis(index);
            let received = sent + Duration::from_micros(500);
            Sample {
                sent,
                received,
                connection: Connection::KeptAlive,
                answer: Ok(load::of_version(version)),
            }
        };
        (0..).zip(versions).map(sample).collect()
    }

    fn millis(sight: Sight, versions: impl IntoIterator<Item = u32>) -> Option<u128> {
        let called = Instant::now();
        Some(sight.find(&samples(called, versions), called)?.duration_since(called).as_millis())
    }

    #[test]
    fn the_first_answer_of_version_2_is_seen() {
        assert_eq!(millis(Sight::FirstAnswer, [1, 1, 1, 2, 1]), Some(3));
        assert_eq!(millis(Sight::FirstAnswer, [1, 1]), None);
    }

    #[test]
    fn half_of_the_traffic_is_seen_at_the_end_of_the_first_window_that_fits() {
        let before = std::iter::repeat_n(1, 100);
        let after = [1, 2].into_iter().cycle().take(40);
        // 8 of 20 answers are version 2 after 16 of the alternating ones.
        assert_eq!(millis(Sight::Window, before.clone().chain(after)), Some(115));
        assert_eq!(millis(Sight::Window, before), None);
    }

    #[test]
    fn the_last_answer_of_version_1_counts_once_enough_others_followed() {
        let shift = |others| [1, 2, 1].into_iter().chain(std::iter::repeat_n(2, others));
        assert_eq!(millis(Sight::LastAnswer, shift(SILENCE)), Some(2));
        assert_eq!(millis(Sight::LastAnswer, shift(SILENCE - 1)), None);
        assert_eq!(millis(Sight::LastAnswer, std::iter::repeat_n(2, SILENCE)), Some(0));
    }

    #[test]
    fn an_event_is_one_line_without_group_tags() {
        let event = json!({"timestamp": "2030-01-10T15:33:49.766Z", "type": "archive",
            "tags": ["breeds", "breeds:web:1", "archiving", "archiving:create"]});
        assert_eq!(
            event_line(&event),
            "2030-01-10T15:33:49.766Z archive          breeds:web:1 archiving:create"
        );
        assert!(has_tag(&event, "archiving:create") && !has_tag(&event, "archive"));
    }
}
