//! Waiting for conditions.

use std::time::{Duration, Instant};

/// How long anything may take that has no limit of its own. Generous: tests share few processors.
pub const LIMIT: Duration = Duration::from_mins(1);

const PERIOD: Duration = Duration::from_millis(20);

/// Returns what `condition` finds, as soon as it does. After `limit` it panics with what is there instead.
#[track_caller]
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<T, String>,
) -> T {
    let since = Instant::now();
    loop {
        match condition() {
            Ok(found) => return found,
            Err(instead) => {
                assert!(
                    since.elapsed() < limit,
                    "not so after {limit:?}: {what}; instead {instead}"
                );
            }
        }
        std::thread::sleep(PERIOD);
    }
}

/// [`wait_until`] for what is either so or not.
#[track_caller]
pub fn wait_while(what: &str, limit: Duration, mut still: impl FnMut() -> bool) {
    wait_until(what, limit, || if still() { Err("it is not".to_owned()) } else { Ok(()) });
}
