//! How RocksDB is set up: append-only, with little memory.

use super::storage::{META, RECEIPTS, RECORDS, REVISIONS};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, LogLevel,
    Options,
};

/// Memory of one column family before it is flushed to a file; two may exist at a time.
const RECORDS_BUFFER_BYTES: usize = 16 << 20;
const SMALL_BUFFER_BYTES: usize = 2 << 20;
/// The write-ahead log is cut when it is this large: it bounds what is replayed when opening.
const WAL_BYTES_MAX: u64 = 64 << 20;
/// Memory for each receipt on disk, so that a key that has none is not looked for there.
const RECEIPTS_FILTER_BITS: f64 = 10.0;
const BLOCK_CACHE_BYTES: usize = 8 << 20;
const OPEN_FILES_MAX: i32 = 256;
const INFO_LOG_BYTES: usize = 1 << 20;
const INFO_LOG_FILES: usize = 2;

/// How each column family is opened: ours, and those that a newer release may have added, since RocksDB opens all or
/// none and the format of the store can only be read from an open one.
pub(super) fn descriptors(existing: &[String]) -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
    let ours = [RECORDS, META, REVISIONS, RECEIPTS];
    let foreign = existing.iter().map(String::as_str).filter(|name| !ours.contains(name));
    let options = |name: &str| {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&cache);
        if name == RECEIPTS {
            // Most keys that are asked for are new.
            blocks.set_bloom_filter(RECEIPTS_FILTER_BITS, false);
        }
        // Indices of files count as cache too, so that memory does not grow with the log.
        blocks.set_cache_index_and_filter_blocks(true);
        let mut options = Options::default();
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_size(if name == RECORDS {
            RECORDS_BUFFER_BYTES
        } else {
            SMALL_BUFFER_BYTES
        });
        options.set_max_write_buffer_number(2);
        // Keys only grow, so files of records never overlap and move down the levels as they are. That takes one
        // compression for all levels: another one for the lowest would have each file written twice.
        options.set_compression_type(DBCompressionType::Lz4);
        options
    };
    let names = ours.into_iter().chain(foreign);
    names.map(|name| ColumnFamilyDescriptor::new(name, options(name))).collect()
}

/// How the database is set up: append-only, little memory, one synced write at a time.
pub(super) fn database_options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // A crash may leave a record of the write-ahead log half written; nobody was told that it is durable, so it may
    // go. This mode drops just that, an incomplete record at the very end, and refuses to open on anything else:
    // AbsoluteConsistency would refuse the torn end as well, PointInTime would drop every acknowledged record after
    // a changed byte without a word, and SkipAnyCorruptedRecord would leave a hole. The price is that RocksDB does
    // not recycle log files in this mode, since remains of an old file look like damage; it preallocates them, so
    // that a synced append still costs one fdatasync.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // The same tolerance must not hide that an older log file lost its end: its synced size is kept in the manifest.
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_paranoid_checks(true);
    options.set_max_total_wal_size(WAL_BYTES_MAX);
    options.set_max_open_files(OPEN_FILES_MAX);
    // One flush and one compaction; an append-only log hardly compacts.
    options.set_max_background_jobs(2);
    // Files are written out evenly, so that a flush does not delay the next fdatasync much.
    options.set_bytes_per_sync(1 << 20);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(INFO_LOG_BYTES);
    options.set_keep_log_file_num(INFO_LOG_FILES);
    options
}
