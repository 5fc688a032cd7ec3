//! What a store answers once a write failed: nothing that follows from records which were lost.

use super::*;
use crate::command::{Command, Context, RevisionMatch, Rules};
use crate::store::{ExecuteError, RequestKey, Store};

fn context() -> Context {
    Context { now: NOON, actor: "api".into(), cause: None, correlation: "request".into() }
}

fn is_stopped<T>(answer: &Result<T, ExecuteError>) -> bool {
    matches!(answer, Err(ExecuteError::Append(AppendError::Stopped(_))))
}

/// RocksDB refuses the writes of a store that it opened read-only: a real write that really fails.
#[tokio::test]
async fn a_refusal_that_follows_from_lost_records_is_not_told() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    log.append(vec![scale_stored("small")], &Expect::Any).unwrap().durable().await.unwrap();
    drop(log);
    let log = Log::start(Storage::open_read_only(directory.path()).unwrap()).unwrap();
    let store = Store::new(log, Rules::default()).unwrap();
    let (context, key) = (context(), ArtifactKey::new(Kind::Scale, "small"));
    let delete = Command::Delete { key: key.clone() };
    let only = |revision| Command::If {
        key: key.clone(),
        revision: Some(revision),
        command: Box::new(delete.clone()),
    };
    let request = |number: u8| RequestKey::new(&number.to_string(), &["DELETE"]);

    // What follows from what is durable is told at once.
    let other = only(RevisionMatch::Is(Position(9)));
    assert!(matches!(store.execute(&other, &context).await, Err(ExecuteError::Rejected(_))));
    let once = store.execute_once(&other, &context, &request(1), |_| None).await;
    assert!(matches!(once, Err(ExecuteError::Rejected(_))));

    // Whoever decides next finds no scale any more, but everybody else still sees it.
    assert!(is_stopped(&store.execute(&delete, &context).await));
    let existing = only(RevisionMatch::Exists);
    assert!(is_stopped(&store.execute(&existing, &context).await));
    assert!(is_stopped(&store.execute_once(&existing, &context, &request(2), |_| None).await));
    assert!(store.validate(&existing, &context).is_ok());
    assert!(store.state().revision(&key).is_some());
}
