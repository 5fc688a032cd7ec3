//! What an operator on the same machine can ask a running service for: a backup. Not part of the interface.
//!
//! A unix socket in the data directory takes one line of JSON and answers with one; whoever may write to the directory
//! may use it. Requests are taken one after another. Where the socket cannot be made, the service runs without it.

use segue_domain::log::Log;
use segue_domain::store::Store;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// The name of the socket in the data directory.
const SOCKET: &str = "admin.sock";
const LINE_BYTES_MAX: u64 = 64 << 10;
/// How long a client may take to send its line and to take its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A copy of the log in that directory, an absolute path on the service's machine.
    Backup(PathBuf),
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The last position, the hash of the log there, and how many bytes were copied.
    BackedUp {
        /// The position.
        position: u64,
        /// The hash.
        hash: String,
        /// The bytes.
        bytes: u64,
    },
    /// Why not.
    Refused(String),
}

/// Where the socket of a service on `data` is.
pub fn socket(data: &Path) -> PathBuf {
    data.join(SOCKET)
}

/// Answers requests until the task is aborted. The log has to be open: then nobody else uses the directory.
pub async fn serve(data: PathBuf, store: Store) {
    let listener = match listen(&data) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(
                "{} cannot be listened on: {error}; no backups are made while the service runs",
                socket(&data).display()
            );
            return;
        }
    };
    loop {
        let served = match listener.accept().await {
            Ok((stream, _)) => answer(stream, store.log().clone()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::warn!("a request on {} was not answered: {error}", socket(&data).display());
            // A socket that fails at once must not keep a processor busy.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Asks the service on `data`; `None` when there is no service.
pub async fn ask(data: &Path, request: &Request) -> io::Result<Option<Answer>> {
    let Ok(mut stream) = UnixStream::connect(socket(data)).await else { return Ok(None) };
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    BufReader::new(stream).take(LINE_BYTES_MAX).read_line(&mut answer).await?;
    Ok(Some(serde_json::from_str(&answer)?))
}

fn listen(data: &Path) -> io::Result<UnixListener> {
    let path = socket(data);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn answer(stream: UnixStream, log: Log) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut limited = (&mut stream).take(LINE_BYTES_MAX);
    tokio::time::timeout(PATIENCE, limited.read_line(&mut line)).await??;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::Backup(to)) if to.is_absolute() => {
            let copied = tokio::task::spawn_blocking(move || log.backup(&to)).await;
            match copied.map_err(|error| error.to_string()) {
                Ok(Ok(copy)) => Answer::BackedUp {
                    position: copy.last.0,
                    hash: copy.hash.to_string(),
                    bytes: copy.bytes,
                },
                Ok(Err(error)) => Answer::Refused(error.to_string()),
                Err(reason) => Answer::Refused(reason),
            }
        }
        Ok(Request::Backup(to)) => Answer::Refused(format!("{} is no absolute path", to.display())),
        Err(error) => Answer::Refused(format!("this is no request: {error}")),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    tokio::time::timeout(PATIENCE, stream.write_all(&line)).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Setting, Settings};
    use crate::tools;
    use segue_domain::event::{Draft, Event, Origin, Provenance, Tags};
    use segue_domain::log::Expect;
    use time::OffsetDateTime;

    fn settings(data: &Path) -> Settings {
        Config::load(None, [], [Setting::flag("data", serde_json::json!(data))]).unwrap().settings
    }

    fn draft(number: usize) -> Draft {
        let time = OffsetDateTime::UNIX_EPOCH;
        let (actor, correlation) = ("api".to_owned(), number.to_string());
        let provenance = Provenance { actor, cause: None, correlation, origin: Origin::External };
        let (kind, tags) = ("event".to_owned(), Tags::expand(["note"]));
        let value = serde_json::json!(number);
        Draft { time, provenance, event: Event { kind, tags, timestamp: time, value, fact: None } }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_running_service_is_backed_up_and_the_copy_is_the_same() {
        let place = tempfile::tempdir().unwrap();
        let (data, copy) = (place.path().join("data"), place.path().join("copy"));
        let (backup, again) = (place.path().join("backup"), place.path().join("again"));
        let settings = (settings(&data), settings(&copy));
        let store = Store::open(&settings.0.log_directory(), settings.0.rules()).unwrap();
        store
            .log()
            .append((0..100).map(draft).collect(), &Expect::Any)
            .unwrap()
            .durable()
            .await
            .unwrap();
        let service = tokio::spawn(serve(data.clone(), store.clone()));
        while UnixStream::connect(socket(&data)).await.is_err() {
            tokio::task::yield_now().await;
        }
        let said = tools::backup(&settings.0, &backup).await.unwrap();
        assert!(said.contains("holds the log up to position 100"), "{said}");
        let refused = tools::backup(&settings.0, &backup).await.unwrap_err().to_string();
        assert!(refused.contains("exists already"), "{refused}");
        service.abort();
        assert!(service.await.unwrap_err().is_cancelled());
        drop(store);
        let said = tools::backup(&settings.0, &again).await.unwrap();
        assert!(
            said.contains("holds the log up to position 100"),
            "without a service, it is done directly: {said}"
        );
        tools::restore(&settings.1, &backup).unwrap();
        let verified = tools::fold(&settings.1, true).unwrap();
        assert_eq!(verified, tools::fold(&settings.0, true).unwrap());
        assert!(verified.contains("100 records are sound, 0 were dropped"), "{verified}");
        let refused = tools::restore(&settings.1, &backup).unwrap_err().to_string();
        assert!(refused.contains("exists already"), "{refused}");
    }
}
