//! The readers of posted events and of event queries (wire, sections 10.1 and 10.2).

use super::{
    Options, cluster, fields,
    reader::{Element, Fields, Reading},
    tree::Node,
};
use crate::{
    event::{Bound, Query, TimeRange, is_event_type},
    problem::{Problem, ProblemKind, Result},
};
use time::{
    Date, Duration, Month, OffsetDateTime, Time,
    format_description::well_known::{Iso8601, Rfc3339},
};

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

/// Reads an event that a client posts.
pub fn read_posted_event(node: &Node) -> Result<PostedEvent> {
    let options = Options::default();
    let mut reading = Reading::new(&options);
    let event = Fields::open(&Element::root(node), &mut reading)
        .and_then(|fields| posted(fields, &mut reading));
    reading.finish(event)
}

/// Reads the body of an event query; `now` is what times are relative to.
pub fn read_event_query(node: &Node, now: OffsetDateTime) -> Result<Query> {
    let options = Options::default();
    let mut reading = Reading::new(&options);
    let query = Fields::open(&Element::root(node), &mut reading)
        .and_then(|fields| query(fields, now, &mut reading));
    reading.finish(query)
}

fn posted(mut fields: Fields<'_>, reading: &mut Reading) -> Option<PostedEvent> {
    let tags = fields.require("tags", reading).and_then(|element| {
        let tags = tags(&element, reading)?;
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
        None => Some("event".to_owned()),
    };
    fields.close(reading);
    let value = value
        .map_or_else(|| serde_json::Value::String(String::new()), |value| value.node.to_json());
    Some(PostedEvent { tags: tags?, value, timestamp: timestamp.flatten(), kind: kind? })
}

/// One text or a list of them, without duplicates.
fn tags(element: &Element<'_>, reading: &mut Reading) -> Option<Vec<String>> {
    let elements = match element.items(reading) {
        Some(items) => items,
        None if element.is_map() => {
            reading.wrong_type(element, "a tag or a list of tags");
            return None;
        }
        None => vec![element.clone()],
    };
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

fn query(mut fields: Fields<'_>, now: OffsetDateTime, reading: &mut Reading) -> Option<Query> {
    let tags = match fields.take("tags", reading) {
        Some(element) => tags(&element, reading),
        None => Some(Vec::new()),
    };
    let kind = fields.take("type", reading).and_then(|kind| fields::text(&kind, reading));
    let time = match fields.take("timestamp", reading) {
        Some(element) => {
            cluster::inner_map(&element, reading).map(|fields| time_range(fields, now, reading))
        }
        None => Some(TimeRange::default()),
    };
    fields.not_supported("aggregator", reading);
    fields.close(reading);
    Some(Query { tags: tags?, kind, time: time? })
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

/// Reads an ISO 8601 timestamp with an offset.
fn instant(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(text, &Iso8601::PARSING))
        .ok()
}

/// Reads a timestamp, or `now` or `<timestamp>||` with date arithmetic.
fn query_time(text: &str, now: OffsetDateTime) -> Option<OffsetDateTime> {
    if let Some(arithmetic) = text.strip_prefix("now") {
        return calculate(now, arithmetic);
    }
    match text.split_once("||") {
        Some((base, arithmetic)) => calculate(instant(base)?, arithmetic),
        None => instant(text),
    }
}

/// Applies `+1h`, `-10m` and their like, and a unit to round down to at the end.
fn calculate(base: OffsetDateTime, arithmetic: &str) -> Option<OffsetDateTime> {
    let (steps, rounding) = match arithmetic.split_once('/') {
        Some((steps, unit)) => (steps, Some(unit)),
        None => (arithmetic, None),
    };
    let mut at = base;
    let mut rest = steps;
    while let Some(sign) = rest.chars().next() {
        let digits = &rest[sign.len_utf8()..];
        let unit_begin = digits.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = digits[..unit_begin].parse().ok()?;
        let count = match sign {
            '+' => count,
            '-' => -count,
            _ => return None,
        };
        let unit = digits[unit_begin..].chars().next()?;
        at = step(at, count, unit)?;
        rest = &digits[unit_begin + unit.len_utf8()..];
    }
    match rounding {
        Some(unit) => round_down(at, unit),
        None => Some(at),
    }
}

fn step(at: OffsetDateTime, count: i64, unit: char) -> Option<OffsetDateTime> {
    let seconds = match unit {
        'y' => return add_months(at, count.checked_mul(12)?),
        'M' => return add_months(at, count),
        'w' => 7 * 86_400,
        'd' => 86_400,
        'h' | 'H' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return None,
    };
    at.checked_add(Duration::seconds(count.checked_mul(seconds)?))
}

/// Months are counted in the calendar; the last day of a shorter month stands for the days it lacks.
fn add_months(at: OffsetDateTime, months: i64) -> Option<OffsetDateTime> {
    let index =
        i64::from(at.year()).checked_mul(12)?.checked_add(i64::from(u8::from(at.month())) - 1)?;
    let index = index.checked_add(months)?;
    let year = i32::try_from(index.div_euclid(12)).ok()?;
    let month = Month::try_from(u8::try_from(index.rem_euclid(12) + 1).ok()?).ok()?;
    let date = (28..=at.day())
        .rev()
        .chain(std::iter::once(at.day()))
        .find_map(|day| Date::from_calendar_date(year, month, day).ok())?;
    Some(at.replace_date(date))
}

fn round_down(at: OffsetDateTime, unit: &str) -> Option<OffsetDateTime> {
    let (hour, minute, second) = at.to_hms();
    let midnight = at.replace_time(Time::MIDNIGHT);
    let time =
        |hour, minute, second| Some(at.replace_time(Time::from_hms(hour, minute, second).ok()?));
    match unit {
        "s" => time(hour, minute, second),
        "m" => time(hour, minute, 0),
        "h" | "H" => time(hour, 0, 0),
        "d" => Some(midnight),
        "w" => {
            midnight.checked_sub(Duration::days(i64::from(at.weekday().number_days_from_monday())))
        }
        "M" => midnight.replace_day(1).ok(),
        "y" => midnight.replace_ordinal(1).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn query_times() {
        let now = datetime!(2030-03-31 15:33:49.766 UTC);
        let check = |text: &str, expected: OffsetDateTime| {
            assert_eq!(query_time(text, now), Some(expected), "{text}");
        };
        check("now", now);
        check("now-10m", datetime!(2030-03-31 15:23:49.766 UTC));
        check("now+1h-1s", datetime!(2030-03-31 16:33:48.766 UTC));
        check("now-1d/d", datetime!(2030-03-30 0:00 UTC));
        check("now/w", datetime!(2030-03-25 0:00 UTC));
        check("now/M", datetime!(2030-03-01 0:00 UTC));
        check("now/y", datetime!(2030-01-01 0:00 UTC));
        check("now/h", datetime!(2030-03-31 15:00 UTC));
        check("now-1M", datetime!(2030-02-28 15:33:49.766 UTC));
        check("now-2y", datetime!(2028-03-31 15:33:49.766 UTC));
        check("now+1w", datetime!(2030-04-07 15:33:49.766 UTC));
        check("2030-01-10T15:33:49Z", datetime!(2030-01-10 15:33:49 UTC));
        check("2030-01-10T15:33:49.5+02:00", datetime!(2030-01-10 13:33:49.5 UTC));
        check("2030-01-10T15:33:49Z||+1d", datetime!(2030-01-11 15:33:49 UTC));
        for text in [
            "",
            "tomorrow",
            "now-",
            "now-10",
            "now10m",
            "now-1x",
            "now/x",
            "2030-01-10",
            "now-99999999999999999999y",
            "now-9223372036854775807y",
            "now+9223372036854775807s",
            "now+9999999y",
            "now-1d/d/d",
            "nowü",
        ] {
            assert_eq!(query_time(text, now), None, "{text}");
        }
    }
}
