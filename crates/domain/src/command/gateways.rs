//! Decides writes to gateways (documents, 6.2): completion, ports, virtual hosts, and what belongs to a deployment.

use super::archive::{archived, blank, gateway as gateway_event, notice, notification};
use super::{Context, Rules, Submission, foresee, references};
use crate::artifact::{ArtifactKey, Gateway, GatewayName, Kind, Percentage, RoutePath};
use crate::dsl;
use crate::event::{Event, Fact, GatewayFact};
use crate::problem::{Problem, ProblemKind, Problems, Result};
use crate::state::{State, StoredGateway};
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// Creates or replaces a gateway.
pub(super) fn store(
    state: &State,
    gateway: &Gateway,
    submission: &Submission,
    context: &Context,
    rules: &Rules,
) -> Result<Vec<Event>> {
    let name = &gateway.name;
    let parsed = GatewayName::parse(name).ok_or_else(|| {
        let detail = format!("'{name}' is no name of a gateway");
        Problem::new(ProblemKind::UnsupportedGatewayName, "/name", detail)
            .hint("1 to 4 segments separated by '/'")
    })?;
    let mut gateway = gateway.clone();
    references::resolve(state, &mut gateway, "")?;
    if let GatewayName::Internal { deployment, cluster, port } = parsed {
        gateway.routes = full_paths(&gateway.routes, deployment, cluster, port);
        check_internal(state, &gateway, deployment)?;
    }
    Problems::check(dsl::condition_problems(&gateway, gateway.port.kind, "").collect())?;
    complete(&mut gateway, rules)?;
    keep_assigned_port(state, &mut gateway);
    check_port(state, &gateway, None)?;
    let same = state.gateway(name) == Some(&gateway);
    let fact =
        Fact::Gateway { name: name.clone(), fact: GatewayFact::Stored(Box::new(gateway.clone())) };
    let key = ArtifactKey::new(Kind::Gateway, name);
    let mut events = vec![archived(&key, submission, (!same).then_some(fact), context)];
    if gateway.port.number == 0 && !parsed.is_internal() {
        events.push(Ports::new(state, rules).assign(name, context));
    }
    Ok(events)
}

/// Weights, strengths and generated virtual hosts, as a stored gateway has them.
pub(super) fn complete(gateway: &mut Gateway, rules: &Rules) -> Result<()> {
    dsl::complete_weights(&mut gateway.routes)
        .map_err(|problem| Problem { pointer: "/routes".to_owned(), ..problem })?;
    for route in gateway.routes.values_mut() {
        let whole = if route.condition.is_some() { Percentage::HUNDRED } else { Percentage::ZERO };
        route.condition_strength.get_or_insert(whole);
    }
    if let Some(host) =
        rules.virtual_hosts_domain.as_ref().and_then(|domain| generated_host(&gateway.name, domain))
    {
        gateway.virtual_hosts.retain(|given| *given != host);
        gateway.virtual_hosts.insert(0, host);
    }
    let mut seen = BTreeSet::new();
    gateway.virtual_hosts.retain(|host| seen.insert(host.clone()));
    Ok(())
}

/// The port of `gateway` is free, apart from entries of `deployment`, which are replaced together.
pub(super) fn check_port(state: &State, gateway: &Gateway, deployment: Option<&str>) -> Result<()> {
    let number = gateway.port.number;
    let taken = |other: &Gateway| {
        let replaced = matches!(
            GatewayName::parse(&other.name),
            Some(GatewayName::External { deployment: own, .. }) if Some(own) == deployment
        );
        number != 0 && other.port.number == number && other.name != gateway.name && !replaced
    };
    let Some((other, _)) = state.gateways().iter().find(|(_, stored)| taken(&stored.gateway))
    else {
        return Ok(());
    };
    let detail = format!("port {number} is used by gateway '{other}'");
    let hint = "choose another port, or leave it out to have one assigned";
    Err(Problem::new(ProblemKind::UnavailableGatewayPort, "/port", detail).hint(hint).into())
}

/// A gateway without port number keeps the one that it was assigned before.
pub(super) fn keep_assigned_port(state: &State, gateway: &mut Gateway) {
    if let Some(old) = state.gateway(&gateway.name).filter(|_| gateway.port.number == 0) {
        gateway.port = crate::artifact::Port::new(old.port.number, gateway.port.kind);
    }
}

/// Route paths of one segment, which name a service of the cluster, as full paths.
pub(super) fn full_paths<V: Clone>(
    routes: &IndexMap<RoutePath, V>,
    deployment: &str,
    cluster: &str,
    port: &str,
) -> IndexMap<RoutePath, V> {
    let full = |path: &RoutePath| match path.segments()[..] {
        [service] if path.external().is_none() => {
            RoutePath::of([deployment, cluster, service, port])
        }
        _ => path.clone(),
    };
    routes.iter().map(|(path, route)| (full(path), route.clone())).collect()
}

/// Gives ports of the pool to gateways that have none.
pub(super) struct Ports<'a> {
    rules: &'a Rules,
    used: BTreeSet<u16>,
    last: u16,
}

impl<'a> Ports<'a> {
    pub(super) fn new(state: &State, rules: &'a Rules) -> Self {
        let used = state.gateways().values().map(|stored| stored.gateway.port.number).collect();
        Self { rules, used, last: state.last_assigned_port() }
    }

    /// Keeps `number` from being given away: a gateway that is not stored yet has it.
    pub(super) fn reserve(&mut self, number: u16) {
        self.used.insert(number);
    }

    /// The next port that no gateway uses, searched from the last one given, around the pool; or that there is none.
    pub(super) fn assign(&mut self, name: &str, context: &Context) -> Event {
        if let Some(number) = self.next_free() {
            return assigned(name, number, context);
        }
        let pool = &self.rules.gateway_ports;
        let text = format!(
            "gateway '{name}' has no port: all of {} to {} are used",
            pool.start(),
            pool.end()
        );
        notice(
            &["info", "gateways:ERROR", &format!("gateways:{name}")],
            notification(&text),
            context,
        )
    }

    fn next_free(&mut self) -> Option<u16> {
        let pool = &self.rules.gateway_ports;
        let start = if pool.contains(&self.last) { self.last } else { *pool.end() };
        let after = (start..=*pool.end()).skip(1);
        let number = after.chain(*pool.start()..=start).find(|port| !self.used.contains(port))?;
        self.used.insert(number);
        self.last = number;
        Some(number)
    }
}

fn assigned(name: &str, number: u16, context: &Context) -> Event {
    gateway_event(name, &["port"], blank(), GatewayFact::PortAssigned(number), context)
}

/// Ports for published gateways without one, when `events` free some of the pool.
pub(super) fn freed_ports(
    state: &State,
    events: &[Event],
    context: &Context,
    rules: &Rules,
) -> Vec<Event> {
    let frees = |event: &Event| match &event.fact {
        Some(Fact::Gateway { name, fact: GatewayFact::Stored(new) }) => {
            state.gateway(name).is_some_and(|old| old.port.number != new.port.number)
        }
        Some(Fact::Gateway { fact: GatewayFact::Deleted, .. }) => true,
        _ => false,
    };
    let waits = |stored: &StoredGateway| stored.published && stored.gateway.port.number == 0;
    // Most commands free nothing, and gateways may be many.
    if !events.iter().any(frees) || !state.gateways().values().any(waits) {
        return Vec::new();
    }
    let mut after = state.clone();
    for event in events {
        foresee(&mut after, event, context);
    }
    let mut ports = Ports::new(&after, rules);
    let waiting = after.gateways().iter().filter(|(_, stored)| waits(stored));
    waiting
        .map_while(|(name, _)| ports.next_free().map(|number| assigned(name, number, context)))
        .collect()
}

/// Internal gateways come with their deployment, and their routes are its services.
fn check_internal(state: &State, gateway: &Gateway, deployment: &str) -> Result<()> {
    let name = &gateway.name;
    let Some(old) = state.gateways().get(name) else {
        let detail = format!("gateway '{name}' would be internal to deployment '{deployment}'");
        let hint = "names of three segments belong to deployments; use one or two segments";
        return Err(Problem::new(ProblemKind::InternalGatewayCreate, "/name", detail)
            .hint(hint)
            .into());
    };
    let given: BTreeSet<&RoutePath> = gateway.routes.keys().collect();
    let expected: BTreeSet<&RoutePath> = old.gateway.routes.keys().collect();
    if given == expected {
        return Ok(());
    }
    let list = expected.iter().map(|path| path.as_str()).collect::<Vec<_>>().join(", ");
    let detail =
        format!("the routes of internal gateway '{name}' are those of its services: {list}");
    let hint = "services are added and removed through the deployment";
    Err(Problem::new(ProblemKind::InternalGatewayUpdate, "/routes", detail).hint(hint).into())
}

/// `g` is `g.segue`, `d/p` is `p.d.segue`, `d/c/p` is `p.c.d.segue`; four segments have none.
fn generated_host(name: &str, domain: &str) -> Option<String> {
    let segments: Vec<&str> = name.split('/').collect();
    if segments.len() > 3 {
        return None;
    }
    let label = |segment: &&str| {
        if !segment.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return (*segment).to_owned();
        }
        segment.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    };
    let labels: Vec<String> = segments.iter().rev().map(label).collect();
    Some(format!("{}.{domain}", labels.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_hosts_follow_the_name() {
        let check = |name: &str, host: Option<&str>| {
            assert_eq!(generated_host(name, "segue").as_deref(), host);
        };
        check("shop", Some("shop.segue"));
        check("shop/9080", Some("9080.shop.segue"));
        check("shop/web/http", Some("http.web.shop.segue"));
        check("shop:1.0", Some("shop-1-0.segue"));
        check("_a.b", Some("_a.b.segue"));
        check("a/b/c/d", None);
    }
}
