//! Old records go, and everything else stays: positions, hashes, totals, streams, facts.

use super::*;
use crate::event::Function;
use crate::log::retention::Effort;

fn of_kind(kind: &str, number: usize) -> Draft {
    let mut draft = draft(number);
    kind.clone_into(&mut draft.event.kind);
    draft
}

/// Two of three are metrics; now and then there is an artifact.
fn mixed(numbers: std::ops::Range<usize>) -> Vec<Draft> {
    let draft = |number: usize| match number {
        _ if number.is_multiple_of(50) => {
            let mut stored = scale_stored("small");
            stored.time = NOON + time::Duration::seconds(i64::try_from(number).unwrap());
            "metrics".clone_into(&mut stored.event.kind);
            stored
        }
        _ if number.is_multiple_of(3) => of_kind("archive", number),
        _ => of_kind("metrics", number),
    };
    numbers.map(draft).collect()
}

fn expired(seconds: i64) -> Vec<Expiry> {
    let before = NOON + time::Duration::seconds(seconds);
    vec![Expiry { kind: "metrics".into(), before }]
}

fn total(log: &Log, kind: &str) -> u64 {
    log.query(&Query { kind: Some(kind.into()), ..Query::default() }, 1, 10).unwrap().total
}

fn kept(records: &[Arc<Record>], seconds: i64) -> Vec<Arc<Record>> {
    let before = NOON + time::Duration::seconds(seconds);
    let stays = |record: &&Arc<Record>| {
        record.event.kind != "metrics" || record.event.fact.is_some() || record.time >= before
    };
    records.iter().filter(stays).cloned().collect()
}

#[test]
fn what_expired_goes_and_the_rest_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    for first in (0..6_000).step_by(1_000) {
        append(&log, mixed(first..first + 1_000));
    }
    let (before, head) = (all(&log), log.head());
    let verified = log.verify().unwrap();
    assert_eq!((verified.records, verified.dropped), (6_000, 0));
    for seconds in [10, 2_500, 2_500, 5_000] {
        log.drop_expired(&expired(seconds), None).unwrap();
        let expected = kept(&before, seconds);
        assert_eq!(all(&log), expected);
        assert_eq!(log.head(), head, "position and hash stay");
        let metrics = expected.iter().filter(|record| record.event.kind == "metrics").count();
        assert_eq!(total(&log, "metrics"), metrics as u64);
        let verified = log.verify().unwrap();
        assert_eq!(verified.records, expected.len() as u64);
        assert_eq!((verified.last, verified.hash), head);
        let stream = log.subscribe(Position::START).take(expected.len()).map(Result::unwrap);
        let streamed: Vec<_> = futures::executor::block_on(stream.collect());
        assert_eq!(streamed, expected);
        let killed = copy(directory.path());
        let reopened = Log::open(killed.path()).unwrap();
        assert_eq!(reopened.take_notices(), [""; 0], "the snapshots are those after dropping");
        assert_eq!(all(&reopened), expected);
        assert_eq!(reopened.verify().unwrap(), verified);
        assert_eq!(append(&reopened, vec![draft(1)])[0].position, Position(6_001));
    }
}

#[test]
fn what_users_did_and_the_newest_record_are_never_dropped() {
    let log = Log::in_memory().unwrap();
    let kept = vec![Expiry { kind: "archive".into(), before: NOON }];
    let refused = log.drop_expired(&kept, None).unwrap_err();
    assert_eq!(refused.to_string(), "events of type 'archive' are never dropped");
    append(&log, (0..5).map(|number| of_kind("metrics", number)).collect());
    let dropped = |records| Dropped { records, more_after: None };
    assert_eq!(log.drop_expired(&expired(1_000), None).unwrap(), dropped(4));
    assert_eq!(positions(&all(&log)), [5]);
    append(&log, vec![of_kind("metrics", 9)]);
    assert_eq!(log.drop_expired(&expired(1_000), None).unwrap(), dropped(1));
    assert_eq!(positions(&all(&log)), [6], "what was held back goes the next time");
    assert_eq!(log.drop_expired(&[], None).unwrap(), Dropped::default());
}

/// A round: as many calls as it takes, each of which gets on. How many they were.
fn drop_all(log: &Log, expiries: &[Expiry], effort: Effort) -> usize {
    let enough = usize::try_from(log.last().0).unwrap() + 2;
    let mut after = None;
    let calls = (0..enough).take_while(|_| {
        after = log.drop_expired_with(expiries, after, effort).unwrap().more_after;
        after.is_some()
    });
    let calls = calls.count();
    assert!(calls < enough, "it comes to an end");
    calls
}

#[test]
fn a_type_that_stays_longer_holds_up_no_other() {
    let effort = Effort { batch_records: 4, batches: 2, young_records: 3 };
    let log = Log::in_memory().unwrap();
    let notes = ["health", "archive", "archive", "health", "archive", "archive"];
    let kinds = notes.into_iter().cycle().take(120).chain(["metrics"; 30]);
    append(&log, kinds.enumerate().map(|(number, kind)| of_kind(kind, number)).collect());
    let before = |seconds| NOON + time::Duration::seconds(seconds);
    let expiries = [("health", before(10)), ("metrics", before(140))]
        .map(|(kind, before)| Expiry { kind: kind.into(), before });
    drop_all(&log, &expiries, effort);
    assert_eq!((total(&log, "health"), total(&log, "metrics")), (40 - 4, 10));
    // All is done, so that little is looked at again.
    assert_eq!(log.drop_expired_with(&expiries, None, effort).unwrap(), Dropped::default());
    log.verify().unwrap();
}

#[test]
fn a_record_from_a_clock_that_was_ahead_holds_up_none_behind_it() {
    let effort = Effort { batch_records: 4, batches: 2, young_records: 3 };
    let log = Log::in_memory().unwrap();
    let ahead = |number: usize| Draft {
        time: NOON + time::Duration::days(200),
        ..of_kind("metrics", number)
    };
    append(&log, vec![of_kind("metrics", 0), ahead(1), ahead(2), of_kind("metrics", 3)]);
    append(&log, (4..20).map(|number| of_kind("metrics", number)).collect());
    drop_all(&log, &expired(10), effort);
    assert_eq!(positions(&all(&log)), (2..=3).chain(11..=20).collect::<Vec<_>>());
    // They go when their own time comes.
    drop_all(&log, &expired(300 * 86_400), effort);
    assert_eq!(positions(&all(&log)), [20]);
}

/// What stays behind such a record is more than one call looks at, and no two of it become one gap.
#[test]
fn a_record_that_stays_is_passed_however_much_lies_behind_it() {
    let effort = Effort { batch_records: 4, batches: 2, young_records: 3 };
    let log = Log::in_memory().unwrap();
    let ahead = Draft { time: NOON + time::Duration::days(200), ..of_kind("metrics", 1) };
    append(&log, vec![of_kind("metrics", 0), ahead]);
    append(&log, (2..100).map(|number| of_kind("archive", number)).collect());
    append(&log, (100..110).map(|number| of_kind("metrics", number)).collect());
    let calls = drop_all(&log, &expired(105), effort);
    assert!(calls > 3, "{calls}");
    let expected: Vec<u64> = (2..=100).chain(106..=110).collect();
    assert_eq!(positions(&all(&log)), expected);
    // The next round looks at them again, and has nothing to write.
    let before = log.shared().storage.retention().unwrap();
    drop_all(&log, &expired(105), effort);
    assert_eq!(log.shared().storage.retention().unwrap(), before);
    drop_all(&log, &expired(107), effort);
    assert_eq!(positions(&all(&log)), (2..=100).chain(108..=110).collect::<Vec<u64>>());
    log.verify().unwrap();
}

/// With a clock that was put back, or an age of nothing, a round would go on with what is appended meanwhile.
#[test]
fn what_comes_during_a_round_stays_for_the_next() {
    let effort = Effort { batch_records: 4, batches: 2, young_records: 3 };
    let log = Log::in_memory().unwrap();
    append(&log, (0..30).map(|number| of_kind("metrics", number)).collect());
    let mut rest = None;
    let mut calls = 0;
    loop {
        rest = log.drop_expired_with(&expired(1_000), rest, effort).unwrap().more_after;
        if rest.is_none() {
            break;
        }
        append(&log, (30..40).map(|number| of_kind("metrics", number)).collect());
        calls += 1;
    }
    assert!(calls > 0);
    let last = 30 + 10 * calls;
    assert_eq!(log.last(), Position(last));
    assert_eq!(positions(&all(&log)), (30..=last).collect::<Vec<_>>());
    assert_eq!(total(&log, "metrics"), last - 29);
    drop_all(&log, &expired(1_000), effort);
    assert_eq!(positions(&all(&log)), [last]);
    log.verify().unwrap();
}

/// The name of a type stands for the values of its events as long as there are such, and else for a member.
#[test]
fn a_field_means_the_same_after_the_index_was_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    let with = |kind: &str, number: usize, value: serde_json::Value| {
        let mut draft = of_kind(kind, number);
        draft.event.value = value;
        draft
    };
    let member = with("archive", 2, serde_json::json!({"metering": 2}));
    append(&log, vec![with("metering", 1, 5.into()), member, of_kind("archive", 3)]);
    let sum = |log: &Log| {
        let aggregator = Aggregator { function: Function::Sum, field: "metering".into() };
        log.aggregate(&Query::default(), &aggregator).unwrap()
    };
    assert_eq!(sum(&log), Aggregate::Number(Some(5.0)));
    let before = NOON + time::Duration::seconds(9);
    let expiries = [Expiry { kind: "metering".into(), before }];
    assert_eq!(log.drop_expired(&expiries, None).unwrap().records, 1);
    assert_eq!(sum(&log), Aggregate::Number(Some(2.0)));
    drop(log);
    std::fs::remove_dir_all(directory.path().join("snapshots")).unwrap();
    assert_eq!(sum(&Log::open(directory.path()).unwrap()), Aggregate::Number(Some(2.0)));
}

#[test]
fn a_subscription_in_the_middle_goes_on_behind_the_gap() {
    let log = Log::in_memory().unwrap();
    append(&log, (0..100).map(|number| of_kind("metrics", number)).collect());
    append(&log, vec![of_kind("archive", 100)]);
    log.drop_expired(&expired(90), None).unwrap();
    assert_eq!(positions(&log.read(Position(40), 3).unwrap()), [91, 92, 93]);
    assert_eq!(positions(&log.read(Position::START, 1).unwrap()), [91]);
}

/// Positions, tags and times differ in every record, so that nothing compresses away.
#[test]
fn disk_use_falls() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    let noisy = |number: usize| {
        let mut draft = of_kind("metrics", number);
        let noise = blake3::hash(&number.to_le_bytes()).to_hex();
        draft.event.value = noise.repeat(16).into();
        draft.event.tags = Tags::expand([noise.as_str()]);
        draft
    };
    for first in (0..24_000).step_by(4_000) {
        append(&log, (first..first + 4_000).map(noisy).collect());
    }
    append(&log, vec![of_kind("archive", 1)]);
    let tables = || -> u64 {
        let files = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
        files
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "sst"))
            .map(|file| file.metadata().unwrap().len())
            .sum()
    };
    log.shared().storage.compact(Position::START, Position(24_001));
    let before = tables();
    log.drop_expired(&expired(23_000), None).unwrap();
    let after = tables();
    println!("{before} bytes before, {after} after");
    assert!(after < before / 5, "{before} bytes before, {after} after");
    log.verify().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is dropped in whatever order: what stays is what a filter leaves, and all of it verifies.
    #[test]
    fn dropping_is_filtering(
        kinds in prop::collection::vec(0..3usize, 1..60), rounds in prop::collection::vec((0..60i64, 0..60i64, 0..6usize), 1..5),
        batch_records in 2..9usize, batches in 1..4usize, young_records in 1..9usize,
    ) {
        let effort = Effort { batch_records, batches, young_records };
        let log = Log::in_memory().unwrap();
        let name = |kind: usize| ["archive", "metrics", "health"][kind];
        let mut number = 0;
        let mut write = |kinds: &[usize]| {
            let drafts = kinds.iter().map(|kind| { number += 1; of_kind(name(*kind), number) }).collect();
            append(&log, drafts)
        };
        let mut expected = write(&kinds);
        for (metrics, health, more) in rounds {
            let limit = |seconds| NOON + time::Duration::seconds(seconds);
            let expiries =
                [("metrics", limit(metrics)), ("health", limit(health))].map(|(kind, before)| Expiry { kind: kind.into(), before });
            drop_all(&log, &expiries, effort);
            let newest = log.last();
            expected.retain(|record| {
                record.position == newest
                    || !expiries.iter().any(|expiry| expiry.kind == record.event.kind && record.time < expiry.before)
            });
            prop_assert_eq!(all(&log), expected.clone());
            prop_assert_eq!(log.verify().unwrap().records, expected.len() as u64);
            expected.extend(write(&vec![1; more]));
        }
    }
}
