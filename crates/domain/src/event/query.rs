//! What can be asked of the log.

use super::{Event, Record, too_many_tags};
use crate::problem::{Problem, ProblemKind, Result};
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
        event.tags.contains_all(&self.tags)
            && self.kind.as_ref().is_none_or(|kind| *kind == event.kind)
            && self.time.contains(event.timestamp)
    }

    /// Refuses more tags than [`TAGS_MAX`](super::TAGS_MAX). Whoever makes a query of what a client sends asks this,
    /// unless it was read as a document, which has its own words for it.
    pub fn check(&self) -> Result<()> {
        too_many_tags("a query", self.tags.len()).map_or(Ok(()), |detail| {
            let problem = Problem::new(ProblemKind::InvalidParameter, "", detail);
            Err(problem.hint("leave some of them out").into())
        })
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

/// What is to be made of the events that answer a question, instead of listing them (wire, section 10.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregator {
    /// What is made of the numbers.
    pub function: Function,
    /// Which numbers: `value` is the value of the event, the name of an event type the value of events of that type,
    /// anything else a member of the value.
    pub field: String,
}

/// What is made of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Their mean.
    Average,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// All of them together.
    Sum,
    /// How many events there are, with and without a number.
    Count,
}

impl Function {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Average, Self::Min, Self::Max, Self::Sum, Self::Count];

    /// The name that queries use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
            Self::Count => "count",
        }
    }
}

/// What an aggregation came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregate {
    /// How many events there are.
    Count(u64),
    /// The number; none when there are no numbers to make it of.
    Number(Option<f64>),
}

/// The numbers of the events that answer a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

/// A page of records, newest first by timestamp, ties by position, and how many there are in all.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The records of this page.
    pub records: Vec<Arc<Record>>,
    /// How many records match on all pages.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::TAGS_MAX;

    #[test]
    fn a_query_names_so_many_tags_and_no_more() {
        let query = |count| Query { tags: vec!["a".to_owned(); count], ..Query::default() };
        assert_eq!(query(TAGS_MAX).check(), Ok(()));
        let refused = query(TAGS_MAX + 1).check().unwrap_err();
        assert_eq!(refused.first().kind, ProblemKind::InvalidParameter);
        assert_eq!(refused.to_string(), "a query has at most 1000 tags, this one has 1001");
    }
}
