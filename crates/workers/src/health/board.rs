//! What is to be told of what was measured, and when (runtime, section 14): what changed once in a period, what must not
//! wait at once, and what stays the same now and then, since what was told last stands.
//!
//! Pure. Whoever asks for something finds what is more specific, too, and takes the newest: so what is less specific is
//! told again, behind it.

use super::measure::{Measured, RATE, is_told_when_busy, told_when_busy};
use super::{PERIOD, Windows};
use segue_domain::command::{Measure, Measurement, ServiceKey, Subject};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use time::OffsetDateTime;

/// How many values are told at once that cannot wait; of more, the others with what changed. Each of these leads to three
/// events at most, of which one append takes ten thousand.
const URGENT_MAX: usize = 1_000;
/// How many changes are told in a period; of more, those first that waited longest.
const CHANGES_MAX: usize = 2_000;
/// How often what stays the same is told again, for those who read the log by time.
const REFRESH: Duration = Duration::from_mins(5);
/// How many values are told again in a period, beside those that SLAs are checked against.
const REFRESHES_MAX: usize = 50;
/// How often what is 0 because nothing happens is told again. Nobody looks for it by time, but what was told last has to be
/// there: retention drops it after 7 days, when nobody says otherwise.
const NOTHING_REFRESH: Duration = Duration::from_hours(24);
/// How many of the values that are told again in a period are such: 170,000 a day, and room for the others.
const NOTHINGS_MAX: usize = 10;

pub(super) type Key = (Subject, Measure);

/// When what is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rhythm {
    period: Duration,
    /// How often metrics of gateways are told that SLAs are checked against: without data nothing follows from an SLA.
    watched: Duration,
}

/// All values, with what was told of them.
#[derive(Debug)]
pub(super) struct Board {
    rhythm: Rhythm,
    entries: BTreeMap<Key, Entry>,
    /// The gateways of clusters with an SLA.
    watched: BTreeSet<String>,
    /// What was measured since it was last asked what is due.
    touched: BTreeSet<Key>,
    /// What is not told as it is. Of many thousands of values most stay what they are, and nobody looks at them.
    untold: BTreeSet<Key>,
    /// When what was told last, oldest first: one for each value at most.
    history: BTreeSet<(OffsetDateTime, Key)>,
    /// The same for what is 0 because nothing happens, once that was found out.
    nothings: BTreeSet<(OffsetDateTime, Key)>,
}

#[derive(Debug)]
struct Entry {
    value: Value,
    told: Option<(Value, OffsetDateTime)>,
}

/// Why something is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// It went to, or from, where somebody has to look.
    Crossed,
    /// It changed, or is new.
    Changed,
    /// It is about to be too old for an SLA.
    Watched,
    /// It was not told for long.
    Refresh,
}

impl Rhythm {
    /// The rhythm for what is measured over `windows`.
    pub(super) fn of(windows: Windows) -> Self {
        let half = |window: Option<Duration>| window.map_or(Duration::MAX, |window| window / 2);
        let watched = half(windows.metrics);
        let period = PERIOD.min(half(windows.health)).min(watched).max(super::LOOK);
        Self { period, watched }
    }
}

impl Board {
    pub(super) fn new(rhythm: Rhythm) -> Self {
        Self {
            rhythm,
            entries: BTreeMap::new(),
            watched: BTreeSet::new(),
            touched: BTreeSet::new(),
            untold: BTreeSet::new(),
            history: BTreeSet::new(),
            nothings: BTreeSet::new(),
        }
    }

    /// How often changes are told.
    pub(super) fn period(&self) -> Duration {
        self.rhythm.period
    }

    /// Everything was measured; what is not among it is gone. SLAs are checked against the `watched` gateways.
    pub(super) fn replace(&mut self, measured: Measured, watched: BTreeSet<String>) {
        self.watched = watched;
        let told_when_busy = |(_, measure): &Key| is_told_when_busy(*measure);
        let subjects: BTreeSet<Subject> =
            measured.keys().map(|(subject, _)| subject.clone()).collect();
        self.entries.retain(|key, _| {
            measured.contains_key(key) || told_when_busy(key) && subjects.contains(&key.0)
        });
        self.untold.retain(|key| self.entries.contains_key(key));
        self.history.retain(|(_, key)| self.entries.contains_key(key));
        self.nothings.retain(|(_, key)| self.entries.contains_key(key));
        self.update(measured);
    }

    /// Something was measured.
    pub(super) fn update(&mut self, measured: Measured) {
        for key in self.calmed(&measured) {
            self.put(key, Value::from(0));
        }
        for (key, value) in measured {
            self.put(key, value);
        }
    }

    fn put(&mut self, key: Key, value: Value) {
        let entry = self.entries.entry(key.clone());
        let entry = entry.or_insert(Entry { value: Value::Null, told: None });
        entry.value = value;
        if entry.told.as_ref().is_some_and(|(told, _)| *told == entry.value) {
            self.untold.remove(&key);
        } else {
            self.untold.insert(key.clone());
        }
        self.touched.insert(key);
    }

    /// Whether something was measured of `subject` before.
    pub(super) fn knows(&self, subject: &Subject) -> bool {
        self.entries.contains_key(&(subject.clone(), RATE))
    }

    /// Something was told before this board was there; it is true until something else is measured.
    pub(super) fn recall(&mut self, key: Key, value: Value, at: OffsetDateTime) {
        self.history.insert((at, key.clone()));
        self.entries.insert(key, Entry { value: value.clone(), told: Some((value, at)) });
    }

    /// What is told only of busy gateways is 0 of those that were measured and are not.
    fn calmed(&self, measured: &Measured) -> Vec<Key> {
        let rates = measured.keys().filter(|(_, measure)| *measure == RATE);
        let keys = rates.flat_map(|(subject, _)| {
            told_when_busy().map(move |measure| (subject.clone(), measure))
        });
        keys.filter(|key| self.entries.contains_key(key) && !measured.contains_key(key)).collect()
    }

    /// What is to be told now, and counts as told. `whole` rounds look at everything, others at what cannot wait.
    pub(super) fn due(&mut self, now: OffsetDateTime, whole: bool) -> Vec<Measurement> {
        let touched = std::mem::take(&mut self.touched);
        let aged = if whole { self.aged(now) } else { BTreeSet::new() };
        let looked_at: Vec<&Key> = if whole {
            let aged = aged.iter().filter(|key| !self.untold.contains(key));
            self.untold.iter().chain(aged).collect()
        } else {
            touched.iter().collect()
        };
        let found = looked_at.into_iter().filter_map(|key| self.entries.get_key_value(key));
        let mut due: Vec<(Due, Option<OffsetDateTime>, &Key)> =
            found.filter_map(|(key, entry)| self.is_due(key, entry, now)).collect();
        if !whole {
            due.retain(|(due, told, _)| *due == Due::Crossed || told.is_none());
        }
        // Those of the same age stay in their order.
        due.sort_by_key(|(due, told, _)| (*due, *told));
        let (mut urgent, mut changes, mut refreshes) = (0, 0, 0);
        due.retain(|(due, _, _)| match due {
            Due::Crossed | Due::Watched => {
                urgent += 1;
                urgent <= URGENT_MAX
            }
            Due::Changed => {
                changes += 1;
                changes <= CHANGES_MAX
            }
            Due::Refresh => {
                refreshes += 1;
                refreshes <= REFRESHES_MAX
            }
        });
        let mut keys = BTreeSet::new();
        for (_, _, (subject, measure)) in due {
            let whole = std::iter::successors(Some(subject.clone()), around);
            keys.extend(whole.map(|subject| (generality(&subject), subject, *measure)));
        }
        let told = keys.into_iter().filter_map(|(_, subject, measure)| {
            let key = (subject, measure);
            let entry = self.entries.get_mut(&key)?;
            self.untold.remove(&key);
            let before = entry.told.replace((entry.value.clone(), now));
            let mut at = (before.map_or(now, |(_, at)| at), key);
            self.history.remove(&at);
            self.nothings.remove(&at);
            at.0 = now;
            let (subject, measure) = at.1.clone();
            self.history.insert(at);
            Some(Measurement { subject, measure, value: entry.value.clone() })
        });
        let told = told.collect();
        self.put_back(aged, now);
        told
    }

    /// What was looked at for its age and is not told yet, since others waited longer, keeps its place.
    fn put_back(&mut self, aged: BTreeSet<Key>, now: OffsetDateTime) {
        for key in aged {
            let told = self.entries.get(&key).and_then(|entry| entry.told.as_ref());
            if let Some((_, at)) = told.filter(|(_, at)| *at != now) {
                self.history.insert((*at, key));
            }
        }
    }

    /// What may be due though it is told as it is: what SLAs are checked against, and what was not told for longest.
    fn aged(&mut self, now: OffsetDateTime) -> BTreeSet<Key> {
        let mut aged = BTreeSet::new();
        for name in &self.watched {
            let subject = Subject::Gateway(name.clone());
            let own = self.entries.range((subject.clone(), Measure::Health)..);
            let own = own.take_while(|((other, _), _)| *other == subject);
            aged.extend(own.map(|(key, _)| key.clone()));
        }
        let mut refreshes = 0;
        // What is told below gets its place again.
        while refreshes < NOTHINGS_MAX
            && let Some((at, key)) = self.nothings.pop_first()
        {
            if now - at < NOTHING_REFRESH {
                self.nothings.insert((at, key));
                break;
            }
            refreshes += usize::from(aged.insert(key));
        }
        while refreshes < REFRESHES_MAX
            && let Some((at, key)) = self.history.pop_first()
        {
            if now - at < REFRESH {
                self.history.insert((at, key));
                break;
            }
            if self.entries.get(&key).is_none_or(|entry| is_nothing(&key, entry)) {
                self.nothings.insert((at, key));
            } else {
                refreshes += usize::from(aged.insert(key));
            }
        }
        aged
    }

    fn is_due<'k>(
        &self,
        key: &'k Key,
        entry: &Entry,
        now: OffsetDateTime,
    ) -> Option<(Due, Option<OffsetDateTime>, &'k Key)> {
        let is_nothing = is_nothing(key, entry);
        let Some((told, at)) = &entry.told else {
            return (!is_nothing).then_some((Due::Changed, None, key));
        };
        let due = if *told == entry.value {
            let age = now - *at;
            let refresh = if is_nothing { NOTHING_REFRESH } else { REFRESH };
            if !is_nothing && age >= self.rhythm.watched && self.is_watched(key) {
                Due::Watched
            } else {
                (age >= refresh).then_some(Due::Refresh)?
            }
        } else if crosses(key.1, told, &entry.value) {
            Due::Crossed
        } else {
            Due::Changed
        };
        Some((due, Some(*at), key))
    }

    fn is_watched(&self, key: &Key) -> bool {
        matches!(key, (Subject::Gateway(name), Measure::Metric(_)) if self.watched.contains(name))
    }
}

/// Whether this is 0 because nothing happens.
fn is_nothing(key: &Key, entry: &Entry) -> bool {
    is_told_when_busy(key.1) && entry.value == 0
}

/// Whether somebody has to hear of it at once: health that was, or is, whole or nothing, and traffic that begins or ends.
fn crosses(measure: Measure, from: &Value, to: &Value) -> bool {
    let limits: &[i64] = match measure {
        Measure::Health => &[0, 1],
        Measure::Metric(_) => &[0],
        Measure::Allocation => return true,
    };
    limits.iter().any(|limit| from == limit || to == limit)
}

/// What `subject` is a part of, and what is asked for with some of its tags only.
fn around(subject: &Subject) -> Option<Subject> {
    match subject {
        Subject::Route { gateway, .. } => Some(Subject::Gateway(gateway.clone())),
        Subject::Service(ServiceKey { deployment, cluster, .. }) => {
            Some(Subject::Cluster { deployment: deployment.clone(), cluster: cluster.clone() })
        }
        Subject::Cluster { deployment, .. } => Some(Subject::Deployment(deployment.clone())),
        Subject::Gateway(_) | Subject::Deployment(_) => None,
    }
}

/// The order in which subjects are told.
fn generality(subject: &Subject) -> u8 {
    match subject {
        Subject::Route { .. } | Subject::Service(_) => 0,
        Subject::Cluster { .. } => 1,
        Subject::Gateway(_) | Subject::Deployment(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    /// Shows that no round is more than one append takes, and that nothing is forgotten.
    #[test]
    fn what_crosses_all_at_once_is_told_in_several_rounds() {
        let mut board = Board::new(Rhythm { period: PERIOD, watched: Duration::MAX });
        let all = |rate: i64| {
            let key = |number: u32| (Subject::Gateway(number.to_string()), RATE);
            (0..5_000).map(|number| (key(number), Value::from(rate))).collect::<Measured>()
        };
        let mut now = datetime!(2030-01-01 00:00 UTC);
        for rate in [1, 0] {
            board.update(all(rate));
            let mut told = 0;
            for round in 0.. {
                let due = board.due(now, true);
                assert!(due.len() <= URGENT_MAX + CHANGES_MAX + REFRESHES_MAX, "{}", due.len());
                assert!(due.iter().all(|told| told.value == rate));
                told += due.len();
                now += PERIOD;
                if due.is_empty() || round > 10 {
                    break;
                }
            }
            assert_eq!(told, 5_000);
        }
    }

    /// Shows that what was told of a busy gateway is there for as long as events are kept, however many there are.
    #[test]
    fn what_is_nothing_is_told_again_once_a_day() {
        let mut board = Board::new(Rhythm { period: PERIOD, watched: Duration::MAX });
        let subject = |number: u32| Subject::Gateway(number.to_string());
        let all = |measure: Measure, value: i64| {
            (0..200).map(move |number| ((subject(number), measure), Value::from(value)))
        };
        let percentile = told_when_busy().next().unwrap();
        let start = datetime!(2030-01-01 00:00 UTC);
        board.update(all(RATE, 1).chain(all(percentile, 20)).collect());
        assert_eq!(board.due(start, true).len(), 400);
        board.update(all(RATE, 0).collect());
        let mut last: BTreeMap<Subject, Vec<OffsetDateTime>> = BTreeMap::new();
        for round in 1..=3 * 17_280_u32 {
            let now = start + PERIOD * round;
            let told = board.due(now, true);
            let nothings = told.iter().filter(|told| told.measure == percentile);
            assert!(round < 10 || nothings.clone().count() <= NOTHINGS_MAX, "{round}");
            assert!(round < 10 || told.len() <= REFRESHES_MAX, "{round}: {}", told.len());
            for told in nothings {
                last.entry(told.subject.clone()).or_default().push(now);
            }
        }
        assert_eq!(last.len(), 200);
        for (subject, at) in last {
            // When it became 0, and two or three times since.
            assert!((3..=4).contains(&at.len()), "{subject:?}: {at:?}");
            let slow = at.windows(2).find(|pair| pair[1] - pair[0] > Duration::from_hours(25));
            assert_eq!(slow, None, "{subject:?}");
        }
    }

    /// Shows that memory follows the number of values, not how often they change.
    #[test]
    fn what_changes_all_the_time_is_remembered_once() {
        let mut board = Board::new(Rhythm { period: PERIOD, watched: Duration::MAX });
        let key = |number: u32| (Subject::Gateway(number.to_string()), RATE);
        let mut now = datetime!(2030-01-01 00:00 UTC);
        for round in 0..500 {
            // Many stay what they are, more than are told again in a period, and some change.
            let all = (0..2_000).map(|number| (key(number), Value::from(1)));
            let changing = (2_000..2_100).map(|number| (key(number), Value::from(round + 1)));
            board.update(all.chain(changing).collect());
            let told = board.due(now, true);
            assert!(round < 2 || told.len() <= 100 + REFRESHES_MAX, "{round}: {}", told.len());
            assert!(board.history.len() <= board.entries.len(), "{round}");
            now += PERIOD;
        }
        assert_eq!((board.entries.len(), board.history.len()), (2_100, 2_100));
        assert!(board.untold.is_empty());
    }
}
