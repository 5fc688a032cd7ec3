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
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// For each part of an answer. HAProxy begins to answer in less than a millisecond.
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
        let stream = self.connect(socket).await?;
        exchange(stream, &format!("{line}\n")).await
    }

    /// Sends `commands` in order to the worker, over one connection, and gives what it said. A command may bring lines of
    /// its own after `<<`, of which the last is empty.
    pub(super) async fn send(&self, commands: &[String]) -> std::io::Result<String> {
        if commands.is_empty() {
            return Ok(String::new());
        }
        let stream = self.connect(WORKER).await?;
        let answer = exchange(stream, &format!("prompt\n{}quit\n", lines(commands))).await?;
        Ok(without_prompts(&answer))
    }

    async fn connect(&self, socket: &str) -> std::io::Result<UnixStream> {
        let path = format!("/proc/self/fd/{}/{socket}", self.directory.as_raw_fd());
        let connect = async {
            loop {
                match UnixStream::connect(&path).await {
                    // A master that is about to replace itself does not listen for a moment.
                    Err(error)
                        if socket == MASTER
                            && error.kind() == std::io::ErrorKind::ConnectionRefused =>
                    {
                        tokio::time::sleep(RETRY).await;
                    }
                    stream => return stream,
                }
            }
        };
        in_time(connect).await
    }
}

/// Sends `text` while it reads the answer, to the end of it.
async fn exchange(mut stream: UnixStream, text: &str) -> std::io::Result<String> {
    let (mut reader, mut writer) = stream.split();
    let write = async {
        writer.write_all(text.as_bytes()).await?;
        // The master's socket answers until the other side has said all.
        writer.shutdown().await
    };
    let read = async {
        let mut answer = Vec::new();
        while in_time(reader.read_buf(&mut answer)).await? > 0 {
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(std::io::Error::other("the answer is too large"));
            }
        }
        Ok(answer)
    };
    let ((), answer) = tokio::try_join!(write, read)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn in_time<T>(step: impl Future<Output = std::io::Result<T>>) -> std::io::Result<T> {
    tokio::time::timeout(ANSWER_TIMEOUT, step).await.unwrap_or_else(|_| {
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "HAProxy did not answer in time"))
    })
}

/// What brings the map `file` to `entries` in one step, once `version` of it is prepared: requests see the old lines or
/// the new ones. HAProxy has nothing to say to it.
pub(super) fn replacement(file: &str, version: u32, entries: &[String]) -> Vec<String> {
    let add = format!("add map @{version} {file} <<\n");
    let mut commands: Vec<String> = Vec::new();
    for entry in entries {
        if commands.last().is_none_or(|last| last.len() + entry.len() > LINE_BYTES_MAX) {
            commands.push(add.clone());
        }
        let command = commands.last_mut().expect("one was just added when there was none");
        command.push_str(entry);
        command.push('\n');
    }
    commands.push(format!("commit map @{version} {file}"));
    commands
}

/// The versions in an answer to `prepare map` commands, in their order.
pub(super) fn prepared(answer: &str) -> Vec<u32> {
    let versions =
        answer.lines().filter_map(|line| line.strip_prefix("New version created: ")?.parse().ok());
    versions.collect()
}

/// An answer without what HAProxy says to ask for the next command (`> `) or line (`+ `).
fn without_prompts(answer: &str) -> String {
    let line = |line: &str| {
        let text = line.trim_start_matches(['>', '+', ' ']);
        if text.is_empty() { String::new() } else { format!("{text}\n") }
    };
    answer.lines().map(line).collect()
}

/// `commands` in as few lines as HAProxy's buffer allows.
fn lines(commands: &[String]) -> String {
    let (mut text, mut length) = (String::new(), 0);
    for command in commands {
        let joins = 0 < length && length + command.len() < LINE_BYTES_MAX;
        if length > 0 {
            text.push(if joins { ';' } else { '\n' });
        }
        length = if joins { length } else { 0 } + 1 + command.len();
        text.push_str(command);
        if command.ends_with('\n') {
            // The end of the lines that belong to it.
            text.push('\n');
            length = 0;
        }
    }
    if length > 0 {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_fill_lines_up_to_the_limit() {
        let commands: Vec<String> =
            (0..1000).map(|number| format!("set server b/{number:040} weight 1")).collect();
        let text = lines(&commands);
        assert!(text.lines().all(|line| line.len() <= LINE_BYTES_MAX));
        assert!(text.lines().count() < 10);
        assert_eq!(text.replace('\n', ";"), format!("{};", commands.join(";")));
    }

    #[test]
    fn lines_of_a_command_end_with_an_empty_one() {
        let entries: Vec<String> = (0..3).map(|slot| format!("{slot} a")).collect();
        let mut commands = vec!["show info".to_owned()];
        commands.extend(replacement("m", 7, &entries));
        commands.push("show stat".to_owned());
        assert_eq!(
            lines(&commands),
            "show info;add map @7 m <<\n0 a\n1 a\n2 a\n\ncommit map @7 m;show stat\n"
        );
        let long = replacement("m", 7, &vec!["0123456789".repeat(100); 20]);
        assert_eq!(long.len(), 4, "three commands that add, and one that commits");
    }

    #[test]
    fn answers_are_read_without_prompts() {
        let answer = "\n> New version created: 2\n\n> + + Unknown map identifier.\n\n> ";
        let answer = without_prompts(answer);
        assert_eq!(answer, "New version created: 2\nUnknown map identifier.\n");
        assert_eq!(prepared(&answer), [2]);
    }
}
