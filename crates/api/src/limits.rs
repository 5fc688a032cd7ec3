//! Limits that the system puts on the service's process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many open files are asked for. Every subscriber of a stream, every file of the log and every call of a Docker
/// daemon takes one. More would only make programs slow that close whatever they might have inherited.
const OPEN_FILES_WANTED: u64 = 65_536;
/// Below this, a thousand subscribers and the log do not fit.
const OPEN_FILES_FEW: u64 = 4096;

/// Raises the limit on open files, which many systems set to 1,024 and let every program raise by itself. Processes that
/// are started later inherit it.
pub fn raise_open_files() {
    let now = getrlimit(Resource::Nofile);
    let wanted = raised(now);
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "the limit on open files stays as it is");
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < OPEN_FILES_FEW)
    {
        tracing::warn!(
            "at most {limit} files can be open at once, which is few: raise the hard limit (ulimit -Hn, LimitNOFILE)"
        );
    }
}

/// `None` stands for no limit, in what is given and in what is returned.
fn raised(now: Rlimit) -> Rlimit {
    let possible = now.maximum.map_or(OPEN_FILES_WANTED, |maximum| maximum.min(OPEN_FILES_WANTED));
    let current = now.current.map(|current| current.max(possible));
    Rlimit { current, maximum: now.maximum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_raised_and_never_lowered() {
        let raised = |current, maximum| raised(Rlimit { current, maximum }).current;
        assert_eq!(raised(Some(1024), Some(524_288)), Some(65_536));
        assert_eq!(raised(Some(1024), Some(4096)), Some(4096));
        assert_eq!(raised(Some(1024), None), Some(65_536));
        assert_eq!(raised(Some(100_000), Some(524_288)), Some(100_000));
        assert_eq!(raised(None, None), None);
    }
}
