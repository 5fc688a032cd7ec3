//! What a record looks like on disk. **These bytes are frozen**: a change is a new version beside the old one.
//!
//! ```text
//! key    position, 8 bytes, big-endian, so that keys sort in log order
//! value  1 byte    what it is: 2 a record, 3 a gap; 1 was a record without hash and is only migrated
//!        4 bytes   CRC-32C of the position (8 bytes, big-endian), of the first byte (not in format 1) and of all
//!                  that follows, little-endian
//!        32 bytes  hash of the log at this position, see [`super::chain`]
//!
//!        of a record:
//!        header    postcard of `HeaderV1`
//!        value     JSON of the event's value
//!        fact      JSON of the fact, when there is one
//!
//!        of a gap, which stands at the last of the positions that it covers:
//!        8 bytes   the first of them, big-endian
//! ```
//!
//! The position is part of the checksum, so a record that turns up under another key is noticed. The structures here
//! are the log's own: that the types of [`crate::event`] change does not change the disk. Times are written as
//! nanoseconds since 1970 and come back in UTC.

use super::chain::{ChainHash, Digest, HASH_BYTES};
use super::error::ReadError;
use super::index::Numbers;
use crate::artifact::{ArtifactKey, Kind};
use crate::event::{Draft, Event, Origin, Position, Provenance, Record, Tags};
use serde::de::value::{Error as TagsError, SeqDeserializer};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// A record without hash, which only a migration reads.
const RECORD_FORMAT_1: u8 = 1;
/// The format of the records that this release reads and writes.
pub(super) const RECORD_FORMAT: u8 = 2;
/// A gap: the largest first byte that this release knows.
pub(super) const GAP_FORMAT: u8 = 3;

/// Bytes before the checksummed part: format and checksum.
const CHECKSUM_END: usize = 5;
/// Bytes before the header: format, checksum and hash.
const PREFIX_BYTES: usize = CHECKSUM_END + HASH_BYTES;

/// A record as bytes that wait for their position.
#[derive(Debug)]
pub(super) struct Encoded {
    bytes: Vec<u8>,
    digest: Digest,
}

/// What stands at a position, its checksum checked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored<'a> {
    Record(Body<'a>),
    Gap(Gap),
}

/// A record that is not taken apart yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'a> {
    position: Position,
    hash: ChainHash,
    bytes: &'a [u8],
}

/// Stands for records that retention dropped: from `first` to the position under which it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub first: Position,
    /// The hash at its end.
    pub hash: ChainHash,
}

/// What the index needs of a record, borrowed from its bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Header<'a> {
    pub timestamp: i128,
    pub kind: &'a str,
    pub tags: Vec<&'a str>,
    pub numbers: Numbers,
}

/// What retention needs of a record: when it was appended, in nanoseconds since 1970, its type, and whether it has a
/// fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age<'a> {
    pub time: i128,
    pub kind: &'a str,
    pub has_fact: bool,
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
        for (what, bytes) in [("value", Some(&value)), ("fact", fact.as_ref())] {
            if bytes.is_some_and(|bytes| is_too_deep(bytes)) {
                return Err(format!("its {what} is nested more than {DEPTH_MAX} levels deep"));
            }
        }
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
        // Room for all of it: names and tags, and the numbers around them.
        let texts = [header.actor, header.correlation, header.kind];
        let texts = texts.iter().chain(&header.tags).map(|text| text.len() + 1).sum::<usize>();
        let room = PREFIX_BYTES + 64 + texts + value.len() + fact.as_ref().map_or(0, Vec::len);
        let mut prefix = Vec::with_capacity(room);
        prefix.resize(PREFIX_BYTES, 0);
        prefix[0] = RECORD_FORMAT;
        let mut bytes =
            postcard::to_extend(&header, prefix).map_err(|error| format!("its header: {error}"))?;
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(&fact.unwrap_or_default());
        let digest = Digest::of(&bytes[PREFIX_BYTES..]);
        Ok(Self { bytes, digest })
    }

    /// A record of format 1 at `position`, checked, on its way into this format: all but the prefix is the same.
    pub fn from_format_1(position: Position, bytes: &[u8]) -> Result<Self, ReadError> {
        let (format, checksum, body) = open(position, bytes)?;
        if format != RECORD_FORMAT_1 {
            return Err(unexpected(position, format));
        }
        check(position, format, checksum, body)?;
        let mut bytes = vec![0; PREFIX_BYTES];
        bytes[0] = RECORD_FORMAT;
        bytes.extend_from_slice(body);
        Ok(Self { bytes, digest: Digest::of(body) })
    }

    /// How many bytes the record takes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The value that is stored under `position`, and the hash there, when `previous` is the hash before.
    pub fn seal(mut self, position: Position, previous: ChainHash) -> (Vec<u8>, ChainHash) {
        let hash = previous.link(self.digest);
        self.bytes[CHECKSUM_END..PREFIX_BYTES].copy_from_slice(&hash.0);
        let checksum = checksum(position, RECORD_FORMAT, &self.bytes[CHECKSUM_END..]);
        self.bytes[1..CHECKSUM_END].copy_from_slice(&checksum.to_le_bytes());
        (self.bytes, hash)
    }
}

impl<'a> Stored<'a> {
    /// Checks what stands at `position`.
    pub fn read(position: Position, bytes: &'a [u8]) -> Result<Self, ReadError> {
        let (format, checksum, rest) = open(position, bytes)?;
        if !(RECORD_FORMAT..=GAP_FORMAT).contains(&format) {
            return Err(unexpected(position, format));
        }
        check(position, format, checksum, rest)?;
        let (hash, bytes) =
            rest.split_first_chunk().ok_or_else(|| damaged(position, "its hash is cut off"))?;
        let hash = ChainHash(*hash);
        if format == RECORD_FORMAT {
            return Ok(Self::Record(Body { position, hash, bytes }));
        }
        let first = record_position(bytes).filter(|first| *first <= position);
        let first = first.ok_or_else(|| damaged(position, "it is a gap without a beginning"))?;
        Ok(Self::Gap(Gap { first, hash }))
    }

    /// The hash of the log at its position.
    pub fn hash(&self) -> ChainHash {
        match self {
            Self::Record(body) => body.hash,
            Self::Gap(gap) => gap.hash,
        }
    }
}

impl Gap {
    /// What is stored under `last`, the last position that the gap covers.
    pub fn seal(&self, last: Position) -> Vec<u8> {
        let mut bytes = vec![GAP_FORMAT, 0, 0, 0, 0];
        bytes.extend_from_slice(&self.hash.0);
        bytes.extend_from_slice(&record_key(self.first));
        let checksum = checksum(last, GAP_FORMAT, &bytes[CHECKSUM_END..]);
        bytes[1..CHECKSUM_END].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl<'a> Body<'a> {
    /// What the chain takes of it.
    pub fn digest(&self) -> Digest {
        Digest::of(self.bytes)
    }

    /// The hash of the log at its position.
    pub fn hash(&self) -> ChainHash {
        self.hash
    }

    /// What the index needs.
    pub fn header(&self) -> Result<Header<'a>, ReadError> {
        let (HeaderV1 { timestamp, kind, tags, .. }, value, _) = self.split()?;
        Ok(Header { timestamp, kind, tags, numbers: Numbers::of_json(value) })
    }

    /// What retention decides by.
    pub fn age(&self) -> Result<Age<'a>, ReadError> {
        let (HeaderV1 { time, kind, fact_bytes, .. }, _, _) = self.split()?;
        Ok(Age { time, kind, has_fact: fact_bytes.is_some() })
    }

    /// Whether it changes the state.
    pub fn has_fact(&self) -> Result<bool, ReadError> {
        let (header, _, _) = self.split()?;
        Ok(header.fact_bytes.is_some())
    }

    fn split(&self) -> Result<Parts<'a>, ReadError> {
        split(self.position, self.bytes)
    }

    /// The record.
    pub fn record(&self) -> Result<Record, ReadError> {
        decode(self.position, self.bytes)
    }
}

/// Reads the record at `position` from its header, value and fact.
fn decode(position: Position, bytes: &[u8]) -> Result<Record, ReadError> {
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
        Kind::Escalation => b'e',
        Kind::Sla => b'l',
        Kind::Gateway => b'g',
        Kind::Rewrite => b'w',
        Kind::Route => b'o',
        Kind::Scale => b's',
        Kind::Template => b't',
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
        b'e' => Kind::Escalation,
        b'l' => Kind::Sla,
        b'g' => Kind::Gateway,
        b'w' => Kind::Rewrite,
        b'o' => Kind::Route,
        b's' => Kind::Scale,
        b't' => Kind::Template,
        _ => return None,
    };
    Some(ArtifactKey::new(kind, std::str::from_utf8(name).ok()?))
}

/// Takes format and checksum off.
fn open(position: Position, bytes: &[u8]) -> Result<(u8, u32, &[u8]), ReadError> {
    let [format, c0, c1, c2, c3, rest @ ..] = bytes else {
        return Err(damaged(position, "it is cut off"));
    };
    Ok((*format, u32::from_le_bytes([*c0, *c1, *c2, *c3]), rest))
}

fn check(position: Position, format: u8, expected: u32, rest: &[u8]) -> Result<(), ReadError> {
    if expected == checksum(position, format, rest) {
        Ok(())
    } else {
        Err(damaged(position, "its checksum does not match"))
    }
}

/// Checks lengths, and takes header, value and fact apart.
fn split(position: Position, body: &[u8]) -> Result<Parts<'_>, ReadError> {
    let (header, rest) = postcard::take_from_bytes::<HeaderV1>(body)
        .map_err(|error| damaged(position, &format!("its header: {error}")))?;
    let parts = rest.split_at_checked(header.value_bytes as usize);
    let (value, fact) = parts.ok_or_else(|| damaged(position, "its value is cut off"))?;
    if fact.len() != header.fact_bytes.unwrap_or_default() as usize {
        return Err(damaged(position, "the length of its fact does not match"));
    }
    let fact = header.fact_bytes.map(|_| fact);
    Ok((header, value, fact))
}

/// How deep values and facts are nested at most: what reads them back stops at 128, and a record that cannot be read
/// back must never be written.
const DEPTH_MAX: usize = 120;

/// Whether the JSON of `bytes` is nested deeper than that. Nearly all has fewer brackets, and these are counted many bytes
/// at a time.
fn is_too_deep(bytes: &[u8]) -> bool {
    let opened = bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    opened > DEPTH_MAX && depth(bytes) > DEPTH_MAX
}

/// How deep the JSON of `bytes` is nested.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Says that the first byte is not one that may stand here.
fn unexpected(position: Position, format: u8) -> ReadError {
    if format > GAP_FORMAT {
        return ReadError::NewerRecord { position, found: format, known: GAP_FORMAT };
    }
    damaged(position, &format!("its format is {format}"))
}

fn damaged(position: Position, reason: &str) -> ReadError {
    ReadError::Damaged { position, reason: reason.to_owned() }
}

fn checksum(position: Position, format: u8, rest: &[u8]) -> u32 {
    let position = crc32c::crc32c(&record_key(position));
    let prefix = match format {
        RECORD_FORMAT_1 => position,
        format => crc32c::crc32c_append(position, &[format]),
    };
    crc32c::crc32c_append(prefix, rest)
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

    fn read(position: u64, bytes: &[u8]) -> Result<Record, ReadError> {
        match Stored::read(Position(position), bytes)? {
            Stored::Record(body) => body.record(),
            Stored::Gap(gap) => panic!("{gap:?}"),
        }
    }

    fn seal(encoded: Encoded, position: u64) -> Vec<u8> {
        encoded.seal(Position(position), ChainHash::START).0
    }

    /// The bytes of version 2. When this test fails, the disk format changed: make a new version instead.
    #[test]
    fn the_bytes_are_frozen() {
        let with_fact =
            Encoded::new(&draft(serde_json::json!({"b": 1, "a": 2}), Some(web_deleted()))).unwrap();
        let without = Encoded::new(&draft(serde_json::json!(""), None)).unwrap();
        insta::assert_snapshot!(hex(&seal(with_fact, 301)), @"024a3920584f062039262350d603dc49bbabddc94b1f2c6b11920d74eb4a4661b4964498b38280eabde5a0dce931ffa7d6b9070361706901ac0203632d31000761726368697665020c67617465776179733a7765620867617465776179730d012b7b2262223a312c2261223a327d7b2267617465776179223a7b226e616d65223a22776562222c2266616374223a2264656c65746564227d7d");
        insta::assert_snapshot!(hex(&seal(without, 1)), @"02f617206dea6adfa424182e5f3de3817e637cd03fe20bdd2ab4deb3a2d5c13874da2f75178280eabde5a0dce931ffa7d6b9070361706901ac0203632d31000761726368697665020c67617465776179733a77656208676174657761797302002222");
    }

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        assert_eq!(depth(br#"{"a\"{[": ["[", {"b": "\\"}], "c": []}"#), 3);
        let nested = |levels: usize| {
            let text = "[".repeat(levels) + &"]".repeat(levels);
            Encoded::new(&draft(serde_json::from_str(&text).unwrap(), None)).map(drop)
        };
        assert_eq!(nested(DEPTH_MAX), Ok(()));
        assert_eq!(
            nested(DEPTH_MAX + 1),
            Err("its value is nested more than 120 levels deep".to_owned())
        );
    }

    #[test]
    fn keys_are_frozen() {
        assert_eq!(record_key(Position(258)), [0, 0, 0, 0, 0, 0, 1, 2]);
        let letters = Kind::ALL.map(|kind| revision_key(&ArtifactKey::new(kind, "n"))[0]);
        assert_eq!(&letters, b"brcdegwoslt");
        for kind in Kind::ALL {
            let key = ArtifactKey::new(kind, "web:1.0");
            assert_eq!(revision_artifact(&revision_key(&key)), Some(key));
        }
        assert_eq!(revision_artifact(b"xweb"), None);
    }

    #[test]
    fn a_newer_format_and_a_foreign_position_are_refused() {
        let bytes = seal(Encoded::new(&draft(serde_json::json!(1), None)).unwrap(), 7);
        assert!(read(7, &bytes).is_ok());
        let moved = read(8, &bytes).unwrap_err();
        assert_eq!(
            moved.to_string(),
            "the record at position 8 is damaged: its checksum does not match; restore the log from a backup"
        );
        let mut newer = bytes;
        newer[0] = 4;
        assert_eq!(
            read(7, &newer).unwrap_err().to_string(),
            "the record at position 7 has format 4, this release knows formats up to 3: run a newer release of Segue"
        );
        newer[0] = 1;
        assert!(read(7, &newer).unwrap_err().to_string().contains("its format is 1"));
    }

    #[test]
    fn a_gap_is_frozen_and_checked() {
        let gap = Gap { first: Position(3), hash: ChainHash([7; HASH_BYTES]) };
        let bytes = gap.seal(Position(9));
        insta::assert_snapshot!(hex(&bytes), @"03bdf42e2607070707070707070707070707070707070707070707070707070707070707070000000000000003");
        let Stored::Gap(found) = Stored::read(Position(9), &bytes).unwrap() else { panic!() };
        assert_eq!(found, gap);
        assert!(Stored::read(Position(8), &bytes).is_err());
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert!(Stored::read(Position(9), &changed).is_err(), "{place}");
        }
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
            let bytes = seal(Encoded::new(&given).unwrap(), 5);
            prop_assert_eq!(read(5, &bytes).unwrap(), given.at(Position(5)));
        }

        #[test]
        fn a_changed_or_missing_byte_is_noticed(place in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>()) {
            let given = draft(serde_json::json!([1, "two"]), Some(web_deleted()));
            let mut bytes = seal(Encoded::new(&given).unwrap(), 5);
            let place = place.index(bytes.len());
            if cut { bytes.truncate(place) } else { bytes[place] ^= flip }
            prop_assert!(Stored::read(Position(5), &bytes).is_err());
        }
    }
}
