//! Calls of the Docker daemon, and what its errors mean.

use super::labels::Filters;
use crate::containers::output::TAIL_BYTES;
use crate::driver::Error;
use bollard::errors::Error as DockerError;
use bollard::models::{ContainerCreateBody, ContainerSummary, EventMessage};
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, EventsOptions, ListContainersOptions, LogsOptions,
    RemoveContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::{Stream, StreamExt, TryStreamExt};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// How long the daemon may take to answer, beyond what the call itself takes.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
const PULL_LIMIT: Duration = Duration::from_mins(30);
const LOG_LINES: &str = "20";
const LOG_LIMIT: Duration = Duration::from_secs(5);

const BAD_REQUEST: u16 = 400;
const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;

/// Why a container was not created.
pub(super) enum Failure {
    /// The image has to be pulled first.
    NoImage,
    /// There is a container of that name.
    Exists,
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Other(error)
    }
}

/// The daemon behind one socket.
pub(super) struct Daemon {
    socket: PathBuf,
    answer_limit: Duration,
    /// Connected once the daemon said which version of the API it speaks.
    client: OnceCell<Docker>,
}

impl Daemon {
    pub(super) fn new(socket: PathBuf, stop_timeout: Duration) -> Self {
        Self { socket, answer_limit: ANSWER_LIMIT + stop_timeout, client: OnceCell::new() }
    }

    pub(super) async fn ping(&self) -> Result<(), Error> {
        self.client().await?.ping().await.map(drop).map_err(|error| self.failed(&error))
    }

    pub(super) async fn list(&self, filters: Filters) -> Result<Vec<ContainerSummary>, Error> {
        let options =
            ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
        self.client()
            .await?
            .list_containers(Some(options))
            .await
            .map_err(|error| self.failed(&error))
    }

    /// Creates a container and gives its id.
    pub(super) async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<String, Failure> {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..Default::default() };
        match self.client().await?.create_container(Some(options), body).await {
            Ok(created) => Ok(created.id),
            Err(DockerError::DockerResponseServerError { status_code: CONFLICT, .. }) => {
                Err(Failure::Exists)
            }
            Err(DockerError::DockerResponseServerError { status_code: NOT_FOUND, message })
                if message.to_ascii_lowercase().contains("no such image") =>
            {
                Err(Failure::NoImage)
            }
            Err(error) => Err(self.failed(&error).into()),
        }
    }

    pub(super) async fn start(&self, id: &str) -> Result<(), Error> {
        match self.client().await?.start_container(id, None).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Ends a container; nothing happens when it has ended or is gone.
    pub(super) async fn stop(&self, id: &str, limit: Duration) -> Result<(), Error> {
        let seconds = i32::try_from(limit.as_secs()).unwrap_or(i32::MAX);
        let options = StopContainerOptions { t: Some(seconds), signal: None };
        match self.client().await?.stop_container(id, Some(options)).await {
            Ok(()) | Err(DockerError::DockerResponseServerError { status_code: NOT_FOUND, .. }) => {
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Removes a container with its anonymous volumes; nothing happens when it is gone or being removed.
    pub(super) async fn remove(&self, id: &str) -> Result<(), Error> {
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        match self.client().await?.remove_container(id, Some(options)).await {
            Ok(())
            | Err(DockerError::DockerResponseServerError {
                status_code: NOT_FOUND | CONFLICT,
                ..
            }) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Pulls an image from its registry.
    pub(super) async fn pull(&self, image: &str) -> Result<(), Error> {
        let image = image.trim();
        tracing::info!(image, "pulling an image");
        // Without a tag the daemon would pull every one there is.
        let name = image.rsplit('/').next().unwrap_or(image);
        let tag = (!name.contains([':', '@'])).then(|| "latest".to_owned());
        let options =
            CreateImageOptions { from_image: Some(image.to_owned()), tag, ..Default::default() };
        let client = self.client().await?;
        let pulled =
            client.create_image(Some(options), None, None).try_for_each(|_| async { Ok(()) });
        match timeout(PULL_LIMIT, pulled).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let words = format!("cannot pull the image '{image}': {}", words(&error));
                Err(if is_image_unknown(&error) {
                    Error::Permanent(words)
                } else {
                    Error::Transient(words)
                })
            }
            Err(_) => Err(Error::Transient(format!(
                "cannot pull the image '{image}': not done after {} minutes",
                PULL_LIMIT.as_secs() / 60
            ))),
        }
    }

    /// How a container ended, and the end of its output.
    pub(super) async fn last_words(&self, id: &str) -> (String, Vec<u8>) {
        let Ok(client) = self.client().await else { return ("ended".to_owned(), Vec::new()) };
        let state = client
            .inspect_container(id, None)
            .await
            .ok()
            .and_then(|found| found.state)
            .unwrap_or_default();
        let code = state
            .exit_code
            .map_or_else(|| "ended".to_owned(), |code| format!("exited with status {code}"));
        let memory = if state.oom_killed == Some(true) { " (it was out of memory)" } else { "" };
        let error =
            state.error.filter(|error| !error.is_empty()).map(|error| format!(" ({error})"));
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            tail: LOG_LINES.to_owned(),
            ..Default::default()
        };
        let mut output: Vec<u8> = Vec::new();
        let mut logs = std::pin::pin!(client.logs(id, Some(options)));
        let read = async {
            while let Some(Ok(part)) = logs.next().await {
                output.extend_from_slice(&part.into_bytes());
                let surplus =
                    output.len().saturating_sub(usize::try_from(TAIL_BYTES).unwrap_or(usize::MAX));
                output.drain(..surplus);
            }
        };
        // What was read until then is good enough.
        let _ = timeout(LOG_LIMIT, read).await;
        (format!("{code}{memory}{}", error.unwrap_or_default()), output)
    }

    /// What happens to containers, until the connection breaks.
    pub(super) async fn events(
        &self,
        filters: Filters,
    ) -> Result<impl Stream<Item = Result<EventMessage, DockerError>> + use<>, Error> {
        let options = EventsOptions { filters: Some(filters), ..Default::default() };
        Ok(self.client().await?.events(Some(options)))
    }

    async fn client(&self) -> Result<&Docker, Error> {
        let connect = || async {
            let client = Docker::connect_with_unix(
                &self.socket.to_string_lossy(),
                self.answer_limit.as_secs(),
                API_DEFAULT_VERSION,
            )
            .map_err(|error| self.failed(&error))?;
            client.negotiate_version().await.map_err(|error| self.failed(&error))
        };
        self.client.get_or_try_init(connect).await
    }

    /// An error in the words of the daemon. It refuses for good what is wrong in the request itself.
    fn failed(&self, error: &DockerError) -> Error {
        match error {
            DockerError::DockerResponseServerError {
                status_code: BAD_REQUEST | NOT_FOUND,
                message,
            } => Error::Permanent(message.trim().to_owned()),
            DockerError::DockerResponseServerError { message, .. } => {
                Error::Transient(message.trim().to_owned())
            }
            other => Error::Transient(format!(
                "the Docker daemon at {} does not answer: {}",
                self.socket.display(),
                words(other)
            )),
        }
    }
}

fn words(error: &DockerError) -> String {
    match error {
        DockerError::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        DockerError::DockerStreamError { error } => error.trim().to_owned(),
        other => {
            let mut words = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(inner) = source {
                let text = inner.to_string();
                if !words.contains(&text) {
                    words = format!("{words}: {text}");
                }
                source = inner.source();
            }
            words
        }
    }
}

/// Whether the registry, or the daemon itself, said that there is no such image, rather than nothing.
fn is_image_unknown(error: &DockerError) -> bool {
    let status = match error {
        DockerError::DockerResponseServerError { status_code, .. } => *status_code,
        _ => 0,
    };
    let words = words(error).to_ascii_lowercase();
    let denied = [
        "not found",
        "pull access denied",
        "manifest unknown",
        "name unknown",
        "invalid reference",
    ];
    matches!(status, BAD_REQUEST | NOT_FOUND) || denied.iter().any(|denial| words.contains(denial))
}
