//! Requests as drivers count them: how many there were on each gateway and route, how they ended and how long they
//! took. It knows no proxy and no clock.

use std::collections::BTreeMap;

/// Times below this, in milliseconds, have a bucket each; above, every doubling has so many.
const BUCKETS_PER_DOUBLING: u64 = 8;

/// What requests are counted under: a gateway, or one of its routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Passage {
    /// The gateway's name.
    pub gateway: String,
    /// The path of the route; `None` for the gateway as a whole.
    pub route: Option<String>,
}

impl Passage {
    /// A gateway as a whole.
    pub fn gateway(name: &str) -> Self {
        Self { gateway: name.to_owned(), route: None }
    }

    /// One route of a gateway.
    pub fn route(gateway: &str, path: &str) -> Self {
        Self { gateway: gateway.to_owned(), route: Some(path.to_owned()) }
    }
}

/// The requests of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// What was counted; where nothing was, there is no entry.
    pub counts: BTreeMap<Passage, Count>,
    /// How many seconds of the window were counted: fewer than it has where counting began later, 0 where nobody counts.
    pub seconds: u64,
    /// How many requests the proxy that runs now could not tell of, since it runs.
    pub lost: u64,
}

/// One request, or with tcp one connection, that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whether no answer came, or one with a status of 500 or more. A client that gave up is no failure.
    pub failed: bool,
    /// The status of the answer; `None` without one, and with tcp.
    pub status: Option<u16>,
    /// How long it took, in milliseconds; `None` when the client did not wait for the end.
    pub time_ms: Option<u64>,
}

/// What requests came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All of them.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those with an answer, by the first digit of the status, from 1 to 5.
    pub classes: [u64; 5],
    /// How long they took.
    pub times: Times,
}

impl Count {
    /// Counts one more.
    pub fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.failed += u64::from(request.failed);
        let class = request.status.and_then(|status| (status / 100).checked_sub(1));
        if let Some(class) = class.and_then(|class| self.classes.get_mut(usize::from(class))) {
            *class += 1;
        }
        if let Some(time_ms) = request.time_ms {
            self.times.add(time_ms);
        }
    }

    /// Counts all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        for (own, more) in self.classes.iter_mut().zip(other.classes) {
            *own += more;
        }
        self.times.merge(&other.times);
    }

    /// The share that did not fail, from 0 to 1; all of it where there was nothing.
    #[expect(clippy::cast_precision_loss, reason = "a window has far fewer than 2^53 requests")]
    pub fn health(&self) -> f64 {
        if self.requests == 0 {
            return 1.0;
        }
        (self.requests - self.failed) as f64 / self.requests as f64
    }
}

/// How long requests took: their mean exactly, percentiles to within 7 percent.
///
/// Buckets grow with the times that they hold, eight for every doubling, so that a wide range takes little memory; only
/// those that hold something exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    count: u64,
    sum_ms: u64,
    /// Number of the bucket and what it holds, ascending.
    buckets: Vec<(u16, u64)>,
}

impl Times {
    /// Adds one.
    pub fn add(&mut self, time_ms: u64) {
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(time_ms);
        self.fill(bucket(time_ms), 1);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
        other.buckets.iter().for_each(|(bucket, held)| self.fill(*bucket, *held));
    }

    /// The mean in milliseconds; 0 of nothing.
    #[expect(clippy::cast_precision_loss, reason = "sums of milliseconds stay far below 2^53")]
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ms as f64 / self.count as f64 }
    }

    /// The time in milliseconds that so many of a hundred did not exceed, to within 7 percent; 0 of nothing.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds stay far below 2^53")]
    pub fn percentile_ms(&self, percent: u8) -> f64 {
        let wanted = (self.count * u64::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, held)| {
            seen += held;
            seen >= wanted
        });
        found.map_or(0.0, |(bucket, _)| {
            let (least, most) = bounds(*bucket);
            least as f64 / 2.0 + most as f64 / 2.0
        })
    }

    fn fill(&mut self, bucket: u16, held: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(number, _)| *number) {
            Ok(index) => self.buckets[index].1 += held,
            Err(index) => self.buckets.insert(index, (bucket, held)),
        }
    }
}

/// The number of the bucket of a time.
fn bucket(time_ms: u64) -> u16 {
    let doubling =
        time_ms.checked_ilog2().unwrap_or(0).saturating_sub(BUCKETS_PER_DOUBLING.ilog2());
    let number = u64::from(doubling) * BUCKETS_PER_DOUBLING + (time_ms >> doubling);
    u16::try_from(number).expect("there are eight buckets for each of 64 doublings")
}

/// The least and the greatest time of a bucket.
fn bounds(bucket: u16) -> (u64, u64) {
    let bucket = u64::from(bucket);
    let doubling = (bucket / BUCKETS_PER_DOUBLING).saturating_sub(1);
    let first = bucket - doubling * BUCKETS_PER_DOUBLING;
    let least = first << doubling;
    (least, least + ((1 << doubling) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_bucket_follows_the_one_before() {
        assert_eq!(bounds(0), (0, 0));
        for number in 1..bucket(u64::MAX) {
            let (least, most) = bounds(number);
            assert_eq!(least, bounds(number - 1).1 + 1, "{number}");
            assert_eq!((bucket(least), bucket(most)), (number, number));
        }
    }

    #[test]
    fn what_requests_come_to() {
        let mut count = Count::default();
        assert_eq!(
            (count.health(), count.times.mean_ms(), count.times.percentile_ms(99)),
            (1.0, 0.0, 0.0)
        );
        for (status, time_ms) in [(200, 2), (204, 4), (500, 6), (302, 0)] {
            let request =
                Request { failed: status >= 500, status: Some(status), time_ms: Some(time_ms) };
            count.add(&request);
        }
        count.add(&Request::default());
        assert_eq!((count.requests, count.failed, count.classes), (5, 1, [0, 2, 1, 0, 1]));
        assert_eq!((count.health(), count.times.mean_ms()), (0.8, 3.0));
        assert_eq!((count.times.percentile_ms(50), count.times.percentile_ms(100)), (2.0, 6.0));
    }

    proptest! {
        #[test]
        fn percentiles_are_near(mut times in prop::collection::vec(0_u32..10_000_000, 1..200), percent in 1_u8..=100) {
            let mut counted = Times::default();
            for time in &times {
                counted.add(u64::from(*time));
            }
            times.sort_unstable();
            let index = (times.len() * usize::from(percent)).div_ceil(100).max(1) - 1;
            let (exact, near) = (f64::from(times[index]), counted.percentile_ms(percent));
            prop_assert!((near - exact).abs() <= exact * 0.07, "{near} for {exact}");
        }

        #[test]
        fn merging_is_adding(one in prop::collection::vec(any::<u32>(), 0..50), two in prop::collection::vec(any::<u32>(), 0..50)) {
            let of = |times: &[u32]| {
                let mut all = Count::default();
                for time in times {
                    let failed = time % 3 == 0;
                    let status = u16::try_from(time % 700).ok();
                    all.add(&Request { failed, status, time_ms: Some((*time).into()) });
                }
                all
            };
            let mut merged = of(&one);
            merged.merge(&of(&two));
            prop_assert_eq!(merged, of(&[one, two].concat()));
        }
    }
}
