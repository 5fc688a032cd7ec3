//! From a configuration to what HAProxy is to hold: frontends, backends, and servers with integer weights.
//!
//! Pure. It knows the proxy's concepts but not its syntax, and nothing of processes and sockets.

use super::acl::{Acl, Matcher};
use super::slots::{Choice, Table};
use crate::gateways::{Conditional, Frontend, Protocol, RouteModel, Target};
use segue_domain::artifact::Sticky;
use serde::Serialize;
use sha1::{Digest, Sha1};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

/// The largest weight that HAProxy gives a server.
pub(super) const WEIGHT_MAX: u128 = 256;

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
    pub(super) hosts: Vec<VirtualHost>,
}

/// A host name and the backend it leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct VirtualHost {
    pub(super) acl: String,
    pub(super) host: String,
    pub(super) backend: String,
}

/// A frontend with one way in and one backend, its own name's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) bind: String,
    /// The port of a gateway, also its numeric id, by which a running HAProxy tells its ports; `None` between levels.
    pub(super) port: Option<u16>,
    pub(super) http: bool,
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
    /// Whether the table says how all requests are spread, or only those that conditions choose.
    pub(super) exact: bool,
    /// Tests that the rules name.
    pub(super) acls: Vec<Acl>,
    /// Which requests choose their servers before all others, in the order in which they are tried.
    pub(super) rules: Vec<Rule>,
    pub(super) cookie: bool,
    pub(super) rewrites: Vec<RewriteRule>,
    pub(super) servers: Vec<Server>,
}

/// A condition; what it chooses stands in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rule {
    /// From 1.
    pub(super) number: usize,
    pub(super) comment: String,
    /// One of them has to hold; an empty one always does.
    pub(super) lines: Vec<String>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// An IP address; such servers come and go at run time.
    Ip { ip: IpAddr, port: u16 },
    /// A host name, resolved when the file is loaded.
    Host { host: String, port: u16 },
    /// The second level, on a socket in HAProxy's own directory.
    Socket { file: String },
}

impl Address {
    /// The address as the configuration and the runtime socket write it.
    pub(super) fn text(&self) -> String {
        match self {
            Address::Ip { ip: IpAddr::V4(ip), port } => format!("{ip}:{port}"),
            Address::Ip { ip: IpAddr::V6(ip), port } => format!("ipv6@[{ip}]:{port}"),
            Address::Host { host, port } => format!("{host}:{port}"),
            Address::Socket { file } => format!("unix@{file}"),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl Model {
    /// The model of `gateways`, all of which passed [`refusal`].
    pub(super) fn of(
        gateways: &[&Frontend],
        bind_address: IpAddr,
        virtual_hosts_port: Option<u16>,
    ) -> Self {
        let mut model = Model { virtual_hosts: None, listeners: Vec::new(), backends: Vec::new() };
        let hosts: Vec<VirtualHost> =
            gateways.iter().flat_map(|gateway| virtual_hosts(gateway)).collect();
        if let (Some(port), false) = (virtual_hosts_port, hosts.is_empty()) {
            model.virtual_hosts =
                Some(VirtualHosts { bind: bind(bind_address, port), port, hosts });
        }
        for gateway in gateways {
            model.listeners.push(Listener {
                name: gateway.lookup_name.clone(),
                comment: gateway.name.clone(),
                bind: bind(bind_address, gateway.port),
                port: Some(gateway.port),
                http: gateway.protocol == Protocol::Http,
            });
            match flat_weights(gateway) {
                Some(weights) => model.backends.push(one_level(gateway, &weights)),
                None => two_levels(gateway, &mut model),
            }
        }
        model
    }

    /// What cannot change at run time: everything but servers that can be added and removed, and weights and states.
    pub(super) fn structure(&self) -> Self {
        let mut structure = self.clone();
        for backend in structure.backends.iter_mut().filter(|backend| backend.dynamic()) {
            // Dynamic servers of HAProxy 2.6 take no cookie and no host name.
            let cookie = backend.cookie;
            backend
                .servers
                .retain(|server| cookie || !matches!(server.address, Address::Ip { .. }));
            for server in &mut backend.servers {
                server.weight = 0;
                server.draining = false;
            }
            if let Some(table) = &mut backend.table {
                *table = table.emptied();
            }
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

/// Why `gateway` cannot be expressed, if it cannot.
pub(super) fn refusal(gateway: &Frontend) -> Option<String> {
    let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    if !word(&gateway.lookup_name) {
        return Some(format!(
            "lookup name {:?} is not made of letters and digits",
            gateway.lookup_name
        ));
    }
    let line = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if let Some(host) = gateway.virtual_hosts.iter().find(|host| !line(host)) {
        return Some(format!("virtual host {host:?} is empty or holds a control character"));
    }
    if let Some(wish) = gateway.conditions.iter().find(|wish| condition_refusal(wish).is_some()) {
        return Some(format!("route {:?}: its condition cannot be read", wish.path));
    }
    for route in &gateway.routes {
        let path = &route.path;
        if !word(&route.lookup_name) {
            return Some(format!("route {path:?}: lookup name is not made of letters and digits"));
        }
        if let Some(reason) = route_refusal(route) {
            return Some(format!("route {path:?}: {reason}"));
        }
        for target in &route.targets {
            let host_is_valid = target.host.parse::<IpAddr>().is_ok()
                || (!target.host.is_empty()
                    && target
                        .host
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
            if !word(&target.lookup_name) || !host_is_valid || target.port == 0 {
                return Some(format!(
                    "route {path:?}: target {:?} has no usable name or address",
                    target.name
                ));
            }
        }
    }
    None
}

/// Why what `route` asks for cannot be expressed, if it cannot.
pub(super) fn route_refusal(route: &RouteModel) -> Option<String> {
    let line = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if !line(&route.balance) || words(&route.balance).is_none_or(|words| words.is_empty()) {
        return Some(format!("balance {:?} cannot be read", route.balance));
    }
    let is_bad = |rewrite: &&segue_domain::artifact::Rewrite| {
        !line(&rewrite.path) || !line(&rewrite.condition) || condition(&rewrite.condition).is_none()
    };
    let bad = route.rewrites.iter().find(is_bad)?;
    Some(format!("rewrite {:?} if {:?} cannot be read", bad.path, bad.condition))
}

/// Why a condition cannot be expressed, if it cannot.
pub(super) fn condition_refusal(wish: &Conditional) -> Option<String> {
    let text = wish.condition.text();
    let is_plain = |matcher: &Matcher| {
        let words = || matcher.acls.iter().flat_map(|acl| &acl.words);
        words().all(|word| !word.chars().any(char::is_control))
    };
    let matcher = Matcher::of(&wish.condition).filter(is_plain);
    matcher.is_none().then(|| format!("condition {text:?} cannot be read"))
}

/// The weight of one server of each route, such that routes share exactly as `(weight, number of servers)` say;
/// `None` when that takes weights beyond HAProxy's limit.
pub(super) fn shares(routes: &[(u32, usize)]) -> Option<Vec<u16>> {
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
        .map(|weight| {
            u16::try_from(weight / divisor).ok().filter(|weight| u128::from(*weight) <= WEIGHT_MAX)
        })
        .collect()
}

/// Weights of whole routes: exact where they fit, else as near as HAProxy's weights allow, and never 0 for a share.
fn route_weights(weights: &[u32]) -> Vec<u16> {
    let routes: Vec<(u32, usize)> = weights.iter().map(|weight| (*weight, 1)).collect();
    shares(&routes).unwrap_or_else(|| {
        let largest = u128::from(weights.iter().copied().max().unwrap_or(1).max(1));
        let near = |weight: u32| {
            ((u128::from(weight) * WEIGHT_MAX + largest / 2) / largest).max(u128::from(weight > 0))
        };
        weights
            .iter()
            .map(|weight| u16::try_from(near(*weight)).expect("at most 256 by division"))
            .collect()
    })
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The weights per route of one backend that holds all targets; `None` when it takes two levels.
fn flat_weights(gateway: &Frontend) -> Option<Vec<u16>> {
    let several = gateway.routes.len() > 1;
    let own_rules = |route: &RouteModel| {
        !route.rewrites.is_empty()
            || (route.balance != default_balance(gateway)
                && route.balance != "default"
                && route.targets.len() > 1)
    };
    // With one cookie a client whose instance is gone would lose its route, too.
    if several && (gateway.sticky.is_some() || gateway.routes.iter().any(own_rules)) {
        return None;
    }
    // A target behind two routes could not be attributed to one of them.
    let mut names = BTreeSet::new();
    if !gateway.routes.iter().flat_map(distinct).all(|target| names.insert(&target.lookup_name)) {
        return None;
    }
    let routes: Vec<(u32, usize)> =
        gateway.routes.iter().map(|route| (route.weight, live(route))).collect();
    shares(&routes)
}

fn one_level(gateway: &Frontend, weights: &[u16]) -> Backend {
    let (balance, rewrites) = match gateway.routes.as_slice() {
        [route] => (balance(&route.balance, default_balance(gateway)), rewrites(route)),
        _ => (balance("default", default_balance(gateway)), Vec::new()),
    };
    let servers = gateway.routes.iter().zip(weights).flat_map(|(route, weight)| {
        distinct(route).map(|target| {
            server(target, *weight, &format!("{}//{} {}", gateway.name, route.path, target.name))
        })
    });
    let http = gateway.protocol == Protocol::Http;
    let cookie = gateway.sticky == Some(Sticky::Instance);
    let live = |route| distinct(route).filter(|target| !target.draining);
    let names = |route| live(route).map(|target| target.lookup_name.as_str()).collect();
    let turns = Turns::of(gateway, &balance, cookie, names);
    Backend {
        name: gateway.lookup_name.clone(),
        comment: gateway.name.clone(),
        http,
        balance,
        table: turns.table,
        exact: turns.exact,
        acls: turns.acls,
        rules: turns.rules,
        cookie,
        rewrites,
        servers: servers.collect(),
    }
}

/// What decides in a backend before HAProxy's own round robin does.
#[derive(Default)]
struct Turns {
    table: Option<Table>,
    exact: bool,
    acls: Vec<Acl>,
    rules: Vec<Rule>,
}

impl Turns {
    /// For the backend of `gateway` that spreads by `balance`; `servers` names those of a route that take requests.
    fn of<'a>(
        gateway: &'a Frontend,
        balance: &[String],
        cookie: bool,
        servers: impl Fn(&'a RouteModel) -> Vec<&'a str>,
    ) -> Self {
        if gateway.protocol == Protocol::Tcp {
            return Self::default();
        }
        // A server that a table chose counts as one that a cookie chose: HAProxy would set no cookie.
        let exact = !cookie && balance == ["roundrobin"];
        let weighted =
            |(index, weight): &(usize, u32)| Some((*weight, servers(gateway.routes.get(*index)?)));
        let mut turns = Self { exact, ..Self::default() };
        let mut choices = Vec::new();
        for (wish, number) in gateway.conditions.iter().zip(1..) {
            let ways: Vec<(u32, Vec<&str>)> = wish.ways.iter().filter_map(weighted).collect();
            choices.push(Choice::of(wish.strength, &ways));
            turns.add_rule(gateway, wish, number);
        }
        let all: Vec<(usize, u32)> =
            gateway.routes.iter().map(|route| route.weight).enumerate().collect();
        let routes: Vec<(u32, Vec<&str>)> = all.iter().filter_map(weighted).collect();
        let mut table = if exact {
            Table::of(&gateway.lookup_name, &routes)
        } else {
            Table::empty(&gateway.lookup_name)
        };
        if cookie {
            table.bound = routes
                .iter()
                .flat_map(|(_, servers)| servers)
                .map(|name| (*name).to_owned())
                .collect();
        }
        table.choices = choices;
        turns.table = (exact || cookie || !turns.rules.is_empty()).then_some(table);
        turns
    }

    fn add_rule(&mut self, gateway: &Frontend, wish: &Conditional, number: usize) {
        let matcher = Matcher::of(&wish.condition).expect("checked by `refusal`");
        for acl in matcher.acls {
            if !self.acls.contains(&acl) {
                self.acls.push(acl);
            }
        }
        let comment = format!("{}//{}", gateway.name, wish.path);
        self.rules.push(Rule { number, comment, lines: matcher.lines });
    }
}

/// The backend of a single route below a gateway's own.
fn one_route(gateway: &Frontend, route: &RouteModel, comment: String) -> Backend {
    let http = gateway.protocol == Protocol::Http;
    let balance = balance(&route.balance, if http { "roundrobin" } else { "leastconn" });
    let cookie = gateway.sticky == Some(Sticky::Instance);
    let live = distinct(route).filter(|target| !target.draining);
    let bound = live.map(|target| target.lookup_name.clone());
    let table = Table { bound: bound.collect(), ..Table::empty(&route.lookup_name) };
    Backend {
        name: route.lookup_name.clone(),
        http,
        balance,
        table: cookie.then_some(table),
        exact: false,
        acls: Vec::new(),
        rules: Vec::new(),
        cookie,
        rewrites: rewrites(route),
        servers: distinct(route)
            .map(|target| server(target, 1, &format!("{comment} {}", target.name)))
            .collect(),
        comment,
    }
}

fn two_levels(gateway: &Frontend, model: &mut Model) {
    let http = gateway.protocol == Protocol::Http;
    let shares: Vec<u32> =
        gateway.routes.iter().map(|route| if live(route) > 0 { route.weight } else { 0 }).collect();
    let servers = gateway.routes.iter().zip(route_weights(&shares)).map(|(route, weight)| Server {
        name: route.lookup_name.clone(),
        comment: format!("{}//{}", gateway.name, route.path),
        address: Address::Socket { file: socket(route) },
        weight,
        draining: false,
    });
    let balance = balance("default", default_balance(gateway));
    let cookie = gateway.sticky.is_some();
    let name = |route| if live(route) > 0 { vec![route.lookup_name.as_str()] } else { Vec::new() };
    let turns = Turns::of(gateway, &balance, cookie, name);
    model.backends.push(Backend {
        name: gateway.lookup_name.clone(),
        comment: gateway.name.clone(),
        http,
        balance,
        table: turns.table,
        exact: turns.exact,
        acls: turns.acls,
        rules: turns.rules,
        cookie,
        rewrites: Vec::new(),
        servers: servers.collect(),
    });
    for route in &gateway.routes {
        let comment = format!("{}//{}", gateway.name, route.path);
        model.listeners.push(Listener {
            name: route.lookup_name.clone(),
            comment: comment.clone(),
            bind: format!("unix@{} mode 600 accept-proxy", socket(route)),
            port: None,
            http,
        });
        model.backends.push(one_route(gateway, route, comment));
    }
}

/// Short, since the path of a socket is limited to about a hundred bytes.
fn socket(route: &RouteModel) -> String {
    format!("{}.sock", hash(&route.lookup_name))
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
        backend: gateway.lookup_name.clone(),
    };
    gateway.virtual_hosts.iter().map(of).collect()
}

pub(super) fn bind(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("ipv6@[{ip}]:{port}"),
    }
}

fn server(target: &Target, weight: u16, comment: &str) -> Server {
    let address = match target.host.parse() {
        Ok(ip) => Address::Ip { ip, port: target.port },
        Err(_) => Address::Host { host: target.host.clone(), port: target.port },
    };
    Server {
        name: target.lookup_name.clone(),
        comment: comment.to_owned(),
        address,
        weight,
        draining: target.draining,
    }
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
fn words(text: &str) -> Option<Vec<String>> {
    shlex::split(text)
}
