//! A process of its own that appends with 16 threads and says what was acknowledged, until it is killed.

use super::draft;
use segue_domain::log::{AppendError, Expect, Log};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const DIRECTORY: &str = "SEGUE_TEST_WRITER";
const ROUND: &str = "SEGUE_TEST_ROUND";
pub const WRITERS: usize = 16;
/// Every third append has so many events.
pub const GROUP: usize = 3;

/// A running writer.
pub struct Writer {
    process: Child,
    /// Names of acknowledged appends with the position of their first event.
    acknowledged: Receiver<(String, u64)>,
}

impl Writer {
    /// Starts one on `directory`; the names of its appends begin with `round`.
    pub fn start(directory: &Path, round: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "faults::writer::process", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, acknowledged) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A line that the kill cut off has no end mark.
                let Some(rest) = line.strip_prefix("acknowledged ") else { continue };
                let mut words = rest.split(' ');
                if let (Some(name), Some(position), Some("end")) =
                    (words.next(), words.next(), words.next())
                {
                    let position = position.parse().expect("a position is a number");
                    if sender.send((name.to_owned(), position)).is_err() {
                        return;
                    }
                }
            }
        });
        Self { process, acknowledged }
    }

    /// Waits for the first acknowledgement.
    pub fn wait(&self, found: &mut HashMap<String, u64>) {
        let limit = std::time::Duration::from_mins(1);
        let (name, position) = self.acknowledged.recv_timeout(limit).expect("the writer writes");
        found.insert(name, position);
    }

    /// Adds what it acknowledged until now, as far as that was read.
    pub fn acknowledged(&self, found: &mut HashMap<String, u64>) {
        found.extend(self.acknowledged.try_iter());
    }

    /// Kills it, and adds what it acknowledged.
    pub fn kill(mut self, found: &mut HashMap<String, u64>) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        found.extend(self.acknowledged.iter());
    }
}

/// How many events the append `name` has.
pub fn size(name: &str) -> usize {
    let number: usize = name.rsplit('-').next().unwrap().parse().unwrap();
    if number.is_multiple_of(3) { GROUP } else { 1 }
}

/// The process that other tests start, with [`DIRECTORY`] set, and kill.
#[test]
fn process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let round = std::env::var(ROUND).unwrap();
    let log = Log::open(Path::new(&directory)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (log, round) = (&log, &round);
            scope.spawn(move || write(log, &format!("{round}-{writer}")));
        }
    });
}

fn write(log: &Log, prefix: &str) {
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let drafts = (0..size(&name)).map(|_| draft(&name)).collect();
        let appended =
            log.append(drafts, &Expect::Any).and_then(segue_domain::log::Pending::durable_blocking);
        match appended {
            Ok(records) => {
                let line = format!("acknowledged {name} {} end\n", records[0].position);
                // One write, so that lines of several threads do not mix.
                if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
            Err(AppendError::Full { .. }) => std::thread::yield_now(),
            Err(_) => return,
        }
    }
}
