//! The program of HAProxy: found, asked for its version, and refused when it is too old.
//!
//! Packages are replaced while the service runs, so that it is looked at before every use.

use crate::driver::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Major and minor of the oldest HAProxy that understands what is written for it.
const VERSION_MIN: (u32, u32) = (2, 6);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A version, `major.minor`.
type Version = (u32, u32);

/// What tells one file from another at the same place: device, number, and when it was changed.
type Stamp = (u64, u64, i64, i64);

/// The program that is named in the configuration.
#[derive(Debug)]
pub(super) struct Program {
    named: PathBuf,
    /// The file that was asked last, and what it said.
    known: Mutex<Option<(PathBuf, Stamp, Version)>>,
}

impl Program {
    pub(super) fn new(named: PathBuf) -> Self {
        Self { named, known: Mutex::default() }
    }

    /// Where the program is, which is there and not too old.
    pub(super) async fn usable(&self) -> Result<PathBuf, Error> {
        let missing = || {
            Error::Transient(format!(
                "HAProxy is not found as '{}': install it, or set gateway_driver.haproxy.program",
                self.named.display()
            ))
        };
        let path = find(&self.named).ok_or_else(missing)?;
        let stamp = stamp(&path).ok_or_else(missing)?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let version = match known {
            Some((known, then, version)) if known == path && then == stamp => version,
            _ => ask(&path).await?,
        };
        if version < VERSION_MIN {
            let ((major, minor), (least, least_minor)) = (version, VERSION_MIN);
            return Err(Error::Transient(format!(
                "{} is HAProxy {major}.{minor}, which is too old: {least}.{least_minor} or later is needed",
                path.display()
            )));
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((path.clone(), stamp, version));
        Ok(path)
    }
}

/// Where `program` is: a path as it stands, a name below one of the directories of `PATH`.
pub fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// The program's own `major.minor`, such as `2.6`.
pub async fn program_version(program: &Path) -> Result<String, Error> {
    let (major, minor) = ask(program).await?;
    Ok(format!("{major}.{minor}"))
}

async fn ask(program: &Path) -> Result<Version, Error> {
    let unusable = |why: String| {
        Error::Transient(format!("{} is no usable HAProxy: {why}", program.display()))
    };
    let mut command = tokio::process::Command::new(program);
    command.arg("-v").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER_TIMEOUT, command.output())
        .await
        .map_err(|_| unusable("it does not say its version in time".to_owned()))?
        .map_err(|error| unusable(error.to_string()))?;
    version(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| unusable("it tells no version".to_owned()))
}

fn version(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("version ")?;
    let mut parts = rest.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_what_the_program_says() {
        let check = |text: &str, expected: Option<Version>| {
            assert_eq!(version(text), expected, "{text}");
        };
        check("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/", Some((2, 6)));
        check("HA-Proxy version 1.8.8-1", Some((1, 8)));
        check("HAProxy version 3.0-dev1", Some((3, 0)));
        check("nonsense", None);
        check("version x", None);
    }

    #[tokio::test]
    async fn a_program_that_is_there_and_new_enough_is_usable() {
        let there = Program::new("/usr/sbin/haproxy".into());
        assert_eq!(there.usable().await, Ok("/usr/sbin/haproxy".into()));
        let missing = Program::new("/nowhere/haproxy".into()).usable().await.unwrap_err();
        assert!(missing.to_string().contains("not found as '/nowhere/haproxy'"), "{missing}");
        let other = Program::new("/bin/true".into()).usable().await.unwrap_err();
        assert!(other.to_string().contains("tells no version"), "{other}");
    }
}
