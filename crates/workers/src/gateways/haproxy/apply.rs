//! How a configuration comes to be served, step by step:
//!
//! 1. [`judged`](HaproxyDriver::judged) leaves out what HAProxy refuses,
//! 2. [`bring`](HaproxyDriver::bring) makes model and files of the rest,
//! 3. [`adjust`](HaproxyDriver::adjust) changes the running worker where its socket can, else
//! 4. [`replace`](HaproxyDriver::replace) has the file checked and installed, and
//! 5. [`load`](HaproxyDriver::load) starts or reloads HAProxy.

use super::isolate::{Part, Verdicts};
use super::model::Model;
use super::process::{self, Failure};
use super::render::Rendered;
use super::state::{self, Observed, Plan};
use super::{HaproxyDriver, NAMES_FILE, POLL, RELOAD_AGAIN, State, attribution, socket};
use crate::driver::Error;
use crate::gateways::{Applied, Configuration};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How long it may take to find out what HAProxy refuses; nothing else changes meanwhile.
const JUDGE_TIME: Duration = Duration::from_secs(30);
/// How long a check with some of what is judged may take at least.
const JUDGE_MIN: Duration = Duration::from_secs(1);
/// How many names of targets that are gone are kept before it is looked which of them may be busy.
const NAMES_SPARE: usize = 100;
/// What is told of an HAProxy that nobody stopped.
const ENDED: &str =
    "HAProxy ended by itself and was started again; what was under way through it is lost";

impl HaproxyDriver {
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

    /// Starts or reloads HAProxy with the file in use, and waits until it serves that; of an unknown structure where
    /// none is given.
    async fn load(&self, before: Option<&Observed>, structure: Option<&str>) -> Result<(), Error> {
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
                structure.is_none_or(|structure| now.structure == structure)
                    && before.is_none_or(|before| before.pid != now.pid)
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
        self.keeper.install(&new.files).await?;
        if let Err(error) = self.load(before, Some(&new.structure)).await {
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
        state.ended |= observed.is_none() && state.watched.is_some();
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
        let ended = std::mem::take(&mut state.ended).then(|| ENDED.to_owned());
        let troubles = unserved.chain(unreachable).chain(ended).collect();
        Ok(Applied { changed: adjusted.unwrap_or(true), troubles, ..applied })
    }

    /// Brings the proxy to `configuration`. What only HAProxy itself can judge is taken on trust first.
    pub(super) async fn judged(
        &self,
        state: &mut State,
        configuration: &Configuration,
        observed: Option<&Observed>,
    ) -> Result<Applied, Error> {
        let now = Instant::now();
        state.verdicts.keep(configuration);
        let due = state.verdicts.due(now);
        if !due.is_empty() && !self.judge(state, configuration, observed, due.clone(), now).await? {
            // It is not known now, and asking at every turn would hold up all others.
            state.verdicts.postpone(&due, Instant::now());
        }
        let refused = match self.bring(state, configuration, observed).await {
            Ok(applied) => {
                state.verdicts.accept(configuration);
                return Ok(applied);
            }
            Err(Failure::Refused(error)) => error,
            Err(failure) => return Err(failure.error()),
        };
        tracing::debug!(error = %refused, "looking for what it is");
        for suspects in state.verdicts.suspects(configuration) {
            if suspects.is_empty()
                || !self.judge(state, configuration, observed, suspects, now).await?
            {
                continue;
            }
            let applied = self.bring(state, configuration, observed).await;
            if applied.is_ok() {
                state.verdicts.accept(configuration);
            }
            return applied.map_err(Failure::error);
        }
        Err(refused)
    }

    /// Finds out which of `suspects` HAProxy refuses, each in its place among everything that it takes. Says no, and nothing
    /// of any of them, when it refuses also what is left without them: then it is something else, or HAProxy itself.
    pub(super) async fn judge(
        &self,
        state: &mut State,
        configuration: &Configuration,
        observed: Option<&Observed>,
        suspects: Vec<Part>,
        now: Instant,
    ) -> Result<bool, Error> {
        let mut held: BTreeSet<Part> = suspects.iter().cloned().collect();
        let verdicts = &mut state.verdicts;
        let began = Instant::now();
        let limit = self.process.check_timeout();
        let rest = self.refusal_without(verdicts, configuration, observed, &held, limit);
        if rest.await?.is_some() {
            return Ok(false);
        }
        // What takes so much longer than without it comes to no end.
        let limit = limit.min((began.elapsed() * 10).max(JUDGE_MIN));
        verdicts.acquit(&suspects);
        // The larger sets first, so that what is fine among them is known before time runs out.
        let mut open = VecDeque::from([suspects]);
        while let Some(mut parts) = open.pop_front() {
            if began.elapsed() > JUDGE_TIME {
                verdicts.leave_open(parts, Instant::now());
                continue;
            }
            held.retain(|part| !parts.contains(part));
            let refusal = self.refusal_without(verdicts, configuration, observed, &held, limit);
            let Some(words) = refusal.await? else { continue };
            if parts.len() == 1 {
                verdicts.refuse(parts, &words, now);
                continue;
            }
            held.extend(parts.iter().cloned());
            let rest = parts.split_off(parts.len() / 2);
            open.extend([parts, rest]);
        }
        Ok(true)
    }

    /// What HAProxy says against `configuration` without what is refused, and without `held`.
    async fn refusal_without(
        &self,
        verdicts: &Verdicts,
        configuration: &Configuration,
        observed: Option<&Observed>,
        held: &BTreeSet<Part>,
        limit: Duration,
    ) -> Result<Option<String>, Error> {
        let (sifted, _) = verdicts.sift_without(configuration, held);
        let ours = observed.map(|observed| observed.ports.clone()).unwrap_or_default();
        let (usable, _) = self.usable(&sifted, &ours);
        let virtual_hosts_port = self.virtual_hosts_port(&ours).and_then(Result::ok);
        let model = Model::of(&usable, self.settings.bind_address, virtual_hosts_port);
        let template = configuration.template.as_deref().map(String::as_str);
        let new = self.rendered(&model, template).map_err(Error::Transient)?;
        self.keeper.refusal(&new.files, limit).await
    }

    /// Starts HAProxy with the last good file, when it does not run and what is wanted cannot be had.
    pub(super) async fn revive(&self, state: &mut State) -> Result<(), Error> {
        let file = self.process.directory.join(process::CONFIGURATION_FILE);
        if self.process.running().is_some() || !file.exists() {
            return Ok(());
        }
        tracing::warn!("HAProxy is started with the last good configuration");
        self.load(None, None).await?;
        self.watch(state)
    }

    /// Which instances that get nothing new still carry something. What was removed and carries nothing goes for good.
    pub(super) async fn sweep(
        &self,
        state: &mut State,
        observed: &Observed,
    ) -> Result<BTreeSet<String>, Error> {
        let Some(model) = &state.model else { return Ok(BTreeSet::new()) };
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
        let carrying = self.carrying(observed, &state.names).await?;
        let name = |lookup: &String| state.names.get(lookup).unwrap_or(lookup).clone();
        let busy = carrying.difference(&serving).map(|(_, lookup)| name(lookup)).collect();
        let removable = observed.removable(model);
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

    /// Looks after targets that went without draining, such as those of instances that ended, once they are many.
    pub(super) async fn sweep_rarely(&self, state: &mut State) -> Result<(), Error> {
        let Some(model) = &state.model else { return Ok(()) };
        let servers: usize = model.backends.iter().map(|backend| backend.servers.len()).sum();
        if state.names.len() <= 2 * servers + NAMES_SPARE {
            return Ok(());
        }
        let Some(observed) = self.observe(None).await? else { return Ok(()) };
        self.sweep(state, &observed).await.map(drop)
    }

    /// Keeps the names of targets, so that they can be told of after a restart, too.
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
}
