//! Brings what runs of one deployment in line with what is wanted of it.
//!
//! One worker per deployment, so that a slow one holds up no other; its steps are serial. It knows containers only
//! through their driver, and traffic only through what the state says about its instances.

mod pause;
mod plan;
mod spec;
#[cfg(test)]
mod tests;

pub use plan::{Action, Desired, Unavailable, plan};

use crate::Settings;
use crate::checks::{Check, Results};
use crate::containers::{Condition, ContainerDriver, Image, ObservedInstance, Owner};
use crate::driver::Error;
use crate::turn::{Turn, Worker, is_same};
use async_trait::async_trait;
use pause::Pauses;
use segue_domain::artifact::{Deployment, Leaving};
use segue_domain::command::{Report, ServiceKey, ServiceReport};
use segue_domain::state::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

/// How soon a driver that could not tell what runs is asked again.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(5);
/// When steps that came to nothing are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What runs, with the place of its driver.
type Seen = (usize, Arc<ObservedInstance>);

/// Makes the parts of instance names that tell instances of one service apart.
pub type Suffixes = Box<dyn FnMut() -> String + Send + Sync>;

/// The worker of one deployment.
pub struct DeploymentWorker {
    deployment: String,
    drivers: Vec<Arc<dyn ContainerDriver>>,
    settings: Settings,
    suffixes: Suffixes,
    /// When a service that failed may be tried again. Lost with the process, which then tries at once.
    pauses: Pauses,
    /// What checks found; `None` where nothing is checked.
    checks: Option<Arc<Results>>,
    /// What was seen when there was nothing to do and no instance waited for its checks. As long as it is the same there
    /// is nothing to do.
    calm: Option<(State, Vec<Seen>)>,
}

impl DeploymentWorker {
    /// A worker for `deployment`; of `drivers`, the first that supports a service's type runs it.
    pub fn new(
        deployment: String,
        drivers: Vec<Arc<dyn ContainerDriver>>,
        settings: Settings,
        suffixes: Suffixes,
    ) -> Self {
        let (pauses, checks, calm) = (Pauses::default(), None, None);
        Self { deployment, drivers, settings, suffixes, pauses, checks, calm }
    }

    /// Lets new instances serve only once they passed their checks.
    #[must_use]
    pub fn held_back_by(self, checks: Arc<Results>) -> Self {
        Self { checks: Some(checks), ..self }
    }

    fn plan(
        &mut self,
        state: &State,
        observed: &[Seen],
        unavailable: &Unavailable,
        now: OffsetDateTime,
    ) -> Vec<Action> {
        let desired = Desired {
            unavailable,
            state,
            deployment: &self.deployment,
            drivers: &self.drivers,
            settings: &self.settings,
            not_before: &|key: &ServiceKey| self.pauses.until(key, now),
        };
        plan(&desired, observed, now, &mut self.suffixes)
    }

    /// Whether a service of the deployment is run by this driver.
    fn is_needed(&self, state: &State, driver: usize) -> bool {
        let mut services =
            state.deployment(&self.deployment).into_iter().flat_map(Deployment::services);
        services.any(|(_, service)| {
            let kind = &service.breed.deployable.kind;
            self.drivers.iter().position(|driver| driver.supports(kind)) == Some(driver)
        })
    }

    /// Which bytes the instances of a service run, where their driver knows that.
    async fn images(
        &self,
        key: &ServiceKey,
        observed: &[Seen],
    ) -> Result<Option<ServiceReport>, Error> {
        let own = |owner: &Owner| owner.cluster == key.cluster && owner.service == key.service;
        let own = observed.iter().filter(|(_, instance)| own(&instance.owner));
        let own: Vec<(usize, &String)> =
            own.map(|(driver, instance)| (*driver, &instance.name)).collect();
        let Some((driver, _)) = own.first() else { return Ok(None) };
        let mut known = self.drivers[*driver].images(&self.deployment).await?;
        let images = own.iter().filter_map(|(_, name)| known.remove_entry(*name));
        let hashes = |(name, image): (String, Image)| {
            (name, image.digests.into_iter().chain([image.id]).collect())
        };
        let images: BTreeMap<String, Vec<String>> = images.map(hashes).collect();
        Ok((!images.is_empty()).then_some(ServiceReport::Images(images)))
    }

    /// Carries out `action`; what went wrong is reported about the service that it is for.
    async fn act(
        &mut self,
        action: Action,
        observed: &[Seen],
        now: OffsetDateTime,
        turn: &mut Turn,
    ) -> Result<(), Error> {
        match action {
            Action::Start { driver, key, spec } => {
                let outcome = self.drivers[driver].start(&spec).await;
                if let Err(error) = outcome {
                    let words = error.to_string();
                    let report = if error.is_permanent() {
                        ServiceReport::Failed(words)
                    } else {
                        let pause = self.pauses.failed(&key, now);
                        turn.look_again(pause);
                        ServiceReport::Trouble(words)
                    };
                    turn.reports.push(Report::Service { key, report });
                }
                Ok(())
            }
            Action::Stop { driver, instance } => {
                self.drivers[driver].stop(&self.deployment, &instance).await
            }
            Action::Exited { key } => {
                let pause = self.pauses.failed(&key, now);
                turn.look_again(pause);
                Ok(())
            }
            Action::Report { key, report } => {
                let mut images = None;
                match report {
                    ServiceReport::TakenUp => self.pauses.forget(&key),
                    ServiceReport::Done => {
                        self.pauses.ran(&key, now);
                        images = self.images(&key, observed).await?;
                    }
                    _ => {}
                }
                turn.reports.push(Report::Service { key: key.clone(), report });
                turn.reports.extend(images.map(|report| Report::Service { key, report }));
                Ok(())
            }
            Action::WaitUntil(at) => {
                turn.look_again((at - now).try_into().unwrap_or_default());
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Worker for DeploymentWorker {
    fn actor(&self) -> String {
        "worker:deployments".to_owned()
    }

    async fn turn(&mut self, state: &State, now: OffsetDateTime) -> Result<Turn, Error> {
        let (mut observed, unavailable) = observe(&self.drivers, &self.deployment).await;
        let is_calm = |(seen, before): &(State, Vec<_>)| {
            is_same(seen, state) && *before == observed && unavailable.is_empty()
        };
        if self.calm.as_ref().is_some_and(is_calm) {
            return Ok(Turn::default());
        }
        let held_back = self
            .checks
            .as_ref()
            .is_some_and(|checks| hold_back(state, &self.deployment, checks, &mut observed));
        let actions = self.plan(state, &observed, &unavailable, now);
        let nothing_to_do = actions.is_empty() && unavailable.is_empty() && !held_back;
        self.calm = nothing_to_do.then(|| (state.clone(), observed.clone()));
        let mut turn = Turn::default();
        if !unavailable.is_empty() {
            turn.look_again(UNAVAILABLE_RETRY);
        }
        let mut failure = None;
        for action in actions {
            if let Err(error) = self.act(action, &observed, now, &mut turn).await {
                failure = Some(error);
            }
        }
        let missed = unavailable.into_iter().find(|(driver, _)| self.is_needed(state, *driver));
        match failure.or(missed.map(|(_, words)| Error::Transient(words))) {
            Some(error) if turn.reports.is_empty() => Err(error),
            // What was found is reported all the same; the next turn tries again.
            Some(error) => {
                tracing::warn!(deployment = self.deployment, %error, "a step came to nothing");
                turn.look_again(RETRY);
                Ok(turn)
            }
            None => Ok(turn),
        }
    }
}

/// An instance that runs and does not serve yet is only starting while it did not pass its checks. One that serves goes
/// on, whatever they find; one that ended has to pass anew when it was started again in its place. Whether there was one
/// to hold back.
fn hold_back(state: &State, deployment: &str, checks: &Results, observed: &mut [Seen]) -> bool {
    let Some(deployment) = state.deployment(deployment) else { return false };
    let down = observed.iter().filter(|(_, instance)| instance.condition != Condition::Running);
    checks.forget(&down.map(|(_, instance)| instance.name.as_str()).collect());
    let mut held_back = false;
    for (_, instance) in observed {
        let Owner { cluster, service, .. } = &instance.owner;
        let found = deployment.clusters.get(cluster);
        let Some((cluster, service)) = found.zip(deployment.service(cluster, service)) else {
            continue;
        };
        let mut known = service.instances.iter();
        let serves = known.any(|known| known.name == instance.name && known.deployed);
        if serves || instance.condition != Condition::Running {
            continue;
        }
        let effective = cluster.effective_health_checks(service);
        let known = plan::instance(instance, false, Leaving::No);
        let asked = Check::all(&deployment.name, &known, &effective);
        if let Some(obstacle) = checks.obstacle(&instance.name, asked.len()) {
            Arc::make_mut(instance).condition = Condition::Starting(obstacle);
            held_back = true;
        }
    }
    held_back
}

/// What runs of `deployment`, each instance with the place of its driver, and the drivers that could not tell, with
/// their words.
async fn observe(
    drivers: &[Arc<dyn ContainerDriver>],
    deployment: &str,
) -> (Vec<Seen>, Unavailable) {
    let mut all = Vec::new();
    let mut unavailable = Unavailable::new();
    for (index, driver) in drivers.iter().enumerate() {
        match driver.observe(deployment).await {
            Ok(observed) => all.extend(observed.into_iter().map(|observed| (index, observed))),
            Err(error) => drop(unavailable.insert(index, error.to_string())),
        }
    }
    (all, unavailable)
}
