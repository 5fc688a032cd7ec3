//! What the index answers is what filtering and sorting all records answers.

use super::names::FIELDS_MAX;
use super::*;
use crate::event::Bound;
use crate::log::snapshot::Payload;
use proptest::prelude::*;
use time::OffsetDateTime;

const TAGS: [&str; 5] = ["all", "half", "few", "rare", "b"];
const KINDS: [&str; 3] = ["event", "health", "mine"];
const MEMBERS: [&str; 3] = ["x", "y", "mine"];

#[derive(Clone, Debug)]
struct Sample {
    timestamp: i64,
    kind: usize,
    tags: Vec<usize>,
    numbers: Numbers,
}

fn instant(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap()
}

fn number() -> impl Strategy<Value = f64> {
    // Eighths, so that sums are exact in any order.
    prop_oneof![(-80i32..80).prop_map(f64::from), (-80i32..80).prop_map(|n| f64::from(n) / 8.0)]
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let members =
        prop::collection::btree_map(0..MEMBERS.len(), number(), 1..3).prop_map(|members| {
            Numbers::Members(
                members
                    .into_iter()
                    .map(|(name, number)| (MEMBERS[name].to_owned(), number))
                    .collect(),
            )
        });
    prop_oneof![3 => Just(Numbers::None), 4 => number().prop_map(Numbers::Whole), 3 => members, 1 => Just(Numbers::Many)]
}

/// Mostly in order, sometimes a little late, sometimes anywhere: before 1678 and after 2262 as well.
fn sample() -> impl Strategy<Value = Sample> {
    let timestamp = prop_oneof![
        6 => Just(0i64), 2 => -5i64..=0, 1 => -20i64..40, 1 => Just(-200_000_000_000), 1 => Just(200_000_000_000),
    ];
    let tags = (any::<bool>(), 0..9u32, 0..40u32, any::<bool>());
    (timestamp, 0..3i64, 0..KINDS.len(), tags, numbers()).prop_map(
        |(timestamp, step, kind, (half, few, rare, b), numbers)| {
            let has = [true, half, few == 0, rare == 0, b];
            let tags = (0..TAGS.len()).filter(|tag| has[*tag]).collect();
            Sample { timestamp: timestamp * 8 + step, kind, tags, numbers }
        },
    )
}

/// Turns steps of the clock into instants: the low bits of a sample are the step.
fn samples(count: usize) -> impl Strategy<Value = Vec<Sample>> {
    prop::collection::vec(sample(), 0..count).prop_map(|mut samples| {
        let mut now = 1000;
        for sample in &mut samples {
            now += sample.timestamp.rem_euclid(8).min(2);
            sample.timestamp = now + sample.timestamp.div_euclid(8);
        }
        samples
    })
}

fn query() -> impl Strategy<Value = Query> {
    let bound = || {
        let at =
            prop_oneof![8 => 980..1300i64, 1 => Just(-300_000_000_000), 1 => Just(200_000_001_050)];
        prop::option::of(
            (at, any::<bool>()).prop_map(|(at, inclusive)| Bound { at: instant(at), inclusive }),
        )
    };
    let tags = prop::collection::vec(prop_oneof![9 => 0..TAGS.len(), 1 => Just(TAGS.len())], 0..4);
    (tags, prop::option::of(0..=KINDS.len()), bound(), bound()).prop_map(
        |(tags, kind, from, to)| Query {
            tags: tags
                .into_iter()
                .map(|tag| TAGS.get(tag).unwrap_or(&"unknown").to_string())
                .collect(),
            kind: kind.map(|kind| KINDS.get(kind).unwrap_or(&"unknown").to_string()),
            time: TimeRange { from, to },
        },
    )
}

fn matching<'s>(samples: &'s [Sample], query: &Query) -> Vec<(u64, &'s Sample)> {
    let matches = |(_, sample): &(u64, &Sample)| {
        query.tags.iter().all(|tag| sample.tags.iter().any(|own| TAGS[*own] == tag))
            && query.kind.as_ref().is_none_or(|kind| KINDS[sample.kind] == kind)
            && query.time.contains(instant(sample.timestamp))
    };
    (1u64..).zip(samples).filter(matches).collect()
}

/// What the index must find: filter, sort, cut.
fn found(samples: &[Sample], query: &Query, skip: usize, take: usize) -> Found {
    let mut all: Vec<_> = matching(samples, query)
        .into_iter()
        .map(|(position, sample)| (sample.timestamp, position))
        .collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let positions = all.iter().skip(skip).take(take).map(|(_, position)| Position(*position));
    Found { positions: positions.collect(), total: all.len() as u64 }
}

/// What it must add up, and which records it must leave to be read.
fn tallied(samples: &[Sample], query: &Query, field: &str) -> Tallied {
    let is_type =
        TYPES.contains(&field) || samples.iter().any(|sample| KINDS[sample.kind] == field);
    let mut tallied = Tallied { tally: Tally::default(), unread: Vec::new() };
    for (position, sample) in matching(samples, query) {
        match &sample.numbers {
            Numbers::Whole(number)
                if field == "value" || (is_type && KINDS[sample.kind] == field) =>
            {
                tallied.tally.add(*number);
            }
            Numbers::Members(members) if field != "value" && !is_type => {
                let own = members.iter().find(|(name, _)| name == field);
                if let Some((_, number)) = own {
                    tallied.tally.add(*number);
                }
            }
            Numbers::Many if field != "value" && !is_type => {
                tallied.unread.push(Position(position));
            }
            _ => {}
        }
    }
    tallied
}

fn insert(index: &mut Index, samples: &[Sample]) {
    for sample in samples {
        index.insert(&Header {
            timestamp: instant(sample.timestamp).unix_timestamp_nanos(),
            kind: KINDS[sample.kind],
            tags: sample.tags.iter().map(|tag| TAGS[*tag]).collect(),
            numbers: sample.numbers.clone(),
        });
    }
}

/// An index in which segments end where `cuts` says.
fn index(samples: &[Sample], cuts: &[prop::sample::Index]) -> Index {
    let mut index = Index::default();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(samples.len() + 1)).collect();
    cuts.sort_unstable();
    let mut from = 0;
    for cut in cuts {
        insert(&mut index, &samples[from..cut]);
        index.seal();
        from = cut;
    }
    insert(&mut index, &samples[from..]);
    index
}

/// Count, sum, least, greatest, and what has to be read.
type Sums = (u64, f64, f64, f64, Vec<Position>);

fn sums_of(mut tallied: Tallied) -> Sums {
    tallied.unread.sort_unstable();
    let Tally { count, min, max, .. } = tallied.tally;
    (count, tallied.tally.sum(), min, max, tallied.unread)
}

fn sums(index: &Index, query: &Query, field: &str) -> Sums {
    sums_of(index.view_field(query, field).0.tally())
}

fn check(index: &Index, samples: &[Sample], query: &Query, skip: usize, take: usize) {
    assert_eq!(index.view(query).find(skip as u64, take), found(samples, query, skip, take));
    assert_eq!(index.view(query).find(0, 1000), found(samples, query, 0, 1000));
    for field in ["value", "x", "y", "mine", "health", "metrics", "nosuch"] {
        assert_eq!(sums(index, query, field), sums_of(tallied(samples, query, field)), "{field}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]
    /// Shows: D17, D21, D22
    #[test]
    fn finds_and_adds_up_what_a_scan_does(
        samples in samples(160), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), query in query(),
        skip in 0..150usize, take in 0..40usize,
    ) {
        let index = index(&samples, &cuts);
        prop_assert_eq!(index.last(), Position(samples.len() as u64));
        check(&index, &samples, &query, skip, take);
        let again = read(&written(&index)).unwrap();
        prop_assert_eq!(&again, &index);
        check(&again, &samples, &query, skip, take);
    }

    #[test]
    fn what_was_dropped_is_not_found(
        samples in samples(120), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4), query in query(),
        dropped in prop::collection::vec(any::<prop::sample::Index>(), 0..300), take in 0..40usize,
    ) {
        let mut index = index(&samples, &cuts);
        let dropped: Vec<_> = dropped.iter().map(|place| Position(place.index(samples.len() + 1) as u64)).collect();
        index.forget(dropped.iter().copied());
        let mut expected = found(&samples, &query, 0, 1000);
        expected.positions.retain(|position| !dropped.contains(position));
        expected.total = expected.positions.len() as u64;
        expected.positions.truncate(take);
        prop_assert_eq!(&index.view(&query).find(0, take), &expected);
        let mut left = samples.clone();
        for (sample, position) in left.iter_mut().zip(1..) {
            if dropped.contains(&Position(position)) {
                sample.numbers = Numbers::None;
            }
        }
        for field in ["value", "x", "mine", "health"] {
            prop_assert_eq!(sums(&index, &query, field), sums_of(tallied(&left, &query, field)), "{}", field);
        }
        let again = read(&written(&index)).unwrap();
        prop_assert_eq!(&again.view(&query).find(0, take), &expected);
        // Once more, of segments that may have been made anew.
        let (mut index, more) = (again, (1..=samples.len() as u64).filter(|position| position % 3 > 0));
        index.forget(more.map(Position));
        expected = found(&samples, &query, 0, 1000);
        expected.positions.retain(|position| !dropped.contains(position) && position.0.is_multiple_of(3));
        expected.total = expected.positions.len() as u64;
        prop_assert_eq!(&index.view(&query).find(0, 1000), &expected);
    }

    /// Whether they are its own is told by the snapshot; nothing may come of it that is no index.
    #[test]
    fn bytes_that_are_not_its_own_do_no_harm(
        samples in samples(40), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        place in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>(),
    ) {
        let mut bytes = written(&index(&samples, &cuts));
        let place = place.index(bytes.len());
        if cut { bytes.truncate(place) } else { bytes[place] ^= flip }
        let again = read(&bytes);
        prop_assert!(!cut || again.is_none());
    }
}

/// Several whole segments: sets as bits, deep pages, a window in the middle, timestamps that jump.
#[test]
fn large_segments_answer_alike() {
    let mut samples = Vec::new();
    for n in 0..40_000i64 {
        let timestamp = match n % 1000 {
            0 => -200_000_000_000 + n,
            1..100 => n - 30_000,
            _ => n,
        };
        let has = [true, n % 2 == 0, n % 9 == 0, n % 5000 == 0, n % 3 != 0];
        let numbers = match n % 7 {
            0 => Numbers::None,
            1 => Numbers::Members(vec![("x".to_owned(), 0.5)]),
            _ => Numbers::Whole(f64::from(i32::try_from(n % 1000).unwrap())),
        };
        let tags = (0..TAGS.len()).filter(|tag| has[*tag]).collect();
        samples.push(Sample { timestamp, kind: usize::try_from(n % 2).unwrap(), tags, numbers });
    }
    let index = index(&samples, &[]);
    assert_eq!(index.segments.len(), 2);
    let again = read(&written(&index)).unwrap();
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let range = |from, to| TimeRange {
        from: Some(Bound { at: instant(from), inclusive: true }),
        to: Some(Bound { at: instant(to), inclusive: false }),
    };
    for tags in [
        tags(&[]),
        tags(&["half", "b"]),
        tags(&["few", "all"]),
        tags(&["rare"]),
        tags(&["b", "few"]),
    ] {
        for time in
            [TimeRange::default(), range(100, 39_000), range(-9_000, 20_000), range(20_000, 20_010)]
        {
            let query = Query { tags: tags.clone(), kind: None, time };
            for skip in [0, 1, 7_777, 16_400, 39_990] {
                check(&index, &samples, &query, skip, 30);
            }
            check(&again, &samples, &Query { kind: Some("health".to_owned()), ..query }, 5_000, 30);
        }
    }
}

#[test]
fn positions_without_records_are_skipped() {
    let one = |timestamp| Sample { timestamp, kind: 0, tags: vec![0], numbers: Numbers::None };
    let mut index = Index::default();
    insert(&mut index, &[one(3), one(1)]);
    index.skip_to(Position(100));
    insert(&mut index, &[one(2)]);
    index.skip_to(Position(1_000_000));
    insert(&mut index, &[one(5)]);
    let found = index.view(&Query::default()).find(0, 9);
    assert_eq!(found.positions, [1_000_001, 1, 101, 2].map(Position));
    assert_eq!((index.last(), found.total), (Position(1_000_001), 4));
    index.forget([Position(1), Position(101), Position(2), Position(50)]);
    assert_eq!(index.segments.len(), 0, "a segment without records is dropped");
    assert_eq!(index.view(&Query::default()).find(0, 9).positions, [Position(1_000_001)]);
}

#[test]
fn memory_goes_with_what_was_dropped() {
    let mut index = Index::default();
    for number in 0..40_000 {
        let number = f64::from(number);
        let numbers =
            Numbers::Members(vec![("x".to_owned(), number), ("y".to_owned(), number / 3.0)]);
        index.insert(&Header { timestamp: 7, kind: "event", tags: vec!["a"], numbers });
    }
    let before = written(&index).len();
    index.forget((1..=40_000).filter(|position| position % 100 > 0).map(Position));
    let after = written(&index).len();
    assert!(after * 20 < before, "{before} bytes before, {after} after");
    assert_eq!(index.view(&Query::default()).count(), 400);
    let expected: f64 = (0..40_000_u32).filter(|n| (n + 1) % 100 == 0).map(f64::from).sum();
    let (count, sum, ..) = sums(&index, &Query::default(), "x");
    assert!(count == 400 && (sum - expected).abs() < 0.5, "{sum}");
}

#[test]
fn names_go_with_the_last_record_that_has_them() {
    let mut index = Index::default();
    let insert = |index: &mut Index, request: u32| {
        let request = format!("request:{request}");
        let tags = vec!["all", &*request];
        index.insert(&Header { timestamp: 7, kind: "event", tags, numbers: Numbers::None });
    };
    let count = |index: &Index, tag: &str| {
        index.view(&Query { tags: vec![tag.to_owned()], ..Query::default() }).count()
    };
    (0..40_000).for_each(|request| insert(&mut index, request));
    // Segments are dropped, some are made anew, and the tail has names of its own.
    index.forget((1..=30_000).map(Position));
    let sealed = index.sealed();
    let used = sealed.tags();
    // Added after the look.
    (40_000..60_000).for_each(|request| insert(&mut index, request));
    index.forget_names(&sealed, used);
    assert!(index.names.tags.len() > 40_000, "they are not most of all");
    index.forget((30_001..=59_000).map(Position));
    let sealed = index.sealed();
    let used = sealed.tags();
    (60_000..60_100).for_each(|request| insert(&mut index, request));
    index.forget_names(&sealed, used);
    assert_eq!(index.names.tags.len(), 1_101);
    let all = index.names.tags.len() + index.names.kinds.len() + index.names.free.len();
    assert!(read(&written(&index)).is_some_and(|read| read.names == index.names));
    // Their numbers are given again, each once.
    (70_000..80_000).for_each(|request| insert(&mut index, request));
    let mut given: Vec<u32> = index.names.tags.values().copied().collect();
    given.extend(index.names.kinds.values().chain(&index.names.free));
    given.sort_unstable();
    assert!(given.iter().copied().eq(0..u32::try_from(all).unwrap()));
    for request in [0, 29_999, 58_999] {
        assert_eq!(count(&index, &format!("request:{request}")), 0, "{request}");
    }
    for request in [59_000, 59_999, 60_099, 70_000, 79_999] {
        assert_eq!(count(&index, &format!("request:{request}")), 1, "{request}");
    }
    assert_eq!(count(&index, "all"), 1_000 + 100 + 10_000);
}

/// What the field of an aggregation stands for depends on which types there are.
#[test]
fn types_go_with_the_last_record_that_has_them() {
    let mut index = Index::default();
    let insert = |index: &mut Index, kind: &str| {
        let numbers = Numbers::Members(vec![("mine".to_owned(), 1.0)]);
        index.insert(&Header { timestamp: 7, kind, tags: vec!["all"], numbers });
    };
    let is_type = |index: &Index| index.view_field(&Query::default(), "mine").1.is_none();
    let forget = |index: &mut Index, position: u64| {
        index.forget([Position(position)]);
        let sealed = index.sealed();
        let used = sealed.tags();
        index.forget_names(&sealed, used);
    };
    insert(&mut index, "mine");
    insert(&mut index, "mine");
    (0..100).for_each(|_| insert(&mut index, "event"));
    index.seal();
    insert(&mut index, "mine");
    forget(&mut index, 1);
    assert!(is_type(&index));
    forget(&mut index, 103);
    assert!(is_type(&index), "there is one in a segment");
    forget(&mut index, 2);
    assert!(!is_type(&index), "though the segment is the same");
    assert_eq!(sums(&index, &Query::default(), "mine").0, 100);
    // Another type is given the number, and only that.
    insert(&mut index, "other");
    let of = |kind: &str| Query { kind: Some(kind.to_owned()), ..Query::default() };
    let counts = ["mine", "other", "event"].map(|kind| index.view(&of(kind)).count());
    assert_eq!(counts, [0, 1, 100]);
    insert(&mut index, "mine");
    assert!(is_type(&index));
}

/// In whatever order tags are known and asked for.
#[test]
fn very_many_tags_are_looked_for_in_very_many() {
    let mut index = Index::default();
    let tags: Vec<String> = (0..2_000).map(|tag| format!("tag:{tag}")).collect();
    let insert = |index: &mut Index, tags: &mut dyn Iterator<Item = &String>| {
        let tags = tags.map(String::as_str).collect();
        index.insert(&Header { timestamp: 7, kind: "event", tags, numbers: Numbers::None });
    };
    insert(&mut index, &mut tags.iter());
    insert(&mut index, &mut tags.iter().rev());
    insert(&mut index, &mut tags.iter().skip(1));
    insert(&mut index, &mut tags.iter().step_by(2));
    let count =
        |index: &Index, tags: Vec<String>| index.view(&Query { tags, ..Query::default() }).count();
    let twice = [&tags[..], &tags[..]].concat();
    for _ in 0..2 {
        assert_eq!(count(&index, tags.clone()), 2);
        assert_eq!(count(&index, tags.iter().rev().cloned().collect()), 2);
        assert_eq!(count(&index, twice.clone()), 2);
        assert_eq!(count(&index, tags[1..].to_vec()), 3);
        assert_eq!(count(&index, vec![tags[4].clone()]), 4);
        assert_eq!(count(&index, vec![tags[1_998].clone(), tags[2].clone()]), 4);
        // In a segment.
        index.seal();
    }
}

#[test]
fn names_of_fields_have_a_limit() {
    let mut index = Index::default();
    for n in 0..FIELDS_MAX + 5 {
        let numbers = Numbers::Members(vec![(format!("field-{n}"), 1.0)]);
        index.insert(&Header { timestamp: 0, kind: "event", tags: vec!["a"], numbers });
    }
    let tally = |index: &Index, field: &str| index.view_field(&Query::default(), field).0.tally();
    assert_eq!(tally(&index, "field-1").tally.count, 1);
    let late = format!("field-{}", FIELDS_MAX + 1);
    assert_eq!((tally(&index, &late).tally.count, tally(&index, &late).unread.len()), (0, 5));
    index.seal();
    assert_eq!((tally(&index, &late).tally.count, tally(&index, &late).unread.len()), (0, 5));
}

fn written(index: &Index) -> Vec<u8> {
    let mut bytes = Vec::new();
    index.write(&mut bytes).unwrap();
    bytes
}

/// Through a buffer that items lie across the end of.
fn read(bytes: &[u8]) -> Option<Index> {
    Index::read(&mut std::io::BufReader::with_capacity(61, bytes), bytes.len())
}
