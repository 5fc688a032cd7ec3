//! What the state, the traffic and the checks of instances come to, as a pure function of them.

use super::{Failing, Windows};
use crate::gateways::{Count, Passage, Traffic};
use segue_domain::artifact::{
    Deployment, Gateway, GatewayName, Percentage, Route, RoutePath, Service,
};
use segue_domain::command::{Measure, ServiceKey, Subject};
use segue_domain::state::State;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Values by what they are of.
pub(super) type Measured = BTreeMap<(Subject, Measure), Value>;

/// Metrics of requests.
pub(super) const RATE: Measure = Measure::Metric("rate");
const RESPONSE_TIME: Measure = Measure::Metric("responseTime");
/// Metrics of gateways that are told only where there is something to tell.
const PERCENTILES: [(Measure, u8); 2] =
    [(Measure::Metric("responseTimeP50"), 50), (Measure::Metric("responseTimeP99"), 99)];
const CLASSES: [Measure; 5] = [
    Measure::Metric("status1xx"),
    Measure::Metric("status2xx"),
    Measure::Metric("status3xx"),
    Measure::Metric("status4xx"),
    Measure::Metric("status5xx"),
];

/// Measures that are told only as long as they are not 0.
pub(super) fn told_when_busy() -> impl Iterator<Item = Measure> {
    PERCENTILES.into_iter().map(|(measure, _)| measure).chain(CLASSES)
}

/// Whether `measure` is told only as long as it is not 0.
pub(super) fn is_told_when_busy(measure: Measure) -> bool {
    told_when_busy().any(|told| told == measure)
}

/// Everything that is measured.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) state: &'a State,
    pub(super) windows: Windows,
    /// The requests of the window for health.
    pub(super) health: &'a Traffic,
    /// The requests of the window for metrics.
    pub(super) metrics: &'a Traffic,
    pub(super) failing: &'a Failing,
    pub(super) behind: &'a Behind<'a>,
}

/// Names of the instances that requests to a gateway may come to, by its name, as far as they were looked for.
pub(super) type Behind<'a> = RefCell<BTreeMap<&'a str, BTreeSet<&'a str>>>;

impl<'a> Scope<'a> {
    /// Everything.
    pub(super) fn measure(self) -> Measured {
        let mut measured = Measured::new();
        for (_, stored) in self.state.published_gateways() {
            self.gateway(&stored.gateway, &mut measured);
        }
        for stored in self.state.deployments().values() {
            self.deployment(&stored.artifact, &mut measured);
        }
        measured
    }

    /// What the traffic of the gateway `name` may change.
    pub(super) fn measure_around(self, name: &str, measured: &mut Measured) {
        if let Some(stored) = self.state.gateways().get(name).filter(|stored| stored.published) {
            self.gateway(&stored.gateway, measured);
        }
        let Some(GatewayName::Internal { deployment, .. }) = GatewayName::parse(name) else {
            return;
        };
        if let Some(deployment) = self.state.deployment(deployment) {
            self.deployment(deployment, measured);
        }
    }

    fn gateway(self, gateway: &'a Gateway, measured: &mut Measured) {
        let name = &gateway.name;
        let instances = self.behind_gateway(gateway);
        let subject = Subject::Gateway(name.clone());
        self.traffic(&subject, &Passage::gateway(name), &instances, measured);
        if let Some(count) = self.metrics.counts.get(&Passage::gateway(name)) {
            self.details(&subject, count, measured);
        }
        for path in gateway.routes.keys() {
            let path_text = path.as_str();
            let instances = self.behind_route(path);
            let subject = Subject::Route { gateway: name.clone(), path: path_text.to_owned() };
            self.traffic(&subject, &Passage::route(name, path_text), &instances, measured);
        }
    }

    /// Whether there is something to tell: where nobody counts requests, not even that there are none.
    fn tells_health(self) -> bool {
        self.windows.health.is_some() && self.health.seconds > 0
    }

    fn tells_metrics(self) -> bool {
        self.windows.metrics.is_some() && self.metrics.seconds > 0
    }

    fn traffic(
        self,
        subject: &Subject,
        passage: &Passage,
        instances: &BTreeSet<&str>,
        measured: &mut Measured,
    ) {
        let mut put = |measure, value| measured.insert((subject.clone(), measure), value);
        if self.tells_health() {
            let requests = self.health.counts.get(passage).map_or(1.0, Count::health);
            put(Measure::Health, health(requests * self.passing(instances)));
        }
        if self.tells_metrics() {
            let none = Count::default();
            let count = self.metrics.counts.get(passage).unwrap_or(&none);
            put(RATE, two_decimals(ratio(count.requests, self.metrics.seconds)));
            put(RESPONSE_TIME, two_decimals(count.times.mean_ms()));
        }
    }

    fn details(self, subject: &Subject, count: &Count, measured: &mut Measured) {
        if !self.tells_metrics() {
            return;
        }
        let mut put =
            |measure, value| measured.insert((subject.clone(), measure), two_decimals(value));
        for (measure, percent) in PERCENTILES {
            put(measure, count.times.percentile_ms(percent));
        }
        for (measure, requests) in CLASSES.into_iter().zip(count.classes) {
            put(measure, ratio(requests, self.metrics.seconds));
        }
    }

    fn deployment(self, deployment: &Deployment, measured: &mut Measured) {
        let name = &deployment.name;
        if self.windows.metrics.is_some() {
            let subject = Subject::Deployment(name.clone());
            measured.insert((subject, Measure::Allocation), allocation(deployment));
        }
        if !self.tells_health() {
            return;
        }
        let mut whole = 1.0;
        for (cluster, content) in &deployment.clusters {
            let mut product = 1.0;
            for service in content.services.iter().filter(|service| !service.is_undeploying()) {
                let key = ServiceKey {
                    deployment: name.clone(),
                    cluster: cluster.clone(),
                    service: service.breed.name.clone(),
                };
                let value = self.service(&key, service);
                product *= value;
                measured.insert((Subject::Service(key), Measure::Health), health(value));
            }
            whole *= product;
            let subject = Subject::Cluster { deployment: name.clone(), cluster: cluster.clone() };
            measured.insert((subject, Measure::Health), health(product));
        }
        measured.insert((Subject::Deployment(name.clone()), Measure::Health), health(whole));
    }

    /// The health of a service: that of the requests to all of its ports, and of its instances.
    fn service(
        self,
        ServiceKey { deployment, cluster, service: breed }: &ServiceKey,
        service: &Service,
    ) -> f64 {
        let mut count = Count::default();
        for port in service.breed.ports.keys() {
            let gateway = format!("{deployment}/{cluster}/{port}");
            let passage =
                Passage::route(&gateway, &format!("{deployment}/{cluster}/{breed}/{port}"));
            if let Some(more) = self.health.counts.get(&passage) {
                count.merge(more);
            }
        }
        count.health() * self.passing(&running(service).collect())
    }

    /// The share of `instances` that do not fail their checks; all of none.
    fn passing(self, instances: &BTreeSet<&str>) -> f64 {
        let failing = instances.iter().filter(|name| self.failing.contains(**name)).count();
        if failing == 0 { 1.0 } else { share(instances.len() - failing, instances.len()) }
    }

    /// The instances that requests to `gateway` may come to, each once. Every gateway on the way is visited once.
    fn behind_gateway(self, gateway: &'a Gateway) -> BTreeSet<&'a str> {
        // Where none fails, none has to be found.
        if self.failing.is_empty() {
            return BTreeSet::new();
        }
        if let Some(known) = self.behind.borrow().get(gateway.name.as_str()) {
            return known.clone();
        }
        let mut instances = BTreeSet::new();
        let mut visited = BTreeSet::from([gateway.name.as_str()]);
        let mut waiting = vec![gateway];
        while let Some(gateway) = waiting.pop() {
            for path in used_routes(gateway) {
                instances.extend(self.behind_service(path).into_iter().flatten());
                let Some(inner) = self.inner(path) else { continue };
                if !visited.insert(&inner.name) {
                    continue;
                }
                match self.behind.borrow().get(inner.name.as_str()) {
                    Some(known) => instances.extend(known),
                    None => waiting.push(inner),
                }
            }
        }
        self.behind.borrow_mut().insert(&gateway.name, instances.clone());
        instances
    }

    fn behind_route(self, path: &RoutePath) -> BTreeSet<&'a str> {
        if self.failing.is_empty() {
            return BTreeSet::new();
        }
        let gateway = self.inner(path).map(|gateway| self.behind_gateway(gateway));
        let service = || self.behind_service(path).into_iter().flatten().collect();
        gateway.unwrap_or_else(service)
    }

    /// The instances of the service that a route leads to.
    fn behind_service(self, path: &RoutePath) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
        let [deployment, cluster, breed, _] = path.segments()[..] else { return None };
        let deployment = self.state.deployment(deployment)?;
        Some(running(deployment.service(cluster, breed)?))
    }

    /// The gateway that a route leads to.
    fn inner(self, path: &RoutePath) -> Option<&'a Gateway> {
        let leads_there = path.external().is_none() && path.segments().len() != 4;
        if leads_there { self.state.gateway(path.as_str()) } else { None }
    }
}

/// The routes of `gateway` that requests may take.
fn used_routes(gateway: &Gateway) -> impl Iterator<Item = &RoutePath> {
    let used = |route: &Route| {
        route.condition.is_some() || route.weight.is_none_or(|weight| weight != Percentage::ZERO)
    };
    gateway.routes.iter().filter(move |(_, route)| used(route)).map(|(path, _)| path)
}

/// The instances that take requests.
fn running(service: &Service) -> impl Iterator<Item = &str> {
    let running = service.instances.iter().filter(|instance| instance.deployed);
    running.map(|instance| instance.name.as_str())
}

/// What all services of a deployment ask for together.
fn allocation(deployment: &Deployment) -> Value {
    let (mut milli, mut megabytes, mut instances) = (0_u64, 0_u64, 0);
    for (_, service) in deployment.services() {
        let count = u64::from(service.scale.instances);
        let own = service.scale.memory.centi_megabytes() / 100;
        milli = count.saturating_mul(service.scale.cpu.milli()).saturating_add(milli);
        megabytes = count.saturating_mul(own).saturating_add(megabytes);
        instances += count;
    }
    let cores = two_decimals(ratio(milli, 1000));
    json!({ "cpu": cores, "memory": megabytes, "instances": instances })
}

/// A health to four decimals; 1 is nothing failed and 0 everything, so that these are never rounded to.
fn health(value: f64) -> Value {
    if value <= 0.0 || value >= 1.0 {
        return number(value.clamp(0.0, 1.0));
    }
    number(((value * 10_000.0).round() / 10_000.0).clamp(0.000_1, 0.999_9))
}

fn two_decimals(value: f64) -> Value {
    number((value * 100.0).round() / 100.0)
}

/// Whole numbers without a fraction.
fn number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "a whole number that fits is itself")]
    let whole = value as i64;
    #[expect(clippy::cast_precision_loss, reason = "compared, and left where it is not exact")]
    let exact = whole as f64;
    #[expect(clippy::float_cmp, reason = "a whole number is one exactly")]
    if exact == value { json!(whole) } else { json!(value) }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
