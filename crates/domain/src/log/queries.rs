//! How queries are answered: the index says which records, and those are read.

use super::index::{self, Tallied, Tally};
use super::{PAGE_RECORDS_MAX, ReadError, Shared};
use crate::event::{Aggregate, Aggregator, Function, Page, Position, Query, Record};
use std::sync::Arc;

/// How often a query looks again when retention drops what it is about to read.
const RETRIES_MAX: usize = 8;

impl Shared {
    pub(super) fn query(
        &self,
        query: &Query,
        page: u64,
        per_page: u64,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        let take = usize::try_from(per_page).ok().filter(|_| per_page <= PAGE_RECORDS_MAX);
        let take = take.ok_or(ReadError::PageTooLarge { per_page, max: PAGE_RECORDS_MAX })?;
        let skip = page.saturating_sub(1).saturating_mul(per_page);
        again(|| self.find(query, skip, take, bytes_max))
    }

    fn find(
        &self,
        query: &Query,
        skip: u64,
        take: usize,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        let view = self.index().view(query);
        let found = view.find(skip, take);
        let recent: Option<Vec<_>> = {
            let recent = self.recent();
            found.positions.iter().map(|position| recent.get(*position)).collect()
        };
        let records = recent.map_or_else(|| self.fetch(&found.positions, bytes_max), Ok)?;
        Ok(Page { records, total: found.total })
    }

    /// The records of one page, unless they take more than `bytes_max`.
    fn fetch(
        &self,
        positions: &[Position],
        bytes_max: usize,
    ) -> Result<Vec<Arc<Record>>, ReadError> {
        let (mut records, mut bytes) = (Vec::with_capacity(positions.len()), 0);
        self.storage.fetch(positions, |record, length| {
            bytes += length;
            if bytes > bytes_max && !records.is_empty() {
                return Err(ReadError::PageTooHeavy { fits: records.len(), max: bytes_max });
            }
            records.push(Arc::new(record));
            Ok(())
        })?;
        Ok(records)
    }

    pub(super) fn aggregate(
        &self,
        query: &Query,
        aggregator: &Aggregator,
    ) -> Result<Aggregate, ReadError> {
        if aggregator.function == Function::Count {
            let view = self.index().view(query);
            return Ok(Aggregate::Count(view.count()));
        }
        let tally = again(|| self.tally(query, &aggregator.field))?;
        let some = |number: f64| (tally.count > 0).then_some(number);
        Ok(Aggregate::Number(match aggregator.function {
            Function::Min => some(tally.min),
            Function::Max => some(tally.max),
            Function::Average => some(tally.average()),
            Function::Sum => Some(tally.sum()),
            Function::Count => unreachable!("it was answered above"),
        }))
    }

    pub(super) fn tally(&self, query: &Query, field: &str) -> Result<Tally, ReadError> {
        let (view, member) = self.index().view_field(query, field);
        let Tallied { mut tally, unread } = view.tally();
        self.storage.fetch(&unread, |record, _| {
            if let Some(number) = index::number_in(&record.event.value, member) {
                tally.add(number);
            }
            Ok(())
        })?;
        Ok(tally)
    }
}

/// Asks once more when a record is missing: between a look into the index and the reading of what it names, retention
/// may have dropped it. The index forgets records before they are dropped, so the second look does not name it.
fn again<T>(ask: impl Fn() -> Result<T, ReadError>) -> Result<T, ReadError> {
    for _ in 0..RETRIES_MAX {
        match ask() {
            Err(ReadError::Missing { .. }) => {}
            answer => return answer,
        }
    }
    ask()
}
