//! What a person sees while something takes time, and waiting for a condition with a limit. Ctrl-C ends every wait.

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many lines of a command's words are kept for the case that it fails.
const LINES_KEPT_MAX: usize = 2_000;

/// Tells what happens and waits for it.
#[derive(Clone, Debug)]
pub struct Progress {
    interrupted: Arc<AtomicBool>,
    may_be_interrupted: bool,
}

impl Progress {
    /// From now on Ctrl-C and TERM end waits with an error, so that what was started can be stopped.
    pub fn new() -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The second signal ends the program at once.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
                .context("signals cannot be watched")?;
        }
        Ok(Self { interrupted, may_be_interrupted: true })
    }

    /// For stopping what was started: these waits go on after Ctrl-C. A second Ctrl-C ends the program at once.
    pub fn for_cleanup(&self) -> Self {
        Self { interrupted: Arc::clone(&self.interrupted), may_be_interrupted: false }
    }

    /// Looks again and again until `look` breaks with a value. What it continues with is shown, and stands in the
    /// error when `limit` has passed.
    pub fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        look: impl FnMut() -> Result<ControlFlow<T, String>>,
    ) -> Result<T> {
        let started = Instant::now();
        let found = self.wait_quietly(what, limit, look)?;
        println!("   {what}: {}", seconds(started.elapsed()));
        Ok(found)
    }

    /// The same, and nothing is printed when it is found.
    pub fn wait_quietly<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> Result<ControlFlow<T, String>>,
    ) -> Result<T> {
        let bar = spinner(what);
        let started = Instant::now();
        let found = loop {
            match look().with_context(|| format!("while waiting: {what}"))? {
                ControlFlow::Break(value) => break value,
                ControlFlow::Continue(seen) => {
                    let waited = started.elapsed();
                    ensure!(
                        waited < limit,
                        "waited {} s in vain: {what}; last seen: {seen}",
                        limit.as_secs()
                    );
                    bar.set_message(format!("{what} ({seen})"));
                }
            }
            self.pause(LOOK_EVERY)?;
        };
        bar.finish_and_clear();
        Ok(found)
    }

    /// Lets `time` pass, as for a measurement over a given time.
    pub fn pass(&self, what: &str, time: Duration) -> Result<()> {
        let bar = spinner(what);
        let end = Instant::now() + time;
        while let Some(rest) =
            end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())
        {
            bar.set_message(format!("{what}, {} s left", rest.as_secs() + 1));
            self.pause(rest.min(Duration::from_millis(100)))?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn pause(&self, time: Duration) -> Result<()> {
        let interrupted = self.interrupted.load(Ordering::Relaxed);
        ensure!(!(self.may_be_interrupted && interrupted), "interrupted");
        thread::park_timeout(time);
        Ok(())
    }
}

/// Prints the heading of a step.
pub fn step(number: usize, text: &str) {
    println!("\n{number}. {text}");
}

/// Prints a line that belongs to the current step.
pub fn say(text: &str) {
    println!("   {text}");
}

/// Runs a command of which only the last line is shown; all of its words are printed when it fails.
pub fn run(what: &str, command: &mut Command) -> Result<()> {
    let bar = spinner(what);
    let started = Instant::now();
    let shown = crate::workspace::shown(command);
    let (reader, writer) = std::io::pipe().context("no pipe could be made")?;
    command.stdout(writer.try_clone().context("a pipe could not be doubled")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("'{shown}' could not be started"))?;
    // The command holds the writing ends; the reader would wait for ever while they are open.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut lines = std::collections::VecDeque::new();
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        bar.set_message(format!("{what}: {}", line.trim()));
        if lines.len() == LINES_KEPT_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    let status = child.wait().with_context(|| format!("'{shown}' was lost"))?;
    bar.finish_and_clear();
    if !status.success() {
        for line in &lines {
            eprintln!("   | {line}");
        }
        bail!("'{shown}' failed: {status}; its words are above");
    }
    println!("   {what}: {}", seconds(started.elapsed()));
    Ok(())
}

/// `0.8 s`, `12.3 ms`.
pub fn seconds(time: Duration) -> String {
    if time < Duration::from_millis(100) {
        format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

fn spinner(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("   {spinner} {wide_msg} {elapsed}")
        .expect("the template is well formed");
    let bar = ProgressBar::new_spinner().with_style(style).with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        Progress { interrupted: Arc::default(), may_be_interrupted: true }
    }

    #[test]
    fn a_wait_ends_with_what_was_found() {
        let mut looks = 0;
        let found = progress().wait("third look", Duration::from_mins(1), || {
            looks += 1;
            Ok(if looks == 3 {
                ControlFlow::Break(looks)
            } else {
                ControlFlow::Continue(looks.to_string())
            })
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn a_wait_in_vain_says_what_was_seen() {
        let found: Result<()> = progress()
            .wait("a miracle", Duration::ZERO, || Ok(ControlFlow::Continue("rain".into())));
        assert_eq!(
            found.unwrap_err().to_string(),
            "waited 0 s in vain: a miracle; last seen: rain"
        );
    }

    #[test]
    fn ctrl_c_ends_a_wait() {
        let progress = progress();
        progress.interrupted.store(true, Ordering::Relaxed);
        let found: Result<()> =
            progress.wait("x", Duration::from_mins(1), || Ok(ControlFlow::Continue(String::new())));
        assert_eq!(found.unwrap_err().to_string(), "interrupted");
        let cleanup = progress.for_cleanup();
        assert!(cleanup.wait("x", Duration::ZERO, || Ok(ControlFlow::Break(()))).is_ok());
        let mut looks = 0;
        let goes_on = cleanup.wait("x", Duration::from_mins(1), || {
            looks += 1;
            Ok(if looks > 1 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(String::new())
            })
        });
        assert!(goes_on.is_ok());
    }

    #[test]
    fn a_failing_command_is_an_error() {
        run("nothing", Command::new("sh").args(["-c", "echo one"])).unwrap();
        let error =
            run("nothing", Command::new("sh").args(["-c", "echo two >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }
}
