//! Records that follow each other in the log, sorted by time: what is known of them without reading them.
//!
//! A segment does not change, but for records that retention drops. Its records are numbered by their place in time
//! order, the rank, so that a range of time is a range of ranks.

use super::bytes::{Malformed, Reader, Writer};
use super::packed::Packed;
use super::posting::{self, Matches, Posting, Postings};
use super::tally::Tally;
use super::{Instants, Key};
use std::ops::Range;

/// How many records a segment has at most. Ranks fit two bytes, and so do distances of positions.
pub(super) const RECORDS_MAX: usize = 16_384;
/// How far apart positions may be.
pub(super) const SPAN_MAX: u64 = u16::MAX as u64;

/// A segment is made anew when of so many records one is left.
const DROPPED_MAX: usize = 4;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Segment {
    /// The lowest position.
    first: u64,
    oldest: i128,
    newest: i128,
    /// By rank.
    timestamps: Packed,
    /// By rank: the distance from the first position; none when that is the rank.
    offsets: Option<Vec<u16>>,
    tags: Postings,
    fields: Postings,
    /// The numbers of each field, in the order of `fields`.
    columns: Vec<Column>,
    /// The records that are left, when some were dropped.
    left: Option<Left>,
}

#[derive(Clone, Debug, PartialEq)]
struct Left {
    words: Vec<u64>,
    count: usize,
}

/// The numbers of the records that have a field, in the order of their ranks.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    numbers: Numbers,
    /// For fields whose records are bits: how many are set before each word.
    before: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq)]
enum Numbers {
    /// Whole numbers that an `f64` holds exactly.
    Whole(Packed),
    Real(Vec<f64>),
}

/// What a segment is made of.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Sorted: the keys of the records.
    pub keys: Vec<Key>,
    /// Numbers of tags and types, each with the rank of a record, in the order of ranks.
    pub tags: Vec<(u32, u16)>,
    /// Numbers of fields, each with the rank of a record and its number there, in the order of ranks.
    pub fields: Vec<(u32, u16, f64)>,
}

impl Segment {
    /// A segment of at least one record.
    pub fn new(mut parts: Parts) -> Self {
        let keys = &parts.keys;
        let len = keys.len();
        let first = keys.iter().map(|key| key.1).min().unwrap_or_default();
        let offset =
            |key: &Key| u16::try_from(key.1 - first).expect("a segment spans few positions");
        let offsets: Vec<u16> = keys.iter().map(offset).collect();
        let is_rank = (0..).zip(&offsets).all(|(rank, offset): (u16, _)| rank == *offset);
        let timestamps: Vec<i128> = keys.iter().map(|key| key.0).collect();
        parts.fields.sort_by_key(|(id, ..)| *id);
        parts.fields.dedup_by_key(|(id, rank, _)| (*id, *rank));
        let fields =
            Postings::new(len, parts.fields.iter().map(|(id, rank, _)| (*id, *rank)).collect());
        let columns = parts.fields.chunk_by(|a, b| a.0 == b.0).map(|same| {
            let numbers: Vec<f64> = same.iter().map(|(_, _, number)| *number).collect();
            Column::new(Numbers::new(numbers), fields.find(same[0].0).map(|(_, set)| set))
        });
        Self {
            first,
            oldest: timestamps.first().copied().unwrap_or_default(),
            newest: timestamps.last().copied().unwrap_or_default(),
            timestamps: Packed::new(&timestamps),
            offsets: (!is_rank).then_some(offsets),
            tags: Postings::new(len, parts.tags),
            columns: columns.collect(),
            fields,
            left: None,
        }
    }

    /// How many records it has, those that were dropped among them.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// The lowest position.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The ranks of the records in a range of time.
    pub fn window(&self, range: Instants) -> Range<usize> {
        if range.from > self.newest || range.to < self.oldest {
            return 0..0;
        }
        let from = if range.from <= self.oldest {
            0
        } else {
            self.timestamps.partition_point(|timestamp| timestamp < range.from)
        };
        let to = if range.to >= self.newest {
            self.len()
        } else {
            self.timestamps.partition_point(|timestamp| timestamp <= range.to)
        };
        from..to.max(from)
    }

    /// The timestamp at `rank`.
    pub fn timestamp(&self, rank: usize) -> i128 {
        self.timestamps.get(rank)
    }

    /// Timestamp and position of the record at `rank`.
    pub fn key(&self, rank: usize) -> Key {
        let offset = self.offsets.as_ref().map_or(rank as u64, |offsets| u64::from(offsets[rank]));
        (self.timestamps.get(rank), self.first + offset)
    }

    /// How many records come before `key`.
    pub fn rank(&self, key: Key) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The sets of records that have all of `ids`, smallest first; `None` when one of them is empty.
    pub fn sets(&self, ids: &[u32]) -> Option<Vec<Posting<'_>>> {
        let mut sets = Vec::with_capacity(ids.len() + 1);
        for id in ids {
            sets.push(self.tags.find(*id)?.1);
        }
        if let Some(Left { words, count }) = &self.left {
            sets.push(Posting::Bits { words, count: *count });
        }
        posting::by_size(&mut sets);
        Some(sets)
    }

    /// Adds the numbers of `field` of the records in `window` that are in all `sets`.
    pub fn tally(&self, field: u32, sets: &[Posting<'_>], window: Range<usize>, tally: &mut Tally) {
        let Some((index, present)) = self.fields.find(field) else { return };
        let Column { numbers, before } = &self.columns[index];
        let mut all = sets.to_vec();
        all.push(present);
        posting::by_size(&mut all);
        let matches = Matches::new(&all, window);
        match present {
            Posting::All => matches.for_each(|rank| tally.add(numbers.get(rank))),
            Posting::Listed(list) => matches.for_each(|rank| {
                let index = list.partition_point(|own| usize::from(*own) < rank);
                tally.add(numbers.get(index));
            }),
            Posting::Bits { words, .. } => matches.for_each(|rank| {
                if let Some(index) = posting::rank_in(words, before, rank) {
                    tally.add(numbers.get(index));
                }
            }),
        }
    }

    /// The positions of records in `window` that are in all `sets` and in `field`.
    pub fn positions(
        &self,
        field: u32,
        sets: &[Posting<'_>],
        window: Range<usize>,
        positions: &mut Vec<u64>,
    ) {
        let Some((_, present)) = self.fields.find(field) else { return };
        let mut all = sets.to_vec();
        all.push(present);
        posting::by_size(&mut all);
        Matches::new(&all, window).for_each(|rank| positions.push(self.key(rank).1));
    }

    /// Drops the record at `position`; whether it was there.
    pub fn forget(&mut self, position: u64) -> bool {
        let Some(offset) = position.checked_sub(self.first) else { return false };
        let rank = match &self.offsets {
            None => usize::try_from(offset).ok().filter(|rank| *rank < self.len()),
            Some(offsets) => offsets.iter().position(|own| u64::from(*own) == offset),
        };
        let Some(rank) = rank else { return false };
        let len = self.len();
        let left = self.left.get_or_insert_with(|| {
            let mut words = vec![u64::MAX; len.div_ceil(64)];
            if let (Some(last), used @ 1..) = (words.last_mut(), len % 64) {
                *last = (1 << used) - 1;
            }
            Left { words, count: len }
        });
        let was_there = posting::is_set(&left.words, rank);
        left.words[rank / 64] &= !(1 << (rank % 64));
        left.count -= usize::from(was_there);
        was_there
    }

    /// The same of the records that are left, once most of them were dropped: the others take memory for nothing.
    pub fn without_dropped(&self) -> Option<Self> {
        let Left { words, count } = self.left.as_ref()?;
        if *count == 0 || count * DROPPED_MAX > self.len() {
            return None;
        }
        let kept = Posting::Bits { words, count: *count };
        let each = |present: Posting<'_>, visit: &mut dyn FnMut(usize)| {
            let mut sets = vec![kept, present];
            posting::by_size(&mut sets);
            Matches::new(&sets, 0..self.len()).for_each(visit);
        };
        let mut parts = Parts::default();
        let mut ranks = vec![0; self.len()];
        each(Posting::All, &mut |rank| {
            ranks[rank] = u16::try_from(parts.keys.len()).expect("fewer than there were");
            parts.keys.push(self.key(rank));
        });
        for id in self.tags.ids() {
            if let Some((_, present)) = self.tags.find(id) {
                each(present, &mut |rank| parts.tags.push((id, ranks[rank])));
            }
        }
        for id in self.fields.ids() {
            let Some((index, present)) = self.fields.find(id) else { continue };
            let column = &self.columns[index];
            each(present, &mut |rank| {
                if let Some(number) = column.at(present, rank) {
                    parts.fields.push((id, ranks[rank], number));
                }
            });
        }
        Some(Self::new(parts))
    }

    /// The numbers of the tags and types that its records have.
    pub fn tags(&self) -> impl Iterator<Item = u32> {
        self.tags.ids().filter(|id| {
            let Some(Left { words, .. }) = &self.left else { return true };
            self.tags.find(*id).is_some_and(|(_, set)| set.meets(words))
        })
    }

    /// Whether no record is left.
    pub fn is_empty(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.count == 0)
    }

    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.number(self.first);
        self.timestamps.write(writer);
        writer.list(self.offsets.as_deref().unwrap_or_default(), u16::to_le_bytes);
        self.tags.write(writer);
        self.fields.write(writer);
        for column in &self.columns {
            match &column.numbers {
                Numbers::Whole(packed) => {
                    writer.bytes(&[0]);
                    packed.write(writer);
                }
                Numbers::Real(numbers) => {
                    writer.bytes(&[1]);
                    writer.list(numbers, f64::to_le_bytes);
                }
            }
        }
        writer.list(self.left.as_ref().map_or(&[][..], |left| &left.words), u64::to_le_bytes);
    }

    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let first = reader.number()?;
        let timestamps = Packed::read(reader)?;
        let len = timestamps.len();
        if !(1..=RECORDS_MAX).contains(&len) {
            return Err(Malformed);
        }
        let offsets = Some(reader.list(u16::from_le_bytes)?).filter(|offsets| !offsets.is_empty());
        let (tags, fields) = (Postings::read(reader, len)?, Postings::read(reader, len)?);
        let mut columns = Vec::new();
        for id in fields.ids() {
            let numbers = match reader.array()? {
                [0] => Numbers::Whole(Packed::read(reader)?),
                [1] => Numbers::Real(reader.list(f64::from_le_bytes)?),
                _ => return Err(Malformed),
            };
            let set = fields.find(id).map(|(_, set)| set);
            if set.is_none_or(|set| set.count(len) != numbers.len()) {
                return Err(Malformed);
            }
            columns.push(Column::new(numbers, set));
        }
        let words: Vec<u64> = reader.list(u64::from_le_bytes)?;
        let fits = offsets.as_ref().is_none_or(|offsets| offsets.len() == len)
            && (words.is_empty() || words.len() == len.div_ceil(64));
        if !fits {
            return Err(Malformed);
        }
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        let left = (!words.is_empty()).then_some(Left { words, count });
        let (oldest, newest) = (timestamps.get(0), timestamps.get(len - 1));
        Ok(Self { first, oldest, newest, timestamps, offsets, tags, fields, columns, left })
    }
}

impl Column {
    fn new(numbers: Numbers, set: Option<Posting<'_>>) -> Self {
        let before = match set {
            Some(Posting::Bits { words, .. }) => posting::counts(words).0,
            _ => Vec::new(),
        };
        Self { numbers, before }
    }

    /// The number of the record at `rank`, of those that are `present`.
    fn at(&self, present: Posting<'_>, rank: usize) -> Option<f64> {
        let index = match present {
            Posting::All => rank,
            Posting::Listed(list) => {
                list.binary_search_by_key(&rank, |own| usize::from(*own)).ok()?
            }
            Posting::Bits { words, .. } => posting::rank_in(words, &self.before, rank)?,
        };
        Some(self.numbers.get(index))
    }
}

impl Numbers {
    fn new(numbers: Vec<f64>) -> Self {
        let whole: Option<Vec<i128>> = numbers.iter().map(|number| whole(*number)).collect();
        whole.map_or(Self::Real(numbers), |whole| Self::Whole(Packed::new(&whole)))
    }

    fn len(&self) -> usize {
        match self {
            Self::Whole(packed) => packed.len(),
            Self::Real(numbers) => numbers.len(),
        }
    }

    fn get(&self, index: usize) -> f64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "only numbers that an f64 holds were packed"
            )]
            Self::Whole(packed) => packed.get(index) as f64,
            Self::Real(numbers) => numbers[index],
        }
    }
}

/// A number without fraction that an `f64` holds exactly, and all numbers next to it.
fn whole(number: f64) -> Option<i128> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT;
    #[expect(clippy::cast_possible_truncation, reason = "it was just compared")]
    is_whole.then_some(number as i128)
}
