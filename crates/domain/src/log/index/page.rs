//! One page out of many sorted lists, without walking over what comes before it.
//!
//! Each segment, and the newest records that are in none yet, is a part. Parts whose times do not overlap are skipped
//! whole; where they do overlap, the place where the page begins is found by halving, not by merging.

use super::Key;
use super::posting::{Matches, Posting};
use super::segment::Segment;
use crate::event::Position;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What matches in one place.
pub(super) struct Part<'a> {
    /// How many records match.
    pub count: usize,
    /// No matching record is older, or newer.
    oldest: i128,
    newest: i128,
    body: Body<'a>,
}

enum Body<'a> {
    Segment {
        segment: &'a Segment,
        sets: Vec<Posting<'a>>,
        window: Range<usize>,
        matches: Option<Matches>,
    },
    /// Sorted.
    Keys(&'a [Key]),
}

impl<'a> Part<'a> {
    /// The `count` records of `segment` in `window`, which is not empty, that are in all `sets`.
    pub fn of_segment(
        segment: &'a Segment,
        sets: Vec<Posting<'a>>,
        window: Range<usize>,
        count: usize,
    ) -> Self {
        let (oldest, newest) = (segment.timestamp(window.start), segment.timestamp(window.end - 1));
        let body = Body::Segment { segment, sets, window, matches: None };
        Self { count, oldest, newest, body }
    }

    /// Sorted keys, at least one.
    pub fn of_keys(keys: &'a [Key]) -> Self {
        let (oldest, newest) = (keys[0].0, keys[keys.len() - 1].0);
        Self { count: keys.len(), oldest, newest, body: Body::Keys(keys) }
    }

    /// The key at `index` of the matching records, oldest first.
    fn key(&mut self, index: usize) -> Key {
        match &mut self.body {
            Body::Segment { segment, sets, window, matches } => {
                let matches = matches.get_or_insert_with(|| Matches::new(sets, window.clone()));
                segment.key(matches.rank(index))
            }
            Body::Keys(keys) => keys[index],
        }
    }

    /// How many matching records come before `key`.
    fn below(&mut self, key: Key) -> usize {
        match &mut self.body {
            Body::Segment { segment, sets, window, matches } => {
                let matches = matches.get_or_insert_with(|| Matches::new(sets, window.clone()));
                matches.below(segment.rank(key))
            }
            Body::Keys(keys) => keys.partition_point(|own| *own < key),
        }
    }
}

/// The positions of `take` records after the first `skip`, newest first.
pub(super) fn page(mut parts: Vec<Part<'_>>, skip: u64, take: usize) -> Vec<Position> {
    parts.sort_unstable_by_key(|part| std::cmp::Reverse(part.newest));
    let Some((cluster, skip)) = cluster(&parts, skip) else { return Vec::new() };
    let mut parts = parts.split_off(cluster.start);
    let ends = begin(&mut parts[..cluster.len()], skip);
    let mut heads = BinaryHeap::new();
    let (mut page, mut next) = (Vec::new(), 0);
    while page.len() < take {
        // What may be newer than the newest so far has to be looked at first.
        while let Some(part) = parts.get_mut(next)
            && heads.peek().is_none_or(|(key, _, _): &(Key, usize, usize)| part.newest >= key.0)
        {
            let end = ends.get(next).copied().unwrap_or(part.count);
            if let Some(index) = end.checked_sub(1) {
                heads.push((part.key(index), next, index));
            }
            next += 1;
        }
        let Some((key, part, index)) = heads.pop() else { break };
        page.push(Position(key.1));
        if let Some(index) = index.checked_sub(1) {
            heads.push((parts[part].key(index), part, index));
        }
    }
    page
}

/// The first parts that overlap one another and hold the start of the page, and how much of them to skip; `None` when
/// the page is behind the end.
fn cluster(parts: &[Part<'_>], mut skip: u64) -> Option<(Range<usize>, u64)> {
    let mut start = 0;
    while let Some(first) = parts.get(start) {
        let (mut end, mut oldest, mut count) = (start + 1, first.oldest, first.count as u64);
        while let Some(part) = parts.get(end).filter(|part| part.newest >= oldest) {
            oldest = oldest.min(part.oldest);
            count += part.count as u64;
            end += 1;
        }
        if skip < count {
            return Some((start..end, skip));
        }
        skip -= count;
        start = end;
    }
    None
}

/// How much of each part, oldest first, is left when the `skip` newest records of all are taken away. There are more.
///
/// Each round halves what is left around a weighted median of the medians, so there are few rounds whatever the parts
/// look like.
fn begin(parts: &mut [Part<'_>], mut skip: u64) -> Vec<usize> {
    let mut ends: Vec<usize> = parts.iter().map(|part| part.count).collect();
    let mut starts = vec![0; parts.len()];
    while skip > 0 {
        let mut medians = Vec::new();
        for (part, (start, end)) in parts.iter_mut().zip(starts.iter().zip(&ends)) {
            if start < end {
                medians.push((part.key(start.midpoint(*end)), (end - start) as u64));
            }
        }
        medians.sort_unstable();
        let half = medians.iter().map(|(_, weight)| weight).sum::<u64>() / 2;
        let mut below = 0;
        let pivot = medians.iter().find(|(_, weight)| {
            below += weight;
            below > half
        });
        let Some((pivot, _)) = pivot else { break };
        let cuts: Vec<usize> = parts
            .iter_mut()
            .zip(starts.iter().zip(&ends))
            .map(|(part, (start, end))| part.below(*pivot).clamp(*start, *end))
            .collect();
        let newer: u64 = cuts.iter().zip(&ends).map(|(cut, end)| (end - cut) as u64).sum();
        if newer <= skip {
            ends = cuts;
            skip -= newer;
        } else {
            starts = cuts;
        }
    }
    ends
}
