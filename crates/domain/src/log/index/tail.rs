//! The newest records, which are in no segment yet: kept in time order, and looked at one by one.

use super::segment::{Parts, RECORDS_MAX, SPAN_MAX};
use super::{Instants, Key};
use std::ops::Range;

/// At most [`RECORDS_MAX`] records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tail {
    /// In the order of their positions.
    rows: Vec<Row>,
    /// The rows in time order.
    order: Vec<u16>,
    ids: Vec<u32>,
    numbers: Vec<(u32, f64)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: Key,
    /// Sorted, so that looking for many tags of many takes little time.
    ids: Range<u32>,
    numbers: Range<u32>,
}

/// One record.
pub(super) struct Matching<'a> {
    pub key: Key,
    pub numbers: &'a [(u32, f64)],
}

impl Tail {
    /// Whether a record at `position` has no place here any more.
    pub fn is_full(&self, position: u64) -> bool {
        let first = self.rows.first().map_or(position, |row| row.key.1);
        self.rows.len() >= RECORDS_MAX || position.wrapping_sub(first) > SPAN_MAX
    }

    /// Adds a record with its tags and type, and the numbers of its fields.
    pub fn push(
        &mut self,
        key: Key,
        ids: impl Iterator<Item = u32>,
        numbers: impl IntoIterator<Item = (u32, f64)>,
    ) {
        let row = u16::try_from(self.rows.len()).expect("a tail has few rows");
        let place = match self.order.last() {
            Some(last) if self.rows[usize::from(*last)].key > key => {
                self.order.partition_point(|row| self.rows[usize::from(*row)].key < key)
            }
            _ => self.order.len(),
        };
        self.order.insert(place, row);
        let (first_id, first_number) = (offset(self.ids.len()), offset(self.numbers.len()));
        self.ids.extend(ids);
        self.ids[first_id as usize..].sort_unstable();
        self.numbers.extend(numbers);
        self.rows.push(Row {
            key,
            ids: first_id..offset(self.ids.len()),
            numbers: first_number..offset(self.numbers.len()),
        });
    }

    /// The records that have all of `wanted`, which is sorted, and a timestamp in `range`, sorted.
    pub fn matching<'a>(
        &'a self,
        wanted: &'a [u32],
        range: Instants,
    ) -> impl Iterator<Item = Matching<'a>> {
        let row = |row: &u16| &self.rows[usize::from(*row)];
        let from = self.order.partition_point(|own| row(own).key.0 < range.from);
        let to = self.order.partition_point(|own| row(own).key.0 <= range.to).max(from);
        let rows = self.order[from..to].iter().map(row);
        let rows = rows.filter(move |row| has_all(self.ids_of(row), wanted));
        rows.map(|row| Matching { key: row.key, numbers: self.numbers_of(row) })
    }

    /// Drops the record at `position`; whether it was here.
    pub fn forget(&mut self, position: u64) -> bool {
        let Ok(row) = self.rows.binary_search_by_key(&position, |row| row.key.1) else {
            return false;
        };
        let was_there = self.order.len();
        self.order.retain(|own| usize::from(*own) != row);
        self.order.len() < was_there
    }

    /// Takes everything away for a segment; `None` when there is nothing.
    pub fn take(&mut self) -> Option<Parts> {
        let tail = std::mem::take(self);
        let mut parts = Parts::default();
        for (rank, row) in (0..).zip(tail.order.iter().map(|row| &tail.rows[usize::from(*row)])) {
            parts.keys.push(row.key);
            parts.tags.extend(tail.ids_of(row).iter().map(|id| (*id, rank)));
            let numbers = tail.numbers_of(row).iter();
            parts.fields.extend(numbers.map(|(id, number)| (*id, rank, *number)));
        }
        (!parts.keys.is_empty()).then_some(parts)
    }

    /// The numbers of the tags and types that its records have.
    pub fn tags(&self) -> impl Iterator<Item = u32> {
        let rows = self.order.iter().map(|row| &self.rows[usize::from(*row)]);
        rows.flat_map(|row| self.ids_of(row)).copied()
    }

    /// The records in the order of their positions, each with tags and type, and numbers.
    pub fn rows(&self) -> impl Iterator<Item = (Key, &[u32], &[(u32, f64)])> {
        let mut left = self.order.clone();
        left.sort_unstable();
        left.into_iter().map(|row| {
            let row = &self.rows[usize::from(row)];
            (row.key, self.ids_of(row), self.numbers_of(row))
        })
    }

    fn ids_of(&self, row: &Row) -> &[u32] {
        &self.ids[row.ids.start as usize..row.ids.end as usize]
    }

    fn numbers_of(&self, row: &Row) -> &[(u32, f64)] {
        &self.numbers[row.numbers.start as usize..row.numbers.end as usize]
    }
}

/// Whether all of `wanted` are among `ids`. Both are sorted, and nothing is wanted twice.
fn has_all(ids: &[u32], wanted: &[u32]) -> bool {
    let mut left = ids;
    wanted.len() <= ids.len()
        && wanted.iter().all(|id| match left.binary_search(id) {
            Ok(place) => {
                left = &left[place + 1..];
                true
            }
            Err(_) => false,
        })
}

fn offset(offset: usize) -> u32 {
    u32::try_from(offset).expect("records have few tags and numbers")
}
