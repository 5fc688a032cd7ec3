//! Events, records and tags: what the log is made of.
//!
//! An [`Event`] is a fact named in the past tense; a [`Record`] is an event with its position, time, actor and cause.
//! Events are what users see and query; those that the service itself appended may carry a [`Fact`], which is what
//! the state is folded from. How records are stored is the business of [`crate::log`].

mod fact;
mod query;
mod tags;

pub use fact::{DeploymentFact, Fact, GatewayFact, StaticFact};
pub use query::{Aggregate, Aggregator, Bound, Function, Numbers, Page, Query, TimeRange};
pub(crate) use tags::too_many_tags;
pub use tags::{TAGS_MAX, Tags};

use serde::{Deserialize, Serialize};
use std::fmt;
use time::OffsetDateTime;

/// Place in the log's total order. Records get them from 1 on, one after another, and each only once: what retention
/// drops leaves a gap, and nothing else stands there later. 0 is "before the first record".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u64);

impl Position {
    /// Before the first record.
    pub const START: Self = Self(0);

    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fact, named in the past tense, as users see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The event's type, such as `archive` or `synchronisation`; letters, digits, `_` and `-`.
    pub kind: String,
    /// The expanded tags.
    pub tags: Tags,
    /// When it happened; clients may give any time.
    pub timestamp: OffsetDateTime,
    /// Any JSON; the empty text when there is none.
    pub value: serde_json::Value,
    /// What the event changes in the state; only events of origin [`Origin::Service`] have one.
    pub fact: Option<Fact>,
}

/// An event in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its place in the total order.
    pub position: Position,
    /// When it was appended.
    pub time: OffsetDateTime,
    /// Who asked for it.
    pub provenance: Provenance,
    /// The event.
    pub event: Event,
}

/// Where a record comes from; every record has one from the first day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Who asked: `api`, or the name of a worker.
    pub actor: String,
    /// The position that led to this one.
    pub cause: Option<Position>,
    /// The request or turn that this belongs to.
    pub correlation: String,
    /// Whether the service itself says so.
    pub origin: Origin,
}

/// Who vouches for an event. Only what the service itself appended is folded into artifacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The service.
    Service,
    /// A client that posted it.
    External,
}

/// An event on its way into the log: everything but its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// When it is appended.
    pub time: OffsetDateTime,
    /// Where it comes from.
    pub provenance: Provenance,
    /// The event.
    pub event: Event,
}

impl Draft {
    /// The record that this draft becomes at `position`.
    pub fn at(self, position: Position) -> Record {
        Record { position, time: self.time, provenance: self.provenance, event: self.event }
    }
}

/// Whether `kind` is a legal event type: letters, digits, `_` and `-`.
pub fn is_event_type(kind: &str) -> bool {
    !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}
