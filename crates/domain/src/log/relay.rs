//! One wake for many: those who wait on one thread are woken by a task of that thread.
//!
//! To wake a task of another thread costs a system call, each time. Where a thousand subscribers share a thread, each
//! commit would cost the writer a thousand of them, while every other append waits. A relay is woken instead of them and
//! wakes them from where they are, which costs next to nothing.

use super::{Condition, Progress, Shared};
use crate::event::Position;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{oneshot, watch};

/// Passes on how far a log is to those who wait on one thread. It does not keep the log open.
#[derive(Clone)]
pub struct Relay {
    log: Weak<Shared>,
    passed: Arc<Passed>,
}

type Waiting = VecDeque<(Position, oneshot::Sender<()>)>;

struct Passed {
    progress: watch::Sender<Progress>,
    /// Who waits for which position, lowest first; `None` when nothing is passed on any more.
    waiting: Mutex<Option<Waiting>>,
}

impl Relay {
    /// A relay, and what passes on until the log is closed; a task of the thread in question has to run that.
    pub(super) fn new(log: &Arc<Shared>) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let mut source = log.progress.subscribe();
        let progress = watch::Sender::new(*source.borrow_and_update());
        let waiting = Mutex::new(Some(VecDeque::new()));
        let passed = Arc::new(Passed { progress, waiting });
        let ending = Ending(Arc::clone(&passed));
        let pass = async move {
            while source.changed().await.is_ok() {
                let now = *source.borrow_and_update();
                ending.0.tell(now);
                if now.condition == Condition::Closed {
                    break;
                }
            }
        };
        (Self { log: Arc::downgrade(log), passed }, pass)
    }

    pub(super) fn is_of(&self, log: &Arc<Shared>) -> bool {
        std::ptr::eq(self.log.as_ptr(), Arc::as_ptr(log))
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.passed.progress.subscribe()
    }

    /// Waits until the record at `position` is durable; false when that will not be told here.
    pub(super) async fn reached(&self, position: Position) -> bool {
        let told = {
            let mut waiting = self.passed.waiting();
            // Under the lock, so that nothing is told between the look and the entry.
            let now = *self.passed.progress.borrow();
            if now.last >= position {
                return true;
            }
            let Some(waiting) = waiting.as_mut().filter(|_| now.condition == Condition::Running)
            else {
                return false;
            };
            let (tell, told) = oneshot::channel();
            // Nearly always at the end: positions are given in the order of the appends.
            let place = waiting.partition_point(|(other, _)| *other <= position);
            waiting.insert(place, (position, tell));
            told
        };
        told.await.is_ok()
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Passed {
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, now: Progress) {
        let mut waiting = self.waiting();
        self.progress.send_replace(now);
        let Some(waiting) = waiting.as_mut() else { return };
        while waiting.front().is_some_and(|(position, _)| *position <= now.last) {
            if let Some((_, tell)) = waiting.pop_front() {
                // Who waited may be gone.
                _ = tell.send(());
            }
        }
        if now.condition != Condition::Running {
            waiting.clear();
        }
    }
}

/// However the passing on ends, nobody waits for it any more.
struct Ending(Arc<Passed>);

impl Drop for Ending {
    fn drop(&mut self) {
        *self.0.waiting() = None;
        self.0.progress.send_modify(|progress| progress.condition = Condition::Closed);
    }
}
