//! Calls of the Docker daemon, and what its errors mean.

use super::labels::Filters;
use super::{Settings, registry};
use crate::containers::output::{OUTPUT_BYTES_MAX, TAIL_BYTES};
use crate::driver::Error;
use bollard::errors::Error as DockerError;
use bollard::models::{
    ContainerCreateBody, ContainerSummary, CreateImageInfo, EventMessage, ImageInspect,
};
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, EventsOptions, ListContainersOptions, LogsOptions,
    RemoveContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use futures::{Stream, StreamExt, TryStreamExt};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// How long the daemon may take to answer a question.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to create, start or remove a container, or to stop one beyond the time that it has to end.
const CHANGE_LIMIT: Duration = Duration::from_mins(1);
/// How many questions are asked at once. Deployments look at what runs at the same moments, and each question takes a
/// connection.
const QUESTIONS_MAX: usize = 16;
/// How long nobody waits for a daemon that did not answer.
const SILENCE_PAUSE: Duration = Duration::from_secs(5);
/// How many lines of a container that ended are read.
const LAST_LINES: usize = 20;
/// The shortest pause that a daemon makes between two lives. It notes when a life began only after the program runs: what
/// that said at once is older, but never by more than this.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);

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

/// The daemon behind one socket. Every call has a time limit: a daemon that is wedged takes connections and says
/// nothing.
pub(super) struct Daemon {
    socket: PathBuf,
    stop_timeout: Duration,
    /// Connected once the daemon said which version of the API it speaks. Each call makes a connection of its own, so
    /// that none is answered by a daemon that is going down.
    client: Mutex<Option<Docker>>,
    questions: Semaphore,
    /// When an answer was last waited for in vain.
    silent_at: Mutex<Option<Instant>>,
}

impl Daemon {
    pub(super) fn new(socket: PathBuf, stop_timeout: Duration) -> Self {
        Self {
            socket,
            stop_timeout,
            client: Mutex::default(),
            questions: Semaphore::new(QUESTIONS_MAX),
            silent_at: Mutex::default(),
        }
    }

    pub(super) async fn ping(&self) -> Result<(), Error> {
        let client = self.client().await?;
        let answer = within(ANSWER_LIMIT, client.ping()).await;
        answer.map(drop).map_err(|error| self.failed(&error))
    }

    pub(super) async fn list(&self, filters: Filters) -> Result<Vec<ContainerSummary>, Error> {
        let options =
            ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
        let client = self.client().await?;
        let answer = self.ask(client.list_containers(Some(options))).await;
        if let Err(DockerError::RequestTimeoutError) = answer {
            // Who asks next is told at once: what other drivers run does not wait for this one again and again.
            *self.silent_at.lock().expect("no holder of the lock panics") = Some(Instant::now());
        }
        answer.map_err(|error| self.failed(&error))
    }

    /// Creates a container and gives its id.
    pub(super) async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<String, Failure> {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..Default::default() };
        let client = self.client().await?;
        match within(CHANGE_LIMIT, client.create_container(Some(options), body)).await {
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
        let client = self.client().await?;
        let answer = within(CHANGE_LIMIT, client.start_container(id, None)).await;
        answer.map_err(|error| self.failed(&error))
    }

    /// Ends a container; nothing happens when it has ended or is gone.
    pub(super) async fn stop(&self, id: &str) -> Result<(), Error> {
        let seconds = i32::try_from(self.stop_timeout.as_secs()).unwrap_or(i32::MAX);
        let options = StopContainerOptions { t: Some(seconds), signal: None };
        let client = self.client().await?;
        let limit = CHANGE_LIMIT + self.stop_timeout;
        match within(limit, client.stop_container(id, Some(options))).await {
            Ok(()) | Err(DockerError::DockerResponseServerError { status_code: NOT_FOUND, .. }) => {
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Removes a container with its anonymous volumes; nothing happens when it is gone or being removed.
    pub(super) async fn remove(&self, id: &str) -> Result<(), Error> {
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        let client = self.client().await?;
        match within(CHANGE_LIMIT, client.remove_container(id, Some(options))).await {
            Ok(())
            | Err(DockerError::DockerResponseServerError {
                status_code: NOT_FOUND | CONFLICT,
                ..
            }) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// What the daemon has under the name `image`; `None` when there is none.
    pub(super) async fn image(&self, image: &str) -> Result<Option<ImageInspect>, Error> {
        let client = self.client().await?;
        match self.ask(client.inspect_image(image)).await {
            Ok(found) => Ok(Some(found)),
            Err(DockerError::DockerResponseServerError { status_code: NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Pulls an image from its registry, as whom `settings` name for it, and tells how far it is.
    pub(super) async fn pull(
        &self,
        image: &str,
        settings: &Settings,
        tell: impl Fn(String),
    ) -> Result<(), Error> {
        tracing::info!(image, "pulling an image");
        // Without a tag the daemon would pull every one there is.
        let name = image.rsplit('/').next().unwrap_or(image);
        let tag = (!name.contains([':', '@'])).then(|| "latest".to_owned());
        let options =
            CreateImageOptions { from_image: Some(image.to_owned()), tag, ..Default::default() };
        let credentials = registry::credentials(&settings.registries, image);
        // The daemon may begin its answer only when the registry has begun its own: only the limit of the pull counts.
        let patience = settings.pull_timeout.saturating_add(CHANGE_LIMIT);
        let client = self.client().await?.with_timeout(patience);
        let layers = Mutex::new(Layers::default());
        let progress = || layers.lock().expect("no holder of the lock panics").words();
        tell(format!("waits for its image '{image}'"));
        let pulled = client.create_image(Some(options), None, credentials).try_for_each(|info| {
            layers.lock().expect("no holder of the lock panics").take(&info);
            tell(format!("waits for its image '{image}': {}", progress()));
            async { Ok(()) }
        });
        match within(settings.pull_timeout, pulled).await {
            Ok(()) => Ok(()),
            Err(DockerError::RequestTimeoutError) => Err(Error::Transient(format!(
                "cannot pull the image '{image}': not done after {} s, {}",
                settings.pull_timeout.as_secs(),
                progress()
            ))),
            Err(error) => Err(match &error {
                DockerError::DockerResponseServerError { status_code, .. } => {
                    let is_refused = matches!(*status_code, BAD_REQUEST | NOT_FOUND);
                    registry::refusal(image, &words(&error), is_refused)
                }
                DockerError::DockerStreamError { .. } => {
                    registry::refusal(image, &words(&error), false)
                }
                _ => self.failed(&error),
            }),
        }
    }

    /// How a container ended, and the end of what it said in its last life.
    pub(super) async fn last_words(&self, id: &str) -> (String, Vec<u8>) {
        let Ok(client) = self.client().await else { return ("ended".to_owned(), Vec::new()) };
        let found = self.ask(client.inspect_container(id, None)).await.ok();
        let state = found.and_then(|found| found.state).unwrap_or_default();
        let code = state
            .exit_code
            .map_or_else(|| "ended".to_owned(), |code| format!("exited with status {code}"));
        let memory = if state.oom_killed == Some(true) { " (it was out of memory)" } else { "" };
        let error =
            state.error.filter(|error| !error.is_empty()).map(|error| format!(" ({error})"));
        let started = state.started_at.and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok());
        let since = started.map(|started| started - RESTART_PAUSE_MIN);
        let mut output = self.log(id, LAST_LINES, since).await.unwrap_or_default();
        let surplus =
            output.len().saturating_sub(usize::try_from(TAIL_BYTES).unwrap_or(usize::MAX));
        output.drain(..surplus);
        (format!("{code}{memory}{}", error.unwrap_or_default()), output)
    }

    /// The last `lines` that a container said, of those since the time `since`; what could be read in time.
    pub(super) async fn log(
        &self,
        id: &str,
        lines: usize,
        since: Option<OffsetDateTime>,
    ) -> Result<Vec<u8>, Error> {
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            timestamps: true,
            tail: lines.to_string(),
            ..Default::default()
        };
        let client = self.client().await?;
        let mut output: Vec<u8> = Vec::new();
        let mut logs = std::pin::pin!(client.logs(id, Some(options)));
        let read = async {
            while let Some(part) = logs.next().await {
                output.extend_from_slice(said(&part?.into_bytes(), since).unwrap_or_default());
                let surplus = output.len().saturating_sub(OUTPUT_BYTES_MAX);
                output.drain(..surplus);
            }
            Ok(())
        };
        self.ask(read).await.map_err(|error| self.failed(&error))?;
        Ok(output)
    }

    /// What happens to containers, until the connection breaks.
    pub(super) async fn events(
        &self,
        filters: Filters,
    ) -> Result<impl Stream<Item = Result<EventMessage, DockerError>> + use<>, Error> {
        let options = EventsOptions { filters: Some(filters), ..Default::default() };
        Ok(self.client().await?.events(Some(options)))
    }

    /// Takes its turn among all questions. How long the answer may take counts from then on.
    async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<T, DockerError> {
        let _turn = self.questions.acquire().await.expect("nobody closes it");
        if self.is_silent() {
            // It fell silent while others had their turn.
            return Err(DockerError::RequestTimeoutError);
        }
        within(ANSWER_LIMIT, question).await
    }

    fn is_silent(&self) -> bool {
        let silent_at = *self.silent_at.lock().expect("no holder of the lock panics");
        silent_at.is_some_and(|at| at.elapsed() < SILENCE_PAUSE)
    }

    async fn client(&self) -> Result<Docker, Error> {
        if self.is_silent() {
            return Err(self.failed(&DockerError::RequestTimeoutError));
        }
        let known = || self.client.lock().expect("no holder of the lock panics");
        if let Some(client) = &*known() {
            return Ok(client.clone());
        }
        // What one call takes is limited where it is made.
        let longest = (CHANGE_LIMIT + self.stop_timeout).as_secs();
        let socket = self.socket.to_string_lossy();
        let client = Docker::connect_with_unix(&socket, longest, API_DEFAULT_VERSION)
            .map_err(|error| self.failed(&error))?
            .with_request_modifier(spell_credentials);
        let client = within(ANSWER_LIMIT, client.negotiate_version()).await;
        let client = client.map_err(|error| self.failed(&error))?;
        Ok(known().insert(client).clone())
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
            DockerError::RequestTimeoutError => Error::Transient(format!(
                "the Docker daemon at {} does not answer: it takes connections, but nothing came back in time",
                self.socket.display()
            )),
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

/// What `call` comes to, unless it takes longer than `limit`.
async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, DockerError>>,
) -> Result<T, DockerError> {
    timeout(limit, call).await.unwrap_or(Err(DockerError::RequestTimeoutError))
}

/// The daemon reads credentials in the alphabet for URLs and takes those in another one for none at all.
fn spell_credentials(mut request: BollardRequest) -> BollardRequest {
    if let Some(value) = request.headers_mut().get_mut("X-Registry-Auth") {
        let spelled = value.to_str().map(|text| text.replace('+', "-").replace('/', "_"));
        if let Some(spelled) = spelled.ok().and_then(|text| text.parse().ok()) {
            *value = spelled;
        }
    }
    request
}

/// A line of a log without the time that stands before it; `None` when it was said before `since`.
fn said(line: &[u8], since: Option<OffsetDateTime>) -> Option<&[u8]> {
    let Some(blank) = line.iter().position(|byte| *byte == b' ') else { return Some(line) };
    let at = str::from_utf8(&line[..blank]).ok();
    let at = at.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    match (at, since) {
        (Some(at), Some(since)) if at < since => None,
        (Some(_), _) => Some(&line[blank + 1..]),
        (None, _) => Some(line),
    }
}

/// How far a pull is.
#[derive(Default)]
struct Layers {
    known: BTreeSet<String>,
    there: BTreeSet<String>,
}

impl Layers {
    fn take(&mut self, info: &CreateImageInfo) {
        let (Some(layer), Some(status)) = (&info.id, &info.status) else { return };
        match status.as_str() {
            "Pulling fs layer" | "Waiting" => drop(self.known.insert(layer.clone())),
            "Pull complete" | "Already exists" => {
                self.known.insert(layer.clone());
                self.there.insert(layer.clone());
            }
            _ => {}
        }
    }

    fn words(&self) -> String {
        match self.known.len() {
            0 => "the registry has not described it yet".to_owned(),
            known => format!("{} of {known} layers are there", self.there.len()),
        }
    }
}
