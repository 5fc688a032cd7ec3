//! What a running HAProxy holds, and the commands that bring it to a model.
//!
//! Pure but for nothing: answers come in as text, commands go out as text. Nothing is remembered between two looks,
//! so an HAProxy that another life of the service started is brought on just the same.

use super::model::{Address, Model};
use super::slots::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What the driver asks to learn the state, that of the tables of `model` included.
pub(super) fn question(model: Option<&Model>) -> Vec<String> {
    let digests = model.into_iter().flat_map(Model::tables);
    let digests = digests.map(|table| format!("get map {} digest", table.file));
    let state = ["show info", "show servers state", "show stat"].map(str::to_owned);
    state.into_iter().chain(digests).collect()
}

/// Frontends that lead to no gateway.
const OWN_FRONTENDS: [&str; 2] = ["segue", "segue_health"];
/// Bits of `srv_admin_state` that keep requests away: maintenance by command, and by configuration.
const MAINTENANCE: u32 = 0x01 | 0x04;
/// Bits of `srv_admin_state` that say that a server drains, by command or by its tracked server.
const DRAIN: u32 = 0x08 | 0x10;

/// What a worker process of HAProxy holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) pid: u32,
    /// The name of the configuration's fixed part; see [`super::render::Rendered::structure`].
    pub(super) structure: String,
    /// Numeric ids of frontends, which are ports for those that have one.
    pub(super) ports: BTreeSet<u16>,
    /// By backend and name.
    pub(super) servers: BTreeMap<(String, String), ObservedServer>,
    /// Connections of clients, those without a request among them.
    clients: u64,
    /// Digests of the tables that were asked for.
    tables: BTreeSet<String>,
}

/// A server of a running HAProxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObservedServer {
    pub(super) ip: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) weight: u16,
    pub(super) maintenance: bool,
    /// Whether it gets no new requests, while those that were given to it already still reach it.
    pub(super) drained: bool,
    /// Requests, or with tcp connections, that it carries now.
    pub(super) sessions: u64,
}

impl ObservedServer {
    /// Whether it gets no new requests. Servers are taken out by draining: maintenance at once would refuse requests
    /// that were given to them a moment before.
    fn is_away(&self) -> bool {
        self.maintenance || self.drained
    }
}

impl Observed {
    /// Reads the answer to [`question`]; `None` when it is no such answer.
    pub(super) fn read(answer: &str) -> Option<Self> {
        let mut observed = Self::default();
        for line in answer.lines() {
            if let Some(pid) = line.strip_prefix("Pid: ") {
                observed.pid = pid.trim().parse().ok()?;
            } else if let Some(description) = line.strip_prefix("description: ") {
                description.trim().clone_into(&mut observed.structure);
            } else if line.starts_with("type=") {
                // An answer to `get map`: `type=str, case=sensitive, found=yes, idx=tree, key="digest", value="…", type="str"`.
                let value = line.split("value=\"").nth(1).and_then(|rest| rest.split('"').next());
                observed.tables.extend(value.map(str::to_owned));
            } else if line.contains(',') {
                observed.read_statistics(line);
            } else if !line.starts_with('#') {
                observed.read_server(line);
            }
        }
        (observed.pid != 0).then_some(observed)
    }

    /// Reads an answer to `show stat` alone.
    pub(super) fn read_statistics_of(&mut self, answer: &str) {
        answer.lines().for_each(|line| self.read_statistics(line));
    }

    fn read_server(&mut self, line: &str) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, backend, _, name, ip, _, admin, weight, ..] = fields.as_slice() else { return };
        let (Some(port), Ok(admin), Ok(weight)) =
            (fields.get(18), admin.parse::<u32>(), weight.parse())
        else {
            return;
        };
        let server = self.servers.entry(((*backend).to_owned(), (*name).to_owned())).or_default();
        server.ip = ip.parse().ok();
        server.port = port.parse().unwrap_or(0);
        server.weight = weight;
        server.maintenance = admin & MAINTENANCE != 0;
        server.drained = admin & DRAIN != 0;
    }

    fn read_statistics(&mut self, line: &str) {
        let fields: Vec<&str> = line.split(',').collect();
        let [proxy, name, _, _, sessions, ..] = fields.as_slice() else { return };
        match *name {
            "FRONTEND" => {
                self.ports.extend(fields.get(27).and_then(|id| id.parse::<u16>().ok()));
                if !OWN_FRONTENDS.contains(proxy) {
                    self.clients += sessions.parse().unwrap_or(0);
                }
            }
            "BACKEND" | "svname" => {}
            name => {
                let server =
                    self.servers.entry(((*proxy).to_owned(), name.to_owned())).or_default();
                server.sessions = sessions.parse().unwrap_or(0);
            }
        }
    }

    /// Whether clients keep connections on which no request is under way.
    pub(super) fn has_idle_clients(&self) -> bool {
        self.clients > self.servers.values().map(|server| server.sessions).sum()
    }

    /// Servers that no model names any more, and that carry nothing.
    pub(super) fn removable(&self, model: &Model) -> Vec<String> {
        self.strangers(model)
            .filter(|(_, server)| server.is_away() && server.sessions == 0)
            .flat_map(|((backend, name), _)| {
                let path = format!("{backend}/{name}");
                [format!("set server {path} state maint"), format!("del server {path}")]
            })
            .collect()
    }

    fn strangers(
        &self,
        model: &Model,
    ) -> impl Iterator<Item = (&(String, String), &ObservedServer)> {
        let known: BTreeSet<(String, String)> = model
            .backends
            .iter()
            .flat_map(|backend| {
                backend.servers.iter().map(|server| (backend.name.clone(), server.name.clone()))
            })
            .collect();
        self.servers.iter().filter(move |(key, _)| !known.contains(*key))
    }
}

/// What brings a running HAProxy to a model, in the order of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Commands by which servers appear and weights rise.
    pub(super) gain: Vec<String>,
    /// Tables to replace: when all they name is there, and before what they no longer name goes.
    pub(super) tables: Vec<Table>,
    /// Commands by which weights fall and servers go.
    pub(super) lose: Vec<String>,
}

impl Plan {
    /// The first step, in words; `None` when there is nothing to do.
    pub(super) fn first(&self) -> Option<String> {
        let table = self.tables.first().map(|table| format!("replace map {}", table.file));
        self.gain.first().cloned().or(table).or_else(|| self.lose.first().cloned())
    }
}

/// What brings servers and tables from `observed` to `model`, which has the same structure.
///
/// What gains requests comes before what loses them: servers appear and weights rise first, then weights fall, and
/// at last servers go. In no order of the other kind is there always one with weight.
/// Tables that were not asked for are replaced.
pub(super) fn plan(model: &Model, observed: &Observed) -> Plan {
    let (mut gain, mut lose, mut end) = (Vec::new(), Vec::new(), Vec::new());
    for backend in model.backends.iter().filter(|backend| backend.dynamic()) {
        for server in &backend.servers {
            let key = (backend.name.clone(), server.name.clone());
            let path = format!("{}/{}", backend.name, server.name);
            let Some(seen) = observed.servers.get(&key) else {
                gain.push(format!(
                    "add server {path} {} weight {}",
                    server.address.text(),
                    server.weight
                ));
                if !server.draining {
                    gain.push(format!("enable server {path}"));
                }
                continue;
            };
            let Address { ip, port } = server.address;
            if (seen.ip, seen.port) != (Some(ip), port) {
                gain.push(format!("set server {path} addr {ip} port {port}"));
            }
            if server.draining {
                if !seen.is_away() {
                    end.push(format!("set server {path} state drain"));
                }
                continue;
            }
            if seen.weight != server.weight {
                let order = if seen.weight < server.weight || seen.is_away() {
                    &mut gain
                } else {
                    &mut lose
                };
                order.push(format!("set server {path} weight {}", server.weight));
            }
            if seen.is_away() {
                gain.push(format!("set server {path} state ready"));
            }
        }
    }
    let strangers = observed.strangers(model).filter(|(_, server)| !server.is_away());
    end.extend(
        strangers.map(|((backend, name), _)| format!("set server {backend}/{name} state drain")),
    );
    lose.extend(end);
    let differs = |table: &&Table| !observed.tables.contains(&table.digest());
    Plan { gain, tables: model.tables().filter(differs).cloned().collect(), lose }
}
