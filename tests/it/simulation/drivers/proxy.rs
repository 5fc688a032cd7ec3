//! A gateway driver that is slow and lies, around the simulated one, which knows what is served.

use super::{Fault, UnderWay, due, trouble};
use crate::simulation::tally::Tally;
use async_trait::async_trait;
use futures::executor::block_on;
use segue_workers::driver::{Changes, Error};
use segue_workers::gateways::simulated::SimulatedGateways;
use segue_workers::gateways::{Applied, Configuration, GatewayDriver, Traffic};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use time::{Duration, OffsetDateTime};

/// How soon the driver notices that its proxy serves something else than it said.
const NOTICE: Duration = Duration::milliseconds(700);
/// Conditions with this word are no conditions to the proxy.
pub const NONSENSE: &str = "nonsense";

/// The driver, and everything that a test asks of it.
pub struct Proxy {
    truth: SimulatedGateways,
    shared: Mutex<Shared>,
    tally: Tally,
}

#[derive(Default)]
struct Shared {
    life: u32,
    faults: VecDeque<Fault>,
    /// While it is set, every change is carried out so much later.
    delay: Option<Duration>,
    is_away: bool,
    under_way: Vec<UnderWay<Change>>,
    /// What the driver said last that is served.
    claimed: Configuration,
    ports_taken: BTreeSet<u16>,
    carrying: BTreeSet<String>,
    traffic: Traffic,
    now: Option<OffsetDateTime>,
}

#[derive(Clone, Debug)]
enum Change {
    Apply(Configuration),
    Notice,
}

impl Proxy {
    pub fn new(tally: Tally) -> Self {
        Self { truth: SimulatedGateways::default(), shared: Mutex::default(), tally }
    }

    /// What goes wrong with the next change.
    pub fn fail(&self, fault: Fault) {
        self.shared().faults.push_back(fault);
    }

    /// It does not answer any more.
    pub fn go_away(&self) {
        self.shared().is_away = true;
    }

    /// It answers, is quick and honest, no request hangs, and nobody else has a port. What is under way goes on.
    pub fn calm(&self) {
        let mut shared = self.shared();
        shared.faults.clear();
        shared.is_away = false;
        shared.carrying.clear();
        drop(shared);
        self.take_ports(BTreeSet::new());
    }

    /// Whether nothing happens any more unless it is asked for.
    pub fn is_quiet(&self) -> bool {
        self.shared().under_way.is_empty()
    }

    /// Every change that is asked for from now on happens `delay` later; `None` ends that.
    pub fn delay(&self, delay: Option<Duration>) {
        self.shared().delay = delay;
    }

    /// Another life of the service begins.
    pub fn next_life(&self) {
        self.shared().life += 1;
    }

    /// Other programs have these ports, and no others.
    pub fn take_ports(&self, ports: BTreeSet<u16>) {
        self.shared().ports_taken.clone_from(&ports);
        self.truth.behave(|behaviour| behaviour.ports_taken = ports);
    }

    /// Requests keep the instances in `names`.
    pub fn carry(&self, names: BTreeSet<String>) {
        self.shared().carrying = names;
    }

    /// The requests of every window from now on.
    pub fn send(&self, traffic: Traffic) {
        self.shared().traffic = traffic;
    }

    /// Forgets everything, as a proxy that crashed, and tells of it.
    pub fn lose(&self) {
        self.truth.lose();
    }

    /// What is served.
    pub fn served(&self) -> Configuration {
        self.truth.applied().unwrap_or_default()
    }

    /// What the driver said last that is served. It differs from what is as long as the driver lied and did not notice.
    pub fn claimed(&self) -> Configuration {
        self.shared().claimed.clone()
    }

    /// Lets everything happen that is due until `now`.
    pub fn advance(&self, now: OffsetDateTime) {
        let (arriving, life) = {
            let mut shared = self.shared();
            shared.now = Some(now);
            (due(&mut shared.under_way, now), shared.life)
        };
        for UnderWay { life: asked_by, action, .. } in arriving {
            if let Change::Apply(configuration) = action {
                if asked_by < life {
                    self.tally.count("proxy change of the life before");
                }
                // Whoever asked does not listen any more.
                drop(block_on(self.truth.apply(&configuration)));
            }
            self.truth.changes().notify();
        }
    }

    fn put_off(&self, change: Change, delay: Duration) {
        let mut shared = self.shared();
        let now = shared.now.expect("a world begins with the time");
        let under_way = UnderWay { at: now + delay, life: shared.life, action: change };
        shared.under_way.push(under_way);
    }

    /// The proxy has `configuration`, or the driver says so.
    fn claim(&self, configuration: &Configuration, applied: Applied) -> Applied {
        let mut claimed = configuration.clone();
        claimed.gateways.retain(|gateway| !applied.refused.contains_key(&gateway.name));
        self.shared().claimed = claimed;
        Applied { disabled: disabled(configuration), ..applied }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // A check that failed elsewhere leaves it whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Routes that get nothing because of what they ask for.
fn disabled(configuration: &Configuration) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut disabled: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for gateway in &configuration.gateways {
        for wish in
            gateway.conditions.iter().filter(|wish| wish.condition.text().contains(NONSENSE))
        {
            let routes = disabled.entry(gateway.name.clone()).or_default();
            routes.insert(wish.path.clone(), "no such ACL".to_owned());
        }
    }
    disabled
}

#[async_trait]
impl GatewayDriver for Proxy {
    fn name(&self) -> &'static str {
        self.truth.name()
    }

    async fn ping(&self) -> Result<(), Error> {
        if self.shared().is_away { Err(trouble()) } else { Ok(()) }
    }

    async fn apply(&self, configuration: &Configuration) -> Result<Applied, Error> {
        let (fault, delay) = {
            let mut shared = self.shared();
            if shared.is_away {
                self.tally.count("proxy not answering");
                return Err(trouble());
            }
            (shared.faults.pop_front(), shared.delay)
        };
        match delay.map(Fault::Late).or(fault) {
            None => {
                let applied = self.truth.apply(configuration).await?;
                Ok(self.claim(configuration, applied))
            }
            Some(Fault::Refused | Fault::RefusedForGood) => {
                self.tally.count("proxy change refused");
                Err(trouble())
            }
            Some(Fault::Denied) => {
                self.tally.count("proxy change carried out and denied");
                self.truth.apply(configuration).await?;
                Err(trouble())
            }
            Some(Fault::NotDone) => {
                self.tally.count("proxy change not carried out");
                self.put_off(Change::Notice, NOTICE);
                Ok(self.claim(configuration, Applied { changed: true, ..Applied::default() }))
            }
            Some(Fault::Late(delay)) => {
                self.tally.count("proxy change late");
                self.put_off(Change::Apply(configuration.clone()), delay);
                Err(Error::Transient("no answer in time".to_owned()))
            }
        }
    }

    /// Of what it says that it serves: requests go on as they would.
    async fn busy(&self) -> Result<BTreeSet<String>, Error> {
        let shared = self.shared();
        if shared.is_away {
            return Err(trouble());
        }
        let routes = shared.claimed.gateways.iter().flat_map(|gateway| &gateway.routes);
        let targets = routes.flat_map(|route| &route.targets);
        let (draining, serving): (Vec<_>, Vec<_>) = targets.partition(|target| target.draining);
        let is = |targets: &[&segue_workers::gateways::Target], name: &str| {
            targets.iter().any(|target| target.name == name)
        };
        let counts = |name: &&String| is(&draining, name) || !is(&serving, name);
        Ok(shared.carrying.iter().filter(counts).cloned().collect())
    }

    async fn traffic(
        &self,
        _: OffsetDateTime,
        window: std::time::Duration,
    ) -> Result<Traffic, Error> {
        let shared = self.shared();
        let traffic = Traffic { seconds: window.as_secs(), ..shared.traffic.clone() };
        if shared.is_away { Err(trouble()) } else { Ok(traffic) }
    }

    async fn check_template(&self, template: &str) -> Result<(), Error> {
        self.truth.check_template(template).await
    }

    async fn text(&self) -> String {
        self.truth.text().await
    }

    fn changes(&self) -> &Changes {
        self.truth.changes()
    }
}
