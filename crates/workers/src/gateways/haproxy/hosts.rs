//! Host names of targets. HAProxy is told addresses only: it would look names up while it loads a file, which holds up
//! whatever is to change, and take a server out for good whose name is not answered for at that moment.
//!
//! A name is looked up when it is new, and now and then afterwards; while it is not answered for, it stands for what it
//! stood for last, also after a restart.

use super::process;
use crate::driver::Changes;
use crate::gateways::Configuration;
use futures::{StreamExt, stream};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How many names are looked up at once: each takes a thread for as long as the system looks.
const LOOKUPS_MAX: usize = 16;
/// How many names without address are told.
const TOLD_MAX: usize = 5;
/// How long what is applied waits for names that are new, for all of them together.
const NEW_MAX: Duration = Duration::from_secs(2);
/// How long a look-up may take that nobody waits for: more than resolvers take to ask the next server.
const LOOKUP_MAX: Duration = Duration::from_secs(20);
/// How often known names are looked up again, and how often unknown ones are.
const PERIOD: Duration = Duration::from_secs(30);
const PERIOD_UNKNOWN: Duration = Duration::from_secs(3);

/// What names stand for. It is kept in a file, for the next life of the service.
#[derive(Debug)]
pub(super) struct Hosts {
    shared: Arc<Shared>,
    refreshing: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    file: PathBuf,
    names: Mutex<Names>,
}

/// By name; none for one that is not known yet.
type Names = BTreeMap<String, Option<IpAddr>>;

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.refreshing).take() {
            task.abort();
        }
    }
}

impl Hosts {
    /// With what `file` says.
    pub(super) fn new(file: PathBuf) -> Self {
        let names = std::fs::read(&file).ok();
        let names: Names =
            names.and_then(|names| serde_json::from_slice(&names).ok()).unwrap_or_default();
        let shared = Shared { file, names: Mutex::new(names) };
        Self { shared: Arc::new(shared), refreshing: Mutex::default() }
    }

    /// `configuration` with addresses instead of names, without the targets whose names nobody knows; and why those are
    /// missing. `changes` are told when a name comes to stand for another address.
    pub(super) async fn resolved<'a>(
        &self,
        configuration: &'a Configuration,
        changes: &Changes,
    ) -> (Cow<'a, Configuration>, Option<String>) {
        let wanted = names(configuration);
        if wanted.is_empty() {
            lock(&self.shared.names).clear();
            return (Cow::Borrowed(configuration), None);
        }
        let new: Vec<String> = {
            let mut names = lock(&self.shared.names);
            names.retain(|name, _| wanted.contains(name));
            wanted.into_iter().filter(|name| !names.contains_key(name)).collect()
        };
        if !new.is_empty() {
            let found = look_up_all(&new, Some(Instant::now() + NEW_MAX)).await;
            let found = found.into_iter().map(|found| found.first().copied());
            lock(&self.shared.names).extend(new.into_iter().zip(found));
            self.shared.keep();
        }
        self.refresh(changes);
        let names = lock(&self.shared.names);
        let mut resolved = configuration.clone();
        for route in resolved.gateways.iter_mut().flat_map(|gateway| &mut gateway.routes) {
            route.targets.retain_mut(|target| {
                if target.host.parse::<IpAddr>().is_err() {
                    let Some(Some(address)) = names.get(&target.host) else { return false };
                    target.host = address.to_string();
                }
                true
            });
        }
        let unknown = names.iter().filter(|(_, address)| address.is_none());
        let unknown: Vec<&str> = unknown.map(|(name, _)| &**name).collect();
        let told = unknown.iter().take(TOLD_MAX).map(|name| format!("'{name}'"));
        let told = told.collect::<Vec<_>>().join(", ");
        let missing = match unknown.len() {
            0 => None,
            1..=TOLD_MAX => Some(format!("no address is known of {told}; nothing is sent there")),
            all => Some(format!(
                "no address is known of {all} hosts, among them {told}; nothing is sent there"
            )),
        };
        (Cow::Owned(resolved), missing)
    }

    /// Looks names up now and then, for as long as there are some.
    fn refresh(&self, changes: &Changes) {
        let mut refreshing = lock(&self.refreshing);
        if refreshing.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (shared, changes) = (Arc::clone(&self.shared), changes.clone());
        *refreshing = Some(tokio::spawn(async move {
            let mut looked_at = Instant::now();
            loop {
                sleep(PERIOD_UNKNOWN).await;
                let is_due = looked_at.elapsed() >= PERIOD;
                let (is_empty, due) = {
                    let names = lock(&shared.names);
                    let due = names.iter().filter(|(_, address)| is_due || address.is_none());
                    (names.is_empty(), due.map(|(name, _)| name.clone()).collect::<Vec<_>>())
                };
                if is_empty {
                    break;
                }
                if is_due {
                    looked_at = Instant::now();
                }
                let found = look_up_all(&due, None).await;
                if shared.take(&due, &found) {
                    shared.keep();
                    changes.notify();
                }
            }
        }));
    }
}

impl Shared {
    /// Takes what was found of `names` over; whether anything changed.
    fn take(&self, names: &[String], found: &[Vec<IpAddr>]) -> bool {
        let mut known = lock(&self.names);
        let mut changed = false;
        for (name, found) in names.iter().zip(found) {
            let (Some(known), Some(first)) = (known.get_mut(name), found.first()) else { continue };
            // Of several addresses the order often changes.
            if known.is_none_or(|address| !found.contains(&address)) {
                *known = Some(*first);
                changed = true;
            }
        }
        changed
    }

    fn keep(&self) {
        let known: Names = lock(&self.names)
            .iter()
            .filter(|(_, address)| address.is_some())
            .map(|(name, address)| (name.clone(), *address))
            .collect();
        let kept = serde_json::to_vec(&known).map_err(std::io::Error::from);
        if let Err(error) = kept.and_then(|names| process::replace(&self.file, &names)) {
            tracing::warn!(%error, "what names of hosts stand for is not kept");
        }
    }
}

/// `configuration` with gateways that are targets reached where gateways listen, at `bind`.
pub(super) fn with_hops(configuration: &Configuration, bind: IpAddr) -> Cow<'_, Configuration> {
    // There they are asked at 127.0.0.1, which is right.
    if bind.is_unspecified() || bind == Ipv4Addr::LOCALHOST {
        return Cow::Borrowed(configuration);
    }
    let gateways = configuration.gateways.iter();
    let gateways: BTreeSet<(String, u16)> =
        gateways.map(|gateway| (gateway.name.clone(), gateway.port)).collect();
    let mut configuration = configuration.clone();
    for route in configuration.gateways.iter_mut().flat_map(|gateway| &mut gateway.routes) {
        let is_gateway = |name: &str, port| gateways.contains(&(name.to_owned(), port));
        for target in &mut route.targets {
            if is_gateway(&target.name, target.port) {
                target.host = bind.to_string();
            }
        }
    }
    Cow::Owned(configuration)
}

/// The names of targets that are no addresses.
fn names(configuration: &Configuration) -> BTreeSet<String> {
    let routes = configuration.gateways.iter().flat_map(|gateway| &gateway.routes);
    let hosts = routes.flat_map(|route| &route.targets).map(|target| &target.host);
    hosts.filter(|host| host.parse::<IpAddr>().is_err()).cloned().collect()
}

/// The addresses of each of `names`, a few at a time. Those whose turn comes after `end` are not looked up.
async fn look_up_all(names: &[String], end: Option<Instant>) -> Vec<Vec<IpAddr>> {
    let each = names.iter().cloned().map(move |name| async move {
        match end {
            Some(end) if Instant::now() >= end => Vec::new(),
            Some(end) => look_up(&name, end - Instant::now()).await,
            None => look_up(&name, LOOKUP_MAX).await,
        }
    });
    stream::iter(each).buffered(LOOKUPS_MAX).collect().await
}

/// The addresses of a name, those of IPv4 first; none when nobody says any within `limit`.
async fn look_up(name: &str, limit: Duration) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = match timeout(limit, lookup_host((name, 0))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        Ok(Err(error)) => {
            tracing::debug!(name, %error, "a name has no address");
            Vec::new()
        }
        Err(_) => Vec::new(),
    };
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No change takes two steps that belong together.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::{Frontend, Protocol, RouteModel, Target};

    #[test]
    fn gateways_behind_gateways_are_reached_where_they_listen() {
        let target = |name: &str| Target {
            name: name.to_owned(),
            lookup_name: name.to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 8080,
            draining: false,
        };
        let route = RouteModel {
            path: "in".to_owned(),
            lookup_name: "in".to_owned(),
            weight: 1,
            balance: "default".to_owned(),
            rewrites: Vec::new(),
            targets: vec![target("in"), target("instance")],
            passages: BTreeSet::new(),
        };
        let gateway = |name: &str, routes: &[RouteModel]| Frontend {
            name: name.to_owned(),
            lookup_name: name.to_owned(),
            port: 8080,
            protocol: Protocol::Http,
            sticky: None,
            virtual_hosts: Vec::new(),
            routes: routes.to_vec(),
            conditions: Vec::new(),
        };
        let gateways = vec![gateway("in", &[]), gateway("out", &[route])];
        let configuration = Configuration { gateways, template: None };
        for (bind, expected) in [("0.0.0.0", "127.0.0.1"), ("10.1.2.3", "10.1.2.3")] {
            let reached = with_hops(&configuration, bind.parse().unwrap());
            let [hop, instance] = &reached.gateways[1].routes[0].targets[..] else { panic!() };
            assert_eq!((&*hop.host, &*instance.host), (expected, "127.0.0.1"));
        }
    }

    #[tokio::test]
    async fn a_name_is_known_or_not() {
        assert_eq!(look_up("localhost", LOOKUP_MAX).await[0], IpAddr::from([127, 0, 0, 1]));
        assert!(look_up("no-such-host.invalid", NEW_MAX).await.is_empty());
        let names = vec!["localhost".to_owned(); 3 * LOOKUPS_MAX];
        let found = look_up_all(&names, Some(Instant::now() + LOOKUP_MAX)).await;
        assert!(found.len() == names.len() && found.iter().all(|found| !found.is_empty()));
        let found = look_up_all(&names, Some(Instant::now())).await;
        assert!(found.len() == names.len() && found.iter().all(Vec::is_empty), "it is too late");
    }

    #[test]
    fn a_name_stands_for_its_last_address_also_in_the_next_life() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts.json");
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let hosts = Hosts::new(file.clone());
        lock(&hosts.shared.names).insert("db".to_owned(), None);
        let names = ["db".to_owned()];
        assert!(hosts.shared.take(&names, &[vec![address(1), address(2)]]));
        assert!(!hosts.shared.take(&names, &[vec![address(2), address(1)]]), "it still has it");
        assert!(!hosts.shared.take(&names, &[vec![]]), "nobody answers");
        hosts.shared.keep();
        let next = Hosts::new(file);
        assert_eq!(lock(&next.shared.names)["db"], Some(address(1)));
        assert!(next.shared.take(&names, &[vec![address(2)]]));
    }
}
