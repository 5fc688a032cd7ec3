//! Questions and commands over HAProxy's sockets, each bounded in time and size.
//!
//! It knows how a command line is sent and an answer read, and nothing of what they mean.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// HAProxy reads a command line into one buffer of 16 KiB.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// More than the statistics of twenty thousand servers.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// For one line of commands. HAProxy answers in less than a millisecond.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Between attempts to reach a master, within the time-out.
const RETRY: Duration = Duration::from_millis(5);

/// The runtime socket of the worker.
pub(super) const WORKER: &str = "stats.sock";
/// The socket of the master process.
pub(super) const MASTER: &str = "master.sock";

/// The directory of HAProxy's sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    directory: File,
}

impl Sockets {
    /// Sockets in `directory`, which may have a path too long for an address of a socket.
    pub(super) fn new(directory: &Path) -> std::io::Result<Self> {
        Ok(Self { directory: File::open(directory)? })
    }

    /// Sends one line of commands to `socket` and gives the whole answer.
    pub(super) async fn ask(&self, socket: &str, line: &str) -> std::io::Result<String> {
        let exchange = async {
            let path = format!("/proc/self/fd/{}/{socket}", self.directory.as_raw_fd());
            let mut stream = loop {
                match UnixStream::connect(&path).await {
                    // A master that is about to replace itself does not listen for a moment.
                    Err(error)
                        if socket == MASTER
                            && error.kind() == std::io::ErrorKind::ConnectionRefused =>
                    {
                        tokio::time::sleep(RETRY).await;
                    }
                    stream => break stream?,
                }
            };
            stream.write_all(format!("{line}\n").as_bytes()).await?;
            // The master's socket answers until the other side has said all.
            stream.shutdown().await?;
            let mut answer = Vec::new();
            stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
            if answer.len() as u64 == ANSWER_BYTES_MAX {
                return Err(std::io::Error::other("the answer is too large"));
            }
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "HAProxy did not answer in time",
            )),
        }
    }

    /// Sends `commands` in order to the worker, in as few writes as HAProxy's buffer allows, and gives what it said.
    pub(super) async fn send(&self, commands: &[String]) -> std::io::Result<String> {
        let mut answers = String::new();
        for line in lines(commands) {
            answers.push_str(&self.ask(WORKER, &line).await?);
        }
        Ok(answers)
    }

    /// Replaces the map `file` of the worker in one step: requests see the old lines or the new ones.
    pub(super) async fn replace_map(&self, file: &str, entries: &[String]) -> std::io::Result<()> {
        let refused = |answer: &str| {
            std::io::Error::other(format!("HAProxy does not replace the map {file}: {answer}"))
        };
        let answer = self.ask(WORKER, &format!("prepare map {file}")).await?;
        let version = answer.trim().strip_prefix("New version created: ").map(str::parse::<u32>);
        let Some(Ok(version)) = version else { return Err(refused(answer.trim())) };
        let mut commands = Vec::new();
        let add = format!("add map @{version} {file} <<\n");
        for entry in entries {
            if commands.last().is_none_or(|last: &String| last.len() + entry.len() > LINE_BYTES_MAX)
            {
                commands.push(add.clone());
            }
            let command = commands.last_mut().expect("one was just added when there was none");
            command.push_str(entry);
            command.push('\n');
        }
        commands.push(format!("commit map @{version} {file}"));
        for command in commands {
            let answer = self.ask(WORKER, &command).await?;
            if !answer.trim().is_empty() {
                return Err(refused(answer.trim()));
            }
        }
        Ok(())
    }
}

fn lines(commands: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for command in commands {
        match lines.last_mut() {
            Some(line) if line.len() + command.len() < LINE_BYTES_MAX => {
                line.push(';');
                line.push_str(command);
            }
            _ => lines.push(command.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_fill_lines_up_to_the_limit() {
        let commands: Vec<String> =
            (0..1000).map(|number| format!("set server b/{number:040} weight 1")).collect();
        let lines = lines(&commands);
        assert!(lines.iter().all(|line| line.len() <= LINE_BYTES_MAX));
        assert_eq!(lines.join(";"), commands.join(";"));
    }
}
