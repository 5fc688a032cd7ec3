//! Which backend and server of HAProxy stand for which gateways and routes, so that every request can be told by them
//! alone (runtime, 10.2). Made of the same model as the configuration.

use super::model::Model;
use super::ways::Named;
use crate::gateways::{Frontend, Passage, RouteModel};
use std::collections::{BTreeMap, BTreeSet};

/// The frontend that tells gateways apart by host name, as the template calls it.
const VIRTUAL_HOSTS: &str = "virtual_hosts";

/// What requests are counted under, by backend and server. A backend without server stands for requests that no server
/// of it got.
pub(super) fn ways(model: &Model, gateways: &[&Frontend]) -> Named {
    let behind: BTreeMap<&str, Behind> =
        gateways.iter().flat_map(|gateway| behind(gateway)).collect();
    let mut ways = Named::new();
    // Requests for hosts that no gateway has come to nobody, and are known all the same.
    ways.insert((VIRTUAL_HOSTS.to_owned(), String::new()), BTreeSet::new());
    for backend in &model.backends {
        let Some(behind) = behind.get(backend.name.as_str()) else { continue };
        ways.insert((backend.name.clone(), String::new()), behind.common());
        for server in &backend.servers {
            ways.insert((backend.name.clone(), server.name.clone()), behind.of(&server.name));
        }
    }
    ways
}

/// What stands behind a backend: all routes of a gateway, or one of them.
struct Behind<'a> {
    gateway: &'a Frontend,
    routes: &'a [RouteModel],
}

/// What may stand behind backends, by their names: that of the gateway, and those of its routes.
fn behind(gateway: &Frontend) -> impl Iterator<Item = (&str, Behind<'_>)> {
    let whole = (gateway.lookup_name.as_str(), Behind { gateway, routes: &gateway.routes });
    let routes = gateway.routes.iter().map(move |route| {
        (route.lookup_name.as_str(), Behind { gateway, routes: std::slice::from_ref(route) })
    });
    std::iter::once(whole).chain(routes)
}

impl Behind<'_> {
    /// What every request passes, whichever route it takes.
    fn common(&self) -> BTreeSet<Passage> {
        let passages = self.routes.iter().map(|route| route.passages.clone());
        let mut common = passages.reduce(|common, more| &common & &more).unwrap_or_default();
        common.insert(Passage::gateway(&self.gateway.name));
        common
    }

    /// What requests pass that the server `name` gets, which belongs to one of the routes.
    fn of(&self, name: &str) -> BTreeSet<Passage> {
        let has =
            |route: &&RouteModel| route.targets.iter().any(|target| target.lookup_name == name);
        let mut passages = self
            .routes
            .iter()
            .find(has)
            .map_or_else(|| self.common(), |route| route.passages.clone());
        passages.insert(Passage::gateway(&self.gateway.name));
        passages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::{Protocol, Target};

    fn route(path: &str, passages: &[&str]) -> RouteModel {
        let target = Target {
            name: path.to_owned(),
            lookup_name: format!("t{path}"),
            host: "127.0.0.1".to_owned(),
            port: 1,
            draining: false,
        };
        RouteModel {
            path: path.to_owned(),
            lookup_name: format!("r{path}"),
            weight: 1,
            balance: "default".to_owned(),
            rewrites: Vec::new(),
            targets: vec![target],
            passages: passages
                .iter()
                .map(|text| {
                    let (gateway, path) = text.split_once('>').unwrap_or((text, ""));
                    if path.is_empty() {
                        Passage::gateway(gateway)
                    } else {
                        Passage::route(gateway, path)
                    }
                })
                .collect(),
        }
    }

    fn named(routes: &[RouteModel]) -> Vec<String> {
        let gateway = Frontend {
            name: "out".to_owned(),
            lookup_name: "out".to_owned(),
            port: 1,
            protocol: Protocol::Http,
            sticky: None,
            virtual_hosts: Vec::new(),
            routes: routes.to_vec(),
            conditions: Vec::new(),
        };
        let model = Model::of(&[&gateway], [127, 0, 0, 1].into(), None);
        let text = |((backend, server), passages): (&(String, String), &BTreeSet<Passage>)| {
            let passages = passages.iter().map(|passage| match &passage.route {
                Some(route) => format!("{}>{route}", passage.gateway),
                None => passage.gateway.clone(),
            });
            format!("{backend}/{server}: {}", passages.collect::<Vec<_>>().join(" "))
        };
        let mut ways = ways(&model, &[&gateway]);
        assert_eq!(ways.remove(&(VIRTUAL_HOSTS.to_owned(), String::new())), Some(BTreeSet::new()));
        ways.iter().map(text).collect()
    }

    #[test]
    fn what_passes_an_expanded_gateway_passes_that_too() {
        let a = route("a", &["out", "out>in", "in", "in>a"]);
        let b = route("b", &["out", "out>in", "in", "in>b"]);
        assert_eq!(
            named(&[a.clone(), b.clone()]),
            ["out/: in out out>in", "out/ta: in in>a out out>in", "out/tb: in in>b out out>in"]
        );
        // With a backend for each route it is told even where no server was found.
        let own = RouteModel { balance: "leastconn".to_owned(), ..b };
        assert_eq!(
            named(&[a, own]),
            [
                "out/: in out out>in",
                "ra/: in in>a out out>in",
                "ra/ta: in in>a out out>in",
                "rb/: in in>b out out>in",
                "rb/tb: in in>b out out>in",
            ]
        );
        assert_eq!(named(&[]), ["out/: out"]);
    }
}
