//! What can be asked of the log.

use super::{Event, Record};
use std::sync::Arc;
use time::OffsetDateTime;

/// A question: all conditions must hold; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Tags that the event carries, all of them, compared exactly with the expanded tags.
    pub tags: Vec<String>,
    /// The event's type.
    pub kind: Option<String>,
    /// The event's timestamp.
    pub time: TimeRange,
}

impl Query {
    /// Whether `event` answers the question.
    pub fn matches(&self, event: &Event) -> bool {
        self.tags.iter().all(|tag| event.tags.contains(tag))
            && self.kind.as_ref().is_none_or(|kind| *kind == event.kind)
            && self.time.contains(event.timestamp)
    }
}

/// A range of timestamps; a missing bound is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The earliest.
    pub from: Option<Bound>,
    /// The latest.
    pub to: Option<Bound>,
}

impl TimeRange {
    /// Whether `timestamp` lies in the range.
    pub fn contains(&self, timestamp: OffsetDateTime) -> bool {
        let after =
            |bound: Bound| timestamp > bound.at || (bound.inclusive && timestamp == bound.at);
        let before =
            |bound: Bound| timestamp < bound.at || (bound.inclusive && timestamp == bound.at);
        self.from.is_none_or(after) && self.to.is_none_or(before)
    }
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The instant.
    pub at: OffsetDateTime,
    /// Whether the instant itself belongs to the range.
    pub inclusive: bool,
}

/// A page of records, newest first by timestamp, ties by position, and how many there are in all.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The records of this page.
    pub records: Vec<Arc<Record>>,
    /// How many records match on all pages.
    pub total: u64,
}
