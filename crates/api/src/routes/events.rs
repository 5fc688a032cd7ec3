//! Events: posting and querying (wire, section 10).

use super::stream;
use crate::documents::Documents;
use crate::parameters::Parameters;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::http::StatusCode;
use actix_web::web;
use segue_domain::command::{Command, Posted};
use segue_domain::dsl;
use segue_domain::event::{Query, Record, TimeRange};
use serde_json::{Value, json};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/events").get(list).post(create).done());
    config.service(Route::at("/events/stream").unnegotiated().get(stream::events).done());
}

/// The form that events have for clients.
pub(super) fn document(record: &Record) -> Value {
    let event = &record.event;
    json!({
        "id": record.position.to_string(),
        "tags": event.tags.as_slice(),
        "value": event.value,
        "timestamp": timestamp(event.timestamp),
        "type": event.kind,
    })
}

/// An instant with milliseconds, in UTC.
pub(super) fn timestamp(instant: OffsetDateTime) -> String {
    let utc = instant.to_offset(UtcOffset::UTC);
    utc.format(TIMESTAMP).expect("the format names components that every instant has")
}

/// What is asked for: by the body when there is one, else by the parameters.
pub(super) fn query(body: &str, parameters: &Parameters) -> Result<Query, Failure> {
    if body.is_empty() {
        let tags = parameters.all("tag").chain(parameters.all("tags")).map(str::to_owned).collect();
        let kind = parameters.first("type").map(str::to_owned);
        return Ok(Query { tags, kind, time: TimeRange::default() });
    }
    let documents = Documents::one(body)?;
    let queries = documents.map(|node| dsl::read_event_query(node, OffsetDateTime::now_utc()))?;
    queries.into_iter().next().ok_or_else(|| Failure::internal("one document made no query"))
}

async fn list(request: Request) -> Answer {
    let paging = request.paging()?;
    let query = query(&request.body, &request.parameters)?;
    let store = request.running()?.store.clone();
    // Records that are not in memory are read from disk.
    let page = web::block(move || store.query(&query, paging.page, paging.per_page)).await;
    let page = page.map_err(|error| Failure::internal(error.to_string()))??;
    let items = page.records.iter().map(|record| document(record)).collect();
    Ok(request.page(paging, items, page.total))
}

async fn create(request: Request) -> Answer {
    let documents = Documents::one(&request.body)?;
    let posted = documents.map(dsl::read_posted_event)?;
    let store = &request.running()?.store;
    let [event] = &posted[..] else { return Err(Failure::internal("one document made no event")) };
    let command = Command::Post(Posted {
        tags: event.tags.clone(),
        kind: event.kind.clone(),
        value: event.value.clone(),
        timestamp: event.timestamp,
    });
    let executed = store.execute(&command, &request.context()).await?;
    let record = executed
        .records
        .first()
        .ok_or_else(|| Failure::internal("a posted event was not appended"))?;
    Ok(request.document(StatusCode::CREATED, None, &document(record)))
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

    #[test]
    fn a_body_replaces_the_parameters() {
        let parameters = Parameters::parse("tag=a&tags=b&type=x&per_page=3").unwrap();
        let by_parameters = query("", &parameters).unwrap();
        assert_eq!(
            (by_parameters.tags, by_parameters.kind),
            (vec!["a".to_owned(), "b".to_owned()], Some("x".to_owned()))
        );
        let by_body = query("{tags: [c], timestamp: {lte: now}}", &parameters).unwrap();
        assert_eq!((by_body.tags, by_body.kind), (vec!["c".to_owned()], None));
        assert!(by_body.time.to.is_some_and(|bound| bound.inclusive));
    }
}
