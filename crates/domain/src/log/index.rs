//! Which records answer a query, in which order, and how many: answered without reading a single record.
//!
//! A fold of the log in memory. Per tag and per type there is a bitmap of positions; a query intersects them. Most
//! records are in order: their timestamp is neither before that of the previous such record nor after the instant at
//! which they were appended, so that time order is position order and a range of time is a range of positions. The
//! others, whose timestamps clients chose freely, are **strays**; they are kept sorted by time on their own and merged
//! in. The index knows neither values nor facts, and only durable records are put into it.

use super::format::Header;
use crate::event::{Bound, Position, Query, TimeRange};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound as RangeBound;

/// The fold. Positions are inserted without gaps, from 1.
#[derive(Debug, Default)]
pub(super) struct Index {
    tags: HashMap<Box<str>, RoaringTreemap>,
    kinds: HashMap<Box<str>, RoaringTreemap>,
    /// Positions of the records in order, and of the others.
    ordered: RoaringTreemap,
    stray: RoaringTreemap,
    /// By position: the timestamp of the last record in order up to there. It never falls, also across strays.
    order: Vec<i64>,
    /// Timestamp and position of every stray.
    strays: BTreeSet<(i128, u64)>,
}

/// The positions of one page, newest first, and how many records match in all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub positions: Vec<Position>,
    pub total: u64,
}

impl Index {
    /// Adds the next record.
    pub fn insert(&mut self, header: &Header) {
        let position = self.order.len() as u64 + 1;
        for tag in &header.tags {
            post(&mut self.tags, tag, position);
        }
        post(&mut self.kinds, header.kind, position);
        let newest = self.order.last().copied().unwrap_or(i64::MIN);
        let timestamp = i64::try_from(header.timestamp).ok();
        let in_order = |timestamp: &i64| *timestamp >= newest && header.timestamp <= header.time;
        if let Some(timestamp) = timestamp.filter(in_order) {
            self.ordered.insert(position);
            self.order.push(timestamp);
        } else {
            self.stray.insert(position);
            self.strays.insert((header.timestamp, position));
            self.order.push(newest);
        }
    }

    /// The bytes of the whole index, for a snapshot.
    pub fn to_bytes(&self) -> Vec<u8> {
        let postings = |postings: &HashMap<Box<str>, RoaringTreemap>| {
            let mut bytes: Vec<_> = postings
                .iter()
                .map(|(name, posting)| (name.to_string(), posting_bytes(posting)))
                .collect();
            bytes.sort_unstable();
            bytes
        };
        let parts = Parts {
            tags: postings(&self.tags),
            kinds: postings(&self.kinds),
            ordered: posting_bytes(&self.ordered),
            stray: posting_bytes(&self.stray),
            order: self.order.clone(),
            strays: self.strays.iter().copied().collect(),
        };
        postcard::to_stdvec(&parts).expect("numbers and bytes can be written to memory")
    }

    /// What [`Index::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let parts: Parts = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        let postings = |bytes: Vec<(String, Vec<u8>)>| -> Result<HashMap<_, _>, String> {
            bytes.into_iter().map(|(name, bytes)| Ok((name.into(), posting(&bytes)?))).collect()
        };
        Ok(Self {
            tags: postings(parts.tags)?,
            kinds: postings(parts.kinds)?,
            ordered: posting(&parts.ordered)?,
            stray: posting(&parts.stray)?,
            order: parts.order,
            strays: parts.strays.into_iter().collect(),
        })
    }

    /// Forgets the record at `position`.
    pub fn remove(&mut self, position: Position, header: &Header) {
        for tag in &header.tags {
            unpost(&mut self.tags, tag, position.0);
        }
        unpost(&mut self.kinds, header.kind, position.0);
        self.ordered.remove(position.0);
        self.stray.remove(position.0);
        self.strays.remove(&(header.timestamp, position.0));
    }

    /// Leaves out what is no longer there up to `position`.
    pub fn skip(&mut self, position: Position) {
        let newest = self.order.last().copied().unwrap_or(i64::MIN);
        let length = usize::try_from(position.0).expect("positions of the index fit its vector");
        self.order.resize(self.order.len().max(length), newest);
    }

    /// The position of the last record.
    pub fn last(&self) -> Position {
        Position(self.order.len() as u64)
    }

    /// The records that match `query`: `take` of them after the first `skip`, newest first.
    pub fn find(&self, query: &Query, skip: u64, take: usize) -> Found {
        let (ordered, strays) = match self.matching(query) {
            Matching::None => return Found { positions: Vec::new(), total: 0 },
            Matching::All => (self.ordered.clone(), self.strays_in(query.time, |_| true)),
            Matching::Some(matching) => {
                let candidates = &matching & &self.stray;
                let any = !candidates.is_empty();
                let strays = any
                    .then(|| self.strays_in(query.time, |position| candidates.contains(position)));
                (matching - candidates, strays.unwrap_or_default())
            }
        };
        let ordered = self.restrict(ordered, query.time);
        let total = ordered.len() + strays.len() as u64;
        Found { positions: self.page(&ordered, &strays, skip, take), total }
    }

    /// Intersects the bitmaps of tags and type, the smallest first.
    fn matching(&self, query: &Query) -> Matching {
        let tags = query.tags.iter().map(|tag| self.tags.get(tag.as_str()));
        let kind = query.kind.iter().map(|kind| self.kinds.get(kind.as_str()));
        let Some(mut postings) = tags.chain(kind).collect::<Option<Vec<_>>>() else {
            return Matching::None;
        };
        postings.sort_by_key(|posting| posting.len());
        match postings.split_first() {
            None => Matching::All,
            Some((smallest, rest)) => Matching::Some(
                rest.iter().fold((*smallest).clone(), |matching, posting| matching & *posting),
            ),
        }
    }

    /// Removes what lies outside of `range` from the positions of records in order.
    fn restrict(&self, mut ordered: RoaringTreemap, range: TimeRange) -> RoaringTreemap {
        if let Some(Bound { at, inclusive }) = range.from {
            let at = at.unix_timestamp_nanos();
            let before = self.order.partition_point(|own| {
                i128::from(*own) < at || (!inclusive && i128::from(*own) == at)
            });
            ordered.remove_range(..=before as u64);
        }
        if let Some(Bound { at, inclusive }) = range.to {
            let at = at.unix_timestamp_nanos();
            let within = self.order.partition_point(|own| {
                i128::from(*own) < at || (inclusive && i128::from(*own) == at)
            });
            ordered.remove_range(within as u64 + 1..);
        }
        ordered
    }

    /// The strays in `range` whose position is wanted, newest first.
    fn strays_in(&self, range: TimeRange, wanted: impl Fn(u64) -> bool) -> Vec<(i128, u64)> {
        let from = range.from.map_or(RangeBound::Unbounded, |Bound { at, inclusive }| {
            let at = at.unix_timestamp_nanos();
            if inclusive {
                RangeBound::Included((at, 0))
            } else {
                RangeBound::Excluded((at, u64::MAX))
            }
        });
        let to = range.to.map_or(RangeBound::Unbounded, |Bound { at, inclusive }| {
            let at = at.unix_timestamp_nanos();
            if inclusive {
                RangeBound::Included((at, u64::MAX))
            } else {
                RangeBound::Excluded((at, 0))
            }
        });
        if is_empty(from, to) {
            return Vec::new();
        }
        self.strays
            .range((from, to))
            .rev()
            .filter(|(_, position)| wanted(*position))
            .copied()
            .collect()
    }

    /// Merges both lists, newest first, and cuts the page out of them. Both are entered where the page starts, so a
    /// late page costs no more than the first.
    fn page(
        &self,
        ordered: &RoaringTreemap,
        strays: &[(i128, u64)],
        skip: u64,
        take: usize,
    ) -> Vec<Position> {
        let mut stray = {
            let place = |index: usize| index as u64 + self.newer(ordered, strays[index]);
            let (mut low, mut high) = (0, strays.len());
            while low < high {
                let middle = low.midpoint(high);
                if place(middle) < skip { low = middle + 1 } else { high = middle }
            }
            strays[low..].iter().copied().peekable()
        };
        let strays_skipped = (strays.len() - stray.len()) as u64;
        let skipped = skip - strays_skipped.min(skip);
        let last = ordered.len().checked_sub(skipped + 1).and_then(|rank| ordered.select(rank));
        let mut positions = ordered.iter();
        positions.advance_back_to(last.unwrap_or(0));
        let mut positions = positions.rev().peekable();
        let next = || {
            let own = positions.peek().map(|position| (self.timestamp(*position), *position));
            match (own, stray.peek()) {
                (Some(own), Some(stray)) if own > *stray => positions.next(),
                (Some(_), None) => positions.next(),
                (_, Some(_)) => stray.next().map(|(_, position)| position),
                (None, None) => None,
            }
        };
        std::iter::from_fn(next).take(take).map(Position).collect()
    }

    /// How many of `ordered` come before `stray` when sorted newest first.
    fn newer(&self, ordered: &RoaringTreemap, stray: (i128, u64)) -> u64 {
        let (timestamp, position) = stray;
        let older = self.order.partition_point(|own| i128::from(*own) < timestamp) as u64;
        let same = self.order.partition_point(|own| i128::from(*own) <= timestamp) as u64;
        // Positions up to `older` are older, those after `same` newer; in between the higher position is newer.
        let boundary = position.clamp(older, same);
        ordered.range_cardinality(boundary + 1..)
    }

    /// The timestamp of a record in order.
    fn timestamp(&self, position: u64) -> i128 {
        let index = usize::try_from(position - 1).expect("positions of the index fit its vector");
        i128::from(self.order[index])
    }
}

/// What tags and type select.
enum Matching {
    None,
    All,
    Some(RoaringTreemap),
}

/// Notes that the record at `position` has `name`.
fn post(postings: &mut HashMap<Box<str>, RoaringTreemap>, name: &str, position: u64) {
    match postings.get_mut(name) {
        Some(posting) => _ = posting.insert(position),
        None => _ = postings.insert(name.into(), RoaringTreemap::from_iter([position])),
    }
}

/// Takes `name` from the record at `position`.
fn unpost(postings: &mut HashMap<Box<str>, RoaringTreemap>, name: &str, position: u64) {
    let Some(posting) = postings.get_mut(name) else { return };
    posting.remove(position);
    if posting.is_empty() {
        postings.remove(name);
    }
}

/// The parts of an index in a snapshot.
#[derive(Serialize, Deserialize)]
struct Parts {
    tags: Vec<(String, Vec<u8>)>,
    kinds: Vec<(String, Vec<u8>)>,
    ordered: Vec<u8>,
    stray: Vec<u8>,
    order: Vec<i64>,
    strays: Vec<(i128, u64)>,
}

fn posting_bytes(posting: &RoaringTreemap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(posting.serialized_size());
    posting.serialize_into(&mut bytes).expect("memory takes all bytes");
    bytes
}

fn posting(bytes: &[u8]) -> Result<RoaringTreemap, String> {
    RoaringTreemap::deserialize_from(bytes).map_err(|error| error.to_string())
}

/// Whether nothing can lie between the bounds; `BTreeSet::range` wants to know beforehand.
fn is_empty(from: RangeBound<(i128, u64)>, to: RangeBound<(i128, u64)>) -> bool {
    match (from, to) {
        (RangeBound::Unbounded, _) | (_, RangeBound::Unbounded) => false,
        (RangeBound::Included(from), RangeBound::Included(to)) => from > to,
        (
            RangeBound::Included(from) | RangeBound::Excluded(from),
            RangeBound::Included(to) | RangeBound::Excluded(to),
        ) => from >= to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::OffsetDateTime;

    const TAGS: [&str; 4] = ["a", "b", "c", "d"];
    const KINDS: [&str; 3] = ["archive", "health", "metrics"];

    #[derive(Clone, Debug)]
    struct Sample {
        time: i64,
        timestamp: i64,
        kind: usize,
        tags: Vec<usize>,
    }

    fn instant(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    /// Mostly in order, sometimes a little late, sometimes anywhere: before 1678 and after 2262 as well.
    fn sample() -> impl Strategy<Value = Sample> {
        let timestamp = prop_oneof![
            6 => Just(0i64), 2 => -5i64..=0, 1 => -20i64..40, 1 => Just(-200_000_000_000), 1 => Just(200_000_000_000),
        ];
        (timestamp, 0..3i64, 0..KINDS.len(), prop::collection::btree_set(0..TAGS.len(), 0..3))
            .prop_map(|(timestamp, time, kind, tags)| Sample {
                time,
                timestamp,
                kind,
                tags: tags.into_iter().collect(),
            })
    }

    /// Turns steps of the clock into instants.
    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        prop::collection::vec(sample(), 0..120).prop_map(|mut samples| {
            let mut now = 100;
            for sample in &mut samples {
                now += sample.time;
                sample.time = now;
                sample.timestamp += now;
            }
            samples
        })
    }

    fn query() -> impl Strategy<Value = Query> {
        let bound = || {
            let at = prop_oneof![8 => 80..300i64, 1 => Just(-300_000_000_000), 1 => Just(200_000_000_150)];
            prop::option::of(
                (at, any::<bool>())
                    .prop_map(|(at, inclusive)| Bound { at: instant(at), inclusive }),
            )
        };
        let tags = prop::collection::vec(0..=TAGS.len(), 0..3);
        (tags, prop::option::of(0..=KINDS.len()), bound(), bound()).prop_map(
            |(tags, kind, from, to)| Query {
                tags: tags
                    .into_iter()
                    .map(|tag| TAGS.get(tag).unwrap_or(&"unknown").to_string())
                    .collect(),
                kind: kind.map(|kind| KINDS.get(kind).unwrap_or(&"unknown").to_string()),
                time: TimeRange { from, to },
            },
        )
    }

    /// What the index must find: filter, sort, cut.
    fn oracle(samples: &[Sample], query: &Query, skip: usize, take: usize) -> Found {
        let matches = |sample: &Sample| {
            query.tags.iter().all(|tag| sample.tags.iter().any(|own| TAGS[*own] == tag))
                && query.kind.as_ref().is_none_or(|kind| KINDS[sample.kind] == kind)
                && query.time.contains(instant(sample.timestamp))
        };
        let mut all: Vec<_> = (1u64..)
            .zip(samples)
            .filter(|(_, sample)| matches(sample))
            .map(|(position, sample)| (sample.timestamp, position))
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let positions =
            all.iter().skip(skip).take(take).map(|(_, position)| Position(*position)).collect();
        Found { positions, total: all.len() as u64 }
    }

    fn index(samples: &[Sample]) -> Index {
        let mut index = Index::default();
        for sample in samples {
            index.insert(&Header {
                time: instant(sample.time).unix_timestamp_nanos(),
                timestamp: instant(sample.timestamp).unix_timestamp_nanos(),
                kind: KINDS[sample.kind],
                tags: sample.tags.iter().map(|tag| TAGS[*tag]).collect(),
            });
        }
        index
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn finds_what_filtering_and_sorting_finds(
            samples in samples(), query in query(), skip in 0..150usize, take in 0..40usize,
        ) {
            let index = index(&samples);
            prop_assert_eq!(index.last(), Position(samples.len() as u64));
            prop_assert_eq!(index.find(&query, skip as u64, take), oracle(&samples, &query, skip, take));
            prop_assert_eq!(index.find(&query, 0, 1000), oracle(&samples, &query, 0, 1000));
        }
    }

    #[test]
    fn a_timestamp_far_in_the_future_makes_no_strays_of_its_successors() {
        let plain = |time, timestamp| Sample { time, timestamp, kind: 0, tags: vec![] };
        let index = index(&[plain(1, 1), plain(2, 1_000_000), plain(3, 3), plain(4, 4)]);
        assert_eq!(index.strays.len(), 1);
        let found = index.find(&Query::default(), 0, 10);
        assert_eq!(found.positions, [2, 4, 3, 1].map(Position));
    }

    #[test]
    fn a_late_page_is_as_cheap_as_the_first() {
        let samples: Vec<_> = (1..5_000)
            .map(|n| Sample { time: n, timestamp: n - n % 3, kind: 0, tags: vec![] })
            .collect();
        let index = index(&samples);
        for skip in [0, 1, 1_666, 3_333, 4_990, 5_000] {
            assert_eq!(
                index.find(&Query::default(), skip, 7),
                oracle(&samples, &Query::default(), usize::try_from(skip).unwrap(), 7)
            );
        }
    }
}
