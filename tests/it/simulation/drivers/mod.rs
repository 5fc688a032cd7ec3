//! The simulated drivers, made slow and made to lie.

mod containers;
mod proxy;

pub use containers::{Asked, Containers, Sight};
pub use proxy::{NONSENSE, Proxy};

use segue_workers::driver::Error;
use time::{Duration, OffsetDateTime};

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out, and the answer says so.
    Refused,
    /// It is not carried out, and the answer says that it never will be.
    RefusedForGood,
    /// It is carried out, and the answer is an error.
    Denied,
    /// It is not carried out, and the answer says that it was.
    NotDone,
    /// The answer is an error, and it is carried out so much later.
    Late(Duration),
}

/// Something that was asked for and happens later.
#[derive(Clone, Debug)]
struct UnderWay<T> {
    at: OffsetDateTime,
    /// Which life of the service asked for it.
    life: u32,
    action: T,
}

fn trouble() -> Error {
    Error::Transient("out to lunch".to_owned())
}

/// Takes what is due out of `waiting`, in the order in which it is.
fn due<T>(waiting: &mut Vec<UnderWay<T>>, now: OffsetDateTime) -> Vec<UnderWay<T>> {
    let mut due: Vec<UnderWay<T>> = waiting.extract_if(.., |found| found.at <= now).collect();
    due.sort_by_key(|found| found.at);
    due
}
