//! Events in the form that streams send: made once, and shared by all streams that send them.

use super::events;
use crate::negotiation::Format;
use actix_web::web::Bytes;
use segue_domain::event::{Position, Record};
use std::sync::{Mutex, PoisonError};

/// How many frames are kept.
const FRAMES: u64 = 512;
/// Larger frames are made for each stream anew, so that what is kept stays below 32 MiB.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// The newest frames, each in the place that its position gives it.
pub struct Frames(Vec<Mutex<Option<(Position, Bytes)>>>);

impl Default for Frames {
    fn default() -> Self {
        Self((0..FRAMES).map(|_| Mutex::default()).collect())
    }
}

impl Frames {
    /// The frame of `record`. Of several streams that ask at once, one makes it and the others wait for it.
    pub fn of(&self, record: &Record) -> Bytes {
        let place = usize::try_from(record.position.0 % FRAMES).unwrap_or_default();
        let mut kept = self.0[place].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((position, frame)) = &*kept
            && *position == record.position
        {
            return frame.clone();
        }
        let frame = frame(record);
        // One stream that reads the past must not take from the others what they are about to send.
        let is_newer = kept.as_ref().is_none_or(|(position, _)| *position < record.position);
        if is_newer && frame.len() <= FRAME_BYTES_MAX {
            *kept = Some((record.position, frame.clone()));
        }
        frame
    }
}

/// One server-sent event.
fn frame(record: &Record) -> Bytes {
    let data = Format::Json.write(&events::document(record));
    Bytes::from(format!("id: {}\nevent: {}\ndata: {data}\n\n", record.position, record.event.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_domain::event::{Draft, Event, Origin, Provenance, Tags};
    use serde_json::json;
    use time::macros::datetime;

    fn record(position: u64, value: serde_json::Value) -> Record {
        let now = datetime!(2030-01-10 15:33:49.766 UTC);
        let provenance = Provenance {
            actor: "api".to_owned(),
            cause: None,
            correlation: String::new(),
            origin: Origin::External,
        };
        let tags = Tags::expand(["gateways:front", "health"]);
        let event = Event { kind: "health".to_owned(), tags, timestamp: now, value, fact: None };
        Draft { time: now, provenance, event }.at(Position(position))
    }

    /// Shows: D24, D19
    #[test]
    fn a_frame_is_three_lines_whatever_the_value() {
        let expected = concat!(
            "id: 7\nevent: health\n",
            r#"data: {"id":"7","tags":["gateways:front","gateways","health"],"value":"a\nb","#,
            r#""timestamp":"2030-01-10T15:33:49.766Z","type":"health"}"#,
            "\n\n"
        );
        assert_eq!(frame(&record(7, json!("a\nb"))), expected);
    }

    #[test]
    fn the_newest_frames_are_made_once() {
        let frames = Frames::default();
        let first = frames.of(&record(1, json!(1)));
        assert_eq!(frames.of(&record(1, json!(1))).as_ptr(), first.as_ptr());
        let newer = frames.of(&record(1 + FRAMES, json!(2)));
        assert_eq!(frames.of(&record(1, json!(1))), first);
        assert_eq!(frames.of(&record(1 + FRAMES, json!(2))).as_ptr(), newer.as_ptr());
        let large = || record(5, json!("x".repeat(FRAME_BYTES_MAX)));
        assert_ne!(frames.of(&large()).as_ptr(), frames.of(&large()).as_ptr());
    }
}
