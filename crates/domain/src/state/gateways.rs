//! Applies what happened to gateways.

use super::State;
use crate::artifact::{Gateway, GatewayName, Port};
use crate::event::{GatewayFact, Position};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A gateway, its revision, and what Segue found out about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredGateway {
    /// The position of the last record that a user's write made.
    pub revision: Position,
    /// The gateway; an assigned port is part of it.
    pub gateway: Arc<Gateway>,
    /// Whether users see it and traffic may take it; internal ones only once a service behind them was ready.
    pub published: bool,
    /// Whether it takes traffic.
    pub deployed: bool,
    /// Whether it ever did: then others may know its port.
    pub was_deployed: bool,
    /// Why it does not, when something keeps it from doing so.
    pub reason: Option<String>,
    /// Routes that get nothing because of what they ask for, by path, with the reason.
    pub disabled: BTreeMap<String, String>,
}

impl State {
    pub(super) fn apply_gateway(&mut self, name: &str, fact: &GatewayFact, at: Position) {
        if let GatewayFact::Stored(gateway) = fact {
            let internal = GatewayName::parse(name).is_some_and(GatewayName::is_internal);
            let old = self.gateways.get(name);
            let stored = StoredGateway {
                revision: at,
                gateway: Arc::new((**gateway).clone()),
                published: old.map_or(!internal, |old| old.published),
                deployed: old.is_some_and(|old| old.deployed),
                was_deployed: old.is_some_and(|old| old.was_deployed),
                reason: old.and_then(|old| old.reason.clone()),
                disabled: old.map(|old| old.disabled.clone()).unwrap_or_default(),
            };
            self.gateways.insert(name.to_owned(), stored);
            return;
        }
        let Some(stored) = self.gateways.get_mut(name) else { return };
        match fact {
            GatewayFact::Stored(_) => {}
            GatewayFact::Published => stored.published = true,
            GatewayFact::PortAssigned(number) => {
                let kind = stored.gateway.port.kind;
                Arc::make_mut(&mut stored.gateway).port = Port::new(*number, kind);
                self.last_assigned_port = *number;
            }
            GatewayFact::DeployedChanged { deployed, reason } => {
                stored.deployed = *deployed;
                stored.was_deployed |= *deployed;
                stored.reason.clone_from(reason);
            }
            GatewayFact::RoutesDisabled(disabled) => stored.disabled.clone_from(disabled),
            GatewayFact::Deleted => {
                self.gateways.remove(name);
            }
        }
    }
}
