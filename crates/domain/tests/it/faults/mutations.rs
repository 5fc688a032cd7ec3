//! Bits flipped and files cut all over the data directory: each is refused with a sentence, or provably harmless.
//!
//! A log is opened, verified and read whole. When all of that succeeds the mutation has to be harmless: every record is
//! what was written, the hash is the same, and queries count what they counted.

use super::{Random, all, copy, draft, is_long};
use segue_domain::artifact::{Cpu, Memory, Metadata, NamedScale, Scale};
use segue_domain::event::{Fact, Origin, Query, Record, StaticFact};
use segue_domain::log::{ChainHash, Expect, Expiry, Log};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use time::OffsetDateTime;

/// Enough for a snapshot when the log is closed.
const RECORDS: usize = 5_000;
/// Every so many events are dropped by retention, and every so many have a fact.
const OLD: usize = 7;
const FACTS: usize = 100;

#[derive(PartialEq)]
struct Content {
    records: Vec<Arc<Record>>,
    hash: ChainHash,
    total: u64,
    tagged: u64,
}

/// What became of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Refused,
    /// A cache was dropped with a notice; the content is the same.
    Noticed,
    Harmless,
}

fn write(directory: &Path) -> Log {
    let log = Log::open(directory).unwrap();
    for first in (0..RECORDS).step_by(500) {
        let drafts = (first..first + 500).map(|number| {
            let mut draft = draft(&format!("mutated-{number}"));
            if number.is_multiple_of(FACTS) {
                draft.provenance.origin = Origin::Service;
                draft.event.fact = Some(scale(&format!("scale-{number}")));
            } else if number.is_multiple_of(OLD) {
                "metrics".clone_into(&mut draft.event.kind);
            }
            draft
        });
        append(&log, drafts.collect());
    }
    drop(log);
    // Opening moves what the write-ahead log holds into tables; closing wrote a snapshot.
    let log = Log::open(directory).unwrap();
    let before = OffsetDateTime::UNIX_EPOCH + time::Duration::days(30_000);
    let dropped = log.drop_expired(&[Expiry { kind: "metrics".into(), before }], None).unwrap();
    assert!(dropped.records > 500, "{dropped:?}");
    append(&log, (0..40).map(|number| draft(&format!("last-{number}"))).collect());
    log
}

fn append(log: &Log, drafts: Vec<segue_domain::event::Draft>) {
    log.append(drafts, &Expect::Any).unwrap().durable_blocking().unwrap();
}

fn scale(name: &str) -> Fact {
    let (cpu, memory) = (Cpu::from_milli(500), Memory::from_megabytes(64));
    let scale = Scale { cpu, memory, instances: 1 };
    Fact::Static(StaticFact::ScaleStored(NamedScale {
        name: name.into(),
        metadata: Metadata::new(),
        scale,
    }))
}

fn content(log: &Log) -> Result<Content, String> {
    log.verify().map_err(|error| error.to_string())?;
    let count = |query: &Query| {
        log.query(query, 1, 1).map(|page| page.total).map_err(|error| error.to_string())
    };
    let tagged = Query { tags: vec!["name:last-7".into()], ..Query::default() };
    let (total, tagged) = (count(&Query::default())?, count(&tagged)?);
    Ok(Content { records: all(log), hash: log.head().1, total, tagged })
}

fn fate(directory: &Path, expected: &Content) -> Result<Fate, String> {
    let log = match Log::open(directory) {
        Ok(log) => log,
        Err(error) => {
            let words = error.to_string();
            return if words.len() > 40 { Ok(Fate::Refused) } else { Err(words) };
        }
    };
    let Ok(found) = content(&log) else { return Ok(Fate::Refused) };
    if found != *expected {
        let (found, expected) = (found.records.len(), expected.records.len());
        return Err(format!("{found} records instead of {expected}, and nobody says so"));
    }
    let noticed = !log.take_notices().is_empty();
    Ok(if noticed { Fate::Noticed } else { Fate::Harmless })
}

/// All files with their class: what RocksDB or the log calls them without numbers.
fn files(directory: &Path, below: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(directory.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            for (class, more) in self::files(directory, &path) {
                files.entry(class).or_default().extend(more);
            }
        } else if entry.metadata().unwrap().len() > 0 {
            let stem = name.split(['-', '.']).next().unwrap_or_default();
            let extension = name.rsplit_once('.').map_or(stem, |(_, extension)| extension);
            let class = if name.starts_with("LOG") { "LOG" } else { extension };
            files.entry(class.to_owned()).or_default().push(path);
        }
    }
    files
}

#[test]
fn no_flipped_bit_and_no_cut_goes_unnoticed() {
    let mutations: usize = if is_long() { 10_000 } else { 120 };
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("base");
    {
        let directory = place.path().join("written");
        let log = write(&directory);
        // What a killed process leaves behind: the newest records are in the write-ahead log only.
        copy(&directory, &base);
        drop(log);
    }
    let expected = {
        let whole = place.path().join("whole");
        copy(&base, &whole);
        content(&Log::open(&whole).unwrap()).unwrap()
    };
    let classes: Vec<(String, Vec<PathBuf>)> = files(&base, Path::new("")).into_iter().collect();
    let mut random = Random::new();
    let mut pick = |count: usize| usize::try_from(random.below(count as u64)).unwrap();
    let mut fates: BTreeMap<(String, &str), BTreeMap<Fate, usize>> = BTreeMap::new();
    for number in 0..mutations {
        let (class, files) = &classes[number % classes.len()];
        let file = &files[pick(files.len())];
        let mutated = place.path().join("mutated");
        copy(&base, &mutated);
        let path = mutated.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let offset = pick(bytes.len());
        let flips = pick(3) > 0;
        if flips {
            bytes[offset] ^= 1 << pick(8);
        } else {
            bytes.truncate(offset);
        }
        std::fs::write(&path, bytes).unwrap();
        let how = if flips { "flipped" } else { "cut" };
        let fate = fate(&mutated, &expected)
            .unwrap_or_else(|reason| panic!("{} {how} at {offset}: {reason}", file.display()));
        *fates.entry((class.clone(), how)).or_default().entry(fate).or_default() += 1;
        std::fs::remove_dir_all(&mutated).unwrap();
    }
    for ((class, how), fates) in &fates {
        println!("{class:12} {how:8} {fates:?}");
    }
    println!("{mutations} mutations, none unnoticed");
}
