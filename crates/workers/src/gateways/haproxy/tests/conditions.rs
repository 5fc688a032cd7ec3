//! What clients see of conditions and stickiness.

use super::*;
use crate::gateways::Conditional;
use segue_domain::artifact::Condition;

pub(super) fn wish(
    path: &str,
    condition: &str,
    strength: u8,
    ways: &[(usize, u32)],
) -> Conditional {
    let condition = Condition::parse(condition).unwrap_or_else(|_| Condition::raw(condition));
    Conditional { path: path.to_owned(), condition, strength, ways: ways.to_vec() }
}

/// How often each service answered `requests` requests with `headers` in a row.
async fn window_with(port: u16, requests: usize, headers: &str) -> BTreeMap<String, usize> {
    let mut client = Client::connect(port).await.unwrap();
    headers.clone_into(&mut client.headers);
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        client.cookie = None;
        *counts.entry(client.say().await).or_default() += 1;
    }
    counts
}

/// The two choices are deterministic (runtime, 10.1).
#[tokio::test]
async fn strengths_are_exact_at_once_and_change_without_reload() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let shop = |left, strength| {
        let routes =
            [route("a", left, &[target("a", a)]), route("b", 100 - left, &[target("b", b)])];
        let conditions = vec![wish("b", "user-agent = Firefox", strength, &[(1, 1)])];
        Frontend { conditions, ..gateway("shop", port, &routes) }
    };
    let firefox = "User-Agent: Firefox 1\r\n";
    stage.apply(&[shop(80, 50)]).await;
    let worker = stage.worker().await;
    for _ in 0..2 {
        assert_eq!(window_with(port, 50, firefox).await, counts(&[("a", 20), ("b", 30)]));
        assert_eq!(window(port, 50).await, counts(&[("a", 40), ("b", 10)]));
    }
    // Of a hundred that match `strength` go to b, and of the rest 20 in a hundred.
    for (left, strength, expected) in
        [(80, 100, 100), (80, 25, 40), (100, 30, 30), (80, 0, 20), (0, 50, 100), (80, 50, 60)]
    {
        window_with(port, 7, firefox).await;
        assert!(stage.apply(&[shop(left, strength)]).await.changed);
        let mut shares = counts(&[("a", 100 - expected), ("b", expected)]);
        shares.retain(|_, count| *count > 0);
        assert_eq!(window_with(port, 100, firefox).await, shares, "{left} {strength}");
    }
    assert!(!stage.apply(&[shop(80, 50)]).await.changed);
    assert_eq!(stage.worker().await, worker, "no reload");
}

#[tokio::test]
async fn every_operand_matches_what_it_says() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let tables: [(&str, &[&str], &[&str]); 14] = [
        ("host = shop.example", &["Host: shop.example"], &["Host: x", "Host: shop.example.org"]),
        ("host != shop.example", &["Host: x"], &["Host: shop.example"]),
        ("user-agent = chrome", &["User-Agent: Mozilla Chrome/1"], &["User-Agent: chromium", ""]),
        (
            "user-agent = Safari",
            &["User-Agent: Version/1 Safari/2"],
            &["User-Agent: Chrome/1 Safari/2", ""],
        ),
        (
            "user-agent != Safari",
            &["User-Agent: Chrome/1 Safari/2", ""],
            &["User-Agent: Version/1 Safari/2"],
        ),
        ("user-agent = IE", &["User-Agent: MSIE 6"], &["User-Agent: IE"]),
        ("has header X-Test", &["X-Test: 1", "x-test: 2"], &["", "X-Tes: 1"]),
        ("misses header X-Test", &["", "X-Tes: 1"], &["X-Test: 1"]),
        ("has cookie beta", &["Cookie: a=1; beta=2"], &["", "Cookie: a=beta", "Cookie: betax=1"]),
        ("misses cookie beta", &["", "Cookie: a=beta"], &["Cookie: beta=2"]),
        ("header X-Test has lo w", &[], &[]),
        ("header X-Test has low", &["X-Test: slower"], &["X-Test: slaw", "Y: low"]),
        ("cookie beta contains -x", &["Cookie: beta=a-x"], &["Cookie: beta=x", "Cookie: a=-x", ""]),
        (
            "(host = h or < path_beg /in >) and not has cookie out",
            &["Host: h", "Host: h\r\nCookie: in=1"],
            &["Host: x", "Host: h\r\nCookie: out=1"],
        ),
    ];
    let gateways: Vec<(Frontend, &[&str], &[&str])> = tables
        .iter()
        .enumerate()
        .filter(|(_, (condition, ..))| Condition::parse(condition).is_ok())
        .map(|(index, (condition, yes, no))| {
            let routes = [route("a", 100, &[target("a", a)]), route("b", 0, &[target("b", b)])];
            let mut gateway = gateway(&format!("g{index}"), free_port(), &routes);
            gateway.conditions = vec![wish("b", condition, 100, &[(1, 1)])];
            (gateway, *yes, *no)
        })
        .collect();
    assert_eq!(gateways.len(), tables.len() - 1, "all but one are of the language");
    let frontends: Vec<Frontend> = gateways.iter().map(|(gateway, ..)| gateway.clone()).collect();
    assert_eq!(stage.apply(&frontends).await.disabled, BTreeMap::new());
    for (gateway, yes, no) in gateways {
        let condition = gateway.conditions[0].condition.text();
        for (headers, name) in
            yes.iter().map(|header| (header, "b")).chain(no.iter().map(|header| (header, "a")))
        {
            let mut client = Client::connect(gateway.port).await.unwrap();
            client.headers =
                if headers.is_empty() { String::new() } else { format!("{headers}\r\n") };
            assert_eq!(client.say().await, name, "{condition}: {headers}");
        }
    }
}

#[tokio::test]
async fn the_first_condition_that_matches_decides() {
    let (a, b, c) = (service("a").await, service("b").await, service("c").await);
    let stage = Stage::new();
    let port = free_port();
    let routes = [
        route("a", 100, &[target("a", a)]),
        route("b", 0, &[target("b", b)]),
        route("c", 0, &[target("c", c)]),
    ];
    let mut shop = gateway("shop", port, &routes);
    shop.conditions =
        vec![wish("c", "has header X", 100, &[(2, 1)]), wish("b", "has header Y", 50, &[(1, 1)])];
    stage.apply(&[shop.clone()]).await;
    assert_eq!(window_with(port, 10, "X: 1\r\nY: 1\r\n").await, counts(&[("c", 10)]));
    assert_eq!(window_with(port, 10, "Y: 1\r\n").await, counts(&[("a", 5), ("b", 5)]));
    assert_eq!(window(port, 10).await, counts(&[("a", 10)]));
    // Without targets a route gets nothing, and what asks for it is spread like all others.
    shop.routes[2].targets = vec![draining(target("c", c))];
    stage.apply(&[shop.clone()]).await;
    assert_eq!(window_with(port, 10, "X: 1\r\n").await, counts(&[("a", 10)]));
    // Ways that share.
    shop.conditions = vec![wish("in", "has header X", 100, &[(0, 3), (1, 1)])];
    stage.apply(&[shop]).await;
    assert_eq!(window_with(port, 20, "X: 1\r\n").await, counts(&[("a", 15), ("b", 5)]));
}

#[tokio::test]
async fn routes_with_backends_have_conditions_too() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let mut routes = [route("a", 80, &[target("a", a)]), route("b", 20, &[target("b", b)])];
    routes[1].rewrites = vec![Rewrite { path: "/new".into(), condition: "path_beg /echo".into() }];
    let shop = |strength| Frontend {
        conditions: vec![wish("b", "has header X or has header Y", strength, &[(1, 1)])],
        ..gateway("shop", port, &routes)
    };
    stage.apply(&[shop(50)]).await;
    let worker = stage.worker().await;
    assert_eq!(window_with(port, 50, "X: 1\r\n").await, counts(&[("a", 20), ("b", 30)]));
    assert_eq!(window_with(port, 50, "").await, counts(&[("a", 40), ("b", 10)]));
    stage.apply(&[shop(100)]).await;
    assert_eq!(window_with(port, 20, "Y: 1\r\n").await, counts(&[("b", 20)]));
    assert_eq!(stage.worker().await, worker, "no reload");
}

#[tokio::test]
async fn clients_stay_with_the_route_they_got() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let shop = |strength| {
        let routes = [route("a", 50, &[target("a", a)]), route("b", 50, &[target("b", b)])];
        let conditions = vec![wish("b", "has header X", strength, &[(1, 1)])];
        Frontend { sticky: Some(Sticky::Route), conditions, ..gateway("shop", port, &routes) }
    };
    let bound = async |headers: &str| {
        let mut client = Client::connect(port).await.unwrap();
        headers.clone_into(&mut client.headers);
        let name = client.say().await;
        let cookie = client.cookie.clone().expect("the client is bound");
        assert!(cookie.ends_with(&name), "{cookie} for {name}");
        (client, name)
    };
    stage.apply(&[shop(50)]).await;
    for headers in ["", "X: 1\r\n"] {
        let mut names = BTreeSet::new();
        for _ in 0..4 {
            let (mut client, name) = bound(headers).await;
            for _ in 0..5 {
                assert_eq!(client.say().await, name, "{headers}");
            }
            names.insert(name);
        }
        assert_eq!(names.len(), 2, "both routes get new clients");
    }
    // A condition that leaves nothing to the turn wins over the cookie.
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(bound("").await.0);
    }
    stage.apply(&[shop(100)]).await;
    for client in &mut clients {
        "X: 1\r\n".clone_into(&mut client.headers);
        for _ in 0..3 {
            assert_eq!(client.say().await, "b");
        }
        client.headers.clear();
        assert_eq!(client.say().await, "b", "and binds anew");
    }
}

#[tokio::test]
async fn services_see_every_cookie_but_ours() {
    let a = service("a").await;
    let stage = Stage::new();
    let port = free_port();
    let routes = [route("a", 100, &[target("a", a)]), route("b", 0, &[])];
    for (sticky, ours) in
        [(Sticky::Route, format!("g{port}=ra")), (Sticky::Instance, "ra=gone".to_owned())]
    {
        let shop = gateway("shop", port, &routes);
        stage.apply(&[Frontend { sticky: Some(sticky), ..shop }]).await;
        for (sent, seen) in [
            (format!("{ours}; session=abc"), "cookie: session=abc"),
            (format!("session=abc; {ours}"), "cookie: session=abc"),
            (format!("a=1; {ours}; b=2"), "cookie: a=1; b=2"),
            ("a=1; b=2".to_owned(), "cookie: a=1; b=2"),
            (ours.clone(), ""),
        ] {
            let mut client = Client::connect(port).await.unwrap();
            client.headers = format!("Cookie: {sent}\r\n");
            let request = client.get("/echo", "x").await.unwrap().1.to_ascii_lowercase();
            let cookies = request.lines().filter(|line| line.starts_with("cookie:"));
            assert_eq!(cookies.collect::<Vec<_>>().join("\n"), seen, "{sent}");
        }
    }
}

#[tokio::test]
async fn clients_of_an_instance_that_goes_stay_with_its_route() {
    let ports = [service("a1").await, service("a2").await, service("b1").await];
    let stage = Stage::new();
    let port = free_port();
    let shop = |first: Target| {
        let routes = [
            route("a", 50, &[first, target("a2", ports[1])]),
            route("b", 50, &[target("b1", ports[2])]),
        ];
        Frontend { sticky: Some(Sticky::Instance), ..gateway("shop", port, &routes) }
    };
    stage.apply(&[shop(target("a1", ports[0]))]).await;
    let mut jars = BTreeMap::new();
    for _ in 0..12 {
        let mut client = Client::connect(port).await.unwrap();
        let name = client.say().await;
        for _ in 0..3 {
            assert_eq!(client.say().await, name);
        }
        jars.insert(name, client.cookie.expect("the client is bound"));
    }
    assert_eq!(jars.keys().collect::<Vec<_>>(), ["a1", "a2", "b1"]);
    let worker = stage.worker().await;
    stage.apply(&[shop(draining(target("a1", ports[0])))]).await;
    for (name, expected) in [("a1", "a2"), ("a2", "a2"), ("b1", "b1")] {
        let mut client = Client::connect(port).await.unwrap();
        client.cookie = Some(jars[name].clone());
        for _ in 0..3 {
            assert_eq!(client.say().await, expected, "{name}");
        }
    }
    assert_eq!(stage.worker().await, worker, "no reload");
}
