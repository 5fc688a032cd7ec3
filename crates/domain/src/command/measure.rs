//! The events of what was measured: health, metrics and allocation (runtime, section 14).
//!
//! A measurement changes nothing in the state. What is measured of something that is gone by now makes no event.

use super::Context;
use super::archive::{self, ServiceKey};
use crate::artifact::Gateway;
use crate::event::Event;
use crate::state::State;
use serde_json::Value;

/// What was measured, of what.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Of what.
    pub subject: Subject,
    /// What.
    pub measure: Measure,
    /// How much.
    pub value: Value,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A gateway, by name.
    Gateway(String),
    /// A route of a gateway.
    Route {
        /// The gateway's name.
        gateway: String,
        /// The whole path of the route.
        path: String,
    },
    /// A service of a deployment.
    Service(ServiceKey),
    /// A cluster of a deployment.
    Cluster {
        /// The deployment.
        deployment: String,
        /// The cluster.
        cluster: String,
    },
    /// A deployment, by name.
    Deployment(String),
}

/// A measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// From 1, all is well, to 0.
    Health,
    /// A metric of requests, by the name that follows `metrics:`.
    Metric(&'static str),
    /// What a deployment takes of the machines.
    Allocation,
}

impl Subject {
    fn tags(&self) -> Vec<String> {
        match self {
            Subject::Gateway(name) => vec![format!("gateways:{name}"), "gateway".to_owned()],
            Subject::Route { gateway, path } => {
                vec![format!("gateways:{gateway}"), "route".to_owned(), format!("routes:{path}")]
            }
            Subject::Service(ServiceKey { deployment, cluster, service }) => vec![
                format!("deployments:{deployment}"),
                format!("clusters:{cluster}"),
                "service".to_owned(),
                format!("services:{service}"),
            ],
            Subject::Cluster { deployment, cluster } => vec![
                format!("deployments:{deployment}"),
                format!("clusters:{cluster}"),
                "cluster".to_owned(),
            ],
            Subject::Deployment(name) => {
                vec![format!("deployments:{name}"), "deployment".to_owned()]
            }
        }
    }

    /// Whether it is there for users.
    pub fn exists(&self, state: &State) -> bool {
        match self {
            Subject::Gateway(name) => published(state, name).is_some(),
            Subject::Route { gateway, path } => published(state, gateway)
                .is_some_and(|gateway| gateway.routes.keys().any(|route| route.as_str() == path)),
            Subject::Service(ServiceKey { deployment, cluster, service }) => state
                .deployment(deployment)
                .is_some_and(|found| found.service(cluster, service).is_some()),
            Subject::Cluster { deployment, cluster } => state
                .deployment(deployment)
                .is_some_and(|found| found.clusters.contains_key(cluster)),
            Subject::Deployment(name) => state.deployment(name).is_some(),
        }
    }
}

fn published<'a>(state: &'a State, gateway: &str) -> Option<&'a Gateway> {
    let stored = state.gateways().get(gateway).filter(|stored| stored.published);
    stored.map(|stored| &*stored.gateway)
}

/// The events of `measurements`.
pub(super) fn decide(state: &State, measurements: &[Measurement], context: &Context) -> Vec<Event> {
    let known = measurements.iter().filter(|measurement| measurement.subject.exists(state));
    known.map(|measurement| event(measurement, context)).collect()
}

fn event(Measurement { subject, measure, value }: &Measurement, context: &Context) -> Event {
    let mut tags = subject.tags();
    let kind = match measure {
        Measure::Health => {
            tags.push("health".to_owned());
            "health"
        }
        Measure::Metric(name) => {
            tags.push(format!("metrics:{name}"));
            "metrics"
        }
        Measure::Allocation => {
            // What a deployment takes is told of it alone, as the predecessor did.
            tags = vec!["allocation".to_owned(), tags.swap_remove(0)];
            "allocation"
        }
    };
    archive::measured(kind, tags, value.clone(), context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use time::OffsetDateTime;

    #[test]
    fn events_carry_the_tags_of_their_subject() {
        let check = |subject, measure, kind: &str, tags: &str| {
            let context = Context {
                now: OffsetDateTime::UNIX_EPOCH,
                actor: "worker:health".to_owned(),
                cause: None,
                correlation: "turn".to_owned(),
            };
            let measurement = Measurement { subject, measure, value: json!(1) };
            let event = event(&measurement, &context);
            assert_eq!(
                (event.kind.as_str(), event.tags.as_slice().join(" ").as_str()),
                (kind, tags)
            );
            assert_eq!(event.fact, None);
        };
        let [d, c] = ["d", "c"].map(str::to_owned);
        let route = Subject::Route { gateway: "d/c/p".to_owned(), path: "d/c/s/p".to_owned() };
        let service =
            ServiceKey { deployment: d.clone(), cluster: c.clone(), service: "s".to_owned() };
        check(
            Subject::Gateway("g".to_owned()),
            Measure::Metric("rate"),
            "metrics",
            "gateways:g gateways gateway metrics:rate metrics",
        );
        check(
            route,
            Measure::Health,
            "health",
            "gateways:d/c/p gateways route routes:d/c/s/p routes health",
        );
        check(
            Subject::Service(service),
            Measure::Health,
            "health",
            "deployments:d deployments clusters:c clusters service services:s services health",
        );
        check(
            Subject::Cluster { deployment: d.clone(), cluster: c },
            Measure::Health,
            "health",
            "deployments:d deployments clusters:c clusters cluster health",
        );
        check(
            Subject::Deployment(d.clone()),
            Measure::Health,
            "health",
            "deployments:d deployments deployment health",
        );
        check(
            Subject::Deployment(d),
            Measure::Allocation,
            "allocation",
            "allocation deployments:d deployments",
        );
    }

    #[test]
    fn what_is_gone_makes_no_event() {
        let measurement = Measurement {
            subject: Subject::Gateway("g".to_owned()),
            measure: Measure::Health,
            value: Value::from(1),
        };
        let context = Context {
            now: OffsetDateTime::UNIX_EPOCH,
            actor: String::new(),
            cause: None,
            correlation: String::new(),
        };
        assert_eq!(decide(&State::default(), &[measurement], &context), []);
    }
}
