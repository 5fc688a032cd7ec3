//! What a proxy is to serve, as a function of the state (runtime, 9.3 to 9.5).
//!
//! A route that leads to another gateway is expanded into that gateway's routes where nothing is lost by it, so that
//! a request takes one hop.

use crate::gateways::{
    Conditional, Configuration, Frontend, Passage, Protocol, RouteModel, Target,
};
use segue_domain::artifact::{
    Condition, Gateway, GatewayName, Leaving, LookupClass, Percentage, PortType, RewriteReference,
    Route, RoutePath, lookup_name,
};
use segue_domain::state::State;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// How deep gateways behind gateways are expanded; deeper ones are a hop of their own.
const NESTING_MAX: usize = 8;
/// How many gateways are expanded behind one; what is behind the others is a hop of its own.
const EXPANSIONS_MAX: usize = 256;
/// Shares are exact up to this denominator, which leaves room to calculate with them; finer ones are rounded.
const DENOMINATOR_MAX: u128 = 1 << 40;

/// All gateways that take traffic: those with a port, and of the internal ones those with at least one target.
pub fn configuration(state: &State) -> Configuration {
    let mut gateways: Vec<Frontend> = state
        .published_gateways()
        .filter(|(_, stored)| stored.gateway.port.number != 0)
        .map(|(_, stored)| frontend(state, &stored.gateway))
        .filter(|frontend| {
            let internal = GatewayName::parse(&frontend.name).is_some_and(GatewayName::is_internal);
            !internal || frontend.routes.iter().any(|route| !route.targets.is_empty())
        })
        .collect();
    gateways.sort_by(|a, b| {
        let segments = |name: &str| name.split('/').count();
        (segments(&a.name), &a.name).cmp(&(segments(&b.name), &b.name))
    });
    Configuration { gateways, template: None }
}

/// All ways through a gateway, and the conditions under which some of them come first.
#[derive(Default)]
struct Ways {
    leaves: Vec<Leaf>,
    wishes: Vec<Wish>,
}

/// A condition, and the ways of the route that has it with their shares of that route.
struct Wish {
    path: String,
    condition: Condition,
    strength: u8,
    ways: Vec<(Leading, Share)>,
}

/// Where a way leads, and how: ways that agree on it are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leading {
    path: String,
    balance: String,
    /// Path and condition of each rewrite.
    rewrites: Vec<(String, String)>,
}

/// A route with its share of the gateway's traffic as a fraction.
struct Leaf {
    path: String,
    share: Share,
    route: Route,
    targets: Vec<Target>,
    passages: BTreeSet<Passage>,
}

fn frontend(state: &State, gateway: &Gateway) -> Frontend {
    let protocol = protocol(gateway);
    let Ways { leaves, wishes } = Expansion::of(state, gateway);
    let (routes, leading) = models(&gateway.name, leaves);
    let conditions = wishes.into_iter().filter(|_| protocol == Protocol::Http);
    Frontend {
        conditions: conditions.map(|wish| conditional(wish, &leading)).collect(),
        name: gateway.name.clone(),
        lookup_name: lookup_name(LookupClass::Gateway, &gateway.name),
        port: gateway.port.number,
        protocol,
        sticky: gateway.sticky.filter(|_| protocol == Protocol::Http),
        virtual_hosts: if protocol == Protocol::Http { hosts(gateway) } else { Vec::new() },
        routes,
    }
}

/// The virtual hosts of `gateway`, each once however it is spelled. Requests are told apart by host alone: they come in on
/// one port.
fn hosts(gateway: &Gateway) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let hosts = gateway.virtual_hosts.iter().map(|host| without_port(host));
    hosts.filter(|host| seen.insert(host.to_lowercase())).map(str::to_owned).collect()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // What has more colons and no bracket is an address of its own.
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// The way down from one gateway through those behind it.
struct Expansion<'a> {
    state: &'a State,
    /// The gateways on the way here, outermost first.
    above: Vec<&'a str>,
    /// How many gateways may still be expanded.
    budget: usize,
}

impl<'a> Expansion<'a> {
    /// The ways through `gateway` down to targets, gateways behind it expanded.
    fn of(state: &'a State, gateway: &'a Gateway) -> Ways {
        Self { state, above: Vec::new(), budget: EXPANSIONS_MAX }.ways(gateway)
    }

    fn ways(&mut self, gateway: &'a Gateway) -> Ways {
        self.above.push(&gateway.name);
        let mut all = Ways::default();
        for (path, route) in &gateway.routes {
            let Ways { leaves, wishes } = self.route(gateway, path, route);
            let weight = route.weight.map_or(0, |weight| u64::from(weight.value()));
            all.wishes.extend(wishes.into_iter().filter(|_| weight > 0));
            all.wishes.extend(wish(path, route, &leaves));
            let part = |mut leaf: Leaf| {
                leaf.passages.insert(Passage::gateway(&gateway.name));
                leaf.passages.insert(Passage::route(&gateway.name, path.as_str()));
                Leaf { share: leaf.share.times(weight), ..leaf }
            };
            all.leaves.extend(leaves.into_iter().map(part));
        }
        self.above.pop();
        all
    }

    /// What stands behind a route, with shares of that route.
    fn route(&mut self, gateway: &'a Gateway, path: &RoutePath, route: &Route) -> Ways {
        let Some(Ways { leaves: inner, wishes }) = self.nested(gateway, path, route) else {
            let leaf = Leaf {
                path: path.as_str().to_owned(),
                share: Share::whole(1),
                route: route.clone(),
                targets: targets(self.state, path),
                passages: BTreeSet::new(),
            };
            return Ways { leaves: vec![leaf], wishes: Vec::new() };
        };
        let reachable = inner.iter().filter(|leaf| !leaf.targets.is_empty());
        let total = Share::sum(reachable.map(|leaf| leaf.share));
        let part = |leaf: Leaf| Leaf { share: leaf.share.divided_by(total), ..leaf };
        Ways { leaves: inner.into_iter().map(part).collect(), wishes }
    }

    /// What stands behind a route that leads to a gateway, when the two can be one: the same protocol, and nothing
    /// that only the gateway in between could do. Circles lead nowhere.
    fn nested(&mut self, outer: &Gateway, path: &RoutePath, route: &Route) -> Option<Ways> {
        if path.external().is_some() || path.segments().len() > 3 {
            return None;
        }
        let inner = self.state.gateways().get(path.as_str()).filter(|stored| stored.published)?;
        let inner: &'a Gateway = &inner.gateway;
        if self.above.contains(&inner.name.as_str()) {
            return Some(Ways::default());
        }
        let plain =
            inner.sticky.is_none() && route.rewrites.is_empty() && route.balance.0 == "default";
        // A hop that comes back here would never end.
        let hop = |above: &[&str], state| {
            let comes_back = above.iter().any(|above| leads_to(state, inner, above));
            comes_back.then(Ways::default)
        };
        let deep = self.above.len() > NESTING_MAX || self.budget == 0;
        if deep || !plain || protocol(inner) != protocol(outer) {
            return hop(&self.above, self.state);
        }
        self.budget -= 1;
        let ways = self.ways(inner);
        // Conditions of the inner gateway look at what comes to it, which is known here only where that is everything.
        let all_goes_there = outer.routes.len() == 1 && route.condition.is_none();
        if ways.wishes.is_empty() || all_goes_there {
            return Some(ways);
        }
        hop(&self.above, self.state)
    }
}

/// What the condition of a route asks for; `leaves` are the ways of the route.
fn wish(path: &RoutePath, route: &Route, leaves: &[Leaf]) -> Option<Wish> {
    let condition = route.condition.as_ref()?.inline()?;
    Some(Wish {
        path: path.as_str().to_owned(),
        condition: condition.clone(),
        strength: route.condition_strength.unwrap_or(Percentage::HUNDRED).value(),
        ways: leaves.iter().map(|leaf| (leaf.leading(), leaf.share)).collect(),
    })
}

/// Whether requests to `from` may come to gateway `goal`.
fn leads_to(state: &State, from: &Gateway, goal: &str) -> bool {
    let mut seen: BTreeSet<&str> = BTreeSet::from([from.name.as_str()]);
    let mut open = vec![from];
    while let Some(gateway) = open.pop() {
        if gateway.name == goal {
            return true;
        }
        let behind = gateway.routes.keys().filter_map(|path| state.gateway(path.as_str()));
        open.extend(behind.filter(|found| seen.insert(&found.name)));
    }
    false
}

/// The addresses behind a route that is not expanded.
fn targets(state: &State, path: &RoutePath) -> Vec<Target> {
    if let Some(address) = path.external() {
        return external_target(address).into_iter().collect();
    }
    match path.segments()[..] {
        [deployment, cluster, breed, port] => {
            instance_targets(state, deployment, cluster, breed, port)
        }
        _ => gateway_target(state, path.as_str()).into_iter().collect(),
    }
}

fn instance_targets(
    state: &State,
    deployment: &str,
    cluster: &str,
    breed: &str,
    port: &str,
) -> Vec<Target> {
    let service = state.deployment(deployment).and_then(|found| found.service(cluster, breed));
    let instances = service.map(|service| &service.instances[..]).unwrap_or_default();
    instances
        .iter()
        .filter(|instance| instance.deployed && instance.leaving != Leaving::Released)
        .filter_map(|instance| {
            Some(Target {
                name: instance.name.clone(),
                lookup_name: lookup_name(LookupClass::InternalTarget, &instance.name),
                host: if instance.host.is_empty() {
                    LOCAL.to_owned()
                } else {
                    instance.host.clone()
                },
                port: *instance.ports.get(port)?,
                draining: instance.leaving == Leaving::Draining,
            })
        })
        .collect()
}

/// A gateway that stays a hop of its own is reached at its port on this host.
fn gateway_target(state: &State, name: &str) -> Option<Target> {
    let stored = state.gateways().get(name).filter(|stored| stored.published && stored.deployed)?;
    Some(Target {
        name: name.to_owned(),
        lookup_name: lookup_name(LookupClass::InternalTarget, name),
        host: LOCAL.to_owned(),
        port: stored.gateway.port.number,
        draining: false,
    })
}

fn external_target(address: &str) -> Option<Target> {
    let (host, port) = address.rsplit_once(':')?;
    Some(Target {
        name: address.to_owned(),
        lookup_name: lookup_name(LookupClass::ExternalTarget, address),
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.parse().ok()?,
        draining: false,
    })
}

/// Routes with whole-number weights in the proportions of their shares, and where each leads: ways that lead to the same
/// path in the same manner are one route.
fn models(gateway: &str, leaves: Vec<Leaf>) -> (Vec<RouteModel>, Vec<Leading>) {
    let mut known: BTreeMap<Leading, usize> = BTreeMap::new();
    let mut merged: Vec<Leaf> = Vec::new();
    for leaf in leaves {
        match known.entry(leaf.leading()) {
            Entry::Occupied(same) => {
                let same = &mut merged[*same.get()];
                same.share = same.share.plus(leaf.share);
                same.passages.extend(leaf.passages);
            }
            Entry::Vacant(new) => {
                new.insert(merged.len());
                merged.push(leaf);
            }
        }
    }
    let leading = merged.iter().map(Leaf::leading).collect();
    let weights = Share::whole_numbers(&merged.iter().map(|leaf| leaf.share).collect::<Vec<_>>());
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let model = |(leaf, weight): (Leaf, u32)| {
        let padded: Vec<&str> =
            leaf.path.split('/').chain(std::iter::repeat("*")).take(4).collect();
        let path = if leaf.path.starts_with('[') {
            format!("{}/*/*/*", leaf.path)
        } else {
            padded.join("/")
        };
        let full = format!("{gateway}/*/*/*/{path}");
        // The first way to a path is named by it, others by their number, too.
        let number = names.entry(full.clone()).and_modify(|number| *number += 1).or_insert(1);
        let full = if *number == 1 { full } else { format!("{full} {number}") };
        RouteModel {
            lookup_name: lookup_name(LookupClass::Gateway, &full),
            path: leaf.path,
            weight,
            balance: leaf.route.balance.0,
            // Those of a stored gateway stand in place.
            rewrites: (leaf.route.rewrites.into_iter())
                .filter_map(RewriteReference::into_inline)
                .collect(),
            targets: leaf.targets,
            passages: leaf.passages,
        }
    };
    (merged.into_iter().zip(weights).map(model).collect(), leading)
}

impl Leaf {
    fn leading(&self) -> Leading {
        let rewrites = self.route.rewrites.iter().cloned();
        let rewrites = rewrites.filter_map(RewriteReference::into_inline);
        Leading {
            path: self.path.clone(),
            balance: self.route.balance.0.clone(),
            rewrites: rewrites.map(|rewrite| (rewrite.path, rewrite.condition)).collect(),
        }
    }
}

/// `wish` with its ways among routes that lead as `leading` says.
fn conditional(wish: Wish, leading: &[Leading]) -> Conditional {
    let shares: Vec<Share> = wish.ways.iter().map(|(_, share)| *share).collect();
    let ways = wish.ways.iter().zip(Share::whole_numbers(&shares));
    let ways = ways.filter_map(|((wanted, _), weight)| {
        let index = leading.iter().position(|leading| leading == wanted)?;
        Some((index, weight))
    });
    Conditional {
        path: wish.path,
        condition: wish.condition,
        strength: wish.strength,
        ways: ways.collect(),
    }
}

fn protocol(gateway: &Gateway) -> Protocol {
    match gateway.port.kind {
        PortType::Http => Protocol::Http,
        PortType::Tcp => Protocol::Tcp,
    }
}

const LOCAL: &str = "127.0.0.1";

/// A fraction of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    numerator: u128,
    denominator: u128,
}

impl Share {
    const NOTHING: Self = Self { numerator: 0, denominator: 1 };

    fn whole(number: u64) -> Self {
        Self { numerator: u128::from(number), denominator: 1 }
    }

    fn sum(shares: impl Iterator<Item = Self>) -> Self {
        shares.fold(Self::NOTHING, Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        let numerator = self.numerator * other.denominator + other.numerator * self.denominator;
        Self { numerator, denominator: self.denominator * other.denominator }.reduced()
    }

    fn times(self, factor: u64) -> Self {
        Self { numerator: self.numerator * u128::from(factor), ..self }.reduced()
    }

    /// The part that this is of `total`; nothing when the total is nothing.
    fn divided_by(self, total: Self) -> Self {
        if total.numerator == 0 {
            return Self::NOTHING;
        }
        let numerator = self.numerator * total.denominator;
        Self { numerator, denominator: self.denominator * total.numerator }.reduced()
    }

    fn reduced(self) -> Self {
        let divisor = gcd(self.numerator, self.denominator).max(1);
        let (numerator, denominator) = (self.numerator / divisor, self.denominator / divisor);
        if denominator <= DENOMINATOR_MAX {
            return Self { numerator, denominator };
        }
        let coarser = denominator / DENOMINATOR_MAX + 1;
        // What has a share keeps one.
        let least = u128::from(numerator > 0);
        Self { numerator: (numerator / coarser).max(least), denominator: denominator / coarser }
    }

    /// The smallest whole numbers in these proportions, scaled down when they do not fit.
    fn whole_numbers(shares: &[Self]) -> Vec<u32> {
        let common = shares.iter().fold(1, |common: u128, share| {
            let common = common / gcd(common, share.denominator) * share.denominator;
            if common <= DENOMINATOR_MAX { common } else { DENOMINATOR_MAX }
        });
        let number = |share: &Self| {
            let number = share.numerator * common / share.denominator;
            number.max(u128::from(share.numerator > 0))
        };
        let numbers: Vec<u128> = shares.iter().map(number).collect();
        let divisor = numbers.iter().fold(0, |divisor, number| gcd(divisor, *number)).max(1);
        let largest = numbers.iter().max().copied().unwrap_or_default() / divisor;
        let limit = u128::from(u32::MAX);
        let scale = largest / limit + 1;
        numbers
            .iter()
            .map(|number| {
                let whole = number / divisor / scale;
                // What has a share keeps one.
                let whole = if *number > 0 { whole.max(1) } else { whole };
                u32::try_from(whole).unwrap_or(u32::MAX)
            })
            .collect()
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
