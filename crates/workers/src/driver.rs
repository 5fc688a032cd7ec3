//! What all drivers have in common: how they fail, and how they say that something changed.

use std::sync::Arc;
use tokio::sync::watch;

/// Why a driver could not do what it was asked, in the words of the outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may work later; the worker tries again with growing pauses.
    #[error("{0}")]
    Transient(String),
    /// It will never work as asked; the user has to change something.
    #[error("{0}")]
    Permanent(String),
}

impl Error {
    /// Whether trying again is of no use.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Error::Permanent(_))
    }
}

/// Tells workers that something outside changed. It carries no content: workers observe again.
#[derive(Clone, Debug)]
pub struct Changes {
    sender: Arc<watch::Sender<u64>>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { sender: Arc::new(watch::Sender::new(0)) }
    }
}

impl Changes {
    /// Says that something changed.
    pub fn notify(&self) {
        self.sender.send_modify(|count| *count += 1);
    }

    /// Sees every later change, several at once as one.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.sender.subscribe()
    }
}
