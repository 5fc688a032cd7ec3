//! Those who wait through a relay learn the same as those who do not, however the relay ends.

use super::*;
use futures::FutureExt;
use futures::future::join_all;

#[tokio::test]
async fn appends_and_subscribers_wait_through_a_relay() {
    let log = Log::in_memory().unwrap();
    let (relay, pass) = log.relay();
    assert!(log.has_relay(&relay) && !Log::in_memory().unwrap().has_relay(&relay));
    tokio::spawn(pass);
    let readers: Vec<_> = (0..50)
        .map(|_| tokio::spawn(log.subscribe_through(&relay, Position::START).take(200).count()))
        .collect();
    for _ in 0..2 {
        let appended: Vec<_> =
            (0..100).map(|number| log.append(vec![draft(number)], &Expect::Any).unwrap()).collect();
        // The last first: the order of waiting is not that of the positions.
        let waiting = appended.into_iter().rev().map(|pending| pending.durable_through(&relay));
        for records in join_all(waiting).await {
            assert!(records.unwrap()[0].position <= log.last());
        }
    }
    for read in join_all(readers).await {
        assert_eq!(read.unwrap(), 200);
    }
    let nothing = log.append(vec![], &Expect::Any).unwrap().durable_through(&relay).await;
    assert_eq!(nothing.unwrap(), []);
}

#[tokio::test]
async fn a_relay_that_ends_leaves_nobody_waiting() {
    let log = Log::in_memory().unwrap();
    let (relay, pass) = log.relay();
    let mut records = log.subscribe_through(&relay, Position::START);
    let pending = log.append(vec![draft(1)], &Expect::Any).unwrap();
    let mut waiting = Box::pin(pending.durable_through(&relay));
    // It has a place in the queue of the relay, whose task never runs.
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(pass);
    assert_eq!(waiting.await.unwrap().len(), 1);
    let later = log.append(vec![draft(2)], &Expect::Any).unwrap();
    assert_eq!(later.durable_through(&relay).await.unwrap().len(), 1);
    while let Some(record) = records.next().await {
        record.unwrap();
    }
}

#[tokio::test]
async fn a_relay_ends_with_its_log() {
    let log = Log::in_memory().unwrap();
    let (relay, pass) = log.relay();
    let passing = tokio::spawn(pass);
    let records = log.subscribe_through(&relay, Position::START);
    log.append(vec![draft(1)], &Expect::Any).unwrap().durable_through(&relay).await.unwrap();
    drop(log);
    passing.await.unwrap();
    assert_eq!(records.count().await, 1);
}
