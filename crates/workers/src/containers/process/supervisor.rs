//! The life of one instance: started or adopted, started again when it dies, ended when asked.

use super::child::{Command, Process, port_variable};
use super::marks;
use super::record::Record;
use super::{HOST, Restart, Shared, log, ports};
use crate::containers::{Condition, output, words};
use crate::driver::Error;
use crate::processes::{self, Identity};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// How often the size of the log is looked at.
const ROTATION_PERIOD: Duration = Duration::from_secs(1);
/// How often a group whose leader has ended is looked at.
const GROUP_PERIOD: Duration = Duration::from_millis(50);
/// How long a process without ports has to live until it counts as running: one that cannot work ends before.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Supervisor {
    shared: Arc<Shared>,
    record: Record,
    /// Becomes true when the instance is to end.
    stop: watch::Receiver<bool>,
    /// How it ended last time, until it runs again.
    last_end: Option<String>,
    /// Where in its log the output of the current process begins.
    log_from: u64,
}

/// Where in its life an instance is.
enum Life {
    /// There is a process; whether its ports are known to accept connections.
    Alive(Process, bool),
    /// There is none; why, and how long the last one lived.
    Dead(String, Duration),
}

/// How one process was left.
enum Left {
    /// It ended by itself; how, and how long it lived.
    Ended(String, Duration),
    /// It is to end.
    Asked(Process),
}

impl Supervisor {
    pub(super) fn new(shared: Arc<Shared>, record: Record, stop: watch::Receiver<bool>) -> Self {
        Self { shared, record, stop, last_end: None, log_from: 0 }
    }

    /// Starts the instance, says whether that worked, and stays with it to its end.
    pub(super) async fn start(
        mut self,
        command: Command,
        reply: oneshot::Sender<Result<(), Error>>,
    ) {
        match self.spawn(&command).await {
            Ok(process) => {
                // Who asked may have gone; the instance is there all the same.
                let _ = reply.send(Ok(()));
                self.keep(Life::Alive(process, false)).await;
            }
            Err(error) => {
                self.remove().await;
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Takes over the process of an earlier driver, or starts it again, and stays with it to its end.
    pub(super) async fn adopt(mut self, process: Option<Process>, ready: bool) {
        let found = match process {
            Some(process) => Some(process),
            None => self.find().await,
        };
        let life = match found {
            Some(process) => Life::Alive(process, ready),
            None => {
                Life::Dead("did not run any more when Segue started".to_owned(), Duration::ZERO)
            }
        };
        self.keep(life).await;
    }

    /// The recorded process; or, when Segue was killed between starting and recording it, the marked one. What carries the
    /// marks beside a recorded process that ended is one of its children, and no instance.
    async fn find(&mut self) -> Option<Process> {
        let (directory, name) =
            (self.shared.directory.path().to_owned(), self.record.spec.name.clone());
        let marked =
            spawn_blocking(move || marks::marked(&directory, &name)).await.unwrap_or_default();
        let leaders = marked.into_iter().filter(|marked| marked.pid == marked.group);
        let leaders = leaders.filter_map(|leader| Identity::of(leader.pid));
        let candidates: Vec<Identity> = match self.record.process {
            Some(recorded) => vec![recorded],
            None => leaders.collect(),
        };
        for identity in candidates {
            match Process::adopt(identity) {
                Ok(Some(process)) => {
                    if self.record.process.as_ref() != Some(&process.identity) {
                        self.record.process = Some(process.identity);
                        self.save_or_warn().await;
                    }
                    return Some(process);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(instance = self.record.spec.name, %error, "a process cannot be watched");
                }
            }
        }
        None
    }

    async fn keep(mut self, mut life: Life) {
        let mut pauses = Pauses::new(self.shared.settings.restart);
        let process = loop {
            life = match life {
                Life::Alive(process, ready) => match self.live(process, ready).await {
                    Left::Asked(process) => break Some(process),
                    Left::Ended(words, lived) => Life::Dead(words, lived),
                },
                Life::Dead(words, lived) => {
                    let pause = pauses.next(lived);
                    // Each change of the text is an event.
                    let text = match pauses.ends.checked_ilog2() {
                        None | Some(0) => words.clone(),
                        Some(power) => {
                            format!("{words}; ended {} times in a row, or more", 1_u32 << power)
                        }
                    };
                    self.last_end = Some(words);
                    self.show(Condition::Restarting(text));
                    if timeout(pause, asked(&mut self.stop)).await.is_ok() {
                        break None;
                    }
                    match self.respawn().await {
                        Ok(process) => Life::Alive(process, false),
                        Err(error) => Life::Dead(error.to_string(), Duration::ZERO),
                    }
                }
            }
        };
        self.end(process).await;
        self.remove().await;
    }

    /// Stays with a process until it ends or is to end.
    async fn live(&mut self, mut process: Process, mut ready: bool) -> Left {
        let since = Instant::now();
        self.show(if ready { Condition::Running } else { Condition::Starting(self.waiting()) });
        let ports: Vec<u16> = self.record.ports.values().copied().collect();
        let accepting = async {
            if ports.is_empty() {
                sleep(SETTLED_AFTER).await;
            }
            ports::accepting(ports).await;
        };
        tokio::pin!(accepting);
        let mut rotation = interval(ROTATION_PERIOD);
        rotation.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = self.stop.clone();
        loop {
            tokio::select! {
                () = asked(&mut stop) => return Left::Asked(process),
                end = process.ended() => {
                    // Its children may still hold its ports.
                    self.kill_left(process.identity.pid).await;
                    return Left::Ended(self.with_output(&end), since.elapsed());
                }
                () = &mut accepting, if !ready => {
                    ready = true;
                    self.last_end = None;
                    self.show(Condition::Running);
                }
                _ = rotation.tick() => self.rotate().await,
            }
        }
    }

    async fn respawn(&mut self) -> Result<Process, Error> {
        // A process of an earlier attempt could still be there: Segue may have been killed before it was recorded.
        self.kill_marked().await;
        if !ports::all_free(self.record.ports.values().copied()) {
            self.record.ports = self.shared.other_ports(&self.record)?;
        }
        let spec = &self.record.spec;
        let command = Command::new(words::split(&spec.deployable.definition)?, &spec.environment)?;
        self.spawn(&command).await
    }

    /// Starts the process: recorded as an intent before, and with its identity after.
    async fn spawn(&mut self, command: &Command) -> Result<Process, Error> {
        self.record.process = None;
        self.save()
            .await
            .map_err(|words| Error::Transient(format!("cannot record a process: {words}")))?;
        self.log_from = log::length(&self.shared.directory.log(&self.record.spec.name));
        let process = command.spawn(&self.record, &self.shared.directory)?;
        self.record.process = Some(process.identity);
        // Without this a later driver finds the process by its mark.
        self.save_or_warn().await;
        Ok(process)
    }

    /// Ends the whole group: asked first, forced after the time-out.
    async fn end(&mut self, process: Option<Process>) {
        self.record.stopping = true;
        self.save_or_warn().await;
        if let Some(mut process) = process {
            let leader = process.identity.pid;
            processes::signal_group(leader, Signal::TERM);
            if timeout(self.shared.settings.stop_timeout, gone(&mut process)).await.is_err() {
                processes::signal_group(leader, Signal::KILL);
                process.ended().await;
            }
        }
        self.kill_marked().await;
    }

    /// Removes what is kept of the instance, and the instance from what is observed.
    async fn remove(self) {
        let Self { shared, record, .. } = self;
        let (directory, name) = (shared.directory.clone(), record.spec.name.clone());
        let removed = spawn_blocking(move || directory.remove(&name)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(instance = record.spec.name, %error, "the files of an instance cannot be removed");
        }
        shared.forget(&record);
    }

    /// Kills what a main process that ended left running: its group, of which some may not show their marks any more,
    /// and whatever shows them.
    async fn kill_left(&self, leader: i32) {
        let _ = spawn_blocking(move || processes::kill_orphans(leader)).await;
        self.kill_marked().await;
    }

    async fn kill_marked(&self) {
        let (directory, name) =
            (self.shared.directory.path().to_owned(), self.record.spec.name.clone());
        let _ = spawn_blocking(move || marks::kill_marked(&directory, &name)).await;
    }

    async fn rotate(&mut self) {
        let path = self.shared.directory.log(&self.record.spec.name);
        let limits = self.shared.settings.log_limits;
        if log::length(&path) <= limits.bytes {
            return;
        }
        match spawn_blocking(move || log::rotate(&path, limits)).await {
            Ok(Ok(true)) => self.log_from = 0,
            Ok(Err(error)) => {
                tracing::warn!(instance = self.record.spec.name, %error, "a log cannot be put aside");
            }
            _ => {}
        }
    }

    async fn save(&self) -> Result<(), String> {
        let (directory, record) = (self.shared.directory.clone(), self.record.clone());
        let saved = spawn_blocking(move || directory.save(&record)).await;
        saved.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    async fn save_or_warn(&self) {
        if let Err(error) = self.save().await {
            tracing::warn!(
                instance = self.record.spec.name,
                error,
                "the record of an instance cannot be written"
            );
        }
    }

    fn show(&self, condition: Condition) {
        self.shared.show(&self.record, condition);
    }

    /// What a process that runs, but does not answer yet, is waited for.
    fn waiting(&self) -> String {
        let ports: Vec<String> = self
            .record
            .ports
            .iter()
            .map(|(name, port)| {
                format!("{name} ({HOST}:{port}, which it was told as {})", port_variable(name))
            })
            .collect();
        let waited_for = if ports.is_empty() {
            "is being started".to_owned()
        } else {
            format!("waits for a connection to {}", ports.join(", "))
        };
        match &self.last_end {
            Some(end) => format!("{waited_for}; before that, it {end}"),
            None => waited_for,
        }
    }

    fn with_output(&self, end: &str) -> String {
        let tail = log::tail(&self.shared.directory.log(&self.record.spec.name), self.log_from);
        output::ended(end, &tail.unwrap_or_default())
    }
}

async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // The entry holds the sender as long as the supervisor lives.
        std::future::pending::<()>().await;
    }
}

/// Returns when the process and its whole group have ended.
async fn gone(process: &mut Process) {
    process.ended().await;
    let leader = process.identity.pid;
    while spawn_blocking(move || processes::group_is_alive(leader)).await.unwrap_or(false) {
        sleep(GROUP_PERIOD).await;
    }
}

/// The pauses before a process is started again.
struct Pauses {
    settings: Restart,
    next: Duration,
    /// How often it ended since it last ran well.
    ends: u32,
}

impl Pauses {
    fn new(settings: Restart) -> Self {
        Self { settings, next: settings.pause_first, ends: 0 }
    }

    /// The pause after a process that lived for `lived`.
    fn next(&mut self, lived: Duration) -> Duration {
        if lived >= self.settings.well_after {
            self.next = self.settings.pause_first;
            self.ends = 0;
        }
        self.ends = self.ends.saturating_add(1);
        let pause = self.next;
        self.next = (pause * 2).min(self.settings.pause_longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_a_good_run() {
        let seconds = Duration::from_secs;
        let settings = Restart {
            pause_first: seconds(1),
            pause_longest: seconds(30),
            well_after: seconds(60),
        };
        let mut pauses = Pauses::new(settings);
        let lived: [u64; 9] = [0, 0, 0, 0, 0, 59, 59, 60, 0];
        let found: Vec<u64> =
            lived.iter().map(|lived| pauses.next(seconds(*lived)).as_secs()).collect();
        assert_eq!(found, [1, 2, 4, 8, 16, 30, 30, 1, 2]);
        assert_eq!(pauses.ends, 2, "since it last ran well");
    }
}
