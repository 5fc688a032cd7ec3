//! What the state, the traffic and the checks of instances come to, as a pure function of them.

use super::{Failing, Windows};
use crate::gateways::{Count, Passage, Traffic};
use segue_domain::artifact::{
    Deployment, Gateway, GatewayName, Instance, Percentage, Route, RoutePath, Service,
};
use segue_domain::command::{Measure, ServiceKey, Subject};
use segue_domain::state::State;
use serde_json::{Value, json};
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
}

impl Scope<'_> {
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

    fn gateway(self, gateway: &Gateway, measured: &mut Measured) {
        let name = &gateway.name;
        let instances = self.behind_gateway(gateway, &mut BTreeSet::new());
        let subject = Subject::Gateway(name.clone());
        self.traffic(&subject, &Passage::gateway(name), &instances, measured);
        if let Some(count) = self.metrics.counts.get(&Passage::gateway(name)) {
            self.details(&subject, count, measured);
        }
        for path in gateway.routes.keys() {
            let path_text = path.as_str();
            let instances = self.behind_route(path, &mut BTreeSet::from([name.as_str()]));
            let subject = Subject::Route { gateway: name.clone(), path: path_text.to_owned() };
            self.traffic(&subject, &Passage::route(name, path_text), &instances, measured);
        }
    }

    fn traffic(
        self,
        subject: &Subject,
        passage: &Passage,
        instances: &[&Instance],
        measured: &mut Measured,
    ) {
        let mut put = |measure, value| measured.insert((subject.clone(), measure), value);
        if self.windows.health.is_some() {
            let requests = self.health.counts.get(passage).map_or(1.0, Count::health);
            put(Measure::Health, health(requests * self.passing(instances)));
        }
        if let Some(window) = self.windows.metrics {
            let none = Count::default();
            let count = self.metrics.counts.get(passage).unwrap_or(&none);
            put(RATE, two_decimals(per_second(count.requests, window.as_secs_f64())));
            put(RESPONSE_TIME, two_decimals(count.times.mean_ms()));
        }
    }

    fn details(self, subject: &Subject, count: &Count, measured: &mut Measured) {
        let Some(window) = self.windows.metrics else { return };
        let mut put =
            |measure, value| measured.insert((subject.clone(), measure), two_decimals(value));
        for (measure, percent) in PERCENTILES {
            put(measure, count.times.percentile_ms(percent));
        }
        for (measure, requests) in CLASSES.into_iter().zip(count.classes) {
            put(measure, per_second(requests, window.as_secs_f64()));
        }
    }

    fn deployment(self, deployment: &Deployment, measured: &mut Measured) {
        let name = &deployment.name;
        if self.windows.metrics.is_some() {
            let subject = Subject::Deployment(name.clone());
            measured.insert((subject, Measure::Allocation), allocation(deployment));
        }
        if self.windows.health.is_none() {
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
        count.health() * self.passing(&running(service))
    }

    /// The share of `instances` that do not fail their checks; all of none.
    fn passing(self, instances: &[&Instance]) -> f64 {
        if instances.is_empty() {
            return 1.0;
        }
        let passing = instances.iter().filter(|instance| !self.failing.contains(&instance.name));
        ratio(passing.count(), instances.len())
    }

    /// The instances that requests to `gateway` may come to; `above` are the gateways on the way here.
    fn behind_gateway<'s>(
        &'s self,
        gateway: &'s Gateway,
        above: &mut BTreeSet<&'s str>,
    ) -> Vec<&'s Instance> {
        if self.failing.is_empty() || !above.insert(&gateway.name) {
            return Vec::new();
        }
        let used = |route: &Route| {
            route.condition.is_some()
                || route.weight.is_none_or(|weight| weight != Percentage::ZERO)
        };
        let routes = gateway.routes.iter().filter(|(_, route)| used(route));
        let mut behind = Vec::new();
        for (path, _) in routes {
            behind.extend(self.behind_route(path, above));
        }
        above.remove(gateway.name.as_str());
        behind
    }

    fn behind_route<'s>(
        &'s self,
        path: &'s RoutePath,
        above: &mut BTreeSet<&'s str>,
    ) -> Vec<&'s Instance> {
        // Where none fails, none has to be found.
        if self.failing.is_empty() || path.external().is_some() {
            return Vec::new();
        }
        if let [deployment, cluster, breed, _] = path.segments()[..] {
            let service =
                self.state.deployment(deployment).and_then(|found| found.service(cluster, breed));
            return service.map(running).unwrap_or_default();
        }
        let gateway = self.state.gateway(path.as_str());
        gateway.map(|gateway| self.behind_gateway(gateway, above)).unwrap_or_default()
    }
}

/// The instances that take requests.
fn running(service: &Service) -> Vec<&Instance> {
    service.instances.iter().filter(|instance| instance.deployed).collect()
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
    let cores = two_decimals(per_second(milli, 1000.0));
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
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
