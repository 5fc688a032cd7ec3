//! Expected revisions under many clients: their history, as each of them saw it, is one that a single register that
//! compares and sets could have had.

use super::draft;
use segue_domain::artifact::{ArtifactKey, Cpu, Kind, Memory, Metadata, NamedScale, Scale};
use segue_domain::event::{Draft, Fact, Position, StaticFact};
use segue_domain::log::{AppendError, Expect, Log};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: usize = 64;
const OPERATIONS: usize = 100;

/// One call as its client saw it. Moments are numbers of one counter: a call that ended before another began has smaller
/// ones.
#[derive(Debug)]
struct Call {
    began: u64,
    ended: u64,
    kind: What,
}

#[derive(Debug)]
enum What {
    /// The revision was read.
    Read(Option<Position>),
    /// Something was appended under the revision, and became the next one.
    Set(Option<Position>, Position),
    /// It was refused.
    Refused(Option<Position>),
}

#[test]
fn expected_revisions_are_linearisable() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    let clock = AtomicU64::new(0);
    let (log, clock) = (&log, &clock);
    let calls: Vec<Call> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| client(log, clock))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let sets = calls.iter().filter(|call| matches!(call.kind, What::Set(..))).count();
    let refused = calls.iter().filter(|call| matches!(call.kind, What::Refused(_))).count();
    println!("{} calls of {CLIENTS} clients: {sets} set, {refused} refused", calls.len());
    assert!(sets > 10 && refused > 10, "they did not meet");
    assert_eq!(wrong(&calls), [""; 0]);
    assert_eq!(log.last(), Position(sets as u64), "what was refused left nothing");
}

fn client(log: &Log, clock: &AtomicU64) -> Vec<Call> {
    let key = ArtifactKey::new(Kind::Scale, "shared");
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    let mut calls = Vec::new();
    for _ in 0..OPERATIONS {
        let began = now();
        let revision = log.revision(&key);
        calls.push(Call { began, ended: now(), kind: What::Read(revision) });
        let expect = Expect::Revisions(vec![(key.clone(), revision)]);
        let began = now();
        let appended = log.append(vec![stored()], &expect);
        let kind = match appended.and_then(segue_domain::log::Pending::durable_blocking) {
            Ok(records) => What::Set(revision, records[0].position),
            Err(AppendError::Conflict { .. }) => What::Refused(revision),
            Err(error) => panic!("{error}"),
        };
        calls.push(Call { began, ended: now(), kind });
    }
    calls
}

/// What no order of the calls explains that keeps those in order that did not overlap.
fn wrong(calls: &[Call]) -> Vec<String> {
    // The sets are in the order of their positions; each has to expect what the one before it made.
    let mut sets: BTreeMap<Position, &Call> = BTreeMap::new();
    let mut successors: BTreeMap<Option<Position>, &Call> = BTreeMap::new();
    let mut wrong = Vec::new();
    for call in calls {
        if let What::Set(expected, made) = call.kind {
            sets.insert(made, call);
            if successors.insert(expected, call).is_some() {
                wrong.push(format!("two calls replaced {expected:?}: one update is lost"));
            }
        }
    }
    let mut before: Option<Position> = None;
    let mut latest_begin = 0;
    for (made, call) in &sets {
        let What::Set(expected, _) = call.kind else { continue };
        if expected != before {
            wrong.push(format!("{made} replaced {expected:?}, but {before:?} was there"));
        }
        if call.ended < latest_begin {
            wrong.push(format!("{made} ended before what came before it began"));
        }
        latest_begin = latest_begin.max(call.began);
        before = Some(*made);
    }
    let is_over = |revision: &Option<Position>, moment: u64| {
        successors.get(revision).is_some_and(|next| next.ended < moment)
    };
    for call in calls {
        match &call.kind {
            What::Read(revision) => {
                let maker = revision.and_then(|position| sets.get(&position));
                if revision.is_some() && maker.is_none_or(|maker| maker.began > call.ended) {
                    wrong.push(format!("{revision:?} was read before it was made"));
                }
                if is_over(revision, call.began) {
                    wrong.push(format!("{revision:?} was read after it was replaced"));
                }
            }
            What::Refused(expected) => {
                let maker = expected.and_then(|position| sets.get(&position));
                let was_made = maker.map_or(expected.is_none(), |maker| maker.ended < call.began);
                let stayed = successors.get(expected).is_none_or(|next| next.began > call.ended);
                if was_made && stayed {
                    wrong.push(format!("{expected:?} was there all the time, and refused"));
                }
            }
            What::Set(..) => {}
        }
    }
    wrong
}

/// The check finds what it is there for.
#[test]
fn histories_that_no_register_has_are_found() {
    let call = |began: u64, ended: u64, kind: What| Call { began, ended, kind };
    let (one, two) = (Position(1), Position(2));
    let first = || call(0, 1, What::Set(None, one));
    let check = |call: Call, words: &str| {
        let found = wrong(&[first(), call]);
        assert!(found.iter().any(|found| found.contains(words)), "{words}: {found:?}");
    };
    check(call(2, 3, What::Set(None, two)), "one update is lost");
    check(call(2, 3, What::Set(Some(Position(7)), two)), "was there");
    check(call(2, 3, What::Read(None)), "after it was replaced");
    check(call(2, 3, What::Read(Some(two))), "before it was made");
    check(call(2, 3, What::Refused(Some(one))), "there all the time");
    let overlapping = [first(), call(0, 3, What::Read(None)), call(0, 2, What::Refused(None))];
    assert_eq!(wrong(&overlapping), [""; 0]);
}

fn stored() -> Draft {
    let scale = NamedScale {
        name: "shared".into(),
        metadata: Metadata::new(),
        scale: Scale { cpu: Cpu::from_milli(1), memory: Memory::from_megabytes(1), instances: 1 },
    };
    let mut draft = draft("history");
    draft.event.fact = Some(Fact::Static(StaticFact::ScaleStored(scale)));
    draft.provenance.origin = segue_domain::event::Origin::Service;
    draft
}
