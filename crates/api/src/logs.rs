//! The service's own log lines: on standard error, and for whoever listens to [`Lines`].
//!
//! Listeners get the lines of Segue itself at any level, and those of libraries from INFO on: what a library says
//! about sending a line would make another line. Nothing is kept: a listener that falls behind is told so.

use crate::config::{LogFormat, LogSettings};
use serde_json::{Value, json};
use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use time::OffsetDateTime;
use tokio::sync::broadcast;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How many lines a listener may fall behind.
const LINES_BEHIND_MAX: usize = 4096;
/// What the names of Segue's own parts begin with.
const OWN: &str = "segue";

static LISTENERS: LazyLock<Listeners> = LazyLock::new(|| Listeners {
    lines: broadcast::Sender::new(LINES_BEHIND_MAX),
    levels: Mutex::default(),
});

/// Writes log lines from here on. Fails when the level cannot be read, or when somebody writes log lines already.
pub fn start(settings: &LogSettings) -> Result<(), String> {
    let filter = EnvFilter::try_new(&settings.level)
        .map_err(|error| format!("log.level cannot be '{}': {error}", settings.level))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = lines.with_ansi(std::io::stderr().is_terminal());
    let lines = match settings.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let started = tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(Broadcast.with_filter(Wanted))
        .try_init();
    started.map_err(|error| error.to_string())
}

/// One line of the log.
#[derive(Clone, Debug)]
pub struct Line {
    /// The part of the program.
    pub logger: &'static str,
    /// How grave it is.
    pub level: Level,
    /// What happened, with its fields.
    pub message: String,
    /// When.
    pub timestamp: OffsetDateTime,
}

impl Line {
    /// The form that lines have for clients.
    pub fn document(&self, timestamp: &str) -> Value {
        json!({
            "logger": self.logger,
            "level": self.level.as_str(),
            "message": self.message,
            "timestamp": timestamp,
        })
    }
}

/// The lines of one listener, from when it began to listen.
pub struct Lines {
    level: LevelFilter,
    logger: String,
    receiver: broadcast::Receiver<Arc<Line>>,
}

impl Lines {
    /// Listens to lines of `level` and graver ones whose logger begins with `logger`.
    pub fn listen(level: LevelFilter, logger: &str) -> Self {
        LISTENERS.change(|levels| levels.push(level));
        Self { level, logger: logger.to_owned(), receiver: LISTENERS.lines.subscribe() }
    }

    /// The next line; `None` when the listener fell too far behind.
    pub async fn next(&mut self) -> Option<Arc<Line>> {
        loop {
            let line = self.receiver.recv().await.ok()?;
            if line.level <= self.level && line.logger.starts_with(&self.logger) {
                return Some(line);
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let level = self.level;
        LISTENERS.change(|levels| {
            if let Some(index) = levels.iter().position(|other| *other == level) {
                levels.swap_remove(index);
            }
        });
    }
}

struct Listeners {
    lines: broadcast::Sender<Arc<Line>>,
    /// The level of each listener.
    levels: Mutex<Vec<LevelFilter>>,
}

impl Listeners {
    fn change(&self, change: impl FnOnce(&mut Vec<LevelFilter>)) {
        change(&mut self.levels.lock().unwrap_or_else(PoisonError::into_inner));
        // What is not wanted by anybody costs nothing, and so each place in the program has to be asked anew.
        tracing::callsite::rebuild_interest_cache();
    }

    fn level(&self) -> LevelFilter {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.iter().copied().max().unwrap_or(LevelFilter::OFF)
    }
}

/// Lets through what some listener wants.
struct Wanted;

impl Wanted {
    fn wants(metadata: &Metadata<'_>) -> bool {
        let level = LISTENERS.level();
        let own = metadata.target().starts_with(OWN);
        *metadata.level() <= level && (own || *metadata.level() <= Level::INFO)
    }
}

impl<S> Filter<S> for Wanted {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Self::wants(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LISTENERS.level())
    }
}

/// Hands lines to the listeners.
struct Broadcast;

impl<S: Subscriber> Layer<S> for Broadcast {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        let line = Line {
            logger: event.metadata().target(),
            level: *event.metadata().level(),
            message: format!("{}{}", message.text, message.fields),
            timestamp: OffsetDateTime::now_utc(),
        };
        // An error says that nobody listens any more.
        let _ = LISTENERS.lines.send(Arc::new(line));
    }
}

/// The text of a line, and its other fields behind it.
#[derive(Default)]
struct Message {
    text: String,
    fields: String,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text cannot fail.
        let _ = if field.name() == "message" {
            write!(self.text, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}
