//! Which records answer a query, in which order, how many, and what their numbers add up to: without reading records.
//!
//! A fold of the log in memory. Records are cut into segments in log order; inside of a segment they are sorted by
//! time, and each tag, type and numeric field has the set of its records there. A query intersects these sets segment
//! by segment: a range of time is a range of each segment, whatever timestamps clients gave. The newest records are in
//! no segment yet; they are few and looked at one by one. `docs/decisions/0006` says why it is made like this.
//!
//! The index knows neither values nor facts, only numbers in values; and only durable records are put into it. A query
//! takes a [`View`], which holds what it needs while the index goes on.

mod bytes;
mod names;
mod numbers;
mod packed;
mod page;
mod posting;
mod saved;
mod segment;
mod tail;
mod tally;
#[cfg(test)]
mod tests;

pub(super) use numbers::{Numbers, number_in};
pub(super) use tally::Tally;

use super::format::Header;
use crate::event::{Bound, Position, Query, TimeRange};
use names::{Names, Numbered};
use page::Part;
use segment::Segment;
use std::sync::Arc;
use tail::Tail;

/// Timestamp, in nanoseconds since 1970, and position: what records are sorted by.
type Key = (i128, u64);

/// The field that stands for the value itself.
const VALUE: u32 = 0;
/// The field of records whose numbers are not kept.
const NOT_KEPT: u32 = 1;
/// Types of events that are known before one of them is appended (interface, 6.2).
const TYPES: [&str; 9] = [
    "archive",
    "synchronisation",
    "event",
    "health",
    "metrics",
    "allocation",
    "workflow",
    "deployment",
    "gateway",
];

/// The fold. Records are inserted in the order of their positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    names: Names,
    segments: Arc<Vec<Arc<Segment>>>,
    tail: Tail,
    /// The position of the last record, or of the gap behind it.
    last: u64,
}

/// The segments of one moment.
#[derive(Clone, Debug)]
pub(super) struct Sealed(Arc<Vec<Arc<Segment>>>);

/// What one query needs of the index at one moment.
#[derive(Debug)]
pub(super) struct View {
    segments: Arc<Vec<Arc<Segment>>>,
    /// Tags and type, sorted, each once; none when one of them has no number.
    wanted: Option<Vec<u32>>,
    range: Instants,
    /// The matching records of the tail, sorted.
    tail: Vec<Key>,
    /// What the numbers of these add up to, and which of them have to be read.
    tail_tally: Tally,
    tail_unread: Vec<u64>,
    field: Option<u32>,
}

/// The positions of one page, newest first, and how many records match in all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub positions: Vec<Position>,
    pub total: u64,
}

/// What the numbers of matching records add up to, but for those that have to be read.
#[derive(Debug, PartialEq)]
pub(super) struct Tallied {
    pub tally: Tally,
    pub unread: Vec<Position>,
}

/// A range of timestamps, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instants {
    from: i128,
    to: i128,
}

impl Index {
    /// Adds the next record.
    pub fn insert(&mut self, header: &Header) {
        let position = self.last + 1;
        if self.tail.is_full(position) {
            self.seal();
        }
        self.last = position;
        let names = &mut self.names;
        let ids = header.tags.iter().map(|tag| names.tag(tag)).collect::<Vec<_>>();
        let kind = names.kind(header.kind);
        let numbers = field_numbers(names, &header.numbers);
        self.tail.push((header.timestamp, position), ids.into_iter().chain([kind]), numbers);
    }

    /// There are no records up to `last`, where the next one would have stood: retention dropped them.
    pub fn skip_to(&mut self, last: Position) {
        self.last = self.last.max(last.0);
    }

    /// Drops records that retention took away. They are neither found nor counted any more.
    pub fn forget(&mut self, positions: impl IntoIterator<Item = Position>) {
        for Position(position) in positions {
            if self.tail.forget(position) {
                continue;
            }
            let segments = Arc::make_mut(&mut self.segments);
            let after = segments.partition_point(|segment| segment.first() <= position);
            if let Some(segment) = after.checked_sub(1).and_then(|index| segments.get_mut(index)) {
                Arc::make_mut(segment).forget(position);
            }
        }
        if self.segments.iter().any(|segment| segment.is_empty()) {
            Arc::make_mut(&mut self.segments).retain(|segment| !segment.is_empty());
        }
        let smaller = |(index, segment): (usize, &Arc<Segment>)| {
            Some((index, Arc::new(segment.without_dropped()?)))
        };
        let smaller: Vec<_> = self.segments.iter().enumerate().filter_map(smaller).collect();
        for (index, segment) in smaller {
            Arc::make_mut(&mut self.segments)[index] = segment;
        }
    }

    /// What is in segments, to look at it without holding anybody up.
    pub fn sealed(&self) -> Sealed {
        Sealed(Arc::clone(&self.segments))
    }

    /// Forgets the names that no record has any more: those neither in `used`, which are those of `sealed`, nor in what was
    /// added since. Those of tags only once they are most of them. Nothing may have been dropped in between.
    pub fn forget_names(&mut self, sealed: &Sealed, mut used: Numbered) {
        for segment in self.segments.iter().skip(sealed.0.len()) {
            used.extend(segment.tags());
        }
        used.extend(self.tail.tags());
        self.names.keep(&used);
    }

    /// The position of the last record.
    pub fn last(&self) -> Position {
        Position(self.last)
    }

    /// What answers `query`.
    pub fn view(&self, query: &Query) -> View {
        self.look(query, query.kind.as_deref(), None)
    }

    /// What adds up the numbers of `field` of the records that match `query` (wire, 10.3): `value` is the value, the
    /// name of a type the value of events of that type, and anything else a member of the value, which is also given:
    /// it is what has to be looked for in records that have to be read.
    pub fn view_field<'f>(&self, query: &Query, field: &'f str) -> (View, Option<&'f str>) {
        let is_type = TYPES.contains(&field) || self.names.kinds.contains_key(field);
        if field == "value" {
            (self.look(query, query.kind.as_deref(), Some(VALUE)), None)
        } else if !is_type {
            let id = self.names.fields.get(field).copied().unwrap_or(NOT_KEPT);
            (self.look(query, query.kind.as_deref(), Some(id)), Some(field))
        } else if query.kind.as_deref().is_none_or(|kind| kind == field) {
            (self.look(query, Some(field), Some(VALUE)), None)
        } else {
            // No event has two types.
            let mut view = self.look(query, None, None);
            view.wanted = None;
            view.tail.clear();
            (view, None)
        }
    }

    fn look(&self, query: &Query, kind: Option<&str>, field: Option<u32>) -> View {
        let tags = query.tags.iter().map(|tag| self.names.tags.get(tag.as_str()));
        let kinds = kind.iter().map(|kind| self.names.kinds.get(*kind));
        let mut wanted: Option<Vec<u32>> = tags.chain(kinds).map(Option::<&u32>::copied).collect();
        if let Some(wanted) = &mut wanted {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let range = Instants::of(query.time);
        let mut view = View {
            segments: Arc::clone(&self.segments),
            wanted,
            range,
            tail: Vec::new(),
            tail_tally: Tally::default(),
            tail_unread: Vec::new(),
            field,
        };
        if let Some(wanted) = &view.wanted {
            for row in self.tail.matching(wanted, range) {
                view.tail.push(row.key);
                for (id, number) in row.numbers {
                    if *id == NOT_KEPT {
                        if field.is_some_and(|field| field != VALUE) {
                            view.tail_unread.push(row.key.1);
                        }
                    } else if Some(*id) == field {
                        view.tail_tally.add(*number);
                    }
                }
            }
        }
        view
    }

    /// Makes a segment of the newest records.
    fn seal(&mut self) {
        if let Some(parts) = self.tail.take() {
            Arc::make_mut(&mut self.segments).push(Arc::new(Segment::new(parts)));
        }
    }
}

impl Sealed {
    /// The tags and types that their records have.
    pub fn tags(&self) -> Numbered {
        let mut used = Numbered::default();
        for segment in self.0.iter() {
            used.extend(segment.tags());
        }
        used
    }
}

impl View {
    /// The matching records: `take` of them after the first `skip`, newest first.
    pub fn find(&self, skip: u64, take: usize) -> Found {
        let Some(wanted) = &self.wanted else { return Found { positions: Vec::new(), total: 0 } };
        let mut parts = Vec::new();
        for segment in self.segments.iter() {
            let window = segment.window(self.range);
            if window.is_empty() {
                continue;
            }
            let Some(sets) = segment.sets(wanted) else { continue };
            let count = posting::count(&sets, window.clone(), segment.len());
            if count > 0 {
                parts.push(Part::of_segment(segment, sets, window, count));
            }
        }
        if !self.tail.is_empty() {
            parts.push(Part::of_keys(&self.tail));
        }
        let total = parts.iter().map(|part| part.count as u64).sum();
        Found { positions: page::page(parts, skip, take), total }
    }

    /// How many records match.
    pub fn count(&self) -> u64 {
        self.find(0, 0).total
    }

    /// What the numbers of the matching records add up to.
    pub fn tally(&self) -> Tallied {
        let mut tallied = Tallied { tally: Tally::default(), unread: Vec::new() };
        let (Some(wanted), Some(field)) = (&self.wanted, self.field) else { return tallied };
        let mut unread = Vec::new();
        for segment in self.segments.iter() {
            let window = segment.window(self.range);
            if window.is_empty() {
                continue;
            }
            let Some(sets) = segment.sets(wanted) else { continue };
            if field != NOT_KEPT {
                segment.tally(field, &sets, window.clone(), &mut tallied.tally);
            }
            if field != VALUE {
                segment.positions(NOT_KEPT, &sets, window, &mut unread);
            }
        }
        if field != NOT_KEPT {
            tallied.tally.merge(&self.tail_tally);
        }
        unread.extend(&self.tail_unread);
        tallied.unread = unread.into_iter().map(Position).collect();
        tallied
    }
}

impl Instants {
    fn of(range: TimeRange) -> Self {
        let at = |bound: Bound| bound.at.unix_timestamp_nanos();
        let from = range.from.map(|bound| at(bound) + i128::from(!bound.inclusive));
        let to = range.to.map(|bound| at(bound) - i128::from(!bound.inclusive));
        Self { from: from.unwrap_or(i128::MIN), to: to.unwrap_or(i128::MAX) }
    }
}

/// What the numbers of a value are under, and each of them.
fn field_numbers(names: &mut Names, numbers: &Numbers) -> Vec<(u32, f64)> {
    let members = match numbers {
        Numbers::None => return Vec::new(),
        Numbers::Whole(number) => return vec![(VALUE, *number)],
        Numbers::Many => return vec![(NOT_KEPT, 0.0)],
        Numbers::Members(members) => members,
    };
    let numbered = members.iter().map(|(name, number)| Some((names.field(name)?, *number)));
    numbered.collect::<Option<_>>().unwrap_or_else(|| vec![(NOT_KEPT, 0.0)])
}
