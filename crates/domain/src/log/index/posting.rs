//! Which records of a segment have something: sets of ranks, and how sets are intersected.
//!
//! A rank is the place of a record in the time order of its segment. A set that has everything takes no memory, a small
//! one is a list of ranks, and the others are bits; so an intersection either follows a short list or takes 64 ranks at
//! a time. This is what roaring bitmaps do with their containers; here many sets of one segment lie in three vectors,
//! which takes a fifth of the memory when there are thousands of tags with few records each.

use super::bytes::{Malformed, Reader, Writer};
use std::ops::Range;

/// A list takes two bytes for each rank, bits take one bit for each record.
const BITS_FROM: usize = 16;
const WORD: usize = 64;

/// Sets by number, such as the number of a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Postings {
    /// How many records the segment has.
    len: usize,
    /// By number.
    entries: Vec<Entry>,
    ranks: Vec<u16>,
    words: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: u32,
    count: u32,
    start: u32,
}

/// One set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Posting<'a> {
    /// All ranks.
    All,
    /// These, ascending.
    Listed(&'a [u16]),
    /// Those whose bit is set.
    Bits { words: &'a [u64], count: usize },
}

/// Ranks in a window that are in all of several sets.
#[derive(Clone, Debug)]
pub(super) enum Matches {
    Window(Range<usize>),
    Listed(Vec<u16>),
    /// The bits, and how many are set before each word.
    Bits {
        words: Vec<u64>,
        before: Vec<u16>,
        count: usize,
    },
}

impl Postings {
    /// The sets that `pairs` of number and rank make, given in the order of ranks, in a segment of `len` records.
    pub fn new(len: usize, mut pairs: Vec<(u32, u16)>) -> Self {
        // There are few numbers, which a stable sort makes use of.
        pairs.sort_by_key(|(id, _)| *id);
        pairs.dedup();
        let mut postings = Self { len, ..Self::default() };
        for same in pairs.chunk_by(|a, b| a.0 == b.0) {
            postings.add(same[0].0, same.iter().map(|(_, rank)| *rank), same.len());
        }
        postings.entries.shrink_to_fit();
        postings.ranks.shrink_to_fit();
        postings.words.shrink_to_fit();
        postings
    }

    /// The set of `id`, and which of all it is; `None` when it is empty.
    pub fn find(&self, id: u32) -> Option<(usize, Posting<'_>)> {
        let index = self.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
        let Entry { count, start, .. } = self.entries[index];
        let (count, start) = (count as usize, start as usize);
        let posting = match self.form(count) {
            Form::All => Posting::All,
            Form::Listed => Posting::Listed(&self.ranks[start..start + count]),
            Form::Bits => {
                Posting::Bits { words: &self.words[start..start + self.words_each()], count }
            }
        };
        Some((index, posting))
    }

    /// The numbers that have a set.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.id)
    }

    pub fn write(&self, writer: &mut Writer<'_>) {
        writer.count(self.len);
        let numbers: Vec<u32> =
            self.entries.iter().flat_map(|entry| [entry.id, entry.count, entry.start]).collect();
        writer.list(&numbers, u32::to_le_bytes);
        writer.list(&self.ranks, u16::to_le_bytes);
        writer.list(&self.words, u64::to_le_bytes);
    }

    /// What was written for a segment of `len` records.
    pub fn read(reader: &mut Reader<'_>, len: usize) -> Result<Self, Malformed> {
        if reader.count()? != len {
            return Err(Malformed);
        }
        let numbers = reader.list(u32::from_le_bytes)?;
        let (ranks, words) = (reader.list(u16::from_le_bytes)?, reader.list(u64::from_le_bytes)?);
        let (numbers, _) = numbers.as_chunks::<3>();
        let entries = numbers.iter().map(|[id, count, start]| Entry {
            id: *id,
            count: *count,
            start: *start,
        });
        let postings = Self { len, entries: entries.collect(), ranks, words };
        let fits = |entry: &Entry| {
            let (count, start) = (entry.count as usize, entry.start as usize);
            match postings.form(count) {
                Form::All => count == len,
                Form::Listed => start + count <= postings.ranks.len(),
                Form::Bits => start + postings.words_each() <= postings.words.len(),
            }
        };
        if postings.entries.iter().all(fits) { Ok(postings) } else { Err(Malformed) }
    }

    fn add(&mut self, id: u32, ranks: impl Iterator<Item = u16>, count: usize) {
        let start = match self.form(count) {
            Form::All => 0,
            Form::Listed => {
                let start = self.ranks.len();
                self.ranks.extend(ranks);
                start
            }
            Form::Bits => {
                let start = self.words.len();
                self.words.resize(start + self.words_each(), 0);
                for rank in ranks.map(usize::from) {
                    self.words[start + rank / WORD] |= 1 << (rank % WORD);
                }
                start
            }
        };
        let number = |number: usize| u32::try_from(number).expect("a segment is small");
        self.entries.push(Entry { id, count: number(count), start: number(start) });
    }

    fn form(&self, count: usize) -> Form {
        match count {
            count if count >= self.len => Form::All,
            count if count * BITS_FROM <= self.len => Form::Listed,
            _ => Form::Bits,
        }
    }

    fn words_each(&self) -> usize {
        self.len.div_ceil(WORD)
    }
}

/// How a set is kept; follows from its size.
enum Form {
    All,
    Listed,
    Bits,
}

impl Posting<'_> {
    /// How many ranks it has, in a segment of `len` records.
    pub fn count(&self, len: usize) -> usize {
        match self {
            Posting::All => len,
            Posting::Listed(ranks) => ranks.len(),
            Posting::Bits { count, .. } => *count,
        }
    }

    /// Whether one of the ranks is among those whose bit is set.
    pub fn meets(&self, bits: &[u64]) -> bool {
        match self {
            Posting::All => bits.iter().any(|word| *word != 0),
            Posting::Listed(ranks) => ranks.iter().any(|rank| is_set(bits, usize::from(*rank))),
            Posting::Bits { words, .. } => {
                words.iter().zip(bits).any(|(own, bits)| own & bits != 0)
            }
        }
    }

    fn contains(&self, rank: u16) -> bool {
        match self {
            Posting::All => true,
            Posting::Listed(ranks) => ranks.binary_search(&rank).is_ok(),
            Posting::Bits { words, .. } => is_set(words, usize::from(rank)),
        }
    }
}

/// How many ranks in `window` are in all `sets` of a segment with `len` records.
pub(super) fn count(sets: &[Posting<'_>], window: Range<usize>, len: usize) -> usize {
    match plan(sets, &window) {
        Plan::Window => window.len(),
        Plan::List(list, []) => list.len(),
        Plan::List(list, others) => {
            list.iter().filter(|rank| others.iter().all(|set| set.contains(**rank))).count()
        }
        Plan::Bits([Posting::Bits { count, .. }]) if window == (0..len) => *count,
        Plan::Bits(sets) => {
            intersected(sets, window).map(|(_, word)| word.count_ones() as usize).sum()
        }
    }
}

impl Matches {
    /// The ranks in `window` that are in all `sets`.
    pub fn new(sets: &[Posting<'_>], window: Range<usize>) -> Self {
        match plan(sets, &window) {
            Plan::Window => Self::Window(window),
            Plan::List(list, others) => {
                let both = |rank: &&u16| others.iter().all(|set| set.contains(**rank));
                Self::Listed(list.iter().filter(both).copied().collect())
            }
            Plan::Bits(sets) => {
                let mut words = vec![0; window.end.div_ceil(WORD)];
                for (index, word) in intersected(sets, window) {
                    words[index] = word;
                }
                let (before, count) = counts(&words);
                Self::Bits { words, before, count }
            }
        }
    }

    /// The rank at `index`, which is less than how many there are, ascending.
    pub fn rank(&self, index: usize) -> usize {
        match self {
            Self::Window(window) => window.start + index,
            Self::Listed(ranks) => usize::from(ranks[index]),
            Self::Bits { words, before, .. } => {
                let word = before.partition_point(|before| usize::from(*before) <= index) - 1;
                let mut bits = words[word];
                for _ in usize::from(before[word])..index {
                    bits &= bits - 1;
                }
                word * WORD + bits.trailing_zeros() as usize
            }
        }
    }

    /// How many are less than `rank`.
    pub fn below(&self, rank: usize) -> usize {
        match self {
            Self::Window(window) => rank.clamp(window.start, window.end) - window.start,
            Self::Listed(ranks) => ranks.partition_point(|own| usize::from(*own) < rank),
            Self::Bits { words, before, count } => rank_in(words, before, rank).unwrap_or(*count),
        }
    }

    /// All of them, ascending.
    pub fn for_each(&self, mut visit: impl FnMut(usize)) {
        match self {
            Self::Window(window) => window.clone().for_each(visit),
            Self::Listed(ranks) => ranks.iter().map(|rank| usize::from(*rank)).for_each(visit),
            Self::Bits { words, .. } => {
                for (index, word) in words.iter().enumerate() {
                    let mut bits = *word;
                    while bits != 0 {
                        visit(index * WORD + bits.trailing_zeros() as usize);
                        bits &= bits - 1;
                    }
                }
            }
        }
    }
}

/// How many bits are set before each word, and in all.
pub(super) fn counts(words: &[u64]) -> (Vec<u16>, usize) {
    let mut count = 0;
    let before = words.iter().map(|word| {
        let before = u16::try_from(count).expect("a segment has few records");
        count += word.count_ones() as usize;
        before
    });
    (before.collect(), count)
}

/// How many bits before `rank` are set; `None` when that is behind the last word.
pub(super) fn rank_in(words: &[u64], before: &[u16], rank: usize) -> Option<usize> {
    let word = words.get(rank / WORD)?;
    let bits = word & ((1 << (rank % WORD)) - 1);
    Some(usize::from(before[rank / WORD]) + bits.count_ones() as usize)
}

/// Whether the bit of `rank` is set.
pub(super) fn is_set(words: &[u64], rank: usize) -> bool {
    words[rank / WORD] >> (rank % WORD) & 1 == 1
}

/// How an intersection is made.
enum Plan<'s, 'a> {
    /// Every rank of the window is in all sets.
    Window,
    /// The shortest list, cut to the window, and the other sets.
    List(&'a [u16], &'s [Posting<'a>]),
    /// Only bits.
    Bits(&'s [Posting<'a>]),
}

/// Sets come sorted as [`by_size`] does.
fn plan<'s, 'a>(sets: &'s [Posting<'a>], window: &Range<usize>) -> Plan<'s, 'a> {
    match sets.split_first() {
        None | Some((Posting::All, _)) => Plan::Window,
        Some((Posting::Listed(list), others)) => {
            let place = |rank: usize| list.partition_point(|own| usize::from(*own) < rank);
            Plan::List(&list[place(window.start)..place(window.end)], others)
        }
        Some((Posting::Bits { .. }, _)) => Plan::Bits(sets),
    }
}

/// Sorts the smallest set to the front, and takes those away that have everything.
pub(super) fn by_size(sets: &mut Vec<Posting<'_>>) {
    sets.retain(|set| !matches!(set, Posting::All));
    sets.sort_by_key(|set| match set {
        Posting::Listed(list) => list.len(),
        Posting::Bits { count, .. } => u16::MAX as usize + count,
        Posting::All => usize::MAX,
    });
}

/// The words of the intersection of sets that are bits, with their indices, cut to the window.
fn intersected<'s>(
    sets: &'s [Posting<'_>],
    window: Range<usize>,
) -> impl Iterator<Item = (usize, u64)> + 's {
    let words = window.start / WORD..window.end.div_ceil(WORD);
    words.map(move |index| {
        let all = sets.iter().fold(u64::MAX, |all, set| match set {
            Posting::Bits { words, .. } => all & words[index],
            Posting::All | Posting::Listed(_) => all,
        });
        let from = window.start.saturating_sub(index * WORD);
        let to = (window.end - index * WORD).min(WORD);
        let mask = u64::MAX.checked_shl(u32::try_from(from).expect("a word is short")).unwrap_or(0);
        let beyond = u64::MAX.checked_shl(u32::try_from(to).expect("a word is short")).unwrap_or(0);
        (index, all & mask & !beyond)
    })
}
