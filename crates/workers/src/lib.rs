//! From state to effects and back: workers observe what runs, plan what differs, act through drivers, and report.
//!
//! Workers hold no truth: kill one between any two steps and its next turn converges. Drivers are the only doors to
//! the outside. This crate knows no HTTP API.

pub mod checks;
pub mod containers;
pub mod deployments;
pub mod driver;
pub mod escalation;
pub mod gateways;
pub mod health;
mod processes;
pub mod routing;
pub mod sla;
mod supervisor;
pub mod turn;

pub use supervisor::{WorkerStatus, Workers};

use segue_domain::artifact::value::ConfigurationValues;
use std::time::Duration;

/// What the installation settles for all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How often everything is looked at without cause, as a safety net; zero switches that off.
    pub period: Duration,
    /// How often SLAs are checked without cause; zero switches that off.
    pub sla_period: Duration,
    /// Over what health and metrics are measured.
    pub windows: health::Windows,
    /// How often escalation events are looked for without cause; zero switches that off.
    pub escalation_period: Duration,
    /// How long after the start the safety net begins.
    pub initial_delay: Duration,
    /// How long a service may take to run before it has failed; `None` is for ever.
    pub ready_for_deployment: Option<Duration>,
    /// How long a service may take to go before it has failed; `None` is for ever.
    pub ready_for_undeployment: Option<Duration>,
    /// How long requests under way may keep an instance that is to be stopped.
    pub drain: Duration,
    /// The network of containers for which none is given.
    pub network: String,
    /// What references to the configuration stand for.
    pub configuration: ConfigurationValues,
    /// Type and name of the generated configuration, as events give them.
    pub configuration_name: (String, String),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(6),
            sla_period: Duration::from_secs(5),
            windows: health::Windows {
                health: Some(Duration::from_secs(30)),
                metrics: Some(Duration::from_secs(30)),
            },
            escalation_period: Duration::from_secs(5),
            initial_delay: Duration::from_secs(5),
            ready_for_deployment: Some(Duration::from_mins(10)),
            ready_for_undeployment: Some(Duration::from_mins(10)),
            drain: Duration::from_secs(30),
            network: "BRIDGE".to_owned(),
            configuration: ConfigurationValues::default(),
            configuration_name: ("haproxy".to_owned(), "2.6".to_owned()),
        }
    }
}
