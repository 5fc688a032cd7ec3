//! Brings the proxy in line with the gateways of the state, and says when an instance gets nothing any more.

mod configuration;

pub use configuration::configuration;

use crate::Settings;
use crate::driver::Error;
use crate::gateways::{Applied, Configuration, Frontend, GatewayDriver};
use crate::turn::{Turn, Worker, is_same};
use async_trait::async_trait;
use segue_domain::artifact::Leaving;
use segue_domain::command::{Report, Routed, ServiceKey};
use segue_domain::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::watch;

/// How often it is asked whether requests still keep an instance.
const DRAIN_POLL: Duration = Duration::from_millis(50);
/// How often a gateway that was refused is tried again.
const REFUSED_RETRY: Duration = Duration::from_secs(5);

/// The worker of all gateways.
pub struct GatewaysWorker {
    driver: Arc<dyn GatewayDriver>,
    settings: Settings,
    changes: watch::Receiver<u64>,
    /// What the proxy was last brought to; lost with the process, which then applies it again.
    last: Option<(Configuration, Applied)>,
    /// When something was last not taken, or in trouble.
    refused_at: Option<OffsetDateTime>,
    /// The troubles that were told, as long as they last.
    told: BTreeSet<String>,
    /// The state with which there was nothing to do. As long as it and the proxy are the same there is nothing to do.
    calm: Option<State>,
    /// Since when instances drain, so that one hanging request does not keep them for ever.
    draining: BTreeMap<String, OffsetDateTime>,
}

impl GatewaysWorker {
    /// A worker that drives `driver`.
    pub fn new(driver: Arc<dyn GatewayDriver>, settings: Settings) -> Self {
        let changes = driver.changes().subscribe();
        Self {
            driver,
            settings,
            changes,
            last: None,
            refused_at: None,
            told: BTreeSet::new(),
            calm: None,
            draining: BTreeMap::new(),
        }
    }

    /// Applies `wanted` unless the proxy has it already. Returns what became of it, and whether it is new.
    async fn apply(
        &mut self,
        wanted: &Configuration,
        now: OffsetDateTime,
    ) -> Result<(Applied, bool), Error> {
        let proxy_changed = self.changes.has_changed().unwrap_or(false);
        self.changes.mark_unchanged();
        let retry_due = self.refused_at.is_some_and(|at| now - at >= REFUSED_RETRY || now < at);
        match &self.last {
            Some((last, applied)) if last == wanted && !proxy_changed && !retry_due => {
                Ok((applied.clone(), false))
            }
            Some(_) | None => {
                // Until it is known to be applied, it is not.
                self.last = None;
                let applied = self.driver.apply(wanted).await?;
                self.refused_at = is_incomplete(&applied).then_some(now);
                self.last = Some((wanted.clone(), applied.clone()));
                Ok((applied.clone(), applied.changed))
            }
        }
    }

    /// What does not work although everything is served, each thing once.
    fn troubles(&mut self, wanted: &Configuration, applied: &Applied) -> Vec<Report> {
        let mut troubles = applied.troubles.clone();
        let served = wanted.gateways.iter();
        let served = served.filter(|gateway| !applied.refused.contains_key(&gateway.name));
        troubles.extend(hosts_elsewhere(served));
        let report = |words: &String| Report::Failure {
            component: "gateway_driver".to_owned(),
            words: words.clone(),
        };
        let reports = troubles.difference(&self.told).map(report).collect();
        self.told = troubles;
        reports
    }

    /// Instances on their way out that no request keeps any more, or that had their time; and what is wrong when it is
    /// not known which have requests.
    async fn released(
        &mut self,
        state: &State,
        now: OffsetDateTime,
    ) -> (Vec<(ServiceKey, String)>, Option<Error>) {
        let draining = draining(state);
        let names: BTreeSet<&String> = draining.iter().map(|(_, name)| name).collect();
        self.draining.retain(|name, _| names.contains(name));
        if draining.is_empty() {
            return (Vec::new(), None);
        }
        let (busy, trouble) = match self.driver.busy().await {
            Ok(busy) => (Some(busy), None),
            Err(error) => (None, Some(error)),
        };
        let mut released = Vec::new();
        for (key, name) in draining {
            let since = self.draining.entry(name.clone()).or_insert(now);
            // The clock may have been put back.
            *since = now.min(*since);
            let since = *since;
            // A request may just have been given to it when it was taken out: not before a second look.
            let is_busy = busy.as_ref().is_none_or(|busy| busy.contains(&name));
            let idle = !is_busy && now - since >= DRAIN_POLL;
            if idle || now - since >= self.settings.drain {
                released.push((key, name));
            }
        }
        (released, trouble)
    }
}

#[async_trait]
impl Worker for GatewaysWorker {
    fn actor(&self) -> String {
        "worker:gateways".to_owned()
    }

    async fn turn(&mut self, state: &State, now: OffsetDateTime) -> Result<Turn, Error> {
        let proxy_changed = self.changes.has_changed().unwrap_or(false);
        if !proxy_changed && self.calm.as_ref().is_some_and(|seen| is_same(seen, state)) {
            return Ok(Turn::default());
        }
        self.calm = None;
        let (kind, name) = &self.settings.configuration_name;
        let template = state.configuration_template(kind, name).cloned();
        let wanted = Configuration { template, ..configuration(state) };
        let (mut applied, installed) = self.apply(&wanted, now).await?;
        let (released, trouble) = self.released(state, now).await;
        // What was applied is told all the same.
        applied.troubles.extend(trouble.map(|error| error.to_string()));
        let mut turn = Turn::default();
        if self.draining.len() > released.len() {
            turn.look_again(DRAIN_POLL);
        }
        if is_incomplete(&applied) {
            turn.look_again(REFUSED_RETRY);
        }
        turn.reports.extend(self.troubles(&wanted, &applied));
        let served = wanted.gateways.iter().map(|gateway| &gateway.name);
        let served: BTreeSet<String> =
            served.filter(|name| !applied.refused.contains_key(*name)).cloned().collect();
        let news = state.published_gateways().any(|(name, stored)| {
            stored.deployed != served.contains(name)
                || stored.reason.as_ref() != applied.refused.get(name)
                || stored.disabled != applied.disabled.get(name).cloned().unwrap_or_default()
        });
        if news || installed || !released.is_empty() {
            let installed = installed.then(|| self.settings.configuration_name.clone());
            let Applied { refused, ports_taken, disabled, .. } = applied;
            turn.reports.push(Report::Routed(Routed {
                served,
                refused,
                ports_taken,
                disabled,
                released,
                installed,
            }));
        }
        self.calm = (turn == Turn::default()).then(|| state.clone());
        Ok(turn)
    }
}

/// Whether the proxy has to be asked again for what it was asked already.
fn is_incomplete(applied: &Applied) -> bool {
    !applied.refused.is_empty() || !applied.disabled.is_empty() || !applied.troubles.is_empty()
}

/// Virtual hosts of gateways that lead to another one, which has them, too, and comes first.
fn hosts_elsewhere<'a>(gateways: impl Iterator<Item = &'a Frontend>) -> BTreeSet<String> {
    let mut first = BTreeMap::new();
    let mut elsewhere = BTreeSet::new();
    for gateway in gateways {
        for host in &gateway.virtual_hosts {
            let owner = *first.entry(host.to_lowercase()).or_insert(&gateway.name);
            if *owner != gateway.name {
                elsewhere.insert(format!(
                    "the virtual host '{host}' of gateway '{}' leads to gateway '{owner}', which has it, too, and comes first",
                    gateway.name
                ));
            }
        }
    }
    elsewhere
}

fn draining(state: &State) -> Vec<(ServiceKey, String)> {
    let mut draining = Vec::new();
    for (name, stored) in state.deployments() {
        for (cluster, service) in stored.artifact.services() {
            let leaving =
                service.instances.iter().filter(|instance| instance.leaving == Leaving::Draining);
            for instance in leaving {
                let key = ServiceKey {
                    deployment: name.clone(),
                    cluster: cluster.to_owned(),
                    service: service.breed.name.clone(),
                };
                draining.push((key, instance.name.clone()));
            }
        }
    }
    draining
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::Protocol;
    use crate::gateways::simulated::SimulatedGateways;

    fn gateway(name: &str, host: &str) -> Frontend {
        Frontend {
            name: name.to_owned(),
            lookup_name: name.to_owned(),
            port: 8080,
            protocol: Protocol::Http,
            sticky: None,
            virtual_hosts: vec![host.to_owned()],
            routes: Vec::new(),
            conditions: Vec::new(),
        }
    }

    #[test]
    fn a_virtual_host_that_leads_elsewhere_is_told_once() {
        let driver = Arc::new(SimulatedGateways::default());
        let mut worker = GatewaysWorker::new(driver, Settings::default());
        let mut applied = Applied::default();
        let mut told = |hosts: [&str; 2], applied: &Applied| {
            let gateways = vec![gateway("a", hosts[0]), gateway("b", hosts[1])];
            let wanted = Configuration { gateways, template: None };
            let reports = worker.troubles(&wanted, applied);
            let words = reports.into_iter().map(|report| match report {
                Report::Failure { words, .. } => words,
                other => panic!("{other:?}"),
            });
            words.collect::<Vec<_>>()
        };
        assert!(told(["a.test", "b.test"], &applied).is_empty());
        let words = told(["shop.test", "Shop.test"], &applied);
        assert!(words[0].contains("'Shop.test' of gateway 'b' leads to gateway 'a'"), "{words:?}");
        // One thing that lasts hides no other.
        applied.troubles.insert("it ended".to_owned());
        assert_eq!(told(["shop.test", "Shop.test"], &applied), ["it ended"]);
        assert!(told(["a.test", "b.test"], &applied).is_empty());
        assert_eq!(told(["shop.test", "Shop.test"], &applied), words, "it was mended in between");
        applied.refused.insert("a".to_owned(), "its port is taken".to_owned());
        assert!(told(["shop.test", "Shop.test"], &applied).is_empty());
        applied.refused.clear();
        assert_eq!(told(["shop.test", "Shop.test"], &applied), words);
    }
}
