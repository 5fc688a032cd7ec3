//! The log inside of another program: a shop counts what its customers spend. `cargo run --example embed -- DIRECTORY`
#![expect(clippy::disallowed_methods, reason = "a program has a clock; the log is handed it")]

use futures::StreamExt;
use segue_domain::event::{Draft, Event, Origin, Position, Provenance, Query, Record, Tags};
use segue_domain::log::{Expect, Log};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use time::OffsetDateTime;

/// The projection: what each customer spent, in cents, up to a position.
#[derive(Default)]
struct Spent(Position, BTreeMap<String, u64>);

impl Spent {
    fn apply(&mut self, record: &Record) {
        let customer = record.event.tags.as_slice().first().cloned().unwrap_or_default();
        *self.1.entry(customer).or_default() += record.event.value.as_u64().unwrap_or_default();
        self.0 = record.position;
    }
}

fn order(customer: &str, cents: u64, time: OffsetDateTime) -> Draft {
    let correlation = format!("{customer}-{cents}");
    let (actor, origin) = ("shop".to_owned(), Origin::External);
    let provenance = Provenance { actor, cause: None, correlation, origin };
    let tags = Tags::expand([format!("customer:{customer}")]);
    let (kind, value) = ("order".to_owned(), cents.into());
    Draft { time, provenance, event: Event { kind, tags, timestamp: time, value, fact: None } }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: embed DIRECTORY")?;
    let log = Log::open(Path::new(&directory))?;
    let mut records = log.subscribe(Position::START);
    let now = OffsetDateTime::now_utc();
    let orders = vec![order("ada", 1_250, now), order("bob", 300, now)];
    let last = log.append(orders, &Expect::Any)?.durable().await?[1].position;
    let mut spent = Spent::default();
    while spent.0 < last {
        let record = records.next().await.ok_or("the log was closed")?;
        spent.apply(&*record?);
    }
    println!("{:?} after {} records", spent.1, spent.0);
    let query = Query { tags: vec!["customer:ada".into()], ..Query::default() };
    println!("ada ordered {} times", log.query(&query, 1, 10)?.total);
    Ok(())
}
