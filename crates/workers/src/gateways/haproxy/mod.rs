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
use state::{Observed, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

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
}

/// What the driver keeps between calls, none of it truth about HAProxy.
#[derive(Debug)]
struct State {
    /// The last applied model; `None` until there was one.
    model: Option<Model>,
    /// Names of targets, of those that were removed while they may be busy.
    names: BTreeMap<String, String>,
    verdicts: Verdicts,
    watched: Option<(Identity, JoinHandle<()>)>,
}

/// Why a configuration is not served.
enum Failure {
    /// HAProxy did not come to accept the file; what is in use stays.
    NotInstalled(Error),
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Other(error)
    }
}

impl Failure {
    fn error(self) -> Error {
        match self {
            Failure::NotInstalled(error) | Failure::Other(error) => error,
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some((_, watch)) = &self.watched {
            watch.abort();
        }
    }
}

/// What is told of an HAProxy that nobody stopped.
const ENDED: &str =
    "HAProxy ended by itself and was started again; what was under way through it is lost";

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
        let process = Arc::new(Process { program, directory });
        let changes = Changes::default();
        let keeper = Keeper::new(Arc::clone(&process), changes.clone());
        let state =
            Mutex::new(State { names, model: None, verdicts: Verdicts::default(), watched: None });
        let intake = Intake::new(settings.hard_stop_after);
        let checking = Mutex::default();
        let hosts = Hosts::new(process.directory.join(HOSTS_FILE));
        Ok(Self { settings, process, keeper, sockets, changes, intake, hosts, state, checking })
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
    async fn lost(&self) -> u64 {
        let answer = self.sockets.ask(WORKER, "show info").await.unwrap_or_default();
        let dropped = answer.lines().find_map(|line| line.strip_prefix("DroppedLogs: "));
        let dropped = dropped.and_then(|number| number.trim().parse::<u64>().ok());
        dropped.unwrap_or(0) + self.intake.unread()
    }

    /// Brings the running worker to `model` through its socket. Says whether anything changed, or `None` when it did
    /// not work and a reload is due.
    async fn adjust(&self, model: &Model, observed: &Observed) -> Result<Option<bool>, Error> {
        let plan = state::plan(model, observed);
        if plan.first().is_none() {
            return Ok(Some(false));
        }
        if let Err(error) = self.carry_out(&plan).await {
            tracing::warn!(%error, "HAProxy took no commands, reloading it");
            return Ok(None);
        }
        let Some(now) = self.observe(Some(model)).await? else { return Ok(None) };
        if let Some(step) = state::plan(model, &now).first() {
            tracing::warn!(step, "HAProxy did not do as told, reloading it");
            return Ok(None);
        }
        Ok(Some(true))
    }

    async fn carry_out(&self, plan: &Plan) -> std::io::Result<()> {
        let prepare = plan.tables.iter().map(|table| format!("prepare map {}", table.file));
        let gain: Vec<String> = plan.gain.iter().cloned().chain(prepare).collect();
        let answer = self.sockets.send(&gain).await?;
        let refused = |answer: &str| {
            std::io::Error::other(format!("HAProxy does not replace a table: {}", answer.trim()))
        };
        let versions = socket::prepared(&answer);
        if versions.len() != plan.tables.len() {
            return Err(refused(&answer));
        }
        let tables = plan.tables.iter().zip(versions);
        let replace = tables
            .flat_map(|(table, version)| socket::replacement(&table.file, version, &table.lines()));
        let answer = self.sockets.send(&replace.collect::<Vec<_>>()).await?;
        if !answer.is_empty() {
            return Err(refused(&answer));
        }
        self.sockets.send(&plan.lose).await?;
        Ok(())
    }

    /// Starts or reloads HAProxy with the file in use, and waits until it serves it.
    async fn load(&self, before: Option<&Observed>, structure: &str) -> Result<(), Error> {
        let identity = match (before, self.process.running()) {
            (Some(_), Some(identity)) => {
                self.process.reload(identity).await?;
                identity
            }
            _ => self.process.start().await?,
        };
        let deadline = Instant::now() + self.settings.start_timeout;
        let mut again = Instant::now() + RELOAD_AGAIN;
        loop {
            let now = self.observe(None).await.unwrap_or_default();
            let unchanged =
                matches!((before, &now), (Some(before), Some(now)) if before.pid == now.pid);
            if unchanged && Instant::now() > again {
                self.process.reload(identity).await?;
                again = Instant::now() + RELOAD_AGAIN;
            }
            if now.is_some_and(|now| {
                now.structure == structure && before.is_none_or(|before| before.pid != now.pid)
            }) {
                return Ok(());
            }
            let words = self.process.words();
            if words.contains("[ALERT]") || !identity.is_alive() {
                return Err(Error::Transient(format!(
                    "HAProxy does not load its configuration: {words}"
                )));
            }
            if Instant::now() > deadline {
                let limit = self.settings.start_timeout;
                return Err(Error::Transient(format!(
                    "HAProxy serves no new configuration after {limit:?}: {words}"
                )));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Installs and loads; when loading fails the former file is put back.
    async fn replace(&self, before: Option<&Observed>, new: &Rendered) -> Result<(), Failure> {
        let former = self.keeper.files();
        self.keeper.install(&new.files).await.map_err(Failure::NotInstalled)?;
        if let Err(error) = self.load(before, &new.structure).await {
            if !former.text.is_empty() && former != new.files {
                self.keeper.install(&former).await?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Brings the proxy to `configuration`, of which HAProxy is expected to take everything.
    async fn bring(
        &self,
        state: &mut State,
        configuration: &Configuration,
        observed: Option<&Observed>,
    ) -> Result<Applied, Failure> {
        let ended = observed.is_none() && state.watched.is_some();
        let (configuration, disabled) = state.verdicts.sift(configuration);
        let ours = observed.map(|observed| observed.ports.clone()).unwrap_or_default();
        let (usable, mut applied) = self.usable(&configuration, &ours);
        applied.disabled = disabled;
        let virtual_hosts_port = self.virtual_hosts_port(&ours);
        let (virtual_hosts_port, unreachable) = match virtual_hosts_port.transpose() {
            Ok(port) => (port, None),
            Err(reason) => (None, Some(reason)),
        };
        let model = Model::of(&usable, self.settings.bind_address, virtual_hosts_port);
        let template = configuration.template.as_deref().map(String::as_str);
        let new = self.rendered(&model, template).map_err(Error::Transient)?;
        // What is taken in before it has a name is not counted.
        self.intake.name(attribution::ways(&model, &usable));
        // Who routes does not wait for who counts.
        let uncounted = self.intake.follow(&self.process.directory).err();
        self.remember(state, &configuration);
        let adjusted = match observed {
            Some(observed) if observed.structure == new.structure => {
                // An HAProxy of an earlier life was not asked for its tables yet.
                let asked =
                    if state.model.is_some() { None } else { self.observe(Some(&model)).await? };
                self.adjust(&model, asked.as_ref().unwrap_or(observed)).await?
            }
            _ => None,
        };
        if adjusted.is_none() {
            self.replace(observed, &new).await?;
        }
        state.model = Some(model);
        self.watch(state)?;
        // What is served is served, whether or not a restart would find it in the file.
        let unkept = self.keeper.follow(&new.files).err();
        let hosts = usable.iter().any(|gateway| !gateway.virtual_hosts.is_empty());
        let unserved = [unkept, uncounted].into_iter().flatten().map(|error| error.to_string());
        let unreachable = unreachable.filter(|_| hosts);
        let ended = ended.then(|| ENDED.to_owned());
        let troubles = unserved.chain(unreachable).chain(ended).collect();
        Ok(Applied { changed: adjusted.unwrap_or(true), troubles, ..applied })
    }

    /// Brings the proxy to `configuration`. What only HAProxy itself can judge is taken on trust first.
    async fn judged(
        &self,
        state: &mut State,
        configuration: &Configuration,
        observed: Option<&Observed>,
    ) -> Result<Applied, Error> {
        let unknown = state.verdicts.unknown(configuration);
        if unknown.is_empty() {
            return self.bring(state, configuration, observed).await.map_err(Failure::error);
        }
        self.process.program.usable().await?;
        match self.bring(state, configuration, observed).await {
            Ok(applied) => {
                state.verdicts.accept(unknown);
                return Ok(applied);
            }
            Err(Failure::NotInstalled(error)) => tracing::debug!(%error, "looking for what it is"),
            Err(failure) => return Err(failure.error()),
        }
        state.verdicts.judge(&self.process, unknown).await;
        self.bring(state, configuration, observed).await.map_err(Failure::error)
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

    fn remember(&self, state: &mut State, configuration: &Configuration) {
        let targets = configuration
            .gateways
            .iter()
            .flat_map(|gateway| &gateway.routes)
            .flat_map(|route| &route.targets);
        let before = state.names.len();
        state.names.extend(targets.map(|target| (target.lookup_name.clone(), target.name.clone())));
        if state.names.len() != before
            && let Ok(names) = serde_json::to_vec(&state.names)
            && let Err(error) = process::replace(&self.process.directory.join(NAMES_FILE), &names)
        {
            tracing::warn!(%error, "names of targets are not kept, after a restart they are told by lookup name");
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
        let mut applied = self.judged(&mut state, &configuration, observed).await?;
        applied.troubles.extend(missing);
        Ok(applied)
    }

    async fn busy(&self) -> Result<BTreeSet<String>, Error> {
        let mut state = self.state.lock().await;
        let Some(observed) = self.observe(None).await? else { return Ok(BTreeSet::new()) };
        let Some(model) = state.model.clone() else { return Ok(BTreeSet::new()) };
        let servers = || {
            model
                .backends
                .iter()
                .flat_map(|backend| backend.servers.iter().map(move |server| (backend, server)))
        };
        let serving: BTreeSet<(String, String)> = servers()
            .filter(|(_, server)| !server.draining)
            .map(|(backend, server)| (backend.name.clone(), server.name.clone()))
            .collect();
        let carrying = self.carrying(&observed, &state.names).await?;
        let name = |lookup: &String| state.names.get(lookup).unwrap_or(lookup).clone();
        let busy = carrying.difference(&serving).map(|(_, lookup)| name(lookup)).collect();
        // What was removed and carries nothing any more goes for good; the rest waits for a later look.
        let removable = observed.removable(&model);
        if !removable.is_empty()
            && let Err(error) = self.sockets.send(&removable).await
        {
            tracing::debug!(%error, "removed servers stay for now");
        }
        let known: BTreeSet<&String> = servers()
            .map(|(_, server)| &server.name)
            .chain(carrying.iter().map(|(_, lookup)| lookup))
            .collect();
        state.names.retain(|lookup, _| known.contains(lookup));
        Ok(busy)
    }

    async fn traffic(&self, now: OffsetDateTime, window: Duration) -> Result<Traffic, Error> {
        let (counts, seconds) = self.intake.counts(now, window);
        // Nothing is lost where nothing comes.
        let lost = if counts.is_empty() { 0 } else { self.lost().await };
        Ok(Traffic { counts, seconds, lost })
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
