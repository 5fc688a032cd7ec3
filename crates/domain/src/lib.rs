//! The core of Segue: artifacts, the documents they come from, the append-only log, and the fold that turns one into the other.
//!
//! Data walks one way round: text becomes a [`dsl`] document, a document an [`artifact`], a wish a [`command`], a command
//! a list of [`event`]s, the [`log`] gives events their positions, and [`state`] is the fold of the log. [`store`] is the
//! façade that keeps log and state in step.
//!
//! This crate knows no HTTP, no driver, no clock and no randomness: times and identifiers are handed to it.
//!
//! # The log in another program
//!
//! The log does not depend on what Segue uses it for. A program opens it, appends events of its own, folds its own
//! projection, subscribes and asks. Records are durable when an append resolves, positions have no gaps but those that
//! retention leaves, and every record continues a hash chain.
//!
//! ```
//! use segue_domain::event::{Draft, Event, Origin, Position, Provenance, Query, Tags};
//! use segue_domain::log::{Expect, Log};
//! use time::OffsetDateTime;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let log = Log::in_memory()?; // or Log::open(directory)
//! let time = OffsetDateTime::UNIX_EPOCH;
//! let provenance =
//!     Provenance { actor: "shop".into(), cause: None, correlation: "order-1".into(), origin: Origin::External };
//! let event = Event {
//!     kind: "order".into(),
//!     tags: Tags::expand(["customer:7"]),
//!     timestamp: time,
//!     value: serde_json::json!({ "total": 12.5 }),
//!     fact: None,
//! };
//! let records = log.append(vec![Draft { time, provenance, event }], &Expect::Any)?.durable_blocking()?;
//! assert_eq!(records[0].position, Position(1));
//! let query = Query { tags: vec!["customer".into()], ..Query::default() };
//! assert_eq!(log.query(&query, 1, 10)?.total, 1);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/embed.rs` is a whole program, with a subscription that feeds a projection. [`log::Log::keep_snapshots`] bounds what
//! such a projection reads when the program starts again.
//!
//! # Without the log
//!
//! A program that reads documents, decides commands or folds records that it got elsewhere needs no RocksDB:
//! `default-features = false` leaves out [`log`] and [`store`], and all that they depend on.

pub mod artifact;
pub mod command;
pub mod dsl;
pub mod event;
#[cfg(feature = "log")]
pub mod log;
pub mod problem;
pub mod state;
#[cfg(feature = "log")]
pub mod store;
