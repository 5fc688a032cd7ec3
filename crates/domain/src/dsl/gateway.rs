//! The reader of gateways (documents, section 6), stored ones and those inside blueprints.

use super::{
    Options, fields,
    reader::{Element, Fields, Reading, RuleProblem},
    routes::{self, Routes},
    tree::{Node, Scalar, ScalarKind, Value},
};
use crate::{
    artifact::{Gateway, GatewayName, Kind, Metadata, Port, PortType, Sticky},
    problem::{Problem, ProblemKind, Result},
};

/// Reads a stored gateway. Its weights are checked and not completed; see [`super::complete_weights`].
pub fn read_gateway(node: &Node, options: &Options) -> Result<Gateway> {
    let mut reading = Reading::new(options);
    let gateway = Fields::open(&Element::root(node), &mut reading)
        .and_then(|fields| stored(fields, &mut reading));
    reading.finish(gateway)
}

fn stored(mut fields: Fields<'_>, reading: &mut Reading) -> Option<Gateway> {
    let rules_begin = reading.rules_begin();
    let name = fields.name(reading).and_then(|(name, element)| {
        if GatewayName::parse(&name).is_some() {
            return Some(name);
        }
        let problem = element.problem(
            ProblemKind::UnsupportedGatewayName,
            format!("'{name}' is no name of a gateway"),
        );
        reading
            .refuse(problem.hint(
                "write one to four names with '/' between, without white space, '[' and ']'",
            ));
        None
    });
    let port = fields.take("port", reading).and_then(|port| self::port(&port, reading));
    fields.ignore(&["lookup_name"], reading);
    let mut gateway = body(fields, reading);
    gateway.name = name?;
    gateway.port = port.unwrap_or_else(unassigned_port);
    let broken = [
        (1, routes::weights_problem(&gateway.routes, "/routes")),
        (2, sticky_problem(&gateway, gateway.port.kind, "")),
    ];
    let conditions = routes::condition_problems(&gateway, gateway.port.kind, "");
    let broken = broken
        .into_iter()
        .filter_map(|(rank, problem)| Some((rank, problem?)))
        .chain(conditions.map(|problem| (3, problem)))
        .map(|(rank, problem)| RuleProblem { rank, problem });
    reading.settle_rules(rules_begin, broken.collect(), false);
    Some(gateway)
}

/// The port of a gateway that says none: one of the pool, for HTTP.
pub(super) fn unassigned_port() -> Port {
    Port::new(0, PortType::Http)
}

/// What all gateways share; name and port are left to the caller.
pub(super) fn body(mut fields: Fields<'_>, reading: &mut Reading) -> Gateway {
    let metadata = fields.top(&[Kind::Gateway], reading);
    let sticky = fields.take("sticky", reading).and_then(|sticky| self::sticky(&sticky, reading));
    let virtual_hosts = fields.take("virtual_hosts", reading);
    let virtual_hosts =
        virtual_hosts.map(|hosts| self::virtual_hosts(&hosts, reading)).unwrap_or_default();
    let routes = fields.take("routes", reading);
    let routes = routes::routes(routes, reading);
    fields.ignore(&["service", "deployed", "internal", "proxy"], reading);
    fields.close(reading);
    Gateway {
        name: String::new(),
        metadata,
        port: unassigned_port(),
        sticky,
        virtual_hosts,
        routes,
    }
}

/// A gateway that is nothing but one route to what `element`, a text, names.
pub(super) fn of_text(element: Element<'_>, reading: &mut Reading) -> Gateway {
    let canonical = format!("{}/routes", element.canonical);
    of_routes(routes::routes(Some(element.standing_for(canonical, reading)), reading))
}

/// A gateway that is nothing but its routes.
pub(super) fn of_routes(routes: Routes) -> Gateway {
    Gateway {
        name: String::new(),
        metadata: Metadata::new(),
        port: unassigned_port(),
        sticky: None,
        virtual_hosts: Vec::new(),
        routes,
    }
}

/// A port as an integer or text.
pub(super) fn port(element: &Element<'_>, reading: &mut Reading) -> Option<Port> {
    let text = match &element.node.value {
        Value::Scalar(Scalar { kind: ScalarKind::Integer(number), .. }) => number.to_string(),
        Value::Scalar(Scalar { kind: ScalarKind::Text, text, .. }) => text.clone(),
        _ => {
            reading.wrong_type(element, "a port such as 8080, 8080/http or 9000/tcp");
            return None;
        }
    };
    fields::port(element, &text, ProblemKind::InvalidGatewayPort, reading)
}

/// Says why `gateway`, which stands at `pointer` and speaks `kind`, cannot be sticky.
pub(super) fn sticky_problem(gateway: &Gateway, kind: PortType, pointer: &str) -> Option<Problem> {
    (kind == PortType::Tcp && gateway.sticky.is_some()).then(|| {
        let detail = "a tcp gateway cannot be sticky, since stickiness needs a cookie";
        Problem::new(ProblemKind::StickyPortType, format!("{pointer}/sticky"), detail)
    })
}

fn sticky(element: &Element<'_>, reading: &mut Reading) -> Option<Sticky> {
    match fields::scalar_text(element).map(|text| text.to_lowercase()).as_deref() {
        Some("route") => Some(Sticky::Route),
        Some("instance") => Some(Sticky::Instance),
        _ => {
            let problem = element.problem(
                ProblemKind::IllegalGatewaySticky,
                "a gateway sticks to 'route' or 'instance'",
            );
            reading.refuse(problem.hint("leave it out for no stickiness"));
            None
        }
    }
}

fn virtual_hosts(element: &Element<'_>, reading: &mut Reading) -> Vec<String> {
    if let Some(host) = element.plain_text() {
        return vec![host.to_owned()];
    }
    let items = element.items(reading);
    let hosts: Option<Vec<String>> = items
        .as_ref()
        .and_then(|items| items.iter().map(|item| item.plain_text().map(str::to_owned)).collect());
    hosts.unwrap_or_else(|| {
        let detail = "virtual hosts are a list of host names";
        reading.refuse(element.problem(ProblemKind::IllegalGatewayVirtualHosts, detail));
        Vec::new()
    })
}
