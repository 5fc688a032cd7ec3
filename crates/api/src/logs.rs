//! The service's own log lines, on standard error.

use crate::config::{LogFormat, LogSettings};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Writes log lines from here on. Fails when the level cannot be read, or when somebody writes log lines already.
pub fn start(settings: &LogSettings) -> Result<(), String> {
    let filter = EnvFilter::try_new(&settings.level)
        .map_err(|error| format!("log.level cannot be '{}': {error}", settings.level))?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let subscriber = subscriber.with_ansi(std::io::stderr().is_terminal());
    let started = match settings.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
    started.map_err(|error| error.to_string())
}
