//! The readers of posted events and of event queries (wire, sections 10.1 and 10.2).

use super::{
    Options, cluster,
    event_time::{instant, query_time},
    fields,
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    event::{Aggregator, Bound, Function, Query, TimeRange, is_event_type, too_many_tags},
    problem::{Problem, ProblemKind, Result},
};
use time::OffsetDateTime;

/// The type of events that are posted without one.
pub(super) const KIND_DEFAULT: &str = "event";

/// An event as a client posts it.
#[derive(Clone, Debug, PartialEq)]
pub struct PostedEvent {
    /// The tags as given, not expanded, without duplicates; at least one.
    pub tags: Vec<String>,
    /// Any JSON; the empty text when there is none.
    pub value: serde_json::Value,
    /// When it happened; `None` is now.
    pub timestamp: Option<OffsetDateTime>,
    /// The type, `event` by default.
    pub kind: String,
}

/// A query as a client sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Which events.
    pub query: Query,
    /// What is to be made of them instead of a list.
    pub aggregator: Option<Aggregator>,
}

/// Reads an event that a client posts.
pub fn read_posted_event(node: &Node) -> Result<PostedEvent> {
    let options = Options::default();
    let mut reading = Reading::new(&options);
    let event = Fields::open(&Element::root(node), &mut reading)
        .and_then(|fields| posted(fields, &mut reading));
    reading.finish(event)
}

/// Reads the body of an event query; `now` is what times are relative to.
pub fn read_event_query(node: &Node, now: OffsetDateTime) -> Result<EventQuery> {
    let options = Options::default();
    let mut reading = Reading::new(&options);
    let query = Fields::open(&Element::root(node), &mut reading)
        .and_then(|fields| query(fields, now, &mut reading));
    reading.finish(query)
}

fn posted(mut fields: Fields<'_>, reading: &mut Reading) -> Option<PostedEvent> {
    let tags = fields.require("tags", reading).and_then(|element| {
        let tags = tags(&element, "an event", reading)?;
        if tags.is_empty() {
            reading
                .refuse(element.problem(ProblemKind::NoTagEvent, "an event has at least one tag"));
        }
        Some(tags)
    });
    let value = fields.take("value", reading);
    let timestamp = fields.take("timestamp", reading).map(|element| {
        let text = fields::text(&element, reading)?;
        let timestamp = instant(&text);
        if timestamp.is_none() {
            let problem =
                element.problem(ProblemKind::EventTimestamp, format!("'{text}' is no timestamp"));
            reading.refuse(
                problem.hint("write ISO 8601 with an offset, such as 2030-01-10T15:33:49Z"),
            );
        }
        timestamp
    });
    let kind = match fields.take("type", reading) {
        Some(element) => fields::text(&element, reading).filter(|kind| {
            let is_legal = is_event_type(kind);
            if !is_legal {
                let problem = element
                    .problem(ProblemKind::EventType, format!("'{kind}' is no type of an event"));
                reading.refuse(problem.hint("a type has letters, digits, '_' and '-'"));
            }
            is_legal
        }),
        None => Some(KIND_DEFAULT.to_owned()),
    };
    fields.close(reading);
    let value = value
        .map_or_else(|| serde_json::Value::String(String::new()), |value| value.node.to_json());
    Some(PostedEvent { tags: tags?, value, timestamp: timestamp.flatten(), kind: kind? })
}

/// One text or a list of them, without duplicates; not too many for `owner`, duplicates included.
fn tags(element: &Element<'_>, owner: &str, reading: &mut Reading) -> Option<Vec<String>> {
    let elements = match element.items(reading) {
        Some(items) => items,
        None if element.is_map() => {
            reading.wrong_type(element, "a tag or a list of tags");
            return None;
        }
        None => vec![element.clone()],
    };
    if let Some(detail) = too_many_tags(owner, elements.len()) {
        let problem = element.problem(ProblemKind::YamlParsing, detail);
        reading.refuse(problem.hint("leave some of them out"));
        return None;
    }
    let mut seen = std::collections::HashSet::new();
    let mut tags = Vec::with_capacity(elements.len());
    for element in elements {
        let tag = fields::text(&element, reading)?;
        if seen.insert(tag.clone()) {
            tags.push(tag);
        }
    }
    Some(tags)
}

fn query(mut fields: Fields<'_>, now: OffsetDateTime, reading: &mut Reading) -> Option<EventQuery> {
    let tags = match fields.take("tags", reading) {
        Some(element) => tags(&element, "a query", reading),
        None => Some(Vec::new()),
    };
    let kind = fields.take("type", reading).and_then(|kind| fields::text(&kind, reading));
    let time = match fields.take("timestamp", reading) {
        Some(element) => {
            cluster::inner_map(&element, reading).map(|fields| time_range(fields, now, reading))
        }
        None => Some(TimeRange::default()),
    };
    let aggregator = fields.take("aggregator", reading).map(|element| {
        let fields = cluster::inner_map(&element, reading)?;
        aggregator(fields, reading)
    });
    fields.close(reading);
    Some(EventQuery {
        query: Query { tags: tags?, kind, time: time? },
        aggregator: aggregator.flatten(),
    })
}

fn aggregator(mut fields: Fields<'_>, reading: &mut Reading) -> Option<Aggregator> {
    let function = fields.require("type", reading).and_then(|element| {
        let name = fields::text(&element, reading)?;
        let known = |function: &Function| function.name().eq_ignore_ascii_case(&name);
        let function = Function::ALL.into_iter().find(known);
        if function.is_none() {
            let detail = format!("'{name}' is no aggregator");
            let problem = element.problem(ProblemKind::UnsupportedAggregator, detail);
            reading.refuse(
                problem.hint(format!("one of {}", Function::ALL.map(Function::name).join(", "))),
            );
        }
        function
    });
    let field = match fields.take("field", reading) {
        Some(element) => fields::text(&element, reading),
        None => Some("value".to_owned()),
    };
    fields.close(reading);
    Some(Aggregator { function: function?, field: field? })
}

fn time_range(mut fields: Fields<'_>, now: OffsetDateTime, reading: &mut Reading) -> TimeRange {
    let from = bound(&mut fields, "gt", "gte", now, reading);
    let to = bound(&mut fields, "lt", "lte", now, reading);
    fields.close(reading);
    TimeRange { from, to }
}

fn bound(
    fields: &mut Fields<'_>,
    open: &'static str,
    closed: &'static str,
    now: OffsetDateTime,
    reading: &mut Reading,
) -> Option<Bound> {
    let open_element = fields.take(open, reading);
    let closed_element = fields.take(closed, reading);
    if let (Some(_), Some(closed_element)) = (&open_element, &closed_element) {
        let detail = format!("'{open}' and '{closed}' exclude each other");
        reading.refuse(
            closed_element.problem(ProblemKind::EventQueryTime, detail).hint("keep one of the two"),
        );
    }
    let inclusive = open_element.is_none();
    let element = open_element.or(closed_element)?;
    let text = fields::text(&element, reading)?;
    let at = query_time(&text, now);
    if at.is_none() {
        let problem: Problem =
            element.problem(ProblemKind::EventTimestamp, format!("'{text}' is no time"));
        reading.refuse(problem.hint("write ISO 8601 with an offset, now, or now-10m"));
    }
    Some(Bound { at: at?, inclusive })
}
