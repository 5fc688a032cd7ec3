//! Gateways served by HAProxy 2.6 or later, run as a child that outlives the service.
//!
//! One look, one plan, one act: what the running HAProxy holds is read back through its runtime socket at every
//! `apply`, so adopting one that an earlier life of the service started is nothing special. Weights, states and
//! servers change through that socket; only what [`model::Model::structure`] holds takes a reload.
//!
//! Shares of http gateways without cookies are exact at all times, by tables; see [`slots`]. Everywhere else round
//! robin is exact from a fresh start or reload on. After a change of weights at run time HAProxy first finishes the
//! cycle it is in, at most 16 times the sum of the old weights, and until then windows are off by one or two requests.

mod acl;
mod apply;
mod attribution;
mod hosts;
mod intake;
mod isolate;
mod keeper;
mod line;
mod model;
mod process;
mod program;
mod refusal;
mod render;
mod slots;
mod socket;
mod state;
#[cfg(test)]
mod tests;
mod usable;
mod ways;

pub use program::{find, program_version};
pub use render::TEMPLATE;

use super::{Applied, Configuration, GatewayDriver, Traffic};
use crate::driver::{Changes, Error};
use crate::processes::Identity;
use async_trait::async_trait;
use hosts::Hosts;
use intake::Intake;
use isolate::Verdicts;
use keeper::Keeper;
use model::Model;
use process::Process;
use program::Program;
use render::{Base, Rendered};
use socket::{MASTER, Sockets, WORKER};
use state::Observed;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// Names of targets by their lookup names: HAProxy only knows the latter.
const NAMES_FILE: &str = "targets.json";
/// What names of targets stand for.
const HOSTS_FILE: &str = "hosts.json";
/// What a template makes that is only tried.
const CHECKED_FILE: &str = "haproxy.cfg.checked";
/// How long a reload may take before it is asked for again: a master that is not done with the one before misses it.
const RELOAD_AGAIN: Duration = Duration::from_secs(2);
/// How long a worker that was replaced may take to say what it carries.
const OLD_WORKER_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a starting or reloading HAProxy is asked whether it is there.
const POLL: Duration = Duration::from_millis(10);

/// How and where HAProxy runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// Where its files and sockets are; made when missing, for this user only.
    pub directory: PathBuf,
    /// The address that gateways listen on.
    pub bind_address: IpAddr,
    /// The port of the frontend for virtual hosts; `None` for no such frontend.
    pub virtual_hosts_port: Option<u16>,
    /// Where a monitor answers `/health`; `None` for none.
    pub stats_port: Option<u16>,
    /// How long a worker that was replaced may finish what it carries.
    pub hard_stop_after: Duration,
    /// How long a start or reload may take.
    pub start_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            program: "haproxy".into(),
            directory: "haproxy".into(),
            bind_address: Ipv4Addr::UNSPECIFIED.into(),
            virtual_hosts_port: None,
            stats_port: None,
            hard_stop_after: Duration::from_mins(5),
            start_timeout: Duration::from_secs(10),
        }
    }
}

/// The door to one HAProxy. Dropping it leaves HAProxy running; see [`HaproxyDriver::shutdown`].
#[derive(Debug)]
pub struct HaproxyDriver {
    settings: Settings,
    process: Arc<Process>,
    keeper: Keeper,
    sockets: Sockets,
    changes: Changes,
    intake: Intake,
    hosts: Hosts,
    state: Mutex<State>,
    /// Held while a template is tried.
    checking: Mutex<()>,
    /// How many lines about requests were lost, as it was last told.
    lost: AtomicU64,
}

/// What the driver keeps between calls, none of it truth about HAProxy.
#[derive(Debug)]
struct State {
    /// The last applied model; `None` until there was one.
    model: Option<Model>,
    /// Names of targets, of those that were removed while they may be busy.
    names: BTreeMap<String, String>,
    verdicts: Verdicts,
    /// Whether it ended by itself and that was not told yet.
    ended: bool,
    watched: Option<(Identity, JoinHandle<()>)>,
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some((_, watch)) = &self.watched {
            watch.abort();
        }
    }
}

impl HaproxyDriver {
    /// A driver for the HAProxy of `settings.directory`, which may be running already.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let fail = |what: &str, error: std::io::Error| {
            Error::Permanent(format!("cannot {what} {}: {error}", settings.directory.display()))
        };
        let mut builder = std::fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&settings.directory)
            .map_err(|error| fail("make", error))?;
        let directory = settings.directory.canonicalize().map_err(|error| fail("find", error))?;
        let sockets = Sockets::new(&directory).map_err(|error| fail("open", error))?;
        let names = std::fs::read(directory.join(NAMES_FILE)).ok();
        let names = names.and_then(|names| serde_json::from_slice(&names).ok()).unwrap_or_default();
        let program = Program::new(settings.program.clone());
        let process = Arc::new(Process::new(program, directory));
        let changes = Changes::default();
        let keeper = Keeper::new(Arc::clone(&process), changes.clone());
        let verdicts = Verdicts::default();
        let state = Mutex::new(State { names, model: None, verdicts, ended: false, watched: None });
        let intake = Intake::new(settings.hard_stop_after);
        let checking = Mutex::default();
        let hosts = Hosts::new(process.directory.join(HOSTS_FILE));
        let lost = AtomicU64::new(0);
        Ok(Self {
            settings,
            process,
            keeper,
            sockets,
            changes,
            intake,
            hosts,
            state,
            checking,
            lost,
        })
    }

    /// Ends HAProxy, and with it all traffic.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        if let Some((_, watch)) = state.watched.take() {
            watch.abort();
        }
        state.model = None;
        self.process.stop().await
    }

    /// What the worker holds, with the tables of `model`; `None` when HAProxy does not run.
    async fn observe(&self, model: Option<&Model>) -> Result<Option<Observed>, Error> {
        if self.process.running().is_none() {
            return Ok(None);
        }
        let answer = self.sockets.send(&state::question(model)).await;
        match answer {
            Ok(answer) => Observed::read(&answer).map(Some).ok_or_else(|| {
                Error::Transient(
                    "HAProxy's runtime socket gives no answer that can be read".to_owned(),
                )
            }),
            Err(_) if self.process.running().is_none() => Ok(None),
            Err(error) => {
                Err(Error::Transient(format!("HAProxy's runtime socket does not answer: {error}")))
            }
        }
    }

    fn watch(&self, state: &mut State) -> Result<(), Error> {
        let Some(identity) = self.process.running() else { return Ok(()) };
        if !matches!(&state.watched, Some((watched, watch)) if *watched == identity && !watch.is_finished())
        {
            state.watched = Some((identity, Process::watch(identity, self.changes.clone())?));
        }
        Ok(())
    }

    /// How many lines about requests could not be taken, or not be read; as far as is known.
    async fn look_what_is_lost(&self) -> u64 {
        let answer = self.sockets.ask(WORKER, "show info").await.unwrap_or_default();
        let dropped = answer.lines().find_map(|line| line.strip_prefix("DroppedLogs: "));
        let dropped = dropped.and_then(|number| number.trim().parse::<u64>().ok());
        dropped.unwrap_or(0) + self.intake.unread()
    }

    /// What `template` makes of `model`, or why it makes nothing.
    fn rendered(&self, model: &Model, template: Option<&str>) -> Result<Rendered, String> {
        render::render(model, &self.base(), template)
    }

    fn base(&self) -> Base {
        let stats_port = self.settings.stats_port;
        Base {
            hard_stop_after_seconds: self.settings.hard_stop_after.as_secs().max(1),
            stats_port,
            stats_bind: model::bind(self.settings.bind_address, stats_port.unwrap_or_default()),
        }
    }

    /// Servers of all workers, the current and those that finish what they carry, that have requests or may get one: a
    /// worker that was replaced answers one more on each connection that a client keeps, by what it knew.
    async fn carrying(
        &self,
        current: &Observed,
        names: &BTreeMap<String, String>,
    ) -> Result<BTreeSet<(String, String)>, Error> {
        let carries = |observed: &Observed| -> Vec<(String, String)> {
            let busy = observed.servers.iter().filter(|(_, server)| server.sessions > 0);
            busy.map(|(key, _)| key.clone()).collect()
        };
        let mut carrying: BTreeSet<_> = carries(current).into_iter().collect();
        let fail = |error: std::io::Error| {
            Error::Transient(format!("HAProxy's master socket does not answer: {error}"))
        };
        let processes = self.sockets.ask(MASTER, "show proc").await.map_err(fail)?;
        let old = processes.lines().skip_while(|line| !line.starts_with("# old workers")).skip(1);
        for pid in old
            .take_while(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_whitespace().next())
        {
            let question = format!("@!{pid} show stat");
            let answer = timeout(OLD_WORKER_TIMEOUT, self.sockets.ask(MASTER, &question)).await;
            let Ok(Ok(answer)) = answer else {
                // It may carry anything; it ends by `hard-stop-after`, and nobody waits for it longer than drains take.
                tracing::debug!(pid, "a worker of HAProxy that was replaced does not answer");
                carrying.extend(names.keys().map(|lookup| (String::new(), lookup.clone())));
                continue;
            };
            // One that ended since then carries nothing.
            let mut observed = Observed::default();
            observed.read_statistics_of(&answer);
            if observed.has_idle_clients() {
                carrying.extend(observed.servers.into_keys());
            } else {
                carrying.extend(carries(&observed));
            }
        }
        Ok(carrying)
    }
}

#[async_trait]
impl GatewayDriver for HaproxyDriver {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    async fn ping(&self) -> Result<(), Error> {
        let state = self.state.lock().await;
        match (self.observe(None).await?, &state.model) {
            (None, Some(_)) => {
                Err(Error::Transient(format!("HAProxy does not run: {}", self.process.words())))
            }
            (None, None) => self.process.program.usable().await.map(drop),
            (Some(_), _) => Ok(()),
        }
    }

    async fn apply(&self, configuration: &Configuration) -> Result<Applied, Error> {
        let mut state = self.state.lock().await;
        let observed = self.observe(state.model.as_ref()).await?;
        if observed.is_none() {
            // Else ports that a dying worker still holds would look like somebody else's.
            self.process.forget_predecessor().await?;
        }
        let observed = observed.as_ref();
        let configuration = hosts::with_hops(configuration, self.settings.bind_address);
        let (configuration, missing) = self.hosts.resolved(&configuration, &self.changes).await;
        let judged = self.judged(&mut state, &configuration, observed).await;
        if judged.is_err()
            && let Err(error) = self.revive(&mut state).await
        {
            tracing::warn!(%error, "HAProxy does not start with the last good configuration");
        }
        let mut applied = judged?;
        applied.troubles.extend(missing);
        self.process.trim_words();
        if let Err(error) = self.sweep_rarely(&mut state).await {
            tracing::debug!(%error, "removed servers stay for now");
        }
        Ok(applied)
    }

    async fn busy(&self) -> Result<BTreeSet<String>, Error> {
        let mut state = self.state.lock().await;
        let Some(observed) = self.observe(None).await? else { return Ok(BTreeSet::new()) };
        self.sweep(&mut state, &observed).await
    }

    async fn traffic(&self, now: OffsetDateTime, window: Duration) -> Result<Traffic, Error> {
        let (counts, seconds) = self.intake.counts(now, window);
        // Where nothing comes nothing is lost, and HAProxy is not asked.
        if !counts.is_empty() {
            self.lost.store(self.look_what_is_lost().await, Ordering::Relaxed);
        }
        Ok(Traffic { counts, seconds, lost: self.lost.load(Ordering::Relaxed) })
    }

    async fn check_template(&self, template: &str) -> Result<(), Error> {
        // One at a time: they share a file. Nothing else waits for it.
        let _checking = self.checking.lock().await;
        let model = self.state.lock().await.model.clone();
        let model = model.unwrap_or_else(|| Model::of(&[], self.settings.bind_address, None));
        let (base, template) = (self.base(), template.to_owned());
        let rendering = spawn_blocking(move || render::render(&model, &base, Some(&template)));
        let new = rendering.await.map_err(|error| Error::Transient(error.to_string()))?;
        let new = new.map_err(Error::Permanent)?;
        process::replace(&self.process.directory.join(CHECKED_FILE), new.files.text.as_bytes())
            .map_err(|error| Error::Transient(format!("cannot write {CHECKED_FILE}: {error}")))?;
        match self.process.refusal(CHECKED_FILE).await? {
            None => Ok(()),
            Some(words) => Err(Error::Permanent(format!(
                "HAProxy refuses what the template of the configuration makes: {words}"
            ))),
        }
    }

    async fn text(&self) -> String {
        self.keeper.text()
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}
