//! The reader of routes and the completion of their weights (documents, sections 6.1 and 7).

use super::{
    Options,
    common::refuse_name_without_reference,
    condition,
    fields::{self, Reference},
    reader::{Element, Fields, Reading},
    rewrite,
    tree::{Node, pointer_segment},
};
use crate::{
    artifact::{
        Balance, Gateway, Kind, Metadata, NamedRoute, Percentage, PortType, Route, RouteCondition,
        RoutePath, is_general_name,
    },
    problem::{Problem, ProblemKind, Result as Reads},
};
use indexmap::IndexMap;

/// Routes by path, in document order.
pub type Routes = IndexMap<RoutePath, Route>;

/// Reads a stored route.
pub fn read_route(node: &Node, options: &Options) -> Reads<NamedRoute> {
    let mut reading = Reading::new(options);
    let route = Fields::open(&Element::root(node), &mut reading).and_then(|mut fields| {
        let name = fields.name(&mut reading).and_then(|(name, element)| {
            fields::name_where(&element, &name, is_route_name, &mut reading).then_some(name)
        });
        let metadata = fields.top(&[Kind::Route], &mut reading);
        let route = body(fields, &mut reading);
        Some(NamedRoute { name: name?, metadata, route })
    });
    reading.finish(route)
}

/// Whether `name` is the name of a stored route: a general one, or an address outside in brackets.
fn is_route_name(name: &str) -> bool {
    let path = RoutePath::parse(name);
    is_general_name(name) || path.is_some_and(|path| path.external().is_some())
}

/// Gives the routes without weight their share of what the others leave: each the rounded-down part, the last of them
/// the remainder too. The problem has no pointer; it is the caller who knows where the routes stand.
pub fn complete_weights(routes: &mut Routes) -> Result<(), Problem> {
    if let Some(problem) = weights_problem(routes, "") {
        return Err(problem);
    }
    let rest = 100 - sum(routes);
    let mut open: Vec<&mut Route> =
        routes.values_mut().filter(|route| route.weight.is_none()).collect();
    let count = u32::try_from(open.len()).expect("a document has fewer than 2^32 routes");
    if count == 0 {
        return Ok(());
    }
    let share = rest / count;
    for route in &mut open {
        route.weight = percentage(share);
    }
    if let Some(last) = open.last_mut() {
        last.weight = percentage(rest - share * (count - 1));
    }
    Ok(())
}

/// What is wrong with the weights of `routes`, which stand at `pointer`.
pub(super) fn weights_problem(routes: &Routes, pointer: &str) -> Option<Problem> {
    let sum = sum(routes);
    let is_complete = !routes.is_empty() && routes.values().all(|route| route.weight.is_some());
    let detail = if sum > 100 {
        format!("the weights of the routes add up to {sum}%, more than 100%")
    } else if is_complete && sum != 0 && sum != 100 {
        format!("the weights of the routes add up to {sum}%, neither 0% nor 100%")
    } else {
        return None;
    };
    let hint = "leave a weight out, so that its route gets the rest";
    Some(Problem::new(ProblemKind::GatewayRouteWeight, pointer, detail).hint(hint))
}

/// Says why routes of `gateway`, which stands at `pointer` and speaks `kind`, cannot have conditions.
pub(crate) fn condition_problems(
    gateway: &Gateway,
    kind: PortType,
    pointer: &str,
) -> impl Iterator<Item = Problem> {
    let routes = gateway.routes.iter().filter(move |_| kind == PortType::Tcp);
    let inline = |route: &Route| matches!(route.condition, Some(RouteCondition::Inline(_)));
    routes.filter(move |(_, route)| inline(route)).map(move |(path, _)| {
        let pointer = format!("{pointer}/routes/{}/condition", pointer_segment(path.as_str()));
        let detail =
            "routes of a tcp gateway have no conditions, since these look at HTTP requests";
        Problem::new(ProblemKind::ConditionPortType, pointer, detail)
            .hint("leave the condition out, or declare the port as http")
    })
}

fn sum(routes: &Routes) -> u32 {
    routes.values().filter_map(|route| route.weight).map(|weight| u32::from(weight.value())).sum()
}

fn percentage(value: u32) -> Option<Percentage> {
    u8::try_from(value).ok().and_then(Percentage::new)
}

/// The routes of a gateway in any of their forms.
pub(super) fn routes(element: Option<Element<'_>>, reading: &mut Reading) -> Routes {
    let mut routes = Routes::new();
    let Some(element) = element else { return routes };
    let canonical = element.canonical.clone();
    if element.plain_text().is_some() || element.is_map() {
        add(&element, &canonical, &mut routes, reading);
        return routes;
    }
    match element.items(reading) {
        Some(items) if !items.is_empty() => {
            for item in items {
                add(&item, &canonical, &mut routes, reading);
            }
        }
        _ => reading.wrong_type(&element, EXPECTED),
    }
    routes
}

const EXPECTED: &str = "a route, a map from path to route, or a list of them";

/// Adds the route that a text names, or the routes of a map.
fn add(element: &Element<'_>, canonical: &str, routes: &mut Routes, reading: &mut Reading) {
    if let Some(text) = element.plain_text() {
        insert(text, element.clone(), Some(Route::default()), canonical, routes, reading);
        return;
    }
    let Some(entries) = element.entries(reading) else {
        reading.wrong_type(element, EXPECTED);
        return;
    };
    for (key, value) in entries {
        let standing_for = format!("{canonical}/{}", pointer_segment(&key.text));
        let value = value.standing_for(standing_for, reading);
        let route = route(&value, reading);
        insert(&key.text, value, route, canonical, routes, reading);
    }
}

fn insert(
    text: &str,
    element: Element<'_>,
    route: Option<Route>,
    canonical: &str,
    routes: &mut Routes,
    reading: &mut Reading,
) {
    let Some(path) = path(text, &element, reading) else { return };
    let standing_for = format!("{canonical}/{}", pointer_segment(path.as_str()));
    let element = element.standing_for(standing_for, reading);
    if routes.contains_key(&path) {
        let detail = format!("the route '{}' stands twice", path.as_str());
        reading
            .refuse(element.problem(ProblemKind::DuplicateKey, detail).hint("keep one of the two"));
        return;
    }
    routes.insert(path, route.unwrap_or_default());
}

fn path(text: &str, element: &Element<'_>, reading: &mut Reading) -> Option<RoutePath> {
    let problem = |kind, detail: String| Problem {
        place: Some(element.place),
        ..element.problem(kind, detail)
    };
    let Some(path) = RoutePath::parse(text) else {
        let detail = format!("the path '{text}' has no or more than four segments");
        reading.refuse(
            problem(ProblemKind::UnsupportedRoutePath, detail)
                .hint("write one to four names with '/' between"),
        );
        return None;
    };
    if path.external().is_none() && !path.segments().into_iter().all(is_general_name) {
        let problem = problem(ProblemKind::IllegalName, format!("'{text}' is no path of a route"));
        reading.refuse(problem.hint("names have no white space, '[' and ']'"));
        return None;
    }
    Some(path)
}

fn route(element: &Element<'_>, reading: &mut Reading) -> Option<Route> {
    if element.is_null() {
        let detail = format!("'{}' is required", element.pointer.trim_start_matches('/'));
        let problem = Problem::new(ProblemKind::MissingPathValue, &*element.pointer, detail);
        reading
            .refuse(problem.at(Some(element.place)).hint("write {} for a route without settings"));
        return None;
    }
    match fields::reference_where(element, &["name"], is_route_name, reading) {
        Reference::To(name) => name.map(Route::reference_to),
        Reference::No => {
            let mut fields = Fields::open(element, reading)?;
            refuse_name_without_reference(&mut fields, reading);
            fields.ignore(&["kind"], reading);
            let metadata = fields.metadata(reading);
            Some(Route { metadata, ..body(fields, reading) })
        }
    }
}

/// What stored routes and those of gateways share; name and metadata are left to the caller.
fn body(mut fields: Fields<'_>, reading: &mut Reading) -> Route {
    let weight =
        fields.take("weight", reading).and_then(|weight| fields::percentage(&weight, reading));
    let balance =
        fields.take("balance", reading).and_then(|balance| fields::text(&balance, reading));
    let condition = fields
        .take("condition", reading)
        .and_then(|condition| condition::route_condition(&condition, reading));
    let strength = fields.take("condition_strength", reading);
    let condition_strength = strength.and_then(|strength| fields::percentage(&strength, reading));
    let rewrites = rewrite::rewrites(&mut fields, reading);
    fields.ignore(&["lookup_name", "targets"], reading);
    fields.close(reading);
    let balance = balance.map_or_else(Balance::default, Balance);
    let metadata = Metadata::new();
    Route { reference: None, weight, balance, condition, condition_strength, rewrites, metadata }
}
