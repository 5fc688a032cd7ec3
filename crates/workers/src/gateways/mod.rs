//! The door to traffic: gateways as a proxy serves them.
//!
//! A driver brings its proxy to a [`Configuration`] and tells which targets still carry requests; it decides nothing.

pub mod haproxy;
pub mod simulated;
mod traffic;

pub use traffic::{Count, Passage, Request, Times, Traffic};

use crate::driver::{Changes, Error};
use async_trait::async_trait;
use segue_domain::artifact::{Condition, Rewrite, Sticky};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

/// The door to one kind of proxy. Every call is idempotent and may be repeated after a crash.
#[async_trait]
pub trait GatewayDriver: Send + Sync {
    /// The name, as configuration gives it: `haproxy`, `simulated`.
    fn name(&self) -> &'static str;

    /// Whether the proxy answers; `Ok` also when it has nothing to serve yet.
    async fn ping(&self) -> Result<(), Error>;

    /// Brings the proxy to `configuration`, changing as little as possible. When it fails as a whole, the last good
    /// configuration keeps serving.
    async fn apply(&self, configuration: &Configuration) -> Result<Applied, Error>;

    /// Names of targets that still carry requests, among those that the last applied configuration drains or no
    /// longer holds.
    async fn busy(&self) -> Result<BTreeSet<String>, Error>;

    /// The requests that ended in the last whole seconds before `now`, as many as `window` has; those of the last
    /// moments may not be known yet. It says how many of these seconds it counted.
    async fn traffic(&self, now: OffsetDateTime, window: Duration) -> Result<Traffic, Error>;

    /// Whether the proxy takes what `template` makes of what it serves now; a permanent error says why not.
    async fn check_template(&self, template: &str) -> Result<(), Error>;

    /// The configuration in the proxy's own language, as last applied.
    async fn text(&self) -> String;

    /// Signals whenever the proxy ended or lost its configuration, so that `apply` is due.
    fn changes(&self) -> &Changes;
}

/// What a proxy is to serve: all gateways, sorted by number of name segments, then name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// The gateways.
    pub gateways: Vec<Frontend>,
    /// What the proxy's own configuration is generated from; `None` for the driver's own template.
    pub template: Option<Arc<String>>,
}

/// One gateway as a proxy sees it: where it listens, and all that stands behind it, nested gateways expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontend {
    /// The gateway's name, for comments and reports.
    pub name: String,
    /// The gateway's lookup name: unique, letters and digits.
    pub lookup_name: String,
    /// The port listened on; never 0.
    pub port: u16,
    /// What is spoken.
    pub protocol: Protocol,
    /// To what a cookie binds a client; `None` with tcp.
    pub sticky: Option<Sticky>,
    /// Host names under which the gateway is also reached; empty with tcp.
    pub virtual_hosts: Vec<String>,
    /// The ways that requests can take.
    pub routes: Vec<RouteModel>,
    /// Requests that some of these ways are asked for before all others; the first that matches decides. None with
    /// tcp.
    pub conditions: Vec<Conditional>,
}

/// Requests that some ways are asked for before all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditional {
    /// The path of the route that has the condition, for comments and reports.
    pub path: String,
    /// Which requests.
    pub condition: Condition,
    /// How many of a hundred of them take these ways; the rest is spread like all others.
    pub strength: u8,
    /// The ways, as indices of routes, and in which proportions they share.
    pub ways: Vec<(usize, u32)>,
}

/// What a gateway speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP.
    Http,
    /// Any other TCP protocol.
    Tcp,
}

/// One way that requests can take.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteModel {
    /// The route's path, for comments and reports.
    pub path: String,
    /// The route's lookup name: unique, letters and digits.
    pub lookup_name: String,
    /// Share of the requests. Only the proportions among the routes of one gateway mean something; 0 is "none".
    pub weight: u32,
    /// How requests are spread over the targets; `default` is the proxy's own choice.
    pub balance: String,
    /// Path changes on the way to the targets.
    pub rewrites: Vec<Rewrite>,
    /// Where requests go.
    pub targets: Vec<Target>,
    /// Under what its requests are counted: the gateways and routes that stand on this way, those that were expanded
    /// included. Where several ways lead to the same targets, what stands on any of them.
    pub passages: BTreeSet<Passage>,
}

/// Where requests go in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The instance's name, or the address of a target outside.
    pub name: String,
    /// The target's lookup name: unique within the route, letters and digits.
    pub lookup_name: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether it gets no new requests, while those under way are finished.
    pub draining: bool,
}

/// What became of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether the proxy serves something else than before.
    pub changed: bool,
    /// Gateways that could not be served, with the reason; all others are.
    pub refused: BTreeMap<String, String>,
    /// Those of them whose port another program has.
    pub ports_taken: BTreeSet<String>,
    /// By gateway and path of the route: routes that get nothing because of what they ask for, with the reason.
    pub disabled: BTreeMap<String, BTreeMap<String, String>>,
    /// What does not work although all of this is served: the proxy's file does not follow, or requests are not counted.
    pub troubles: BTreeSet<String>,
}
