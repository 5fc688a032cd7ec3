//! The numbers that stand for tags, types and members of values.

use std::collections::HashMap;

/// How many names of fields are kept; records with others are read when their numbers are needed.
pub(super) const FIELDS_MAX: usize = 4096;
/// The numbers below this stand for no name of a field.
const FIELDS_FROM: usize = 2;
/// Names are looked through when for so many of them one is in use.
const UNUSED_MAX: usize = 2;

/// See the module. Tags and types have numbers of their own each, out of one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Names {
    pub tags: HashMap<Box<str>, u32>,
    pub kinds: HashMap<Box<str>, u32>,
    pub fields: HashMap<Box<str>, u32>,
    /// Numbers of tags and types that were forgotten, for others.
    pub free: Vec<u32>,
}

/// A set of the numbers of tags and types.
#[derive(Debug, Default)]
pub(in crate::log) struct Numbered {
    words: Vec<u64>,
}

impl Names {
    /// The number of a tag.
    pub fn tag(&mut self, name: &str) -> u32 {
        if let Some(id) = self.tags.get(name) {
            return *id;
        }
        let id = self.next();
        self.tags.insert(name.into(), id);
        id
    }

    /// The number of a type.
    pub fn kind(&mut self, name: &str) -> u32 {
        if let Some(id) = self.kinds.get(name) {
            return *id;
        }
        let id = self.next();
        self.kinds.insert(name.into(), id);
        id
    }

    /// The number of a member of values; none beyond how many are kept.
    pub fn field(&mut self, name: &str) -> Option<u32> {
        if let Some(id) = self.fields.get(name) {
            return Some(*id);
        }
        let count = self.fields.len();
        if count >= FIELDS_MAX {
            return None;
        }
        let id = number(count + FIELDS_FROM);
        self.fields.insert(name.into(), id);
        Some(id)
    }

    /// Forgets the types that are not in `used`, and the tags, when these are most of them.
    ///
    /// Types go at once: what the field of an aggregation stands for depends on which there are, and has to be the same
    /// in an index that was made anew.
    pub fn keep(&mut self, used: &Numbered) {
        let Self { tags, kinds, free, .. } = self;
        let mut retain = |names: &mut HashMap<Box<str>, u32>| {
            names.retain(|_, id| {
                let is_used = used.contains(*id);
                if !is_used {
                    free.push(*id);
                }
                is_used
            });
        };
        retain(kinds);
        let count = tags.values().filter(|id| used.contains(**id)).count();
        if count * UNUSED_MAX <= tags.len() {
            retain(tags);
            tags.shrink_to_fit();
        }
    }

    /// All numbers below the sum of these are taken or free.
    fn next(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| number(self.tags.len() + self.kinds.len()))
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("four billion names do not fit into memory")
}

impl Numbered {
    /// Adds some.
    pub(super) fn extend(&mut self, ids: impl IntoIterator<Item = u32>) {
        for id in ids {
            let (word, bit) = (id as usize / 64, id % 64);
            if word >= self.words.len() {
                self.words.resize(word + 1, 0);
            }
            self.words[word] |= 1 << bit;
        }
    }

    fn contains(&self, id: u32) -> bool {
        self.words.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}
