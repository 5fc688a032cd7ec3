//! What a client sees of a change, and when it saw it first. Knows nothing of how the change was made.

use crate::load::{Load, Sample};
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How many answers in a row tell that a change has settled.
const SETTLED: usize = 100;
/// How long a change may take.
const CHANGE_TIME_MAX: Duration = Duration::from_mins(1);

/// What an answer shows after the change, and none before it.
#[derive(Clone, Debug)]
pub(super) enum Sight {
    /// This version answers; in the end it answers everything.
    Version(u32),
    /// Answers set cookies, or they do not; in the end all are like that.
    Cookies(bool),
    /// An instance answers that is none of these.
    Newcomer(BTreeSet<String>),
}

impl Sight {
    /// When it was seen first since the call. Returns once nothing else is seen any more.
    pub(super) fn wait(
        &self,
        progress: &Progress,
        load: &Load,
        called: Instant,
    ) -> Result<Instant> {
        match self {
            Self::Version(_) | Self::Cookies(_) => {
                self.settle(progress, load, called)?;
                let first = load.find(called, |sample| self.fits(sample));
                Ok(first.context("the requests are gone")?.received)
            }
            Self::Newcomer(_) => progress.wait_quietly(&self.words(), CHANGE_TIME_MAX, || {
                Ok(match load.find(called, |sample| self.fits(sample)) {
                    Some(first) => ControlFlow::Break(first.received),
                    None => ControlFlow::Continue("not yet".into()),
                })
            }),
        }
    }

    /// Waits until nothing else is seen any more in requests sent at `since` or later.
    pub(super) fn settle(&self, progress: &Progress, load: &Load, since: Instant) -> Result<()> {
        progress.wait_quietly(&self.words(), CHANGE_TIME_MAX, || {
            Ok(if load.ends_with(SETTLED, since, |sample| self.fits(sample)) {
                ControlFlow::Break(())
            } else {
                let last = load.find_last(|sample| sample.sent >= since && !self.fits(sample));
                ControlFlow::Continue(format!("{:?}", last.map(|sample| sample.answer)))
            })
        })
    }

    fn fits(&self, sample: &Sample) -> bool {
        let Ok(answer) = &sample.answer else { return false };
        match self {
            Self::Version(version) => answer.version == *version,
            Self::Cookies(set) => answer.cookies.is_empty() != *set,
            Self::Newcomer(known) => !known.contains(&answer.instance),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Version(version) => format!("version {version} answers everything"),
            Self::Cookies(true) => "all answers set cookies".to_owned(),
            Self::Cookies(false) => "no answer sets cookies".to_owned(),
            Self::Newcomer(_) => "a new instance answers".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Connection, of_version};

    #[test]
    fn a_sight_fits_what_it_names_and_no_failure() {
        let now = Instant::now();
        let sample =
            |answer| Sample { sent: now, received: now, connection: Connection::Fresh, answer };
        let two = sample(Ok(of_version(2)));
        assert!(Sight::Version(2).fits(&two) && !Sight::Version(1).fits(&two));
        assert!(Sight::Cookies(false).fits(&two) && !Sight::Cookies(true).fits(&two));
        let known = BTreeSet::from(["instance-2".to_owned()]);
        assert!(!Sight::Newcomer(known).fits(&two) && Sight::Newcomer(BTreeSet::new()).fits(&two));
        let failed = sample(Err("status 503".to_owned()));
        assert!(
            !Sight::Cookies(false).fits(&failed) && !Sight::Newcomer(BTreeSet::new()).fits(&failed)
        );
    }
}
