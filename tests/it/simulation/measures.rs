//! What must hold of what is measured: health stays between 0 and 1, and nothing is told again without need.

use super::follow::ensure;
use super::world::OVERTAKEN;
use segue_domain::event::{Event, Record};
use segue_domain::state::State;
use serde_json::Value;
use std::collections::BTreeMap;
use time::{Duration, OffsetDateTime};

/// How often changes are told, but for a look that comes a little early.
const PERIOD: Duration = Duration::milliseconds(4_900);
/// How soon metrics that an SLA is checked against are told again when they stay the same, in windows of 30 s.
const WATCHED: Duration = Duration::seconds(15);
/// How soon everything else is.
const REFRESH: Duration = Duration::minutes(5);

/// Everything that was told, and when.
#[derive(Default)]
pub struct Measures {
    told: BTreeMap<Key, Told>,
    /// The life of the service that is measured in, and when it last told what could have waited.
    life: u32,
    whole_at: Option<(OffsetDateTime, String)>,
    /// What the append that is read told.
    append: (String, Vec<Key>),
}

/// What is told, of what: the tags of the subject from what is general to what is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) measure: String,
    pub(super) subject: Vec<String>,
}

#[derive(Clone, Debug)]
struct Told {
    value: Value,
    at: OffsetDateTime,
    life: u32,
    /// Whether its subject was away since: the worker may have seen that, and tells it anew.
    was_away: bool,
}

impl Measures {
    /// What was told last of `key`.
    pub(super) fn last(&self, key: &Key) -> Option<&Value> {
        self.told.get(key).map(|told| &told.value)
    }

    /// Everything that was told of what is there.
    pub(super) fn all(&self, state: &State) -> impl Iterator<Item = (&Key, &Value)> {
        let there = self.told.iter().filter(|(key, _)| key.exists(state));
        there.map(|(key, told)| (key, &told.value))
    }

    /// Reads a record of the service's so many-th life.
    pub(super) fn read(&mut self, record: &Record, life: u32) -> Result<(), String> {
        if record.provenance.actor != segue_workers::health::ACTOR {
            return Ok(());
        }
        let event = &record.event;
        let key = Key::of(event);
        if event.kind == "health" {
            let value = event.value.as_f64();
            ensure(value.is_some_and(|value| (0.0..=1.0).contains(&value)), || {
                format!("record {} tells the health {}", record.position, event.value)
            })?;
        }
        if self.append.0 != record.provenance.correlation {
            self.append = (record.provenance.correlation.clone(), Vec::new());
        }
        if self.life != life {
            (self.life, self.whole_at) = (life, None);
        }
        if let Some(told) = self.told.get(&key).cloned() {
            self.check_again(record, &key, &told)
                .map_err(|words| format!("record {} tells {words}", record.position))?;
        }
        self.append.1.push(key.clone());
        self.told.insert(
            key,
            Told { value: event.value.clone(), at: record.time, life, was_away: false },
        );
        Ok(())
    }

    /// Something is told again: since something more specific is told with it, since the service was started anew, since
    /// it crossed to where somebody has to look, or once in a period, when it changed or is old. In a turn that was
    /// overtaken the more specific may be gone by the time that the rest is recorded.
    fn check_again(&mut self, record: &Record, key: &Key, told: &Told) -> Result<(), String> {
        let value = &record.event.value;
        let (from, to) = (&told.value, value);
        let age = record.time - told.at;
        let is_overtaken = record.provenance.correlation.starts_with(OVERTAKEN);
        let with_specific = is_overtaken && key.has_parts()
            || self.append.1.iter().any(|other| other.is_part_of(key));
        let is_anew = told.was_away || told.life != self.life;
        if with_specific || is_anew || from != to && key.crosses(from, to) {
            return Ok(());
        }
        ensure(age > Duration::ZERO, || format!("{key:?} twice at once"))?;
        let limit = if key.is_watched() { WATCHED } else { REFRESH };
        ensure(from != to || age >= limit, || format!("{key:?} again, which is as it was"))?;
        let correlation = &record.provenance.correlation;
        if let Some((at, with)) = &self.whole_at {
            ensure(with == correlation || record.time - *at >= PERIOD, || {
                format!("{key:?} again before the period is over")
            })?;
        }
        self.whole_at = Some((record.time, correlation.clone()));
        Ok(())
    }

    /// Notes what is not there any more.
    pub(super) fn look(&mut self, state: &State) {
        for (key, told) in &mut self.told {
            told.was_away |= !key.exists(state);
        }
    }
}

impl Key {
    pub(super) fn of(event: &Event) -> Self {
        let groups = ["gateways:", "deployments:", "routes:", "clusters:", "services:"];
        let tags = event.tags.as_slice();
        let subject = groups
            .into_iter()
            .filter_map(|group| tags.iter().find(|tag| tag.starts_with(group)).cloned());
        let metric = tags.iter().find(|tag| tag.starts_with("metrics:"));
        let measure = metric.unwrap_or(&event.kind).clone();
        Self { measure, subject: subject.collect() }
    }

    fn is_part_of(&self, whole: &Self) -> bool {
        self.measure == whole.measure
            && self.subject.len() > whole.subject.len()
            && self.subject.starts_with(&whole.subject)
    }

    /// Whether something may be more specific.
    fn has_parts(&self) -> bool {
        let has_routes = self.subject.first().is_some_and(|tag| tag.starts_with("gateways:"));
        self.subject.len() < if has_routes { 2 } else { 3 }
    }

    fn crosses(&self, from: &Value, to: &Value) -> bool {
        let is = |number: i64| *from == number || *to == number;
        match self.measure.as_str() {
            "health" => is(0) || is(1),
            "allocation" => true,
            _ => is(0),
        }
    }

    /// Whether an SLA may be checked against it.
    fn is_watched(&self) -> bool {
        let is_gateway = self.subject.len() == 1 && self.subject[0].starts_with("gateways:");
        is_gateway && self.measure.starts_with("metrics:")
    }

    fn exists(&self, state: &State) -> bool {
        let names: Vec<&str> =
            self.subject.iter().filter_map(|tag| Some(tag.split_once(':')?.1)).collect();
        let is_gateway = self.subject.first().is_some_and(|tag| tag.starts_with("gateways:"));
        let gateway = |name: &str| state.gateways().get(name).filter(|stored| stored.published);
        match (is_gateway, &names[..]) {
            (true, [name]) => gateway(name).is_some(),
            (true, [name, route]) => gateway(name).is_some_and(|stored| {
                stored.gateway.routes.keys().any(|path| path.as_str() == *route)
            }),
            (false, [name]) => state.deployment(name).is_some(),
            (false, [name, cluster]) => {
                state.deployment(name).is_some_and(|found| found.clusters.contains_key(*cluster))
            }
            (false, [name, cluster, service]) => state
                .deployment(name)
                .and_then(|found| found.service(cluster, service))
                .is_some_and(|service| !service.is_undeploying()),
            _ => false,
        }
    }
}
