//! Plans one turn of a deployment: what runs, what is wanted, and the steps between them (runtime, sections 4 and 5).
//!
//! Pure: the state, the observation and the time are handed in, actions come out.

use super::Seen;
use super::spec::{instance_name, template};
use crate::Settings;
use crate::containers::{Condition, ContainerDriver, InstanceSpec, ObservedInstance};
use indexmap::IndexSet;
use segue_domain::artifact::{Deployment, Instance, Intention, Leaving, PhaseName, Service};
use segue_domain::command::{ServiceKey, ServiceReport};
use segue_domain::state::State;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use time::OffsetDateTime;

/// How many instances of one service are started in one turn; the others follow in the next ones.
const STARTS_MAX: usize = 20;

/// What is wanted, and by which rules.
pub struct Desired<'a> {
    /// The state.
    pub state: &'a State,
    /// The deployment to plan for; it may not exist any more.
    pub deployment: &'a str,
    /// The drivers; the first that supports a service's type runs it.
    pub drivers: &'a [Arc<dyn ContainerDriver>],
    /// The drivers that could not tell what runs.
    pub unavailable: &'a Unavailable,
    /// The rules.
    pub settings: &'a Settings,
    /// When a service that failed may be tried again.
    pub not_before: &'a dyn Fn(&ServiceKey) -> Option<OffsetDateTime>,
}

/// Drivers that could not tell what runs, by their place in [`Desired::drivers`], with their words.
pub type Unavailable = BTreeMap<usize, String>;

/// One step. Drivers are given by their place in [`Desired::drivers`].
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start an instance.
    Start {
        /// By which driver.
        driver: usize,
        /// For which service.
        key: ServiceKey,
        /// What.
        spec: Box<InstanceSpec>,
    },
    /// Stop and remove an instance that no gateway sends anything to.
    Stop {
        /// By which driver.
        driver: usize,
        /// Which.
        instance: String,
    },
    /// Note that an instance of a service ended by itself, so that the next one waits a while.
    Exited {
        /// Which service.
        key: ServiceKey,
    },
    /// Report something about a service.
    Report {
        /// Which.
        key: ServiceKey,
        /// What.
        report: ServiceReport,
    },
    /// Look again at this time.
    WaitUntil(OffsetDateTime),
}

/// The actions that bring `observed`, each instance with the place of its driver, closer to what is desired.
/// `suffix` makes the parts of names that tell new instances apart.
pub fn plan(
    desired: &Desired<'_>,
    observed: &[Seen],
    now: OffsetDateTime,
    suffix: &mut dyn FnMut() -> String,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let deployment = desired.state.deployment(desired.deployment);
    let wanted = |instance: &ObservedInstance| {
        deployment.is_some_and(|found| {
            found.service(&instance.owner.cluster, &instance.owner.service).is_some()
        })
    };
    for (driver, instance) in observed.iter().filter(|(_, instance)| !wanted(instance)) {
        if !matches!(instance.condition, Condition::Stopping | Condition::Stuck(_)) {
            actions.push(Action::Stop { driver: *driver, instance: instance.name.clone() });
        }
    }
    let Some(deployment) = deployment else { return actions };
    for (cluster, service) in deployment.services() {
        let key = ServiceKey {
            deployment: deployment.name.clone(),
            cluster: cluster.to_owned(),
            service: service.breed.name.clone(),
        };
        let own = observed.iter().filter(|(_, instance)| {
            instance.owner.cluster == key.cluster && instance.owner.service == key.service
        });
        let mut own: Vec<&Seen> = own.collect();
        own.sort_by(|(_, a), (_, b)| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let mut plan =
            ServicePlan { desired, deployment, service, key, own, now, actions: Vec::new() };
        match service.status.intention {
            Intention::Deployment => plan.deploy(suffix),
            Intention::Undeployment => plan.undeploy(),
        }
        actions.extend(plan.actions);
    }
    actions
}

struct ServicePlan<'a> {
    desired: &'a Desired<'a>,
    deployment: &'a Deployment,
    service: &'a Service,
    key: ServiceKey,
    /// What runs of the service, oldest first.
    own: Vec<&'a Seen>,
    now: OffsetDateTime,
    actions: Vec<Action>,
}

/// How what runs compares with what is wanted.
struct Comparison<'a> {
    /// Instances of the wanted definition that are to stay.
    staying: Vec<&'a ObservedInstance>,
    /// Instances of an older definition that take traffic, or did.
    outdated: usize,
    /// Whether as many as wanted run with the wanted definition.
    ready: bool,
    /// The instance list as the state should have it.
    list: Vec<Instance>,
}

impl Comparison<'_> {
    fn matches(&self) -> bool {
        let all_stay = self.list.iter().all(|instance| instance.leaving == Leaving::No);
        self.ready && self.outdated == 0 && all_stay
    }
}

impl<'a> ServicePlan<'a> {
    fn deploy(&mut self, suffix: &mut dyn FnMut() -> String) {
        let phase = self.service.status.phase.name;
        if phase == PhaseName::Initiated {
            self.report(ServiceReport::TakenUp);
            return;
        }
        let kind = &self.service.breed.deployable.kind;
        let Some(driver) = self.desired.drivers.iter().position(|driver| driver.supports(kind))
        else {
            self.report_unsupported(kind);
            return;
        };
        if let Some(words) = self.desired.unavailable.get(&driver) {
            self.wait_for_driver(words, self.desired.settings.ready_for_deployment);
            return;
        }
        let name = self.desired.drivers[driver].name();
        let template = template(
            self.desired.state,
            &self.key,
            self.deployment,
            self.service,
            name,
            self.desired.settings,
        );
        let Some(template) = template else {
            self.prepare();
            return;
        };
        self.clear_exited(&template.fingerprint);
        let comparison = self.compare(&template.fingerprint, phase == PhaseName::Failed);
        self.report_instances(&comparison.list);
        self.report_stuck();
        self.stop_released();
        match phase {
            PhaseName::Initiated | PhaseName::Failed => {}
            PhaseName::Updating => {
                if !self.report_timed_out(self.desired.settings.ready_for_deployment) {
                    self.start_missing(driver, &template, &comparison, suffix);
                    self.report_done(&comparison);
                }
            }
            PhaseName::Done => self.report_difference(&comparison),
        }
    }

    fn undeploy(&mut self) {
        let status = &self.service.status;
        if self.own.is_empty() {
            // What cannot be seen may still run.
            let kind = &self.service.breed.deployable.kind;
            let driver = self.desired.drivers.iter().position(|driver| driver.supports(kind));
            match driver.map(|driver| self.desired.unavailable.get(&driver)) {
                None => self.give_up(kind),
                Some(None) => self.report(ServiceReport::Gone),
                Some(Some(_)) if status.phase.name == PhaseName::Initiated => {
                    self.report(ServiceReport::TakenUp);
                }
                Some(Some(words)) => {
                    self.wait_for_driver(words, self.desired.settings.ready_for_undeployment);
                }
            }
            return;
        }
        self.clear_exited("");
        if status.phase.name == PhaseName::Initiated {
            self.report(ServiceReport::TakenUp);
        }
        let alive = self.own.iter().filter(|(_, instance)| is_alive(instance));
        let list: Vec<Instance> = alive
            .map(|(_, observed)| {
                let leaving = self.leaving(&observed.name).max(Leaving::Draining);
                self.instance(observed, observed.condition == Condition::Running, leaving)
            })
            .collect();
        self.report_instances(&list);
        self.report_stuck();
        self.stop_released();
        self.report_timed_out(self.desired.settings.ready_for_undeployment);
    }

    /// There is no driver any more that could say what runs, or stop it. What may run on is told, so that somebody else
    /// can end it.
    fn give_up(&mut self, kind: &str) {
        let known = self.service.instances.iter().map(|instance| &instance.name);
        if let Some(names) = quoted(known) {
            if self.service.status.phase.name == PhaseName::Initiated {
                self.report(ServiceReport::TakenUp);
            }
            self.report(ServiceReport::Trouble(format!(
                "no driver runs deployables of type '{kind}' any more, so that nothing was stopped; what may still run: {names}"
            )));
        }
        self.report(ServiceReport::Gone);
    }

    /// The variables are not interpolated: that waits for everything the service depends on. Meanwhile what runs of
    /// an older definition goes on.
    fn prepare(&mut self) {
        self.clear_exited("");
        let comparison = self.compare("", false);
        self.report_instances(&comparison.list);
        self.stop_released();
        if self.service.status.phase.name == PhaseName::Failed {
            return;
        }
        match self.desired.state.dependencies_ready(self.deployment, self.service) {
            Ok(()) => self.report(ServiceReport::EnvironmentDue),
            Err(_) => drop(self.report_timed_out(self.desired.settings.ready_for_deployment)),
        }
    }

    /// Compares what runs with `fingerprint` and the scale. New instances take traffic only when all of them run, and
    /// the old ones go only then; after a failure those go instead that never took any. Old ones that never did are of a
    /// change that was given up, and go at once.
    fn compare(&self, fingerprint: &str, failed: bool) -> Comparison<'a> {
        let wanted = self.service.scale.instances as usize;
        let alive: Vec<&'a ObservedInstance> = self
            .own
            .iter()
            .map(|(_, instance)| &**instance)
            .filter(|instance| is_alive(instance))
            .collect();
        let stays = |instance: &&&ObservedInstance| self.leaving(&instance.name) == Leaving::No;
        let is_current = |instance: &&&ObservedInstance| instance.fingerprint == fingerprint;
        let mut staying: Vec<&ObservedInstance> =
            alive.iter().filter(is_current).filter(stays).copied().collect();
        // Those that do not run are stopped first, then the newest.
        staying.sort_by_key(|instance| instance.condition != Condition::Running);
        staying.truncate(wanted);
        let outdated = alive.iter().filter(|instance| !is_current(instance)).filter(stays);
        let outdated = outdated.filter(|instance| self.has_served(&instance.name)).count();
        let running =
            staying.iter().filter(|instance| instance.condition == Condition::Running).count();
        let ready = running >= wanted && !fingerprint.is_empty();
        let list = alive.iter().map(|observed| {
            let current = observed.fingerprint == fingerprint;
            let running = observed.condition == Condition::Running;
            let surplus = current && !staying.iter().any(|kept| kept.name == observed.name);
            let replaced = !current && ready;
            let served = self.has_served(&observed.name);
            let unfinished = current && failed && !ready && !served && (!running || outdated > 0);
            let given_up = !current && !served && !fingerprint.is_empty();
            let goes = surplus || replaced || unfinished || given_up;
            let leaving = if goes { Leaving::Draining } else { Leaving::No };
            let takes_traffic = running && (served || current && (ready || outdated == 0));
            self.instance(observed, takes_traffic, leaving.max(self.leaving(&observed.name)))
        });
        Comparison { list: list.collect(), staying, outdated, ready }
    }

    fn start_missing(
        &mut self,
        driver: usize,
        template: &InstanceSpec,
        comparison: &Comparison<'_>,
        suffix: &mut dyn FnMut() -> String,
    ) {
        let missing =
            (self.service.scale.instances as usize).saturating_sub(comparison.staying.len());
        if missing == 0 {
            return;
        }
        let nothing_runs = comparison.staying.is_empty() && comparison.outdated == 0;
        if nothing_runs
            && self.desired.state.dependencies_ready(self.deployment, self.service).is_err()
        {
            return;
        }
        // The pause after an end begins when this turn acts, which looks again when it is over.
        if self.actions.iter().any(|action| matches!(action, Action::Exited { .. })) {
            return;
        }
        if let Some(at) = (self.desired.not_before)(&self.key).filter(|at| *at > self.now) {
            self.actions.push(Action::WaitUntil(at));
            return;
        }
        if missing > STARTS_MAX {
            self.actions.push(Action::WaitUntil(self.now));
        }
        for _ in 0..missing.min(STARTS_MAX) {
            let spec =
                InstanceSpec { name: instance_name(&self.key, &suffix()), ..template.clone() };
            self.actions.push(Action::Start {
                driver,
                key: self.key.clone(),
                spec: Box::new(spec),
            });
        }
    }

    /// What ended by itself, or never started, is removed. Its last words are reported when it is what is wanted, or
    /// served: what an earlier wish came to says nothing about this one.
    fn clear_exited(&mut self, fingerprint: &str) {
        let own: Vec<&'a Seen> = self.own.clone();
        for (driver, observed) in own {
            let (words, refused) = match &observed.condition {
                Condition::Exited(words) => (words.clone(), false),
                Condition::Refused(words) => (words.clone(), true),
                Condition::Starting(_)
                | Condition::Restarting(_)
                | Condition::Running
                | Condition::Stopping
                | Condition::Stuck(_) => continue,
            };
            self.actions.push(Action::Stop { driver: *driver, instance: observed.name.clone() });
            let is_wanted =
                observed.fingerprint == fingerprint && self.leaving(&observed.name) == Leaving::No;
            if is_wanted {
                self.actions.push(Action::Exited { key: self.key.clone() });
            }
            if is_wanted && refused {
                self.report(ServiceReport::Failed(words));
            } else if is_wanted || self.has_served(&observed.name) {
                self.report(ServiceReport::Trouble(words));
            }
        }
    }

    /// Nothing can be seen of the service. What is known of it stays, and the driver's words are told.
    fn wait_for_driver(&mut self, words: &str, limit: Option<std::time::Duration>) {
        if !self.report_timed_out(limit) {
            self.report_trouble(words);
        }
    }

    /// What keeps ending is told in its own last words, also while its driver still tries; and so is what keeps something
    /// from ending.
    fn report_stuck(&mut self) {
        let words = self.own.iter().find_map(|(_, instance)| match &instance.condition {
            Condition::Restarting(words) | Condition::Stuck(words) => Some(words),
            Condition::Starting(_)
            | Condition::Running
            | Condition::Stopping
            | Condition::Exited(_)
            | Condition::Refused(_) => None,
        });
        if let Some(words) = words {
            self.report_trouble(words);
        }
    }

    /// Tells `words` unless they were told last.
    fn report_trouble(&mut self, words: &str) {
        let phase = &self.service.status.phase;
        if phase.name == PhaseName::Updating && phase.notification.as_deref() != Some(words) {
            self.report(ServiceReport::Trouble(words.to_owned()));
        }
    }

    fn stop_released(&mut self) {
        for (driver, instance) in &self.own {
            if is_alive(instance) && self.leaving(&instance.name) == Leaving::Released {
                self.actions
                    .push(Action::Stop { driver: *driver, instance: instance.name.clone() });
            }
        }
    }

    fn report_instances(&mut self, list: &[Instance]) {
        if list != self.service.instances {
            self.report(ServiceReport::Instances(list.to_vec()));
        }
    }

    fn report_done(&mut self, comparison: &Comparison<'_>) {
        if comparison.matches() && comparison.list == self.service.instances {
            self.report(ServiceReport::Done);
        }
    }

    fn report_difference(&mut self, comparison: &Comparison<'_>) {
        if comparison.matches() {
            return;
        }
        let running =
            comparison.staying.iter().filter(|found| found.condition == Condition::Running).count();
        let mut how = format!("{running} of {} instances run", self.service.scale.instances);
        for (_, instance) in &self.own {
            if let Condition::Exited(words) = &instance.condition {
                how = format!("{how}, '{}' {words}", instance.name);
            }
        }
        if comparison.outdated > 0 {
            how = format!("{how}, {} with another definition", comparison.outdated);
        }
        self.report(ServiceReport::Differs(how));
    }

    /// A service that is done was run by a driver that is gone since: it is taken up again, and fails after a while.
    fn report_unsupported(&mut self, kind: &str) {
        let kinds = self.desired.drivers.iter().flat_map(|driver| driver.kinds());
        let kinds: IndexSet<&str> = kinds.copied().collect();
        let supported = quoted(kinds).unwrap_or_else(|| "none".to_owned());
        let words = format!("Unsupported deployable type '{kind}', supported: {supported}");
        match self.service.status.phase.name {
            // What ran goes on where its driver comes back in time: a configuration may be mistaken.
            PhaseName::Updating if !self.service.instances.is_empty() => {
                self.wait_for_driver(&words, self.desired.settings.ready_for_deployment);
            }
            PhaseName::Updating => self.report(ServiceReport::Failed(words)),
            PhaseName::Done => self.report(ServiceReport::Differs(words)),
            PhaseName::Initiated | PhaseName::Failed => {}
        }
    }

    /// Whether the phase takes too long; then the reason is what the driver said last, or what is waited for.
    fn report_timed_out(&mut self, limit: Option<std::time::Duration>) -> bool {
        let phase = &self.service.status.phase;
        let Some(limit) = limit else { return false };
        if phase.name != PhaseName::Updating {
            return false;
        }
        let limit_signed = time::Duration::try_from(limit).unwrap_or(time::Duration::MAX);
        // A limit past the end of time is none.
        let Some(deadline) = phase.since.checked_add(limit_signed) else { return false };
        if self.now < deadline {
            self.actions.push(Action::WaitUntil(deadline));
            return false;
        }
        let reason = phase.notification.clone().unwrap_or_else(|| self.waited_for());
        self.report(ServiceReport::Failed(format!(
            "not ready after {} s: {reason}",
            limit.as_secs()
        )));
        true
    }

    fn waited_for(&self) -> String {
        let starting = self.own.iter().find_map(|(_, instance)| match &instance.condition {
            Condition::Starting(words) | Condition::Restarting(words) | Condition::Stuck(words) => {
                Some(format!("instance '{}' {words}", instance.name))
            }
            Condition::Running
            | Condition::Stopping
            | Condition::Exited(_)
            | Condition::Refused(_) => None,
        });
        if self.service.is_undeploying() {
            let still_run = || format!("{} instances still run", self.own.len());
            return self.release_waited_for().unwrap_or_else(still_run);
        }
        let dependencies =
            || self.desired.state.dependencies_ready(self.deployment, self.service).err();
        starting
            .or_else(dependencies)
            .or_else(|| self.release_waited_for())
            .unwrap_or_else(|| "instances do not match what is wanted".to_owned())
    }

    /// Instances that were taken out of traffic and may still be sent something. What keeps the proxy is not known here:
    /// it is no matter of single services.
    fn release_waited_for(&self) -> Option<String> {
        let alive = self.own.iter().filter(|(_, instance)| is_alive(instance));
        let names = alive.map(|(_, instance)| &instance.name);
        let draining = names.filter(|name| self.leaving(name) == Leaving::Draining);
        Some(format!(
            "waits for the gateways to release {}; events with gateway_driver:ERROR say what keeps them",
            quoted(draining)?
        ))
    }

    /// Whether traffic ever went to an instance. It gets some whenever it runs, also when the wish went to another
    /// definition, or back.
    fn has_served(&self, name: &str) -> bool {
        let mut known = self.service.instances.iter();
        known.any(|known| known.name == name && (known.served || known.deployed))
    }

    /// An instance as the state should have it.
    fn instance(&self, observed: &ObservedInstance, deployed: bool, leaving: Leaving) -> Instance {
        let served = deployed || self.has_served(&observed.name);
        Instance { served, ..instance(observed, deployed, leaving) }
    }

    /// Where the state has an instance on its way out; one that it does not know stays.
    fn leaving(&self, name: &str) -> Leaving {
        let known = self.service.instances.iter().find(|instance| instance.name == name);
        known.map_or(Leaving::No, |instance| instance.leaving)
    }

    fn report(&mut self, report: ServiceReport) {
        self.actions.push(Action::Report { key: self.key.clone(), report });
    }
}

/// Names as a sentence has them; `None` when there are none.
fn quoted(names: impl IntoIterator<Item = impl Display>) -> Option<String> {
    let names: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn is_alive(instance: &ObservedInstance) -> bool {
    matches!(
        instance.condition,
        Condition::Starting(_) | Condition::Restarting(_) | Condition::Running
    )
}

pub(super) fn instance(observed: &ObservedInstance, deployed: bool, leaving: Leaving) -> Instance {
    Instance {
        name: observed.name.clone(),
        host: observed.host.clone(),
        ports: observed.ports.clone(),
        deployed,
        leaving,
        served: deployed,
    }
}
