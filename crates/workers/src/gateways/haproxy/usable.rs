//! Which gateways can be served, by names and ports.

use super::{HaproxyDriver, refusal};
use crate::gateways::{Applied, Configuration, Frontend};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;

/// Why a port cannot be listened on.
struct PortRefusal {
    reason: String,
    /// Whether another program has it, so that another port would do.
    taken: bool,
}

impl HaproxyDriver {
    /// Splits gateways into those that can be served and the reasons why the others cannot.
    pub(super) fn usable<'a>(
        &self,
        configuration: &'a Configuration,
        ours: &BTreeSet<u16>,
    ) -> (Vec<&'a Frontend>, Applied) {
        let mut usable = Vec::new();
        let mut applied = Applied::default();
        let mut names = BTreeSet::new();
        let mut taken: BTreeMap<u16, &str> = BTreeMap::new();
        taken.extend(self.settings.virtual_hosts_port.map(|port| (port, "virtual_hosts")));
        taken.extend(self.settings.stats_port.map(|port| (port, "segue_health")));
        for gateway in &configuration.gateways {
            let reason = refusal::of_gateway(gateway)
                .or_else(|| {
                    (!names.insert(&gateway.lookup_name))
                        .then(|| "its lookup name is used twice".to_owned())
                })
                .or_else(|| {
                    taken
                        .get(&gateway.port)
                        .map(|by| format!("port {} is used by {by}", gateway.port))
                })
                .or_else(|| {
                    let PortRefusal { reason, taken } = self.port_refusal(gateway.port, ours)?;
                    if taken {
                        applied.ports_taken.insert(gateway.name.clone());
                    }
                    Some(reason)
                });
            if let Some(reason) = reason {
                applied.refused.insert(gateway.name.clone(), reason);
            } else {
                taken.insert(gateway.port, &gateway.name);
                usable.push(gateway);
            }
        }
        (usable, applied)
    }

    fn port_refusal(&self, port: u16, ours: &BTreeSet<u16>) -> Option<PortRefusal> {
        if ours.contains(&port) {
            return None;
        }
        let address = self.settings.bind_address;
        let error = TcpListener::bind((address, port)).err()?;
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        let why = if taken { "used by another program" } else { "not usable" };
        // The number that the system puts behind its words says nothing to a person.
        let words = error.to_string();
        let words = words.split(" (os error").next().unwrap_or_default();
        Some(PortRefusal { reason: format!("port {port} on {address} is {why}: {words}"), taken })
    }

    /// The virtual hosts' port, or why it cannot be had.
    pub(super) fn virtual_hosts_port(&self, ours: &BTreeSet<u16>) -> Option<Result<u16, String>> {
        let port = self.settings.virtual_hosts_port?;
        Some(match self.port_refusal(port, ours) {
            Some(PortRefusal { reason, .. }) => {
                Err(format!("virtual hosts are not served: {reason}"))
            }
            None => Ok(port),
        })
    }
}
