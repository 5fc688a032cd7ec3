//! The times of event queries: timestamps, `now`, and date arithmetic on either (wire, section 10.2).
//!
//! ```text
//! time       = timestamp | "now" arithmetic | timestamp "||" arithmetic
//! arithmetic = *( ("+" | "-") number unit ) [ "/" unit ]
//! unit       = "y" | "M" | "w" | "d" | "h" | "H" | "m" | "s"
//! ```

use time::{
    Date, Duration, Month, OffsetDateTime, Time, UtcOffset,
    format_description::well_known::{Iso8601, Rfc3339},
};
use winnow::{
    Parser as _, Result,
    ascii::digit1,
    combinator::{alt, opt, preceded, repeat},
    token::one_of,
};

/// Reads an ISO 8601 timestamp with an offset. `None` also for one that has no place in UTC, since the years end.
pub(super) fn instant(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(text, &Iso8601::PARSING))
        .ok()
        .filter(has_place)
}

fn has_place(at: &OffsetDateTime) -> bool {
    at.checked_to_offset(UtcOffset::UTC).is_some()
}

/// Reads a time of a query. `None` also for what no calendar has.
pub(super) fn query_time(text: &str, now: OffsetDateTime) -> Option<OffsetDateTime> {
    calculated(text, now).filter(has_place)
}

fn calculated(text: &str, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let (base, text) = match (text.strip_prefix("now"), text.split_once("||")) {
        (Some(text), _) => (now, text),
        (None, Some((base, text))) => (instant(base)?, text),
        (None, None) => return instant(text),
    };
    let (steps, rounding) = arithmetic.parse(text).ok()?;
    let at = steps.into_iter().try_fold(base, step)?;
    rounding.map_or(Some(at), |unit| round_down(at, unit))
}

/// `+` or `-` so many units.
type Step = (i64, Unit);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
}

fn arithmetic(input: &mut &str) -> Result<(Vec<Step>, Option<Unit>)> {
    (repeat(0.., signed), opt(preceded('/', unit))).parse_next(input)
}

fn signed(input: &mut &str) -> Result<Step> {
    let number = digit1.try_map(str::parse::<i64>);
    (one_of(['+', '-']), number, unit)
        .map(|(sign, number, unit)| (if sign == '-' { -number } else { number }, unit))
        .parse_next(input)
}

fn unit(input: &mut &str) -> Result<Unit> {
    alt((
        'y'.value(Unit::Year),
        'M'.value(Unit::Month),
        'w'.value(Unit::Week),
        'd'.value(Unit::Day),
        one_of(['h', 'H']).value(Unit::Hour),
        'm'.value(Unit::Minute),
        's'.value(Unit::Second),
    ))
    .parse_next(input)
}

fn step(at: OffsetDateTime, (count, unit): Step) -> Option<OffsetDateTime> {
    let seconds = match unit {
        Unit::Year => return add_months(at, count.checked_mul(12)?),
        Unit::Month => return add_months(at, count),
        Unit::Week => 7 * 86_400,
        Unit::Day => 86_400,
        Unit::Hour => 3_600,
        Unit::Minute => 60,
        Unit::Second => 1,
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

/// The beginning of the unit that `at` lies in; weeks begin on Mondays. Days are those of the offset that was written.
fn round_down(at: OffsetDateTime, unit: Unit) -> Option<OffsetDateTime> {
    let (hour, minute, second) = at.to_hms();
    let midnight = at.replace_time(Time::MIDNIGHT);
    let time =
        |hour, minute, second| Some(at.replace_time(Time::from_hms(hour, minute, second).ok()?));
    match unit {
        Unit::Second => time(hour, minute, second),
        Unit::Minute => time(hour, minute, 0),
        Unit::Hour => time(hour, 0, 0),
        Unit::Day => Some(midnight),
        Unit::Week => {
            midnight.checked_sub(Duration::days(i64::from(at.weekday().number_days_from_monday())))
        }
        Unit::Month => midnight.replace_day(1).ok(),
        Unit::Year => midnight.replace_ordinal(1).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::macros::datetime;

    /// Shows: D21
    #[test]
    fn query_times() {
        let now = datetime!(2030-03-31 15:33:49.766 UTC);
        let check = |text: &str, expected: OffsetDateTime| {
            assert_eq!(query_time(text, now), Some(expected), "{text}");
        };
        check("now", now);
        check("now-10m", datetime!(2030-03-31 15:23:49.766 UTC));
        check("now+1h-1s", datetime!(2030-03-31 16:33:48.766 UTC));
        check("now+1H", datetime!(2030-03-31 16:33:49.766 UTC));
        check("now-1d/d", datetime!(2030-03-30 0:00 UTC));
        check("now/w", datetime!(2030-03-25 0:00 UTC));
        check("now/M", datetime!(2030-03-01 0:00 UTC));
        check("now/y", datetime!(2030-01-01 0:00 UTC));
        check("now/h", datetime!(2030-03-31 15:00 UTC));
        check("now/m", datetime!(2030-03-31 15:33 UTC));
        check("now/s", datetime!(2030-03-31 15:33:49 UTC));
        check("now-1M", datetime!(2030-02-28 15:33:49.766 UTC));
        check("now-2y", datetime!(2028-03-31 15:33:49.766 UTC));
        check("now+1w", datetime!(2030-04-07 15:33:49.766 UTC));
        check("2030-01-10T15:33:49Z", datetime!(2030-01-10 15:33:49 UTC));
        check("2030-01-10T15:33:49.5+02:00", datetime!(2030-01-10 13:33:49.5 UTC));
        check("2030-01-10T15:33:49Z||", datetime!(2030-01-10 15:33:49 UTC));
        check("2030-01-10T15:33:49Z||+1d", datetime!(2030-01-11 15:33:49 UTC));
        check("2030-01-10T15:33:49Z||+1M/d", datetime!(2030-02-10 0:00 UTC));
        check("9999-12-31T22:59:59-01:00", datetime!(9999-12-31 23:59:59 UTC));
        check("2030-01-10T00:30:00+02:00||/d", datetime!(2030-01-10 0:00 +2));
    }

    #[test]
    fn what_is_no_time_of_a_query() {
        let now = datetime!(2030-03-31 15:33:49.766 UTC);
        for text in [
            "",
            "tomorrow",
            "NOW",
            "now ",
            "now-",
            "now-10",
            "now10m",
            "now-1x",
            "now-1 d",
            "now/x",
            "now/",
            "now||+1d",
            "2030-01-10",
            "2030-01-10T15:33:49",
            "2030-01-10T15:33:49Z+1d",
            "||+1d",
            "now-99999999999999999999y",
            "now-9223372036854775807y",
            "now+9223372036854775807s",
            "now+9999999y",
            "now-1d/d/d",
            "now/d-1d",
            "nowü",
            "9999-12-31T23:59:59-01:00",
            "9999-12-31T22:59:59-01:00||+1s",
        ] {
            assert_eq!(query_time(text, now), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(now|2030-01-10T15:33:49Z\\|\\|)?([-+/0-9yMwdhHms|.:TZ]|\\PC){0,24}") {
            _ = query_time(&text, datetime!(2030-03-31 15:33:49.766 UTC));
        }
    }
}
