//! Events: posting and querying (wire, section 10).

use super::stream;
use crate::documents::Documents;
use crate::idempotency::Reply;
use crate::paging::Paging;
use crate::parameters::Parameters;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::command::{Command, Posted};
use segue_domain::dsl::{self, EventQuery, PostedEvent};
use segue_domain::event::{Aggregate, Position, Query, Record, Tags, TimeRange};
use segue_domain::store::Executed;
use serde::Serialize;
use serde_json::{Value, json};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

/// The largest page, as on disk.
const PAGE_BYTES_MAX: usize = 64 << 20;

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/events").get(list).post(create).done());
    config.service(Route::at("/events/stream").unnegotiated().get(stream::events).done());
}

/// The form that events have for clients.
#[derive(Debug, Serialize)]
pub(super) struct EventDocument<'a> {
    id: String,
    tags: &'a [String],
    value: &'a Value,
    timestamp: String,
    #[serde(rename = "type")]
    pub kind: &'a str,
}

/// The document of `record`.
pub(super) fn document(record: &Record) -> EventDocument<'_> {
    let event = &record.event;
    EventDocument {
        id: record.position.to_string(),
        tags: event.tags.as_slice(),
        value: &event.value,
        timestamp: timestamp(event.timestamp),
        kind: &event.kind,
    }
}

/// An instant with milliseconds, in UTC.
pub(super) fn timestamp(instant: OffsetDateTime) -> String {
    let utc = instant.to_offset(UtcOffset::UTC);
    utc.format(TIMESTAMP).expect("the format names components that every instant has")
}

/// What is asked for: by the body when there is one, else by the parameters.
pub(super) fn query(body: &str, parameters: &Parameters) -> Result<EventQuery, Failure> {
    if body.is_empty() {
        let tags = parameters.all("tag").chain(parameters.all("tags")).map(str::to_owned).collect();
        let kind = parameters.first("type").map(str::to_owned);
        let query = Query { tags, kind, time: TimeRange::default() };
        query.check()?;
        return Ok(EventQuery { query, aggregator: None });
    }
    let documents = Documents::one(body)?;
    let queries = documents.map(|node| dsl::read_event_query(node, OffsetDateTime::now_utc()))?;
    queries.into_iter().next().ok_or_else(|| Failure::internal("one document made no query"))
}

async fn list(request: Request) -> Answer {
    let paging = request.paging()?;
    let EventQuery { query, aggregator } = query(&request.body, &request.parameters)?;
    let store = request.running()?.store.clone();
    if let Some(aggregator) = aggregator {
        let aggregate = web::block(move || store.aggregate(&query, &aggregator)).await;
        let aggregate = aggregate.map_err(|error| Failure::internal(error.to_string()))??;
        let document = json!({ "value": number(aggregate) });
        return Ok(request.document(StatusCode::OK, None, &document));
    }
    // Records that are not in memory are read from disk.
    let Paging { page, per_page, .. } = paging;
    let page = web::block(move || store.query_within(&query, page, per_page, PAGE_BYTES_MAX)).await;
    let page = page.map_err(|error| Failure::internal(error.to_string()))??;
    let items: Vec<_> = page.records.iter().map(|record| document(record)).collect();
    Ok(request.page(paging, &items, page.total))
}

/// Whole numbers have no fraction; what no number can say is null.
fn number(aggregate: Aggregate) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match aggregate {
        Aggregate::Count(count) => json!(count),
        #[expect(clippy::cast_possible_truncation, reason = "it was just compared")]
        Aggregate::Number(Some(number)) if number.fract() == 0.0 && number.abs() <= EXACT => {
            json!(number as i64)
        }
        Aggregate::Number(number) => json!(number),
    }
}

async fn create(request: Request) -> Answer {
    let PostedEvent { tags, kind, value, timestamp } = posted(&request.body)?;
    let command = Command::Post(Posted { tags, kind, value, timestamp });
    if request.validate_only()? {
        return validated(&request, command);
    }
    let reply = |executed: &Executed| {
        let record = executed.records.first();
        let record = record.ok_or_else(|| Failure::internal("a posted event was not appended"))?;
        Reply::document(StatusCode::CREATED, None, &document(record))
    };
    request.carry_out(&command, Failure::from, reply).await
}

fn posted(body: &str) -> Result<PostedEvent, Failure> {
    if let Some(event) = dsl::read_plain_event(body) {
        return Ok(event);
    }
    let events = Documents::one(body)?.map(dsl::read_posted_event)?;
    events.into_iter().next().ok_or_else(|| Failure::internal("one document made no event"))
}

/// The event as it would be, at no position.
fn validated(request: &Request, command: Command) -> Answer {
    let context = request.context();
    request.running()?.store.validate(&command, &context)?;
    let Command::Post(Posted { tags, kind, value, timestamp }) = command else {
        return Err(Failure::internal("what was validated is no event"));
    };
    let tags = Tags::expand(tags);
    let document = EventDocument {
        id: Position::START.to_string(),
        tags: tags.as_slice(),
        value: &value,
        timestamp: self::timestamp(timestamp.unwrap_or(context.now)),
        kind: &kind,
    };
    Ok(request.document(StatusCode::CREATED, None, &document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn timestamps_have_milliseconds_in_utc() {
        assert_eq!(timestamp(datetime!(2030-01-10 15:33:49.766 UTC)), "2030-01-10T15:33:49.766Z");
        assert_eq!(timestamp(datetime!(2030-01-10 15:33:49 +2)), "2030-01-10T13:33:49.000Z");
    }

    /// Shows: D22
    #[test]
    fn whole_numbers_have_no_fraction() {
        let check = |aggregate: Aggregate, expected: &str| {
            assert_eq!(number(aggregate).to_string(), expected, "{aggregate:?}");
        };
        check(Aggregate::Count(3), "3");
        check(Aggregate::Number(Some(6.0)), "6");
        check(Aggregate::Number(Some(-0.5)), "-0.5");
        check(Aggregate::Number(Some(1e300)), "1e+300");
        check(Aggregate::Number(Some(f64::INFINITY)), "null");
        check(Aggregate::Number(None), "null");
    }

    /// Shows: D21
    #[test]
    fn a_body_replaces_the_parameters() {
        let parameters = Parameters::parse("tag=a&tags=b&type=x&per_page=3").unwrap();
        let by_parameters = query("", &parameters).unwrap().query;
        assert_eq!(
            (by_parameters.tags, by_parameters.kind),
            (vec!["a".to_owned(), "b".to_owned()], Some("x".to_owned()))
        );
        let by_body = query("{tags: [c], timestamp: {lte: now}}", &parameters).unwrap().query;
        assert_eq!((by_body.tags, by_body.kind), (vec!["c".to_owned()], None));
        assert!(by_body.time.to.is_some_and(|bound| bound.inclusive));
    }
}
