//! What clients see of conditions, stickiness, and routes that ask for what HAProxy refuses.

use super::*;
use crate::gateways::Conditional;
use segue_domain::artifact::Condition;

fn wish(path: &str, condition: &str, strength: u8, ways: &[(usize, u32)]) -> Conditional {
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

/// What is told, and the change that spoils a gateway.
type Spoilt = (&'static str, fn(&mut Frontend));

const SPOILT: [Spoilt; 12] = [
    ("its condition is refused: error detected", |gateway| {
        gateway.conditions = vec![wish("b", "< nonsense x >", 100, &[(1, 1)])];
    }),
    ("its condition is refused: condition", |gateway| {
        gateway.conditions = vec![wish("b", "< hdr(a) 'b >", 100, &[(1, 1)])];
    }),
    ("its condition is refused: error detected", |gateway| {
        gateway.conditions = vec![wish("b", "has header a,b,c", 100, &[(1, 1)])];
    }),
    ("its condition is refused: ", |gateway| {
        gateway.conditions = vec![wish("b", "< src_http_req_cnt(nowhere) gt 1 >", 100, &[(1, 1)])];
    }),
    ("names a file", |gateway| {
        gateway.conditions = vec![wish("b", "< src -m ip -f /dev/zero >", 100, &[(1, 1)])];
    }),
    ("names a file", |gateway| {
        gateway.conditions =
            vec![wish("b", "< path,map_beg(/etc/passwd) -m found >", 100, &[(1, 1)])];
    }),
    ("names a file", |gateway| {
        gateway.routes[1].rewrites = vec![rewrite("/%[path,map(/etc/passwd)]", "path /y")];
    }),
    ("names a file", |gateway| {
        let condition = "{ path_beg -- /y } !{ src -f /etc/passwd }";
        gateway.routes[1].rewrites = vec![rewrite("/x", condition)];
    }),
    ("names a file", |gateway| {
        gateway.routes[1].balance = "hash src,map_ip(/etc/passwd)".into();
    }),
    ("balance only supports", |gateway| gateway.routes[1].balance = "nonsense".into()),
    ("error detected", |gateway| {
        gateway.routes[1].rewrites = vec![rewrite("/x", "no_such_acl")];
    }),
    ("cannot be read", |gateway| {
        gateway.routes[1].rewrites = vec![rewrite("/x\n", "path /y")];
    }),
];

fn rewrite(path: &str, condition: &str) -> Rewrite {
    Rewrite { path: path.into(), condition: condition.into() }
}

/// A raw ACL that HAProxy refuses disables that one route with a reason and harms no other gateway.
#[tokio::test]
async fn what_one_route_asks_for_harms_no_other() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let good = gateway("good", free_port(), &[route("a", 100, &[target("a", a)])]);
    let ports: Vec<u16> = SPOILT.iter().map(|_| free_port()).collect();
    let gateways = |spoil: bool| {
        let one = |(index, (_, change)): (usize, &Spoilt)| {
            let routes = [route("a", 50, &[target("a", a)]), route("b", 50, &[target("b", b)])];
            let mut gateway = gateway(&format!("g{index}"), ports[index], &routes);
            if spoil {
                change(&mut gateway);
            }
            gateway
        };
        let spoilt = SPOILT.iter().enumerate().map(one);
        spoilt.chain([good.clone()]).collect::<Vec<Frontend>>()
    };
    let applied = stage.apply(&gateways(true)).await;
    assert_eq!(applied.refused, BTreeMap::new());
    assert_eq!(applied.disabled.len(), SPOILT.len());
    for (index, (reason, _)) in SPOILT.iter().enumerate() {
        let disabled = &applied.disabled[&format!("g{index}")];
        assert_eq!(disabled.keys().collect::<Vec<_>>(), ["b"]);
        assert!(disabled["b"].contains(reason), "{index}: {}", disabled["b"]);
    }
    assert_eq!(window(good.port, 4).await, counts(&[("a", 4)]));
    for gateway in gateways(true) {
        assert_eq!(window(gateway.port, 4).await, counts(&[("a", 4)]), "{}", gateway.name);
    }
    assert_eq!(stage.apply(&gateways(false)).await.disabled, BTreeMap::new());
    let both = counts(&[("a", 2), ("b", 2)]);
    for gateway in &gateways(false)[..SPOILT.len()] {
        assert_eq!(window(gateway.port, 4).await, both, "{}", gateway.name);
    }
}

/// Two routes may lead to the same place: what one of them asks for takes nothing from the other.
#[tokio::test]
async fn a_refused_condition_takes_nothing_from_other_routes() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let mut shop = gateway(
        "shop",
        free_port(),
        &[route("a", 50, &[target("a", a)]), route("b", 50, &[target("b", b)])],
    );
    shop.routes[0].passages.insert(Passage::route("g", "other"));
    shop.conditions = vec![wish("other", "< nonsense x >", 100, &[(0, 1)])];
    let applied = stage.apply(std::slice::from_ref(&shop)).await;
    assert_eq!(applied.disabled["shop"].keys().collect::<Vec<_>>(), ["other"]);
    assert_eq!(window(shop.port, 4).await, counts(&[("a", 2), ("b", 2)]));
    shop.routes[0].passages.remove(&Passage::route("g", "a"));
    stage.apply(std::slice::from_ref(&shop)).await;
    assert_eq!(window(shop.port, 4).await, counts(&[("b", 4)]), "nobody else leads there");
}

/// What HAProxy takes is shown to it once, with the whole file; only what it refuses is looked for.
#[tokio::test]
async fn what_is_fine_takes_one_check() {
    let a = service("a").await;
    let directory = tempfile::tempdir().unwrap();
    let (program, list) = (directory.path().join("spy"), directory.path().join("list"));
    let text =
        format!("#!/bin/sh\necho \"$*\" >> '{}'\nexec /usr/sbin/haproxy \"$@\"\n", list.display());
    // Another process writes it: children of other tests may hold what this one has open, and what is open for writing
    // cannot be started.
    let source = directory.path().join("source");
    std::fs::write(&source, text).unwrap();
    let install = std::process::Command::new("install").arg(&source).arg(&program).status();
    assert!(install.unwrap().success());
    let mut stage = Stage::new();
    stage.driver =
        HaproxyDriver::new(Settings { program, ..stage.driver.settings.clone() }).unwrap();
    let checks = || {
        let list = std::fs::read_to_string(&list).unwrap_or_default();
        list.lines().filter(|line| line.starts_with("-c")).count()
    };
    let port = free_port();
    let shop = |condition: Option<&str>, sticky| {
        let routes = [route("a", 100, &[target("a", a)]), route("b", 0, &[target("a", a)])];
        let wishes = condition.map(|text| wish("b", text, 100, &[(1, 1)]));
        Frontend {
            conditions: wishes.into_iter().collect(),
            sticky,
            ..gateway("shop", port, &routes)
        }
    };
    let fox = Some("user-agent = Firefox");
    stage.apply(&[shop(None, None)]).await;
    let mut before = checks();
    for (changed, expected) in [
        (shop(fox, None), 1),
        (shop(fox, Some(Sticky::Route)), 1),
        (shop(None, None), 1),
        (shop(fox, None), 1),
        // The whole file, its parts, and the file without what is refused.
        (shop(Some("< nonsense x >"), None), 3),
        (shop(Some("< nonsense x >"), Some(Sticky::Route)), 1),
    ] {
        stage.apply(&[changed]).await;
        assert_eq!(checks() - before, expected);
        before = checks();
    }
}

#[tokio::test]
async fn what_could_not_be_judged_disables_its_route_only() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::new(directory.path().join("no-such-program"));
    let process = Process { program, directory: directory.path().to_owned() };
    let mut gateway = gateway("g", 1, &[route("a", 50, &[]), route("b", 50, &[])]);
    gateway.routes[1].rewrites = vec![Rewrite { path: "/x".into(), condition: "path /y".into() }];
    let configuration = Configuration { gateways: vec![gateway], template: None };
    let mut verdicts = isolate::Verdicts::default();
    let unknown = verdicts.unknown(&configuration);
    verdicts.judge(&process, unknown).await;
    let (_, disabled) = verdicts.sift(&configuration);
    assert_eq!(disabled["g"].keys().collect::<Vec<_>>(), ["b"]);
    assert!(disabled["g"]["b"].contains("no-such-program"), "{disabled:?}");
}
