//! From a configuration to what HAProxy is to hold: frontends, backends, and servers with integer weights.
//!
//! Pure. It knows the proxy's concepts but not its syntax, and nothing of processes and sockets.

use super::acl::{Acl, Matcher};
use super::slots::{Preference, Table};
use crate::gateways::{Conditional, Frontend, Protocol, RouteModel, Target};
use segue_domain::artifact::Sticky;
use serde::Serialize;
use sha1::{Digest, Sha1};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

/// The largest weight that HAProxy gives a server.
pub(super) const WEIGHT_MAX: u16 = 256;

/// Everything that HAProxy is to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Model {
    pub(super) virtual_hosts: Option<VirtualHosts>,
    pub(super) listeners: Vec<Listener>,
    pub(super) backends: Vec<Backend>,
}

/// The frontend that tells gateways apart by host name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct VirtualHosts {
    pub(super) bind: String,
    pub(super) port: u16,
    /// Whether a gateway among them binds clients to routes.
    pub(super) binds: bool,
}

/// A host name that leads to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct VirtualHost {
    pub(super) acl: String,
    pub(super) host: String,
}

/// The frontend of a gateway. What no choice leads elsewhere goes to the backend of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) bind: String,
    /// The port, also its numeric id, by which a running HAProxy tells its ports.
    pub(super) port: u16,
    pub(super) http: bool,
    pub(super) hosts: Vec<VirtualHost>,
    /// How a request gets to the backend of its route; `None` where all routes share one backend.
    pub(super) choice: Option<Choice>,
}

/// How a frontend chooses the backend of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    /// Which backend takes which request.
    pub(super) table: Table,
    /// Whether a cookie with the gateway's name binds a client to the route it got.
    pub(super) cookie: bool,
    pub(super) conditions: Conditions,
}

/// Conditions that are tried before anything else decides; what each of them prefers stands in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Conditions {
    /// Tests that the rules name.
    pub(super) acls: Vec<Acl>,
    /// In the order in which they are tried.
    pub(super) rules: Vec<Rule>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rule {
    /// From 1.
    pub(super) number: usize,
    pub(super) comment: String,
    /// One of them has to hold; an empty one always does.
    pub(super) lines: Vec<String>,
}

/// Servers, and how requests are spread over them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) http: bool,
    pub(super) balance: Vec<String>,
    /// Which server takes which request; `None` where it can only be left to `balance`.
    pub(super) table: Option<Table>,
    /// Whether the table says which server takes every request, or only those that match a condition.
    pub(super) exact: bool,
    pub(super) conditions: Conditions,
    pub(super) cookie: bool,
    pub(super) rewrites: Vec<RewriteRule>,
    pub(super) servers: Vec<Server>,
}

/// A path change, its condition split into words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RewriteRule {
    pub(super) path: String,
    pub(super) condition: Vec<String>,
}

/// One server of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) address: Address,
    pub(super) weight: u16,
    pub(super) draining: bool,
}

/// Where a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
}

impl Address {
    /// The address as the configuration and the runtime socket write it.
    pub(super) fn text(&self) -> String {
        let Self { ip, port } = self;
        match ip {
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("ipv6@[{ip}]:{port}"),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl Model {
    /// The model of `gateways`, all of which passed [`refusal`](super::refusal).
    pub(super) fn of(
        gateways: &[&Frontend],
        bind_address: IpAddr,
        virtual_hosts_port: Option<u16>,
    ) -> Self {
        let mut model = Model { virtual_hosts: None, listeners: Vec::new(), backends: Vec::new() };
        for gateway in gateways {
            let mut listener = listener(gateway, bind_address);
            if virtual_hosts_port.is_none() {
                listener.hosts.clear();
            }
            if is_flat(gateway) {
                model.backends.push(flat(gateway));
            } else {
                listener.choice = Some(choice(gateway));
                model.backends.extend(routed(gateway));
            }
            model.listeners.push(listener);
        }
        let hosts = model.listeners.iter().any(|listener| !listener.hosts.is_empty());
        let binds =
            |listener: &Listener| listener.choice.as_ref().is_some_and(|choice| choice.cookie);
        let binds = model.listeners.iter().any(binds);
        model.virtual_hosts = virtual_hosts_port.filter(|_| hosts).map(|port| VirtualHosts {
            bind: bind(bind_address, port),
            port,
            binds,
        });
        model
    }

    /// The slot tables of all backends and frontends.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Table> {
        let choices = self.listeners.iter().filter_map(|listener| listener.choice.as_ref());
        let backends = self.backends.iter().filter_map(|backend| backend.table.as_ref());
        choices.map(|choice| &choice.table).chain(backends)
    }

    /// What cannot change at run time: everything but servers that can be added and removed, and weights and states.
    pub(super) fn structure(&self) -> Self {
        let mut structure = self.clone();
        for backend in structure.backends.iter_mut().filter(|backend| backend.dynamic()) {
            // Dynamic servers of HAProxy 2.6 take no cookie.
            if !backend.cookie {
                backend.servers.clear();
            }
            for server in &mut backend.servers {
                server.weight = 0;
                server.draining = false;
            }
            if let Some(table) = &mut backend.table {
                table.clear();
            }
        }
        for choice in structure.listeners.iter_mut().filter_map(|listener| listener.choice.as_mut())
        {
            choice.table.clear();
        }
        structure
    }
}

impl Backend {
    /// Whether HAProxy changes weights and servers of this backend at run time; it depends on the algorithm.
    pub(super) fn dynamic(&self) -> bool {
        matches!(
            self.balance.first().map(String::as_str),
            Some("roundrobin" | "leastconn" | "first")
        )
    }
}

/// The weight of one server of each route, such that routes share as `(weight, number of servers)` say: exactly where
/// that fits into HAProxy's limit, else as near as it allows, and never 0 for a share.
pub(super) fn shares(routes: &[(u32, usize)]) -> Vec<u16> {
    exact_shares(routes).unwrap_or_else(|| {
        let counted = |&(weight, servers): &(u32, usize)| weight > 0 && servers > 0;
        let wide = |&(weight, servers): &(u32, usize)| (u128::from(weight), servers as u128);
        let routes: Vec<(u128, u128)> =
            routes.iter().map(|route| if counted(route) { wide(route) } else { (0, 1) }).collect();
        let by_share =
            |left: &(u128, u128), right: &(u128, u128)| (left.0 * right.1).cmp(&(right.0 * left.1));
        let (most, among) = routes.iter().copied().max_by(by_share).unwrap_or((1, 1));
        let near = |(weight, servers): (u128, u128)| {
            let (part, whole) = (weight * among * u128::from(WEIGHT_MAX), servers * most);
            let near = ((part + whole / 2) / whole).max(u128::from(weight > 0));
            u16::try_from(near).expect("no share is above the largest")
        };
        routes.into_iter().map(near).collect()
    })
}

fn exact_shares(routes: &[(u32, usize)]) -> Option<Vec<u16>> {
    let counted = |&(weight, servers): &(u32, usize)| weight > 0 && servers > 0;
    let multiple = routes.iter().filter(|route| counted(route)).try_fold(
        1_u128,
        |multiple, &(_, servers)| {
            let servers = servers as u128;
            (multiple / greatest_common_divisor(multiple, servers)).checked_mul(servers)
        },
    )?;
    let scaled: Vec<u128> = routes
        .iter()
        .map(|route| {
            if counted(route) {
                u128::from(route.0).checked_mul(multiple / route.1 as u128)
            } else {
                Some(0)
            }
        })
        .collect::<Option<_>>()?;
    let divisor = scaled.iter().copied().fold(0, greatest_common_divisor).max(1);
    scaled
        .into_iter()
        .map(|weight| u16::try_from(weight / divisor).ok().filter(|weight| *weight <= WEIGHT_MAX))
        .collect()
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Whether one backend holds all targets. It depends neither on weights nor on numbers of targets, so that no change of
/// these needs a reload.
fn is_flat(gateway: &Frontend) -> bool {
    let own_rules = |route: &RouteModel| {
        !route.rewrites.is_empty()
            || (route.balance != default_balance(gateway) && route.balance != "default")
    };
    let several = gateway.routes.len() > 1;
    // With one cookie a client whose instance is gone would lose its route, too.
    if several && (gateway.sticky.is_some() || gateway.routes.iter().any(own_rules)) {
        return false;
    }
    // A target behind two routes could not be attributed to one of them.
    let mut names = BTreeSet::new();
    gateway.routes.iter().flat_map(distinct).all(|target| names.insert(&target.lookup_name))
}

fn listener(gateway: &Frontend, bind_address: IpAddr) -> Listener {
    Listener {
        name: gateway.lookup_name.clone(),
        comment: gateway.name.clone(),
        bind: bind(bind_address, gateway.port),
        port: gateway.port,
        http: gateway.protocol == Protocol::Http,
        hosts: virtual_hosts(gateway),
        choice: None,
    }
}

fn flat(gateway: &Frontend) -> Backend {
    let (balance, rewrites) = match gateway.routes.as_slice() {
        [route] => (balance(&route.balance, default_balance(gateway)), rewrites(route)),
        _ => (balance("default", default_balance(gateway)), Vec::new()),
    };
    let routes: Vec<(u32, usize)> =
        gateway.routes.iter().map(|route| (route.weight, live(route))).collect();
    let servers = gateway.routes.iter().zip(shares(&routes)).flat_map(|(route, weight)| {
        distinct(route).filter_map(move |target| {
            server(target, weight, &format!("{}//{} {}", gateway.name, route.path, target.name))
        })
    });
    let http = gateway.protocol == Protocol::Http;
    let cookie = gateway.sticky == Some(Sticky::Instance);
    // A server that a table chose counts as one that a cookie chose: HAProxy would set no cookie.
    let exact = http && !cookie && balance == ["roundrobin"];
    let conditions = if cookie { Conditions::default() } else { conditions(gateway) };
    let mut table = if exact {
        let all = gateway.routes.iter().map(|route| (route.weight, taking(route)));
        Table::of(&gateway.lookup_name, &all.collect::<Vec<_>>())
    } else {
        let kept = gateway.routes.iter().filter(|_| cookie).flat_map(taking);
        Table::of_kept(&gateway.lookup_name, kept.collect())
    };
    if !conditions.rules.is_empty() {
        table.preferences = preferences(gateway, taking);
    }
    let has_table = exact || cookie && http || !conditions.rules.is_empty();
    Backend {
        name: gateway.lookup_name.clone(),
        comment: gateway.name.clone(),
        http,
        balance,
        table: has_table.then_some(table),
        exact,
        conditions,
        cookie,
        rewrites,
        servers: servers.collect(),
    }
}

/// Names of the servers of `route` that take new requests.
fn taking(route: &RouteModel) -> Vec<&str> {
    let live = distinct(route).filter(|target| !target.draining);
    live.map(|target| target.lookup_name.as_str()).collect()
}

fn conditions(gateway: &Frontend) -> Conditions {
    let mut conditions = Conditions::default();
    for (wish, number) in gateway.conditions.iter().zip(1..) {
        let matcher = Matcher::of(&wish.condition).expect("checked by `refusal`");
        for acl in matcher.acls {
            if !conditions.acls.contains(&acl) {
                conditions.acls.push(acl);
            }
        }
        let comment = format!("{}//{}", gateway.name, wish.path);
        conditions.rules.push(Rule { number, comment, lines: matcher.lines });
    }
    conditions
}

/// What the conditions of `gateway` prefer; `names` are those of a route that take requests.
fn preferences<'a>(
    gateway: &'a Frontend,
    names: impl Fn(&'a RouteModel) -> Vec<&'a str>,
) -> Vec<Preference> {
    let of = |wish: &Conditional| {
        let ways = wish
            .ways
            .iter()
            .filter_map(|(index, weight)| Some((*weight, names(gateway.routes.get(*index)?))));
        Preference::of(wish.strength, &ways.collect::<Vec<_>>())
    };
    gateway.conditions.iter().map(of).collect()
}

/// A route is chosen when one of its targets takes requests.
fn choice(gateway: &Frontend) -> Choice {
    let routes: Vec<(u32, Vec<&str>)> = gateway
        .routes
        .iter()
        .filter(|route| live(route) > 0)
        .map(|route| (route.weight, vec![route.lookup_name.as_str()]))
        .collect();
    let mut table = Table::of_routes(&gateway.lookup_name, &routes);
    table.preferences = preferences(gateway, |route| {
        if live(route) > 0 { vec![route.lookup_name.as_str()] } else { Vec::new() }
    });
    Choice { table, cookie: gateway.sticky.is_some(), conditions: conditions(gateway) }
}

/// One backend for each route, and an empty one for requests that no route takes.
fn routed(gateway: &Frontend) -> impl Iterator<Item = Backend> {
    let http = gateway.protocol == Protocol::Http;
    let none = Backend {
        name: gateway.lookup_name.clone(),
        comment: gateway.name.clone(),
        http,
        balance: balance("default", default_balance(gateway)),
        table: None,
        exact: false,
        conditions: Conditions::default(),
        cookie: false,
        rewrites: Vec::new(),
        servers: Vec::new(),
    };
    let of = move |route: &RouteModel| {
        let comment = format!("{}//{}", gateway.name, route.path);
        let servers = distinct(route)
            .filter_map(|target| server(target, 1, &format!("{comment} {}", target.name)))
            .collect();
        let cookie = gateway.sticky == Some(Sticky::Instance);
        Backend {
            name: route.lookup_name.clone(),
            http,
            balance: balance(&route.balance, if http { "roundrobin" } else { "leastconn" }),
            table: cookie.then(|| Table::of_kept(&route.lookup_name, taking(route))),
            exact: false,
            conditions: Conditions::default(),
            cookie,
            rewrites: rewrites(route),
            servers,
            comment,
        }
    };
    std::iter::once(none).chain(gateway.routes.iter().map(of))
}

pub(super) fn hash(text: &str) -> String {
    let digest = Sha1::digest(text.as_bytes());
    hex(&digest[..8])
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes whatever is written to it");
        text
    })
}

fn virtual_hosts(gateway: &Frontend) -> Vec<VirtualHost> {
    if gateway.protocol == Protocol::Tcp {
        return Vec::new();
    }
    let of = |host: &String| VirtualHost {
        acl: hash(&format!("hdr(host) -i {host}0000")),
        host: host.clone(),
    };
    gateway.virtual_hosts.iter().map(of).collect()
}

pub(super) fn bind(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("ipv6@[{ip}]:{port}"),
    }
}

/// `None` for a target whose address is not known; see [`hosts`](super::hosts).
fn server(target: &Target, weight: u16, comment: &str) -> Option<Server> {
    Some(Server {
        name: target.lookup_name.clone(),
        comment: comment.to_owned(),
        address: Address { ip: target.host.parse().ok()?, port: target.port },
        weight,
        draining: target.draining,
    })
}

/// The targets of `route`, of equal ones the first.
fn distinct(route: &RouteModel) -> impl Iterator<Item = &Target> {
    let mut seen = BTreeSet::new();
    route.targets.iter().filter(move |target| seen.insert(&target.lookup_name))
}

fn live(route: &RouteModel) -> usize {
    distinct(route).filter(|target| !target.draining).count()
}

/// Least connections know no exact shares, so several routes of a tcp gateway are spread in turn.
fn default_balance(gateway: &Frontend) -> &'static str {
    match gateway.protocol {
        Protocol::Tcp if gateway.routes.len() < 2 => "leastconn",
        Protocol::Http | Protocol::Tcp => "roundrobin",
    }
}

fn balance(text: &str, default: &str) -> Vec<String> {
    if text == "default" {
        vec![default.to_owned()]
    } else {
        words(text).expect("checked by `refusal`")
    }
}

fn rewrites(route: &RouteModel) -> Vec<RewriteRule> {
    let rule = |rewrite: &segue_domain::artifact::Rewrite| RewriteRule {
        path: rewrite.path.clone(),
        condition: condition(&rewrite.condition).expect("checked by `refusal`"),
    };
    route.rewrites.iter().map(rule).collect()
}

/// The words of a raw ACL expression, in braces unless it has them already.
pub(super) fn condition(text: &str) -> Option<Vec<String>> {
    let mut words = words(text)?;
    if words.first()? != "{" {
        words.insert(0, "{".to_owned());
        words.push("}".to_owned());
    }
    Some(words)
}

/// Splits like HAProxy does; a comment sign ends the text there and here.
pub(super) fn words(text: &str) -> Option<Vec<String>> {
    shlex::split(text)
}
