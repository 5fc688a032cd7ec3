//! What a record looks like on disk. **These bytes are frozen**: a change is a new version beside the old one.
//!
//! ```text
//! key    position, 8 bytes, big-endian, so that keys sort in log order
//! value  1 byte    version of the format, 1
//!        4 bytes   CRC-32C of the position (8 bytes, big-endian) and of all that follows, little-endian
//!        header    postcard of `HeaderV1`
//!        value     JSON of the event's value
//!        fact      JSON of the fact, when there is one
//! ```
//!
//! The position is part of the checksum, so a record that turns up under another key is noticed. The structures here
//! are the log's own: that the types of [`crate::event`] change does not change the disk. Times are written as
//! nanoseconds since 1970 and come back in UTC.

use super::error::ReadError;
use crate::artifact::{ArtifactKey, Kind};
use crate::event::{Draft, Event, Origin, Position, Provenance, Record, Tags};
use serde::de::value::{Error as TagsError, SeqDeserializer};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The newest format of a record that this release reads, and the one that it writes.
pub(super) const RECORD_FORMAT: u8 = 1;

/// Bytes before the header: format and checksum.
const PREFIX_BYTES: usize = 5;

/// A record as bytes that wait for their position.
#[derive(Debug)]
pub(super) struct Encoded(Vec<u8>);

/// What the index needs of a record, borrowed from its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub time: i128,
    pub timestamp: i128,
    pub kind: &'a str,
    pub tags: Vec<&'a str>,
}

/// Frozen: fields are neither reordered nor changed.
#[derive(Serialize, Deserialize)]
struct HeaderV1<'a> {
    time: i128,
    timestamp: i128,
    actor: &'a str,
    cause: Option<u64>,
    correlation: &'a str,
    /// 0 is the service, 1 a client.
    origin: u8,
    kind: &'a str,
    #[serde(borrow)]
    tags: Vec<&'a str>,
    value_bytes: u32,
    fact_bytes: Option<u32>,
}

/// Header, value and fact.
type Parts<'a> = (HeaderV1<'a>, &'a [u8], Option<&'a [u8]>);

impl Encoded {
    /// The bytes of `draft`, all but what depends on the position. The error says what cannot be written.
    pub fn new(draft: &Draft) -> Result<Self, String> {
        let event = &draft.event;
        let value =
            serde_json::to_vec(&event.value).map_err(|error| format!("its value: {error}"))?;
        let fact = event.fact.as_ref().map(serde_json::to_vec).transpose();
        let fact = fact.map_err(|error| format!("its fact: {error}"))?;
        let length = |bytes: &[u8]| {
            u32::try_from(bytes.len()).map_err(|_| "it is larger than 4 GiB".to_owned())
        };
        let header = HeaderV1 {
            time: draft.time.unix_timestamp_nanos(),
            timestamp: event.timestamp.unix_timestamp_nanos(),
            actor: &draft.provenance.actor,
            cause: draft.provenance.cause.map(|position| position.0),
            correlation: &draft.provenance.correlation,
            origin: match draft.provenance.origin {
                Origin::Service => 0,
                Origin::External => 1,
            },
            kind: &event.kind,
            tags: event.tags.as_slice().iter().map(String::as_str).collect(),
            value_bytes: length(&value)?,
            fact_bytes: fact.as_deref().map(length).transpose()?,
        };
        let prefix = vec![RECORD_FORMAT, 0, 0, 0, 0];
        let mut bytes =
            postcard::to_extend(&header, prefix).map_err(|error| format!("its header: {error}"))?;
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(&fact.unwrap_or_default());
        Ok(Self(bytes))
    }

    /// How many bytes the record takes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value that is stored under `position`.
    pub fn seal(mut self, position: Position) -> Vec<u8> {
        let checksum = checksum(position, &self.0[PREFIX_BYTES..]);
        self.0[1..PREFIX_BYTES].copy_from_slice(&checksum.to_le_bytes());
        self.0
    }
}

/// Reads the record at `position` from the bytes of its value.
pub(super) fn decode(position: Position, bytes: &[u8]) -> Result<Record, ReadError> {
    let (header, value, fact) = split(position, bytes)?;
    let damaged = |reason: String| ReadError::Damaged { position, reason };
    let instant = |nanoseconds: i128| {
        OffsetDateTime::from_unix_timestamp_nanos(nanoseconds)
            .map_err(|error| damaged(format!("a time: {error}")))
    };
    let origin = match header.origin {
        0 => Origin::Service,
        1 => Origin::External,
        other => return Err(damaged(format!("origin {other} is unknown"))),
    };
    let tags = SeqDeserializer::<_, TagsError>::new(header.tags.into_iter());
    let fact = fact.map(serde_json::from_slice).transpose();
    Ok(Record {
        position,
        time: instant(header.time)?,
        provenance: Provenance {
            actor: header.actor.to_owned(),
            cause: header.cause.map(Position),
            correlation: header.correlation.to_owned(),
            origin,
        },
        event: Event {
            kind: header.kind.to_owned(),
            tags: Tags::deserialize(tags).map_err(|error| damaged(format!("its tags: {error}")))?,
            timestamp: instant(header.timestamp)?,
            value: serde_json::from_slice(value)
                .map_err(|error| damaged(format!("its value: {error}")))?,
            fact: fact.map_err(|error| damaged(format!("its fact: {error}")))?,
        },
    })
}

/// Checks the record at `position` and reads what the index needs.
pub(super) fn decode_header(position: Position, bytes: &[u8]) -> Result<Header<'_>, ReadError> {
    let (header, _, _) = split(position, bytes)?;
    Ok(Header {
        time: header.time,
        timestamp: header.timestamp,
        kind: header.kind,
        tags: header.tags,
    })
}

/// The key of the record at `position`.
pub(super) fn record_key(position: Position) -> [u8; 8] {
    position.0.to_be_bytes()
}

/// The position that `key` stands for; `None` when it is no key of a record.
pub(super) fn record_position(key: &[u8]) -> Option<Position> {
    Some(Position(u64::from_be_bytes(key.try_into().ok()?)))
}

/// The key of an artifact's revision: a frozen letter for the kind, then the name.
pub(super) fn revision_key(artifact: &ArtifactKey) -> Vec<u8> {
    let letter = match artifact.kind {
        Kind::Blueprint => b'b',
        Kind::Breed => b'r',
        Kind::Condition => b'c',
        Kind::Deployment => b'd',
        Kind::Gateway => b'g',
        Kind::Scale => b's',
    };
    [&[letter], artifact.name.as_bytes()].concat()
}

/// The artifact that `key` stands for; `None` when it is no key of a revision.
pub(super) fn revision_artifact(key: &[u8]) -> Option<ArtifactKey> {
    let (letter, name) = key.split_first()?;
    let kind = match letter {
        b'b' => Kind::Blueprint,
        b'r' => Kind::Breed,
        b'c' => Kind::Condition,
        b'd' => Kind::Deployment,
        b'g' => Kind::Gateway,
        b's' => Kind::Scale,
        _ => return None,
    };
    Some(ArtifactKey::new(kind, std::str::from_utf8(name).ok()?))
}

/// Checks format, checksum and lengths, and takes the bytes apart.
fn split(position: Position, bytes: &[u8]) -> Result<Parts<'_>, ReadError> {
    let damaged = |reason: &str| ReadError::Damaged { position, reason: reason.to_owned() };
    let [format, c0, c1, c2, c3, body @ ..] = bytes else { return Err(damaged("it is cut off")) };
    match *format {
        RECORD_FORMAT => {}
        0 => return Err(damaged("its format is 0")),
        found => return Err(ReadError::NewerRecord { position, found, known: RECORD_FORMAT }),
    }
    if u32::from_le_bytes([*c0, *c1, *c2, *c3]) != checksum(position, body) {
        return Err(damaged("its checksum does not match"));
    }
    let (header, rest) = postcard::take_from_bytes::<HeaderV1>(body)
        .map_err(|error| damaged(&format!("its header: {error}")))?;
    let parts = rest.split_at_checked(header.value_bytes as usize);
    let (value, fact) = parts.ok_or_else(|| damaged("its value is cut off"))?;
    if fact.len() != header.fact_bytes.unwrap_or_default() as usize {
        return Err(damaged("the length of its fact does not match"));
    }
    let fact = header.fact_bytes.map(|_| fact);
    Ok((header, value, fact))
}

fn checksum(position: Position, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record_key(position)), body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Fact, GatewayFact};
    use proptest::prelude::*;
    use time::macros::datetime;

    fn draft(value: serde_json::Value, fact: Option<Fact>) -> Draft {
        Draft {
            time: datetime!(2026-11-20 10:00:00.000_000_001 UTC),
            provenance: Provenance {
                actor: "api".into(),
                cause: Some(Position(300)),
                correlation: "c-1".into(),
                origin: Origin::Service,
            },
            event: Event {
                kind: "archive".into(),
                tags: Tags::expand(["gateways:web"]),
                timestamp: datetime!(1969-12-31 23:59:59 UTC),
                value,
                fact,
            },
        }
    }

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write as _;
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    fn web_deleted() -> Fact {
        Fact::Gateway { name: "web".into(), fact: GatewayFact::Deleted }
    }

    /// The bytes of version 1. When this test fails, the disk format changed: make a new version instead.
    #[test]
    fn the_bytes_are_frozen() {
        let with_fact =
            Encoded::new(&draft(serde_json::json!({"b": 1, "a": 2}), Some(web_deleted()))).unwrap();
        let without = Encoded::new(&draft(serde_json::json!(""), None)).unwrap();
        insta::assert_snapshot!(hex(&with_fact.seal(Position(301))), @"01c69b26a68280eabde5a0dce931ffa7d6b9070361706901ac0203632d31000761726368697665020c67617465776179733a7765620867617465776179730d012b7b2262223a312c2261223a327d7b2267617465776179223a7b226e616d65223a22776562222c2266616374223a2264656c65746564227d7d");
        insta::assert_snapshot!(hex(&without.seal(Position(1))), @"018a20de038280eabde5a0dce931ffa7d6b9070361706901ac0203632d31000761726368697665020c67617465776179733a77656208676174657761797302002222");
    }

    #[test]
    fn keys_are_frozen() {
        assert_eq!(record_key(Position(258)), [0, 0, 0, 0, 0, 0, 1, 2]);
        let letters = Kind::ALL.map(|kind| revision_key(&ArtifactKey::new(kind, "n"))[0]);
        assert_eq!(&letters, b"brcdgs");
        for kind in Kind::ALL {
            let key = ArtifactKey::new(kind, "web:1.0");
            assert_eq!(revision_artifact(&revision_key(&key)), Some(key));
        }
        assert_eq!(revision_artifact(b"xweb"), None);
    }

    #[test]
    fn a_newer_format_and_a_foreign_position_are_refused() {
        let bytes = Encoded::new(&draft(serde_json::json!(1), None)).unwrap().seal(Position(7));
        assert!(decode(Position(7), &bytes).is_ok());
        let moved = decode(Position(8), &bytes).unwrap_err();
        assert_eq!(
            moved.to_string(),
            "the record at position 8 is damaged: its checksum does not match; restore the log from a backup"
        );
        let mut newer = bytes;
        newer[0] = 2;
        assert_eq!(
            decode(Position(7), &newer).unwrap_err().to_string(),
            "the record at position 7 has format 2, this release knows formats up to 1: run a newer release of Segue"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            nanos in -377_705_116_800_000_000_000i128..253_402_300_800_000_000_000,
            number in any::<f64>(), text in ".*", tags in prop::collection::vec(".*", 0..4), cause in any::<Option<u64>>(),
        ) {
            let mut given = draft(serde_json::json!({"number": number, "text": text}), Some(web_deleted()));
            given.event.timestamp = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap();
            given.event.tags = Tags::expand(tags);
            given.provenance.cause = cause.map(Position);
            given.provenance.origin = Origin::External;
            given.provenance.correlation = text;
            let bytes = Encoded::new(&given).unwrap().seal(Position(5));
            prop_assert_eq!(decode(Position(5), &bytes).unwrap(), given.at(Position(5)));
        }

        #[test]
        fn a_changed_or_missing_byte_is_noticed(place in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>()) {
            let given = draft(serde_json::json!([1, "two"]), Some(web_deleted()));
            let mut bytes = Encoded::new(&given).unwrap().seal(Position(5));
            let place = place.index(bytes.len());
            if cut { bytes.truncate(place) } else { bytes[place] ^= flip }
            prop_assert!(decode(Position(5), &bytes).is_err());
            prop_assert!(decode_header(Position(5), &bytes).is_err());
        }
    }
}
