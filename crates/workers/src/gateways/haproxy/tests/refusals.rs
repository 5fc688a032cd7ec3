//! Routes that ask for what HAProxy refuses: each of them alone gets nothing, and everything else goes on.

use super::conditions::wish;
use super::*;
use tokio::time::Instant;

/// A program in `directory` that does `first`, and then what HAProxy does.
fn script(directory: &Path, first: &str) -> PathBuf {
    // Another process writes it: children of other tests may hold what this one has open, and what is open for writing
    // cannot be started.
    let (source, program) = (directory.join("source"), directory.join("program"));
    let text = format!("#!/bin/sh\n{first}\nexec /usr/sbin/haproxy \"$@\"\n");
    std::fs::write(&source, text).unwrap();
    let install = std::process::Command::new("install").arg(&source).arg(&program).status();
    assert!(install.unwrap().success());
    program
}

/// What is told, and the change that spoils a gateway.
type Spoilt = (&'static str, fn(&mut Frontend));

const SPOILT: [Spoilt; 14] = [
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
    ("names a file", |gateway| {
        let condition = "< http_auth_bearer,jwt_verify(RS256,/etc/passwd) 1 >";
        gateway.conditions = vec![wish("b", condition, 100, &[(1, 1)])];
    }),
    ("numbers its test", |gateway| {
        gateway.conditions = vec![wish("b", "< path -u 7 /x >", 100, &[(1, 1)])];
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
    let list = directory.path().join("list");
    let program = script(directory.path(), &format!("echo \"$*\" >> '{}'", list.display()));
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
        // The whole file, the file without what may be to blame, and with it, and what is left at last.
        (shop(Some("< nonsense x >"), None), 4),
        (shop(Some("< nonsense x >"), Some(Sticky::Route)), 1),
    ] {
        stage.apply(&[changed]).await;
        assert_eq!(checks() - before, expected);
        before = checks();
    }
}

/// A gateway with a condition that HAProxy refuses, and one that is fine: both can be changed, and only the route of the
/// condition gets nothing.
async fn harms_no_other(stage: &Stage, bad: &Frontend, words: &str) {
    let (a, b) = (service("a").await, service("b").await);
    let port = free_port();
    for (weight, name) in [(100, "a"), (0, "b")] {
        let routes =
            [route("a", weight, &[target("a", a)]), route("b", 100 - weight, &[target("b", b)])];
        let good = gateway("good", port, &routes);
        let applied = stage.apply(&[bad.clone(), good]).await;
        assert_eq!(applied.disabled.keys().collect::<Vec<_>>(), [&bad.name]);
        let reasons = &applied.disabled[&bad.name];
        assert_eq!(reasons.keys().collect::<Vec<_>>(), ["b"]);
        assert!(reasons["b"].contains(words), "{reasons:?}");
        assert_eq!(window(port, 4).await, counts(&[(name, 4)]));
    }
}

fn asking(condition: &str, sticky: Option<Sticky>, a: u16, b: u16) -> Frontend {
    let routes = [route("a", 50, &[target("a", a)]), route("b", 50, &[target("b", b)])];
    let conditions = vec![wish("b", condition, 100, &[(1, 1)])];
    Frontend { sticky, conditions, ..gateway("bad", free_port(), &routes) }
}

/// HAProxy never saw the condition as long as another program had the gateway's port.
#[tokio::test]
async fn what_could_not_be_shown_is_not_taken_for_fine() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let bad = asking("< nonsense x >", None, a, b);
    let other = TcpListener::bind(("127.0.0.1", bad.port)).unwrap();
    let applied = stage.apply(std::slice::from_ref(&bad)).await;
    assert!(applied.refused.contains_key("bad"), "{applied:?}");
    drop(other);
    harms_no_other(&stage, &bad, "error detected").await;
    assert_eq!(window(bad.port, 2).await, counts(&[("a", 2)]));
}

/// With one route and cookies of instances a condition decides nothing, and HAProxy does not get to see it.
#[tokio::test]
async fn what_was_left_out_is_not_taken_for_fine() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let mut bad = asking("< nonsense x >", Some(Sticky::Instance), a, b);
    let second = bad.routes.remove(1);
    bad.conditions[0].ways = vec![(0, 1)];
    assert_eq!(stage.apply(std::slice::from_ref(&bad)).await.disabled, BTreeMap::new());
    bad.routes.push(second);
    bad.sticky = None;
    bad.conditions[0].ways = vec![(1, 1)];
    harms_no_other(&stage, &bad, "error detected").await;
}

/// What HAProxy takes in a backend it may refuse in a frontend, where conditions of sticky gateways stand.
#[tokio::test]
async fn conditions_are_judged_where_they_stand() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let mut bad = asking("< be_conn gt 100 >", None, a, b);
    assert_eq!(stage.apply(std::slice::from_ref(&bad)).await.disabled, BTreeMap::new());
    bad.sticky = Some(Sticky::Route);
    harms_no_other(&stage, &bad, "backend").await;
}

/// Two faults in one gateway, of which one shows only without the other: without its rewrite the gateway is another one, in
/// which conditions stand elsewhere.
#[tokio::test]
async fn what_is_left_of_a_gateway_is_judged_as_it_is() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let mut bad = asking("< fe_conn gt 100 >", None, a, b);
    bad.routes[1].rewrites = vec![rewrite("/x", "no_such_acl")];
    harms_no_other(&stage, &bad, "has not frontend capability").await;
}

/// What is fine among others, and not alone, stays when something else is refused.
#[tokio::test]
async fn who_is_not_to_blame_stays_as_it_was() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let other = gateway("other", free_port(), &[route("a", 100, &[target("a", a)])]);
    let fine = asking(&format!("< nbsrv({}) ge 0 >", other.lookup_name), None, a, b);
    let fine = Frontend { name: "fine".to_owned(), ..fine };
    let bad = asking("< nonsense x >", None, a, b);
    let beside = [other.clone(), fine.clone()];
    assert_eq!(stage.apply(&beside).await.disabled, BTreeMap::new());
    let all = [other, fine.clone(), bad];
    // Also by a driver that does not know what was fine before.
    let stage = stage.reborn();
    let applied = stage.apply(&all).await;
    assert_eq!(applied.disabled.keys().collect::<Vec<_>>(), ["bad"]);
    assert_eq!(window(fine.port, 4).await, counts(&[("b", 4)]));
    assert_eq!(stage.apply(&beside).await.disabled, BTreeMap::new());
}

/// HAProxy ended while a template that it refuses was in force.
#[tokio::test]
async fn the_last_good_file_is_started_when_another_cannot_be_had() {
    let a = service("a").await;
    let stage = Stage::new();
    let shop = gateway("shop", free_port(), &[route("a", 100, &[target("a", a)])]);
    stage.apply(std::slice::from_ref(&shop)).await;
    stage.file().await;
    stage.driver.shutdown().await.unwrap();
    let template = Some(Arc::new(format!("{TEMPLATE}\nnonsense\n")));
    let configuration = Configuration { gateways: vec![shop.clone()], template };
    let refused = stage.driver.apply(&configuration).await.unwrap_err();
    assert!(refused.to_string().contains("nonsense"), "{refused}");
    assert_eq!(window(shop.port, 2).await, counts(&[("a", 2)]));
    stage.driver.apply(&configuration).await.unwrap_err();
    assert_eq!(window(shop.port, 2).await, counts(&[("a", 2)]));
}

/// A driver whose program does `first` when it is to check a file, before it does that.
fn checking(stage: &mut Stage, directory: &Path, first: &str) {
    let program = script(directory, &format!("if [ \"$1\" = -c ]; then {first}; fi"));
    let settings = Settings { program, ..stage.driver.settings.clone() };
    stage.driver = HaproxyDriver::new(settings).unwrap();
}

#[tokio::test]
async fn what_was_refused_is_asked_about_again() {
    let (a, b) = (service("a").await, service("b").await);
    let directory = tempfile::tempdir().unwrap();
    let mended = directory.path().join("mended");
    let mut stage = Stage::new();
    let refuse = format!(
        "if [ ! -e '{}' ] && grep -q 'path /x' \"$3\"; then echo '[ALERT] (1) : no name' >&2; exit 1; fi",
        mended.display()
    );
    checking(&mut stage, directory.path(), &refuse);
    let shop = asking("< path /x >", None, a, b);
    let applied = stage.apply(std::slice::from_ref(&shop)).await;
    assert_eq!(applied.disabled["bad"]["b"], "its condition is refused: no name");
    std::fs::write(&mended, "").unwrap();
    let applied = stage.apply(std::slice::from_ref(&shop)).await;
    assert!(!applied.disabled.is_empty(), "not at once");
    let configuration = Configuration { gateways: vec![shop.clone()], template: None };
    let later = Instant::now() + Duration::from_mins(5);
    let mut kept = stage.driver.state.lock().await;
    assert!(kept.verdicts.due(Instant::now()).is_empty());
    let due = kept.verdicts.due(later);
    assert!(stage.driver.judge(&mut kept, &configuration, None, due, later).await.unwrap());
    drop(kept);
    assert_eq!(stage.apply(std::slice::from_ref(&shop)).await.disabled, BTreeMap::new());
}

#[tokio::test]
async fn what_comes_to_no_end_disables_its_route_only() {
    let (a, b) = (service("a").await, service("b").await);
    let directory = tempfile::tempdir().unwrap();
    let mut stage = Stage::new();
    let no_end = directory.path().join("no_end");
    let hang = format!(
        "if [ -e '{}' ] || grep -q 'path /x' \"$3\"; then exec sleep 1000; fi",
        no_end.display()
    );
    checking(&mut stage, directory.path(), &hang);
    stage.driver.process.limit_checks(Duration::from_secs(2));
    // Where nothing comes to an end nothing is to blame.
    std::fs::write(&no_end, "").unwrap();
    let shop = asking("< path /x >", None, a, b);
    let mut gateways = vec![shop.clone()];
    for name in ["a", "aa", "aaa", "c", "cc"] {
        let fine = asking("< path /fine >", None, a, b);
        gateways.push(Frontend { name: name.to_owned(), ..fine });
    }
    let configuration = Configuration { gateways: gateways.clone(), template: None };
    let error = stage.driver.apply(&configuration).await.unwrap_err();
    assert!(error.to_string().contains("did not come to an end"), "{error}");
    std::fs::remove_file(&no_end).unwrap();
    let applied = stage.apply(&gateways).await;
    assert_eq!(applied.disabled.keys().collect::<Vec<_>>(), ["bad"]);
    assert_eq!(applied.disabled["bad"].keys().collect::<Vec<_>>(), ["b"]);
    assert!(applied.disabled["bad"]["b"].contains("did not come to an end"), "{applied:?}");
    assert_eq!(window(shop.port, 2).await, counts(&[("a", 2)]));
}
