//! A container driver that is slow and lies, around the simulated one, which knows the truth.

use super::{Fault, UnderWay, due, trouble};
use crate::simulation::tally::Tally;
use async_trait::async_trait;
use futures::executor::block_on;
use segue_workers::containers::{
    Condition, ContainerDriver, InstanceSpec, ObservedInstance, Owner, SimulatedContainers,
};
use segue_workers::driver::{Changes, Error};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use time::{Duration, OffsetDateTime};

/// How many observations back an answer of the past may be.
const PAST_MAX: usize = 3;

/// The driver, and everything that a test asks of it. Clones share everything.
#[derive(Clone)]
pub struct Containers {
    /// What really runs.
    pub truth: SimulatedContainers,
    shared: Arc<Mutex<Shared>>,
    tally: Tally,
}

/// What is wrong with one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// There is none.
    Failed,
    /// It is an earlier one.
    Past,
    /// Every so many-th instance is lacking.
    Lacking(usize),
}

/// What the driver was asked for in one turn, and what it said.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// What it said that there is.
    pub seen: Vec<Arc<ObservedInstance>>,
    /// What was to be started.
    pub starts: Vec<InstanceSpec>,
    /// What was to be stopped, by name.
    pub stops: Vec<String>,
    /// Services about whose instances it lied: it left some out, or showed some as running that do not run any more.
    pub lied: BTreeSet<Owner>,
}

#[derive(Default)]
struct Shared {
    life: u32,
    starts: VecDeque<Fault>,
    stops: VecDeque<Fault>,
    sights: VecDeque<Sight>,
    /// While it is set, every action is carried out so much later.
    delay: Option<Duration>,
    under_way: Vec<UnderWay<Action>>,
    past: BTreeMap<String, VecDeque<Vec<Arc<ObservedInstance>>>>,
    /// Deployments that this life of the service has observed.
    observed: BTreeSet<String>,
    asked: Asked,
    hidden: BTreeSet<String>,
    ghosts: BTreeSet<String>,
    now: Option<OffsetDateTime>,
}

#[derive(Clone, Debug)]
enum Action {
    Start(Box<InstanceSpec>),
    Stop { deployment: String, instance: String },
}

impl Containers {
    pub fn new(tally: Tally) -> Self {
        Self { truth: SimulatedContainers::new(), shared: Arc::default(), tally }
    }

    /// What goes wrong with the next start.
    pub fn fail_start(&self, fault: Fault) {
        self.shared().starts.push_back(fault);
    }

    /// What goes wrong with the next stop.
    pub fn fail_stop(&self, fault: Fault) {
        self.shared().stops.push_back(fault);
    }

    /// What is wrong with the next observation.
    pub fn fail_observation(&self, sight: Sight) {
        self.shared().sights.push_back(sight);
    }

    /// From now on it is quick and honest. What is under way goes on.
    pub fn calm(&self) {
        let mut shared = self.shared();
        shared.starts.clear();
        shared.stops.clear();
        shared.sights.clear();
    }

    /// Whether nothing happens any more unless it is asked for.
    pub fn is_quiet(&self) -> bool {
        self.shared().under_way.is_empty() && self.truth.next_due().is_none()
    }

    /// Everything that is asked for from now on happens `delay` later; `None` ends that.
    pub fn delay(&self, delay: Option<Duration>) {
        self.shared().delay = delay;
    }

    /// Another life of the service begins.
    pub fn next_life(&self) {
        let mut shared = self.shared();
        shared.life += 1;
        shared.observed.clear();
    }

    /// Forgets what was asked for, since a turn begins.
    pub fn begin_turn(&self) {
        self.shared().asked = Asked::default();
    }

    /// What was asked for since the turn began.
    pub fn asked(&self) -> Asked {
        self.shared().asked.clone()
    }

    /// Instances that ever ran while the driver left them out of what it said.
    pub fn was_hidden(&self, instance: &str) -> bool {
        self.shared().hidden.contains(instance)
    }

    /// Instances that the driver ever showed as running when they did not any more.
    pub fn was_ghost(&self, instance: &str) -> bool {
        self.shared().ghosts.contains(instance)
    }

    /// Lets everything happen that is due until `now`.
    pub fn advance(&self, now: OffsetDateTime) {
        let arriving = {
            let mut shared = self.shared();
            shared.now = Some(now);
            due(&mut shared.under_way, now)
        };
        for UnderWay { at, life, action } in arriving {
            self.truth.advance(at);
            self.count_late(life, &action);
            // Where it cannot be carried out any more nobody hears of it.
            drop(match action {
                Action::Start(spec) => block_on(self.truth.start(&spec)),
                Action::Stop { deployment, instance } => {
                    block_on(self.truth.stop(&deployment, &instance))
                }
            });
        }
        self.truth.advance(now);
    }

    fn count_late(&self, life: u32, action: &Action) {
        let shared = self.shared();
        let (deployment, kind) = match action {
            Action::Start(spec) => (&spec.owner.deployment, "start of the life before"),
            Action::Stop { deployment, .. } => (deployment, "stop of the life before"),
        };
        if life < shared.life && shared.observed.contains(deployment) {
            self.tally.count(kind);
        }
    }

    fn put_off(&self, action: Action, delay: Duration) -> Error {
        let mut shared = self.shared();
        let now = shared.now.expect("a world begins with the time");
        let under_way = UnderWay { at: now + delay, life: shared.life, action };
        shared.under_way.push(under_way);
        Error::Transient("no answer in time".to_owned())
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // A check that failed elsewhere leaves it whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// What the driver says of `truth`, which is what there is of `deployment`.
    fn look(
        &mut self,
        deployment: &str,
        truth: &[Arc<ObservedInstance>],
        sight: Option<Sight>,
        tally: &Tally,
    ) -> Vec<Arc<ObservedInstance>> {
        self.observed.insert(deployment.to_owned());
        let past = self.past.entry(deployment.to_owned()).or_default();
        let said = match sight {
            None | Some(Sight::Failed) => truth.to_vec(),
            Some(Sight::Past) => past.front().cloned().unwrap_or_else(|| truth.to_vec()),
            Some(Sight::Lacking(every)) => {
                let kept = truth.iter().enumerate().filter(|(index, _)| index % every != 0);
                kept.map(|(_, instance)| instance.clone()).collect()
            }
        };
        past.push_back(truth.to_vec());
        if past.len() > PAST_MAX {
            past.pop_front();
        }
        if said != truth {
            tally.count(match sight {
                Some(Sight::Past) => "observation of the past",
                _ => "observation lacking instances",
            });
        }
        let is_running = |list: &[Arc<ObservedInstance>], name: &str| {
            list.iter().any(|found| found.name == name && found.condition == Condition::Running)
        };
        let is_there = |list: &[Arc<ObservedInstance>], name: &str| {
            list.iter().any(|found| found.name == name)
        };
        for found in truth {
            let hidden = is_running(truth, &found.name) && !is_running(&said, &found.name);
            if hidden || !is_there(&said, &found.name) {
                self.hidden.insert(found.name.clone());
                self.asked.lied.insert(found.owner.clone());
            }
        }
        for found in said.iter().filter(|found| is_running(&said, &found.name)) {
            if !is_running(truth, &found.name) {
                self.ghosts.insert(found.name.clone());
                self.asked.lied.insert(found.owner.clone());
            }
        }
        self.asked.seen.extend(said.iter().cloned());
        said
    }
}

#[async_trait]
impl ContainerDriver for Containers {
    fn name(&self) -> &'static str {
        self.truth.name()
    }

    fn supports(&self, kind: &str) -> bool {
        self.truth.supports(kind)
    }

    async fn ping(&self) -> Result<(), Error> {
        self.truth.ping().await
    }

    async fn deployments(&self) -> Result<BTreeSet<String>, Error> {
        self.truth.deployments().await
    }

    async fn observe(&self, deployment: &str) -> Result<Vec<Arc<ObservedInstance>>, Error> {
        let truth = self.truth.observe(deployment).await?;
        let mut shared = self.shared();
        let sight = shared.sights.pop_front();
        if sight == Some(Sight::Failed) {
            self.tally.count("observation failed");
            return Err(trouble());
        }
        Ok(shared.look(deployment, &truth, sight, &self.tally))
    }

    async fn start(&self, spec: &InstanceSpec) -> Result<(), Error> {
        let (fault, delay) = {
            let mut shared = self.shared();
            shared.asked.starts.push(spec.clone());
            (shared.starts.pop_front(), shared.delay)
        };
        self.tally.count("start");
        match delay.map(Fault::Late).or(fault) {
            None => self.truth.start(spec).await,
            Some(Fault::Refused) => {
                self.tally.count("start refused");
                Err(trouble())
            }
            Some(Fault::RefusedForGood) => {
                self.tally.count("start refused for good");
                Err(Error::Permanent("no such image".to_owned()))
            }
            Some(Fault::Denied) => {
                self.tally.count("start carried out and denied");
                self.truth.start(spec).await?;
                Err(trouble())
            }
            Some(Fault::NotDone) => {
                self.tally.count("start not carried out");
                Ok(())
            }
            Some(Fault::Late(delay)) => {
                self.tally.count("start late");
                Err(self.put_off(Action::Start(Box::new(spec.clone())), delay))
            }
        }
    }

    async fn stop(&self, deployment: &str, instance: &str) -> Result<(), Error> {
        let (fault, delay) = {
            let mut shared = self.shared();
            shared.asked.stops.push(instance.to_owned());
            (shared.stops.pop_front(), shared.delay)
        };
        self.tally.count("stop");
        match delay.map(Fault::Late).or(fault) {
            None => self.truth.stop(deployment, instance).await,
            Some(Fault::Refused | Fault::RefusedForGood) => {
                self.tally.count("stop refused");
                Err(trouble())
            }
            Some(Fault::Denied) => {
                self.tally.count("stop carried out and denied");
                self.truth.stop(deployment, instance).await?;
                Err(trouble())
            }
            Some(Fault::NotDone) => {
                self.tally.count("stop not carried out");
                Ok(())
            }
            Some(Fault::Late(delay)) => {
                self.tally.count("stop late");
                let (deployment, instance) = (deployment.to_owned(), instance.to_owned());
                Err(self.put_off(Action::Stop { deployment, instance }, delay))
            }
        }
    }

    async fn output(
        &self,
        deployment: &str,
        instance: &str,
        lines: usize,
    ) -> Result<Option<Vec<String>>, Error> {
        self.truth.output(deployment, instance, lines).await
    }

    fn changes(&self) -> &Changes {
        self.truth.changes()
    }
}
