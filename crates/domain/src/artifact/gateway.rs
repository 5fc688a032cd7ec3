//! Where traffic enters and how it is spread over routes.

use super::{Metadata, Percentage, Port, RouteCondition};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Where traffic enters and how it is spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// One to four segments; see [`GatewayName`].
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The port listened on; number 0 is "assigned from the pool later".
    pub port: Port,
    /// Whether a client stays with a route or an instance.
    pub sticky: Option<Sticky>,
    /// Host names under which the gateway is also reached.
    pub virtual_hosts: Vec<String>,
    /// The routes in document order, by path.
    pub routes: IndexMap<RoutePath, Route>,
}

/// What the segments of a gateway's name say (runtime, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayName<'a> {
    /// `shop`, or four segments: a gateway of its own.
    StandAlone(&'a str),
    /// `shop/9050`: the entry of a deployment.
    External {
        /// The deployment.
        deployment: &'a str,
        /// The port number or key of the blueprint.
        port: &'a str,
    },
    /// `shop/web/http`: the stable address of a cluster's port.
    Internal {
        /// The deployment.
        deployment: &'a str,
        /// The cluster.
        cluster: &'a str,
        /// The name of the port.
        port: &'a str,
    },
}

impl<'a> GatewayName<'a> {
    /// Splits a gateway name, or `None` when it is not legal.
    pub fn parse(name: &'a str) -> Option<Self> {
        let legal = |c: char| !c.is_whitespace() && c != '[' && c != ']';
        let segments: Vec<&str> = name.split('/').collect();
        if !name.chars().all(legal) || segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        match segments[..] {
            [_] | [_, _, _, _] => Some(Self::StandAlone(name)),
            [deployment, port] => Some(Self::External { deployment, port }),
            [deployment, cluster, port] => Some(Self::Internal { deployment, cluster, port }),
            _ => None,
        }
    }

    /// Whether this is the gateway of a cluster's port.
    pub fn is_internal(self) -> bool {
        matches!(self, Self::Internal { .. })
    }

    /// The deployment that the gateway belongs to, when the name says one.
    pub fn deployment(self) -> Option<&'a str> {
        match self {
            Self::StandAlone(_) => None,
            Self::External { deployment, .. } | Self::Internal { deployment, .. } => {
                Some(deployment)
            }
        }
    }
}

/// To what a cookie binds a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sticky {
    /// To the route it got.
    Route,
    /// To the instance it got.
    Instance,
}

/// How requests are spread over the targets of one route; passed on to the gateway driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Balance(pub String);

impl Default for Balance {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// A path change on the way to the targets: `NEW_PATH if CONDITION`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rewrite {
    /// The path that the targets see.
    pub path: String,
    /// A raw ACL expression that says when.
    pub condition: String,
}

/// One way that requests can take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Share of the requests; `None` until completed.
    pub weight: Option<Percentage>,
    /// How requests are spread over the targets.
    pub balance: Balance,
    /// Which requests it asks for before all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<RouteCondition>,
    /// Share of the requests matching a condition; `None` until stored.
    pub condition_strength: Option<Percentage>,
    /// Path changes, in order.
    pub rewrites: Vec<Rewrite>,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
}

/// The text of a route's path: 1 to 4 segments separated by `/`, or `[host:port]` for an address outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoutePath(String);

impl RoutePath {
    /// The path `text`, or `None` when it has no or more than four segments.
    pub fn parse(text: &str) -> Option<Self> {
        if Self::is_external_form(text) {
            return Some(Self(text.to_owned()));
        }
        let segments: Vec<&str> = text.split('/').filter(|segment| !segment.is_empty()).collect();
        ((1..=4).contains(&segments.len())).then(|| Self(segments.join("/")))
    }

    /// The path made of `segments`, each of which is a general name.
    pub fn of<const N: usize>(segments: [&str; N]) -> Self {
        Self(segments.join("/"))
    }

    /// The whole path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments; an external address is one.
    pub fn segments(&self) -> Vec<&str> {
        if self.external().is_some() { vec![&self.0] } else { self.0.split('/').collect() }
    }

    /// The address in brackets, when the path leads outside.
    pub fn external(&self) -> Option<&str> {
        if Self::is_external_form(&self.0) { self.0.get(1..self.0.len() - 1) } else { None }
    }

    fn is_external_form(text: &str) -> bool {
        text.len() > 2 && text.starts_with('[') && text.ends_with(']')
    }
}
