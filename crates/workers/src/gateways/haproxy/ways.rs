//! Counts requests by the backend and server that HAProxy names, in buckets of a second, and tells what gateways and
//! routes got. Names of a configuration that was replaced are known as long as an old worker may use them.
//!
//! Time comes with the lines; it knows no clock.

use super::line::Line;
use crate::gateways::{Count, Passage};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// What requests are counted under, by backend and server.
pub(super) type Named = BTreeMap<(String, String), BTreeSet<Passage>>;

/// How long counts are kept, in seconds, before anybody asked for a longer window.
const KEPT_SECONDS: i64 = 60;
/// The longest window.
const KEPT_SECONDS_MAX: i64 = 600;

/// All ways that requests take, and what they came to.
#[derive(Debug)]
pub(super) struct Ways {
    /// By backend and server, with a slash between them.
    named: HashMap<String, Way>,
    /// What stood under a name before it meant something else.
    former: Vec<Way>,
    kept_seconds: i64,
    /// Since when requests are counted: those that waited to be taken in when that began are among them. `None` while
    /// nobody takes them in.
    since: Option<i64>,
    /// How long a name that is not in use any more is known.
    known_seconds: i64,
    /// Lines that no request could be read of.
    pub(super) unread: u64,
    /// The key of the last look-up, whose memory is used again.
    key: String,
}

#[derive(Debug)]
struct Way {
    passages: Arc<BTreeSet<Passage>>,
    /// Ascending; only seconds in which something ended.
    seconds: VecDeque<(i64, Count)>,
    /// Since when no configuration names it.
    unnamed_since: Option<i64>,
}

impl Ways {
    /// Nothing yet; names are known for so long after they went out of use.
    pub(super) fn new(known_seconds: i64) -> Self {
        Self {
            named: HashMap::new(),
            former: Vec::new(),
            kept_seconds: KEPT_SECONDS,
            since: None,
            known_seconds,
            unread: 0,
            key: String::new(),
        }
    }

    /// Requests are taken in from now on.
    pub(super) fn begin(&mut self, now: i64) {
        self.since = Some(now);
    }

    /// Requests are no longer taken in.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// How many of the last whole seconds before `now` were counted.
    pub(super) fn seconds(&self, now: i64, window_seconds: i64) -> u64 {
        let counted = self.since.map_or(0, |since| now.saturating_sub(since));
        u64::try_from(counted.min(window_seconds.clamp(1, KEPT_SECONDS_MAX))).unwrap_or(0)
    }

    /// What names mean from now on.
    pub(super) fn name(&mut self, ways: Named, now: i64) {
        for way in self.named.values_mut() {
            way.unnamed_since.get_or_insert(now);
        }
        for ((backend, server), passages) in ways {
            let key = format!("{backend}/{server}");
            match self.named.get_mut(&key) {
                Some(way) if *way.passages == passages => way.unnamed_since = None,
                Some(_) | None => {
                    let way = Way {
                        passages: Arc::new(passages),
                        seconds: VecDeque::new(),
                        unnamed_since: None,
                    };
                    self.former.extend(self.named.insert(key, way));
                }
            }
        }
        let known_seconds = self.known_seconds;
        self.named
            .retain(|_, way| way.unnamed_since.is_none_or(|since| now - since <= known_seconds));
    }

    /// Counts the request that `line` tells of, which came in at `now`.
    pub(super) fn count(&mut self, line: &[u8], scratch: &mut Vec<u8>, now: i64) {
        let Some((line, second)) = Line::read(line, scratch).and_then(|line| {
            let second = line.second()?;
            Some((line, second))
        }) else {
            self.unread += 1;
            return;
        };
        let Some(request) = line.request() else { return };
        let (kept_seconds, second) = (self.kept_seconds, second.min(now));
        if second <= now - kept_seconds {
            // It waited while nobody was there to take it.
            return;
        }
        match self.way(&line) {
            Some(way) => {
                way.forget(now - kept_seconds);
                way.at(second).add(&request);
                self.since = self.since.map(|since| since.min(second));
            }
            None => self.unread += 1,
        }
    }

    /// What gateways and routes got in the last whole seconds before `now`.
    pub(super) fn counts(&mut self, now: i64, window_seconds: i64) -> BTreeMap<Passage, Count> {
        let window_seconds = window_seconds.clamp(1, KEPT_SECONDS_MAX);
        // One more, since the second that has begun does not count yet.
        self.kept_seconds = self.kept_seconds.max(window_seconds + 1);
        let (from, kept_seconds) = (now - window_seconds, self.kept_seconds);
        let mut counts: BTreeMap<Passage, Count> = BTreeMap::new();
        for way in self.named.values_mut().chain(&mut self.former) {
            way.forget(now - kept_seconds);
            let mut sum: Option<Count> = None;
            for (_, count) in way.seconds.iter().filter(|(second, _)| (from..now).contains(second))
            {
                sum.get_or_insert_default().merge(count);
            }
            let Some(sum) = sum else { continue };
            for passage in &*way.passages {
                counts.entry(passage.clone()).or_default().merge(&sum);
            }
        }
        self.former.retain(|way| !way.seconds.is_empty());
        counts
    }

    /// The way that a request took, as exactly as it is known: that of its server, of its backend, or, where it came to
    /// no backend, of its frontend.
    fn way(&mut self, line: &Line<'_>) -> Option<&mut Way> {
        let names = [(&*line.b, &*line.s), (&*line.b, ""), (&*line.ft, "")];
        let found = names.into_iter().find(|(backend, server)| {
            self.key.clear();
            self.key.extend([backend, "/", server]);
            self.named.contains_key(&self.key)
        });
        found.and_then(|_| self.named.get_mut(&self.key))
    }
}

impl Way {
    fn forget(&mut self, until: i64) {
        while self.seconds.front().is_some_and(|(second, _)| *second <= until) {
            self.seconds.pop_front();
        }
    }

    fn at(&mut self, second: i64) -> &mut Count {
        let index = self.seconds.partition_point(|(other, _)| *other < second);
        if self.seconds.get(index).is_none_or(|(other, _)| *other != second) {
            self.seconds.insert(index, (second, Count::default()));
        }
        &mut self.seconds[index].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u32, backend: &str, server: &str, status: u16) -> String {
        format!(
            r#"{{"t":"01/Jan/1970:00:{:02}:{:02}.500","ft":"g","b":"{backend}","s":"{server}","Tq":0,"Tc":0,"Tt":10,"ST":{status},"tsc":"----","ac":1,"hr":"""#,
            second / 60,
            second % 60
        )
    }

    fn named(entries: &[(&str, &str, &str)]) -> Named {
        let way = |(backend, server, route): &(&str, &str, &str)| {
            let passages = BTreeSet::from([Passage::gateway("G"), Passage::route("G", route)]);
            (((*backend).to_owned(), (*server).to_owned()), passages)
        };
        entries.iter().map(way).collect()
    }

    fn requests(ways: &mut Ways, now: i64, window: i64) -> Vec<String> {
        let counts = ways.counts(now, window);
        let text = |(passage, count): (&Passage, &Count)| {
            let name = passage.route.as_deref().unwrap_or(&passage.gateway);
            format!("{name} {}-{}", count.requests, count.failed)
        };
        counts.iter().map(text).collect()
    }

    #[test]
    fn a_window_has_whole_seconds_and_ends_before_the_one_that_has_begun() {
        let mut ways = Ways::new(300);
        ways.name(named(&[("g", "s", "r")]), 0);
        for (second, status) in [(10, 200), (11, 500), (12, 200), (11, 200), (13, 200)] {
            ways.count(line(second, "g", "s", status).as_bytes(), &mut Vec::new(), 13);
        }
        assert_eq!(requests(&mut ways, 13, 2), ["G 3-1", "r 3-1"]);
        assert_eq!(requests(&mut ways, 14, 30), ["G 5-1", "r 5-1"]);
        assert_eq!(requests(&mut ways, 14, 1), ["G 1-0", "r 1-0"]);
        assert_eq!(requests(&mut ways, 100, 30), [""; 0]);
        // What comes too late, and what comes from a clock that is ahead.
        ways.count(line(20, "g", "s", 200).as_bytes(), &mut Vec::new(), 100);
        ways.count(line(200, "g", "s", 200).as_bytes(), &mut Vec::new(), 100);
        assert_eq!(requests(&mut ways, 101, 30), ["G 1-0", "r 1-0"]);
        assert_eq!(ways.unread, 0);
    }

    #[test]
    fn a_window_says_how_much_of_it_was_counted() {
        let mut ways = Ways::new(300);
        ways.name(named(&[("g", "s", "r")]), 100);
        assert_eq!(ways.seconds(100, 30), 0);
        ways.begin(100);
        let seconds = [100, 101, 110, 130, 200].map(|now| ways.seconds(now, 30));
        assert_eq!(seconds, [0, 1, 10, 30, 30]);
        ways.end();
        assert_eq!(ways.seconds(210, 30), 0);
        // What waited meanwhile is counted as well, and so is the time since then.
        ways.begin(220);
        ways.count(line(210, "g", "s", 200).as_bytes(), &mut Vec::new(), 220);
        assert_eq!(
            (ways.seconds(220, 30), requests(&mut ways, 220, 30)),
            (10, vec!["G 1-0".to_owned(), "r 1-0".to_owned()])
        );
        // A clock that was put back.
        assert_eq!(ways.seconds(150, 30), 0);
    }

    #[test]
    fn names_are_known_for_a_while_after_they_went_out_of_use() {
        let mut ways = Ways::new(300);
        let mut scratch = Vec::new();
        ways.name(named(&[("g", "s", "r"), ("g", "", "any")]), 0);
        ways.count(line(1, "g", "s", 200).as_bytes(), &mut scratch, 1);
        ways.name(named(&[("g", "t", "r2"), ("g", "", "any")]), 2);
        ways.count(line(3, "g", "s", 200).as_bytes(), &mut scratch, 3);
        ways.count(line(3, "g", "<NOSRV>", 503).as_bytes(), &mut scratch, 3);
        assert_eq!(requests(&mut ways, 4, 30), ["G 3-1", "any 1-1", "r 2-0"]);
        // The name means something else now; what was counted stays where it was.
        ways.name(named(&[("g", "s", "r3")]), 4);
        ways.count(line(5, "g", "s", 200).as_bytes(), &mut scratch, 5);
        assert_eq!(requests(&mut ways, 6, 30), ["G 4-1", "any 1-1", "r 2-0", "r3 1-0"]);
        ways.name(Named::new(), 6);
        ways.name(Named::new(), 310);
        ways.count(line(310, "g", "s", 200).as_bytes(), &mut scratch, 310);
        assert_eq!((requests(&mut ways, 320, 30), ways.unread), (vec![], 1));
        assert!(ways.named.is_empty() && ways.former.is_empty());
    }
}
