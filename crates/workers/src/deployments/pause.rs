//! Growing pauses between attempts to run a service that keeps failing.

use segue_domain::command::ServiceKey;
use std::collections::BTreeMap;
use std::time::Duration;
use time::OffsetDateTime;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A service that ran this long starts over with the shortest pause.
const RAN_WELL: Duration = Duration::from_mins(1);

/// When services may be tried again.
#[derive(Debug, Default)]
pub struct Pauses {
    by_service: BTreeMap<ServiceKey, Pause>,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    until: OffsetDateTime,
    ran_since: Option<OffsetDateTime>,
}

impl Pauses {
    /// It failed: the pause doubles, from 1 s to 30 s. Returns the new pause. A failure during a pause is part of the
    /// same attempt.
    pub fn failed(&mut self, key: &ServiceKey, now: OffsetDateTime) -> Duration {
        let length = match self.by_service.get(key) {
            Some(pause) if pause.lasts(now) => {
                return (pause.until - now).try_into().unwrap_or_default();
            }
            Some(pause) if pause.ran_since.is_some_and(|since| now - since >= RAN_WELL) => {
                PAUSE_MIN
            }
            Some(pause) => (pause.length * 2).min(PAUSE_MAX),
            None => PAUSE_MIN,
        };
        self.by_service.insert(key.clone(), Pause { length, until: now + length, ran_since: None });
        length
    }

    /// It runs.
    pub fn ran(&mut self, key: &ServiceKey, now: OffsetDateTime) {
        if let Some(pause) = self.by_service.get_mut(key) {
            pause.ran_since.get_or_insert(now);
        }
    }

    /// Something else is wanted of it: what failed before says nothing.
    pub fn forget(&mut self, key: &ServiceKey) {
        self.by_service.remove(key);
    }

    /// When it may be tried again, if not yet at `now`.
    pub fn until(&self, key: &ServiceKey, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.by_service.get(key).filter(|pause| pause.lasts(now)).map(|pause| pause.until)
    }
}

impl Pause {
    /// An end that is further away than the pause is long is of a clock that was put back since.
    fn lasts(&self, now: OffsetDateTime) -> bool {
        now < self.until && self.until - now <= self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_start_over_after_a_good_run() {
        let key = ServiceKey { deployment: "d".into(), cluster: "c".into(), service: "s".into() };
        let mut pauses = Pauses::default();
        let mut now = OffsetDateTime::UNIX_EPOCH;
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(pauses.failed(&key, now), Duration::from_secs(expected));
            assert_eq!(
                pauses.failed(&key, now),
                Duration::from_secs(expected),
                "part of the same attempt"
            );
            now += Duration::from_secs(expected);
        }
        pauses.ran(&key, now);
        assert_eq!(pauses.failed(&key, now + RAN_WELL), PAUSE_MIN);
    }

    #[test]
    fn a_clock_that_is_put_back_makes_no_pause_longer() {
        let key = ServiceKey { deployment: "d".into(), cluster: "c".into(), service: "s".into() };
        let mut pauses = Pauses::default();
        let ahead = OffsetDateTime::UNIX_EPOCH + Duration::from_hours(1);
        pauses.failed(&key, ahead);
        assert_eq!(pauses.until(&key, ahead), Some(ahead + PAUSE_MIN));
        assert_eq!(pauses.until(&key, ahead + PAUSE_MIN), None);
        assert_eq!(pauses.until(&key, OffsetDateTime::UNIX_EPOCH), None);
        assert_eq!(pauses.failed(&key, OffsetDateTime::UNIX_EPOCH), PAUSE_MIN * 2);
    }
}
