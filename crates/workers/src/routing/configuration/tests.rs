//! Gateways behind gateways, and the arithmetic of shares.

use super::*;
use futures::executor::block_on;
use segue_domain::artifact::Balance;
use segue_domain::command::{Artifact, Command, Context, Rules, Store as Wish, Submission, Verb};
use segue_domain::dsl;
use segue_domain::store::Store;
use time::OffsetDateTime;

#[test]
fn shares_become_the_smallest_whole_numbers() {
    let share = |numerator, denominator| Share { numerator, denominator };
    assert_eq!(Share::whole_numbers(&[Share::whole(90), Share::whole(10)]), [9, 1]);
    assert_eq!(Share::whole_numbers(&[share(1, 3), share(2, 3), Share::NOTHING]), [1, 2, 0]);
    assert_eq!(Share::whole_numbers(&[Share::NOTHING]), [0]);
    let primes = [97, 89, 83, 79, 73, 71, 67, 61, 59, 53, 47, 43, 41, 37, 31, 29, 23];
    let fine: Vec<Share> = primes.iter().map(|prime| share(1, prime * 1_000_003)).collect();
    let numbers = Share::whole_numbers(&fine);
    assert!(numbers.is_sorted() && numbers[0] > 0, "{numbers:?}");
    assert!(Share::sum(fine.iter().copied()).denominator <= DENOMINATOR_MAX);
    let nested = share(1, 4).divided_by(share(1, 2)).times(70);
    assert_eq!(Share::whole_numbers(&[nested, Share::whole(30)]), [7, 6]);
}

/// What is served when these gateways are stored, each as `gateway: path*weight path*weight`.
fn served(gateways: &[&str]) -> Vec<String> {
    let store = Store::in_memory(Rules::default()).unwrap();
    let context = Context {
        now: OffsetDateTime::UNIX_EPOCH,
        actor: "user".to_owned(),
        cause: None,
        correlation: "request".to_owned(),
    };
    for text in gateways {
        let node = dsl::document(text).unwrap();
        let gateway = dsl::read_gateway(&node, &dsl::Options::default()).unwrap();
        let submission = Submission { verb: Verb::Update, representation: "".into() };
        let artifact = Artifact::Gateway(Box::new(gateway));
        block_on(store.execute(&Command::Store(Wish { artifact, submission }), &context)).unwrap();
    }
    let line = |frontend: Frontend| {
        let routes = frontend.routes.iter().map(|route| format!("{}*{}", route.path, route.weight));
        let conditions = frontend.conditions.iter().map(|wish| {
            let ways = wish.ways.iter();
            let ways =
                ways.map(|(index, weight)| format!("{}*{weight}", frontend.routes[*index].path));
            let ways = ways.collect::<Vec<_>>().join("+");
            format!("({} {}% {ways})", wish.condition.text(), wish.strength)
        });
        let parts: Vec<String> = routes.chain(conditions).collect();
        format!("{}: {}", frontend.name, parts.join(" "))
    };
    configuration(&store.state()).gateways.into_iter().map(line).collect()
}

#[test]
fn gateways_behind_gateways_are_expanded() {
    let inner = "{name: in, routes: {'[a:1]': {weight: 25%}, '[b:1]': {weight: 75%}}}";
    let outer = "{name: out, routes: {in: {weight: 40%}, '[c:1]': {weight: 60%}}}";
    assert_eq!(served(&[inner, outer])[1], "out: [a:1]*1 [b:1]*3 [c:1]*6");
}

#[test]
fn ways_to_the_same_place_are_one_where_they_lead_there_alike() {
    let inner = |balance| format!("{{name: in, routes: {{'[a:1]': {{balance: {balance}}}}}}}");
    let outer = "{name: out, routes: {in: {weight: 50%}, '[a:1]': {weight: 50%}}}";
    assert_eq!(served(&[&inner("default"), outer])[1], "out: [a:1]*1");
    assert_eq!(served(&[&inner("leastconn"), outer])[1], "out: [a:1]*1 [a:1]*1");
    let leaf = |balance: &str| Leaf {
        path: "[a:1]".to_owned(),
        share: Share::whole(1),
        route: Route { balance: Balance(balance.to_owned()), ..Route::default() },
        targets: Vec::new(),
        passages: BTreeSet::new(),
    };
    let (routes, leading) = models("g", vec![leaf("first"), leaf("default"), leaf("first")]);
    assert_eq!((routes.len(), leading.len(), routes[0].weight, routes[1].weight), (2, 2, 2, 1));
    assert_ne!(routes[0].lookup_name, routes[1].lookup_name);
}

#[test]
fn conditions_go_where_their_gateway_goes() {
    let inner =
        "{name: in, routes: {'[a:1]': {weight: 100%}, '[b:1]': {weight: 0%, condition: host = x}}}";
    let alone = "{name: out, routes: {in: {}}}";
    assert_eq!(served(&[inner, alone])[1], "out: [a:1]*1 [b:1]*0 (host = x 100% [b:1]*1)");
    let never = "{name: out, routes: {in: {weight: 0%}}}";
    assert_eq!(served(&[inner, never])[1], "out: [a:1]*0 [b:1]*0");
    // Only a part of the requests goes there: the gateway stays a hop of its own.
    let beside = "{name: out, routes: {in: {weight: 50%}, '[c:1]': {weight: 50%}}}";
    assert_eq!(served(&[inner, beside])[1], "out: in*1 [c:1]*1");
    let asked = "{name: out, routes: {in: {condition: host = y}}}";
    assert_eq!(served(&[inner, asked])[1], "out: in*1 (host = y 100% in*1)");
    // A condition for all that stands behind a gateway.
    let plain = "{name: in, routes: {'[a:1]': {weight: 25%}, '[b:1]': {weight: 75%}}}";
    let outer = "{name: out, routes: {in: {weight: 0%, condition: host = x, condition_strength: 30%}, '[c:1]': {weight: 100%}}}";
    let expected = "out: [a:1]*0 [b:1]*0 [c:1]*1 (host = x 30% [a:1]*1+[b:1]*3)";
    assert_eq!(served(&[plain, outer])[1], expected);
}

#[test]
fn circles_lead_nowhere() {
    assert_eq!(served(&["{name: a, routes: {a: {}}}"]), ["a: "]);
    let there = "{name: a, routes: {b: {weight: 50%}, '[x:1]': {weight: 50%}}}";
    let back = "{name: b, routes: {a: {weight: 50%}, '[y:1]': {weight: 50%}}}";
    assert_eq!(served(&[there, back]), ["a: [y:1]*1 [x:1]*1", "b: [x:1]*1 [y:1]*1"]);
    let sticky = "{name: b, sticky: route, routes: {a: {weight: 50%}, '[y:1]': {weight: 50%}}}";
    assert_eq!(served(&[there, sticky])[0], "a: [x:1]*1", "a hop that comes back never ends");
    let asking = |name: &str, next: &str, host: &str| {
        let own = format!("'[{host}:1]': {{weight: 0%, condition: 'host = {host}'}}");
        format!("{{name: {name}, routes: {{{next}: {{weight: 100%}}, {own}}}}}")
    };
    let (there, back) = (asking("a", "b", "x"), asking("b", "a", "y"));
    assert_eq!(
        served(&[&there, &back]),
        ["a: [x:1]*0 (host = x 100% [x:1]*1)", "b: [y:1]*0 (host = y 100% [y:1]*1)"]
    );
}

#[test]
fn a_mesh_of_gateways_is_not_expanded_without_end() {
    let names: Vec<String> = (0..12).map(|number| format!("g{number}")).collect();
    let routes = names.join(": {}, ");
    let mesh: Vec<String> = names
        .iter()
        .map(|name| format!("{{name: {name}, routes: {{{routes}: {{}}, '[x:1]': {{}}}}}}"))
        .collect();
    let mesh: Vec<&str> = mesh.iter().map(String::as_str).collect();
    assert_eq!(served(&mesh).len(), names.len());
}

#[test]
fn virtual_hosts_are_known_by_host_alone() {
    for (given, host) in [
        ("shop.example", "shop.example"),
        ("shop.example:8080", "shop.example"),
        ("[::1]:8080", "[::1]"),
        ("[::1]", "[::1]"),
        ("::1", "::1"),
    ] {
        assert_eq!(without_port(given), host);
    }
    let gateway =
        "{name: g, virtual_hosts: [Shop.test, 'shop.test:80', b.test], routes: {'[x:1]': {}}}";
    let gateway = dsl::read_gateway(&dsl::document(gateway).unwrap(), &dsl::Options::default());
    assert_eq!(hosts(&gateway.unwrap()), ["Shop.test", "b.test"]);
}
