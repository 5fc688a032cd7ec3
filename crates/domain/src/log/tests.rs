//! The log as its users see it: on disk, in memory, with many writers, and after damage.

mod backups;
mod damage;
pub(super) mod golden;
mod queries;
mod relay;
mod retention;
mod snapshots;
mod stopped;

use super::storage::Storage;
use super::*;
use crate::artifact::{Cpu, Kind, Memory, Metadata, NamedScale, Scale};
use crate::event::{
    Bound, Event, Fact, GatewayFact, Origin, Provenance, StaticFact, Tags, TimeRange,
};
use futures::StreamExt;
use proptest::prelude::*;
use std::task::Poll;
use time::OffsetDateTime;
use time::macros::datetime;

const NOON: OffsetDateTime = datetime!(2026-11-20 12:00:00 UTC);

fn draft(number: usize) -> Draft {
    let seconds = time::Duration::seconds(i64::try_from(number).unwrap());
    Draft {
        time: NOON + seconds,
        provenance: Provenance {
            actor: "api".into(),
            cause: None,
            correlation: format!("request-{number}"),
            origin: Origin::Service,
        },
        event: Event {
            kind: "test".into(),
            tags: Tags::expand([format!("number:{number}")]),
            timestamp: NOON + seconds,
            value: serde_json::json!({ "number": number }),
            fact: None,
        },
    }
}

fn with_fact(fact: Fact) -> Draft {
    let mut draft = draft(0);
    draft.event.fact = Some(fact);
    draft
}

fn web() -> ArtifactKey {
    ArtifactKey::new(Kind::Gateway, "web")
}

fn gateway(fact: GatewayFact) -> Draft {
    with_fact(Fact::Gateway { name: "web".into(), fact })
}

fn scale_stored(name: &str) -> Draft {
    let (cpu, memory) = (Cpu::from_milli(500), Memory::from_megabytes(64));
    let scale = Scale { cpu, memory, instances: 1 };
    let scale = NamedScale { name: name.into(), metadata: Metadata::new(), scale };
    with_fact(Fact::Static(StaticFact::ScaleStored(scale)))
}

fn append(log: &Log, drafts: Vec<Draft>) -> Vec<Arc<Record>> {
    log.append(drafts, &Expect::Any).unwrap().durable_blocking().unwrap()
}

fn fill(log: &Log, count: usize) {
    for number in 1..=count {
        append(log, vec![draft(number)]);
    }
}

fn positions(records: &[Arc<Record>]) -> Vec<u64> {
    records.iter().map(|record| record.position.0).collect()
}

/// A copy of the files in `directory`, with those of folders in it.
pub(super) fn copy(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_to(directory, copy.path());
    copy
}

fn copy_to(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_to(&path, &to);
        } else {
            std::fs::copy(&path, to).unwrap();
        }
    }
}

/// A copy of a golden data directory.
pub(super) fn fixture(name: &str) -> tempfile::TempDir {
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name))
}

pub(super) fn all(log: &Log) -> Vec<Arc<Record>> {
    let mut records: Vec<Arc<Record>> = Vec::new();
    loop {
        let after = records.last().map_or(Position::START, |record| record.position);
        let more = log.read(after, 7).unwrap();
        if more.is_empty() {
            return records;
        }
        records.extend(more);
    }
}

#[test]
fn records_survive_reopening_and_come_back_identical() {
    let directory = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for round in 0..3 {
        let log = Log::open(directory.path()).unwrap();
        assert_eq!(log.next(), Position(round * 3 + 1));
        let mut late = draft(9);
        late.event.timestamp = datetime!(2026-11-20 13:00:00 +2);
        written.extend(append(&log, vec![draft(1), scale_stored("small"), late]));
        assert_eq!(all(&log), written);
        assert_eq!(log.last(), Position(round * 3 + 3));
    }
    let log = Log::open(directory.path()).unwrap();
    assert_eq!(all(&log), written);
    assert_eq!(
        format!("{:?}", all(&log)),
        format!("{written:?}"),
        "also the offsets of times are the same"
    );
    assert_eq!(positions(&written), (1..=9).collect::<Vec<_>>());
}

#[test]
fn what_waits_is_written_when_the_log_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    for number in 1..=200 {
        drop(log.append(vec![draft(number)], &Expect::Any).unwrap());
    }
    drop(log);
    assert_eq!(all(&Log::open(directory.path()).unwrap()).len(), 200);
}

#[test]
fn a_second_opening_is_refused_with_a_helpful_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    let refused = Log::open(directory.path()).unwrap_err();
    assert_eq!(refused, OpenError::InUse { directory: directory.path().to_owned() });
    assert!(refused.to_string().contains("stop the other Segue"), "{refused}");
    drop(log);
    Log::open(directory.path()).unwrap();
}

#[test]
fn an_append_has_its_positions_before_it_is_durable() {
    let log = Log::in_memory().unwrap();
    let first = log.append(vec![draft(1), draft(2)], &Expect::Any).unwrap();
    let second = log.append(vec![draft(3)], &Expect::Any).unwrap();
    assert_eq!((positions(first.records()), positions(second.records())), (vec![1, 2], vec![3]));
    assert_eq!(log.next(), Position(4));
    second.durable_blocking().unwrap();
    assert_eq!(log.last(), Position(3));
    assert_eq!(append(&log, vec![]), vec![], "nothing is appended at once");
}

/// Who sees a record finds the state that it makes, so nobody sees one before the log says that it is there.
#[test]
fn what_is_about_to_be_published_is_not_read() {
    let log = Log::in_memory().unwrap();
    fill(&log, 1);
    log.shared().recent_mut().push(Arc::new(draft(2).at(Position(2))), 1);
    assert_eq!(positions(&log.read(Position::START, 10).unwrap()), [1]);
    assert_eq!(log.last(), Position(1));
}

#[test]
fn revisions_follow_the_facts_that_revise() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    let expect = |revision: Option<u64>| Expect::Revisions(vec![(web(), revision.map(Position))]);
    let conflict = |log: &Log, expected: Option<u64>, actual: Option<u64>| {
        let (expected_position, actual) = (expected.map(Position), actual.map(Position));
        let refused = log.append(vec![draft(1)], &expect(expected)).unwrap_err();
        assert_eq!(
            refused,
            AppendError::Conflict { artifact: web(), expected: expected_position, actual }
        );
    };
    let scale = ArtifactKey::new(Kind::Scale, "small");
    append(&log, vec![draft(1)]);
    conflict(&log, Some(1), None);
    append(&log, vec![scale_stored("small"), draft(2)]);
    assert_eq!(log.revision(&scale), Some(Position(2)));
    append(&log, vec![gateway(GatewayFact::Published)]);
    conflict(&log, Some(4), None);
    let stored =
        || with_fact(Fact::Static(StaticFact::Deleted(ArtifactKey::new(Kind::Breed, "b"))));
    drop(log.append(vec![stored(), scale_stored("small")], &expect(None)).unwrap());
    assert_eq!(log.revision(&scale), Some(Position(6)), "counts before it is durable");
    drop(log);
    let log = Log::open(directory.path()).unwrap();
    assert_eq!(log.revision(&scale), Some(Position(6)), "counts after reopening");
    let both =
        Expect::Revisions(vec![(scale.clone(), Some(Position(6))), (web(), Some(Position(3)))]);
    let refused = log.append(vec![scale_stored("small")], &both).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "gateways:web changed: revision 3 was expected, it is no such artifact"
    );
    assert_eq!(
        (log.next(), log.revision(&scale)),
        (Position(7), Some(Position(6))),
        "a refused append leaves nothing"
    );
    append(&log, vec![with_fact(Fact::Static(StaticFact::Deleted(scale.clone())))]);
    assert_eq!(log.revision(&scale), None);
    drop(log);
    assert_eq!(
        Log::open(directory.path()).unwrap().revision(&scale),
        None,
        "a removal is kept too"
    );
}

#[test]
fn limits_are_told_apart() {
    let log = Log::in_memory().unwrap();
    let many = vec![draft(1); sequencer::APPEND_RECORDS_MAX + 1];
    assert!(matches!(
        log.append(many, &Expect::Any),
        Err(AppendError::TooLarge { records: 10_001, .. })
    ));
    let mut large = draft(1);
    large.event.value = "x".repeat(sequencer::APPEND_BYTES_MAX).into();
    assert!(matches!(
        log.append(vec![large], &Expect::Any),
        Err(AppendError::TooLarge { records: 1, .. })
    ));
    assert!(matches!(
        log.query(&Query::default(), 1, PAGE_RECORDS_MAX + 1),
        Err(ReadError::PageTooLarge { .. })
    ));
    assert_eq!(log.next(), Position(1));
}

/// Without a writer, nothing leaves the queue.
#[test]
fn a_full_queue_refuses_and_goes_on_when_there_is_room() {
    let sequencer = sequencer::Local::new(Position::START, std::collections::HashMap::new());
    let mut accepted = 0;
    let refused = loop {
        match sequencer.append(Prepared::new(vec![draft(1); 10_000]).unwrap(), &Expect::Any, None) {
            Ok((records, _)) => accepted += records.len(),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, AppendError::Full { records, .. } if records == accepted),
        "{refused}"
    );
    assert!(accepted > 50_000 && accepted <= sequencer::QUEUE_RECORDS_MAX);
    assert_eq!(
        sequencer.take().unwrap().len(),
        1,
        "a commit has a limit, and an append is not split"
    );
    let (records, _) =
        sequencer.append(Prepared::new(vec![draft(1)]).unwrap(), &Expect::Any, None).unwrap();
    assert_eq!(
        records[0].position,
        Position(accepted as u64 + 1),
        "the refused append left no gap"
    );
}

#[test]
fn sixty_four_writers_leave_no_gap_and_keep_their_appends_together() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    let write = |writer: usize, log: Log| {
        move || {
            for round in 0..10 {
                let records = append(&log, vec![draft(writer), draft(round), draft(writer)]);
                assert!(records.windows(2).all(|pair| pair[1].position == pair[0].position.next()));
                assert!(log.last() >= records[2].position);
                assert_eq!(log.read(Position(records[0].position.0 - 1), 3).unwrap(), records);
            }
        }
    };
    let writers: Vec<_> =
        (0..64).map(|writer| std::thread::spawn(write(writer, log.clone()))).collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let before = all(&log);
    drop(log);
    let after = all(&Log::open(directory.path()).unwrap());
    assert_eq!(positions(&after), (1..=1_920).collect::<Vec<_>>());
    assert_eq!(before, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn subscribers_see_each_record_once_from_any_position() {
    let log = Log::in_memory().unwrap();
    let total = 20_000;
    let subscriber = |after: u64| {
        let mut records = log.subscribe(Position(after));
        async move {
            for expected in after + 1..=total {
                assert_eq!(records.next().await.unwrap().unwrap().position, Position(expected));
            }
        }
    };
    // From the start, from the middle, and from a position that does not exist yet.
    let early: Vec<_> =
        [0, 1, 777, 9_999, 15_000].map(|after| tokio::spawn(subscriber(after))).into();
    let mut late = Vec::new();
    for round in 0..total / 10 {
        let pending = log.append((0..10).map(draft).collect(), &Expect::Any).unwrap();
        if round % 200 == 0 {
            pending.durable().await.unwrap();
            late.push(tokio::spawn(subscriber(round * 5)));
        }
    }
    for subscriber in early.into_iter().chain(late) {
        subscriber.await.unwrap();
    }
}

#[tokio::test]
async fn a_subscription_waits_and_ends_with_the_log() {
    let log = Log::in_memory().unwrap();
    let mut records = log.subscribe(Position::START);
    assert!(futures::poll!(records.next()).is_pending());
    drop(log.append(vec![draft(1)], &Expect::Any).unwrap());
    log.wait_for(Position(1)).await.unwrap();
    assert_eq!(records.next().await.unwrap().unwrap().position, Position(1));
    drop(log.append(vec![draft(2)], &Expect::Any).unwrap());
    drop(log);
    assert_eq!(records.next().await.unwrap().unwrap().position, Position(2));
    assert!(records.next().await.is_none());
    assert!(records.next().await.is_none(), "it stays at its end");
}

#[tokio::test]
async fn whoever_is_behind_lets_others_have_their_turn() {
    let log = Log::in_memory().unwrap();
    log.append((0..2_000).map(draft).collect(), &Expect::Any).unwrap().durable().await.unwrap();
    let mut records = log.subscribe(Position::START);
    let (mut seen, mut pauses) = (0, 0);
    while seen < 2_000 {
        match futures::poll!(records.next()) {
            Poll::Ready(record) => {
                record.unwrap().unwrap();
                seen += 1;
            }
            Poll::Pending => pauses += 1,
        }
    }
    assert!(pauses >= 5, "{pauses}");
}

/// RocksDB refuses the writes of a store that it opened read-only: a real write that really fails.
#[tokio::test]
async fn after_a_failed_write_the_log_refuses_writes_and_reads_on() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    log.append(vec![draft(1), draft(2)], &Expect::Any).unwrap().durable().await.unwrap();
    drop(log);
    let log = Log::start(Storage::open_read_only(directory.path()).unwrap()).unwrap();
    assert_eq!(log.failure(), None);
    // The second and third may come before or after the writer found out; nobody gets a different answer.
    let appends = [3, 4, 5].map(|number| log.append(vec![draft(number)], &Expect::Any));
    for append in appends {
        let answer = match append {
            Ok(pending) => pending.durable().await,
            Err(error) => Err(error),
        };
        let refused = answer.unwrap_err();
        let AppendError::Stopped(reason) = &refused else { panic!("{refused}") };
        assert!(
            reason.starts_with("writing from position 3 to ") && reason.contains("read only"),
            "{reason}"
        );
    }
    assert!(matches!(log.append(vec![draft(6)], &Expect::Any), Err(AppendError::Stopped(_))));
    assert!(matches!(log.wait_for(Position(3)).await, Err(AppendError::Stopped(_))));
    assert!(log.failure().is_some());
    assert_eq!((log.last(), positions(&all(&log))), (Position(2), vec![1, 2]));
    assert_eq!(log.query(&Query::default(), 1, 10).unwrap().total, 2);
    assert_eq!(log.subscribe(Position::START).take(2).count().await, 2);
}

#[test]
fn pages_are_newest_first_and_totals_exact_also_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    append(&log, (1..=30).map(draft).collect());
    let mut old = draft(5);
    old.event.timestamp = NOON - time::Duration::days(400_000);
    append(&log, vec![old]);
    let check = |log: &Log| {
        let page = |query: &Query, page| {
            let page = log.query(query, page, 4).unwrap();
            (positions(&page.records), page.total)
        };
        let any =
            Query { tags: vec!["number".into()], kind: Some("test".into()), ..Query::default() };
        assert_eq!(page(&any, 1), (vec![30, 29, 28, 27], 31));
        assert_eq!(page(&any, 8), (vec![2, 1, 31], 31));
        assert_eq!(page(&any, 9), (vec![], 31));
        assert_eq!(
            page(&Query { tags: vec!["number:5".into()], ..Query::default() }, 1),
            (vec![5, 31], 2)
        );
        let from = Some(Bound { at: NOON + time::Duration::seconds(29), inclusive: false });
        assert_eq!(
            page(&Query { time: TimeRange { from, to: None }, ..Query::default() }, 1),
            (vec![30], 1)
        );
    };
    check(&log);
    drop(log);
    check(&Log::open(directory.path()).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_query_finds_what_its_own_definition_says(
        numbers in prop::collection::vec((0..6usize, -3..4i64), 1..60), tag in 0..6usize, from in prop::option::of(-2..8i64),
        page in 1..5u64, per_page in 1..9u64,
    ) {
        let log = Log::in_memory().unwrap();
        let drafts = numbers.iter().map(|(number, shift)| {
            let mut draft = draft(*number);
            draft.event.timestamp += time::Duration::seconds(*shift);
            draft
        });
        let records = append(&log, drafts.collect());
        let from = from.map(|seconds| Bound { at: NOON + time::Duration::seconds(seconds), inclusive: true });
        let query = Query { tags: vec![format!("number:{tag}")], kind: None, time: TimeRange { from, to: None } };
        let mut matching: Vec<_> = records.into_iter().filter(|record| query.matches(&record.event)).collect();
        matching.sort_by_key(|record| std::cmp::Reverse((record.event.timestamp, record.position)));
        let found = log.query(&query, page, per_page).unwrap();
        prop_assert_eq!(found.total, matching.len() as u64);
        let (skip, take) = (usize::try_from((page - 1) * per_page).unwrap(), usize::try_from(per_page).unwrap());
        prop_assert_eq!(found.records, matching.into_iter().skip(skip).take(take).collect::<Vec<_>>());
    }
}
