//! A line of HAProxy's log, and what the request that it tells of came to (runtime, 10.5).
//!
//! Pure. What it cannot read is no line; nothing in a line can do harm.

use crate::gateways::Request;
use memchr::memmem;
use serde::Deserialize;
use std::borrow::Cow;

/// What stands behind all that is looked at here; what comes from outside comes later, and may be cut off.
const REST: &[u8; 6] = b",\"ac\":";
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
/// Stands for a point that was never reached.
const NEVER: i64 = -1;

/// What is read of a line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Line<'a> {
    /// When the request began, or where it was the first of a connection, the connection.
    #[serde(borrow)]
    t: Cow<'a, str>,
    /// The frontend.
    #[serde(borrow)]
    pub(super) ft: Cow<'a, str>,
    /// The backend; the frontend where the request came to none.
    #[serde(borrow)]
    pub(super) b: Cow<'a, str>,
    /// The server; `<NOSRV>` where there was none.
    #[serde(borrow)]
    pub(super) s: Cow<'a, str>,
    /// Milliseconds until the request was there; on a connection that was kept, the client's silence before it, too.
    #[serde(rename = "Tq", default)]
    request_ms: Option<i64>,
    /// Milliseconds until a server accepted the connection.
    #[serde(rename = "Tc")]
    connect_ms: i64,
    /// Milliseconds in all.
    #[serde(rename = "Tt")]
    total_ms: i64,
    /// The status, with http.
    #[serde(rename = "ST", default)]
    status: Option<i64>,
    /// How it ended; the first letter says who ended it.
    #[serde(alias = "tsc", borrow)]
    ts: Cow<'a, str>,
}

impl<'a> Line<'a> {
    /// Reads a line, without its end. `scratch` is memory that is used again for the next one.
    pub(super) fn read(line: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<Self> {
        let end = memmem::find(line, REST)?;
        scratch.clear();
        scratch.extend_from_slice(&line[..end]);
        scratch.push(b'}');
        serde_json::from_slice(scratch).ok()
    }

    /// When the request ended, in seconds since 1970.
    pub(super) fn second(&self) -> Option<i64> {
        let began_ms = milliseconds(self.t.as_bytes())?;
        Some(began_ms.checked_add(self.total_ms.max(0))?.div_euclid(1000))
    }

    /// What the request came to; `None` when there was none: a connection without a whole request, such as one that
    /// was kept open and closed.
    pub(super) fn request(&self) -> Option<Request> {
        let client_left = matches!(self.ts.bytes().next(), Some(b'C' | b'c'));
        let time = |total_ms: i64| u64::try_from(total_ms).ok().filter(|_| !client_left);
        let Some(status) = self.status else {
            let failed = self.connect_ms <= NEVER && !client_left;
            return Some(Request { failed, status: None, time_ms: time(self.total_ms) });
        };
        let request_ms = self.request_ms.filter(|request_ms| *request_ms > NEVER)?;
        let status = u16::try_from(status).ok().filter(|status| *status > 0);
        let failed = !client_left && status.is_none_or(|status| status >= 500);
        Some(Request { failed, status, time_ms: time(self.total_ms.saturating_sub(request_ms)) })
    }
}

/// `21/Nov/2026:08:37:22.721`, in UTC, as milliseconds since 1970.
fn milliseconds(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| {
        text.get(from..to)?.iter().try_fold(0_i64, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
        })
    };
    let month = MONTHS.iter().position(|name| Some(*name) == text.get(3..6))?;
    let month = time::Month::try_from(u8::try_from(month + 1).ok()?).ok()?;
    let day = u8::try_from(number(0, 2)?).ok()?;
    let date =
        time::Date::from_calendar_date(i32::try_from(number(7, 11)?).ok()?, month, day).ok()?;
    let days = i64::from(date.to_julian_day() - time::OffsetDateTime::UNIX_EPOCH.to_julian_day());
    let seconds = (number(12, 14)? * 60 + number(15, 17)?) * 60 + number(18, 20)?;
    Some((days * 86_400 + seconds) * 1000 + number(21, 24)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HTTP: &str = r#"{"ci":"127.0.0.1","cp":34126,"t":"21/Nov/2026:08:37:22.721","ft":"fe","b":"be","s":"s1","Tq":1000,"Tw":0,"Tc":0,"Tr":3,"Tt":1303,"ST":200,"B":73,"CC":"-","CS":"-","tsc":"----","ac":2,"fc":1,"bc":0,"sc":0,"rc":0,"sq":0,"bq":0,"hr":"","hs":"","r":"GET \/a\"b\\c|d HTTP/1.1"}"#;
    const TCP: &str = r#"{"ci":"127.0.0.1","cp":51476,"t":"21/Nov/2026:08:40:32.909","ft":"tc","b":"tcb","s":"a","Tw":1,"Tc":0,"Tt":91,"B":66,"ts":"--","ac":1,"fc":1,"bc":0,"sc":0,"rc":0,"sq":0,"bq":0}"#;

    fn request(line: &str) -> Option<Request> {
        Line::read(line.as_bytes(), &mut Vec::new()).unwrap().request()
    }

    #[test]
    fn what_a_line_says() {
        let mut scratch = Vec::new();
        let line = Line::read(HTTP.as_bytes(), &mut scratch).unwrap();
        assert_eq!((&*line.ft, &*line.b, &*line.s), ("fe", "be", "s1"));
        let end = time::macros::datetime!(2026-11-21 08:37:24.024 UTC);
        assert_eq!(line.second(), Some(end.unix_timestamp()));
        let whole = serde_json::from_str::<serde_json::Value>(HTTP).unwrap();
        assert_eq!(whole["r"], r#"GET /a"b\c|d HTTP/1.1"#);
        let cut = &HTTP[..HTTP.len() - 20];
        assert!(serde_json::from_str::<serde_json::Value>(cut).is_err());
        assert_eq!(Line::read(cut.as_bytes(), &mut Vec::new()).unwrap().s, "s1");
        assert!(Line::read(b"Proxy fe stopped.", &mut Vec::new()).is_none());
        assert!(Line::read(&TCP.as_bytes()[..90], &mut Vec::new()).is_none());
    }

    #[test]
    fn what_requests_came_to() {
        let http = |change: &[(&str, &str)]| {
            let line =
                change.iter().fold(HTTP.to_owned(), |line, (from, to)| line.replace(from, to));
            request(&line).map(|request| (request.failed, request.status, request.time_ms))
        };
        // The silence of a client before its next request is no time that anybody took.
        assert_eq!(http(&[]), Some((false, Some(200), Some(303))));
        assert_eq!(http(&[("200", "404")]), Some((false, Some(404), Some(303))));
        assert_eq!(http(&[("200", "503"), ("----", "SC--")]), Some((true, Some(503), Some(303))));
        assert_eq!(http(&[("200", "-1"), ("----", "SD--")]), Some((true, None, Some(303))));
        // A client that does not wait is counted, and neither a failure nor a time.
        assert_eq!(http(&[("200", "-1"), ("----", "CH--")]), Some((false, None, None)));
        assert_eq!(http(&[("200", "200"), ("----", "cD--")]), Some((false, Some(200), None)));
        assert_eq!(http(&[("1000", "-1"), ("200", "400"), ("----", "PR--")]), None);

        let tcp = |change: &[(&str, &str)]| {
            let line =
                change.iter().fold(TCP.to_owned(), |line, (from, to)| line.replace(from, to));
            request(&line).map(|request| (request.failed, request.status, request.time_ms))
        };
        assert_eq!(tcp(&[]), Some((false, None, Some(91))));
        assert_eq!(tcp(&[(r#""Tc":0"#, r#""Tc":-1"#), ("--", "SC")]), Some((true, None, Some(91))));
        assert_eq!(tcp(&[(r#""Tc":0"#, r#""Tc":-1"#), ("--", "CC")]), Some((false, None, None)));
    }

    proptest! {
        #[test]
        fn nothing_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..400, text in ".{0,20}") {
            let mut scratch = Vec::new();
            Line::read(&bytes, &mut scratch);
            let mut line = HTTP.as_bytes().to_vec();
            let at = at.min(line.len());
            line.splice(at..line.len().min(at + text.len()), text.bytes());
            if let Some(line) = Line::read(&line, &mut scratch) {
                line.second();
                line.request();
            }
            milliseconds(&bytes);
        }

        #[test]
        fn numbers_of_any_size_are_no_harm(request in any::<i64>(), total in any::<i64>(), status in any::<i64>()) {
            let line = HTTP
                .replace("1000", &request.to_string())
                .replace("1303", &total.to_string())
                .replace(":200", &format!(":{status}"));
            if let Some(line) = Line::read(line.as_bytes(), &mut Vec::new()) {
                line.second();
                line.request();
            }
        }
    }
}
