//! Gateways in memory, for tests and the seeded simulation.
//!
//! It serves nothing and knows no clock and no randomness: what fails and who is busy is said by the test.

use super::{Applied, Configuration, GatewayDriver, Traffic};
use crate::driver::{Changes, Error};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;

/// A proxy that only remembers.
#[derive(Debug, Default)]
pub struct SimulatedGateways {
    changes: Changes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    applied: Option<Configuration>,
    attempts: u64,
    behaviour: Behaviour,
}

/// How the simulated proxy behaves from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// What `ping`, `apply`, `busy` and `traffic` fail with, if they do.
    pub error: Option<Error>,
    /// What `busy` alone fails with, if it does.
    pub busy_error: Option<Error>,
    /// Ports that another program has: gateways there are refused.
    pub ports_taken: BTreeSet<u16>,
    /// Targets that carry requests. Those that the applied configuration still serves are not told as busy.
    pub carrying: BTreeSet<String>,
    /// The requests of every window; how many seconds were counted says the next one.
    pub traffic: Traffic,
    /// How many seconds of a window are counted at most; `None` for all. Before anything was applied none is.
    pub seconds_max: Option<u64>,
}

impl SimulatedGateways {
    /// Changes how it behaves.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.state().behaviour);
    }

    /// What is served, without refused gateways; `None` before anything was applied, and after [`Self::lose`].
    pub fn applied(&self) -> Option<Configuration> {
        self.state().applied.clone()
    }

    /// How often `apply` was called, failed calls too.
    pub fn attempts(&self) -> u64 {
        self.state().attempts
    }

    /// Forgets everything, as a proxy that crashed, and tells of it.
    pub fn lose(&self) {
        self.state().applied = None;
        self.changes.notify();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere leaves the state whole: no change takes two steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl GatewayDriver for SimulatedGateways {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn ping(&self) -> Result<(), Error> {
        self.state().behaviour.error.clone().map_or(Ok(()), Err)
    }

    async fn apply(&self, configuration: &Configuration) -> Result<Applied, Error> {
        let mut state = self.state();
        state.attempts += 1;
        if let Some(error) = &state.behaviour.error {
            return Err(error.clone());
        }
        let mut taken: BTreeMap<u16, String> = state
            .behaviour
            .ports_taken
            .iter()
            .map(|port| (*port, "another program".to_owned()))
            .collect();
        let mut applied = Applied::default();
        let mut served = Configuration::default();
        for gateway in &configuration.gateways {
            if let Some(by) = taken.get(&gateway.port) {
                let reason = format!("port {} is used by {by}", gateway.port);
                applied.refused.insert(gateway.name.clone(), reason);
                applied.ports_taken.insert(gateway.name.clone());
            } else {
                taken.insert(gateway.port, gateway.name.clone());
                served.gateways.push(gateway.clone());
            }
        }
        applied.changed = state.applied.as_ref() != Some(&served);
        state.applied = Some(served);
        Ok(applied)
    }

    async fn busy(&self) -> Result<BTreeSet<String>, Error> {
        let state = self.state();
        if let Some(error) = state.behaviour.error.as_ref().or(state.behaviour.busy_error.as_ref())
        {
            return Err(error.clone());
        }
        let gateways = state.applied.iter().flat_map(|configuration| &configuration.gateways);
        let targets = gateways.flat_map(|gateway| &gateway.routes).flat_map(|route| &route.targets);
        let (draining, serving): (Vec<_>, Vec<_>) = targets.partition(|target| target.draining);
        let draining: BTreeSet<&str> =
            draining.into_iter().map(|target| target.name.as_str()).collect();
        let serving: BTreeSet<&str> =
            serving.into_iter().map(|target| target.name.as_str()).collect();
        let counts =
            |name: &&String| draining.contains(name.as_str()) || !serving.contains(name.as_str());
        Ok(state.behaviour.carrying.iter().filter(counts).cloned().collect())
    }

    async fn traffic(&self, _: OffsetDateTime, window: Duration) -> Result<Traffic, Error> {
        let state = self.state();
        let Behaviour { error, traffic, seconds_max, .. } = state.behaviour.clone();
        let counted = if state.applied.is_some() { window.as_secs() } else { 0 };
        let seconds = seconds_max.map_or(counted, |most| counted.min(most));
        error.map_or(Ok(Traffic { seconds, ..traffic }), Err)
    }

    /// It generates nothing, so that any template will do.
    async fn check_template(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn text(&self) -> String {
        self.state().applied.as_ref().map_or_else(String::new, |applied| format!("{applied:#?}\n"))
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::{Frontend, Protocol, RouteModel, Target};

    fn configuration(draining: bool) -> Configuration {
        let target = Target {
            name: "one".into(),
            lookup_name: "t1".into(),
            host: "127.0.0.1".into(),
            port: 1000,
            draining,
        };
        let route = RouteModel {
            path: "a".into(),
            lookup_name: "r1".into(),
            weight: 100,
            balance: "default".into(),
            rewrites: Vec::new(),
            targets: vec![target],
            passages: BTreeSet::new(),
        };
        let gateway = Frontend {
            conditions: Vec::new(),
            name: "shop".into(),
            lookup_name: "g1".into(),
            port: 9080,
            protocol: Protocol::Http,
            sticky: None,
            virtual_hosts: Vec::new(),
            routes: vec![route],
        };
        Configuration { gateways: vec![gateway], template: None }
    }

    #[tokio::test]
    async fn it_remembers_refuses_fails_and_loses_as_told() {
        let gateways = SimulatedGateways::default();
        assert!(gateways.apply(&configuration(false)).await.unwrap().changed);
        assert!(!gateways.apply(&configuration(false)).await.unwrap().changed);
        gateways.behave(|behaviour| {
            behaviour.carrying = BTreeSet::from(["one".to_owned(), "gone".to_owned()]);
        });
        assert_eq!(gateways.busy().await.unwrap(), BTreeSet::from(["gone".to_owned()]));
        gateways.apply(&configuration(true)).await.unwrap();
        assert_eq!(gateways.busy().await.unwrap().len(), 2);

        gateways.behave(|behaviour| behaviour.ports_taken = BTreeSet::from([9080]));
        assert!(gateways.apply(&configuration(true)).await.unwrap().refused.contains_key("shop"));
        assert_eq!(gateways.applied(), Some(Configuration::default()));

        gateways.behave(|behaviour| behaviour.error = Some(Error::Transient("no".into())));
        assert_eq!(gateways.apply(&configuration(true)).await, Err(Error::Transient("no".into())));
        let mut changes = gateways.changes().subscribe();
        gateways.lose();
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!((gateways.applied(), gateways.attempts()), (None, 5));
    }
}
