//! What clients see of a running HAProxy.

use super::*;

#[tokio::test]
async fn fifty_requests_at_80_to_20_are_exactly_40_and_10() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let shop = |left, right| {
        gateway(
            "shop",
            port,
            &[route("a", left, &[target("a", a)]), route("b", right, &[target("b", b)])],
        )
    };
    assert!(stage.apply(&[shop(80, 20)]).await.changed);
    for _ in 0..3 {
        assert_eq!(window(port, 50).await, counts(&[("a", 40), ("b", 10)]));
    }
    let worker = stage.worker().await;
    assert!(stage.apply(&[shop(20, 80)]).await.changed);
    for _ in 0..3 {
        assert_eq!(window(port, 50).await, counts(&[("a", 10), ("b", 40)]));
    }
    assert_eq!(stage.worker().await, worker);
    assert!(stage.file().await.contains("server tb 127.0.0.1"));
    assert_eq!(stage.file().await, stage.driver.text().await);
    assert!(!stage.apply(&[shop(20, 80)]).await.changed);
    stage.driver.shutdown().await.unwrap();
    assert!(Client::connect(port).await.is_err());
}

#[tokio::test]
async fn shares_are_exact_from_the_first_request_after_a_change() {
    let ports =
        [service("a1").await, service("a2").await, service("b1").await, service("b2").await];
    let stage = Stage::new();
    for instances in [1, 2] {
        let port = free_port();
        let shop = |left| {
            let targets = |names: [&str; 2], ports: &[u16]| -> Vec<Target> {
                let targets = names.iter().zip(ports).map(|(name, port)| target(name, *port));
                targets.take(instances).collect()
            };
            let routes = [
                route("a", left, &targets(["a1", "a2"], &ports[..2])),
                route("b", 100 - left, &targets(["b1", "b2"], &ports[2..])),
            ];
            gateway("shop", port, &routes)
        };
        stage.apply(&[shop(100)]).await;
        let worker = stage.worker().await;
        // An odd number, so that no change comes at the start of a table.
        window(port, 7).await;
        for left in [80, 50, 90, 100, 0, 10, 80] {
            assert!(stage.apply(&[shop(left)]).await.changed);
            for _ in 0..2 {
                let mut shares: BTreeMap<String, usize> = BTreeMap::new();
                for (name, count) in window(port, 50).await {
                    *shares.entry(name[..1].to_owned()).or_default() += count;
                }
                let left = usize::try_from(left).unwrap() / 2;
                let mut expected = counts(&[("a", left), ("b", 50 - left)]);
                expected.retain(|_, count| *count > 0);
                assert_eq!(shares, expected, "{instances} instances at {left}");
            }
        }
        let half = [("a1", 40), ("a2", 40), ("b1", 10), ("b2", 10)];
        let one = [("a1", 80), ("b1", 20)];
        let expected = counts(if instances == 2 { &half } else { &one });
        assert_eq!(window(port, 100).await, expected);
        assert!(!stage.apply(&[shop(80)]).await.changed);
        assert_eq!(stage.worker().await, worker, "no reload");
    }
}

#[tokio::test]
async fn a_lost_table_is_noticed_and_replaced() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let routes = [route("a", 90, &[target("a", a)]), route("b", 10, &[target("b", b)])];
    let shop = gateway("shop", port, &routes);
    stage.apply(std::slice::from_ref(&shop)).await;
    let worker = stage.worker().await;
    let clear = format!("clear map slots/g{port}.map");
    stage.driver.sockets.ask(socket::WORKER, &clear).await.unwrap();
    window(port, 3).await;
    assert!(stage.apply(std::slice::from_ref(&shop)).await.changed);
    assert_eq!(window(port, 50).await, counts(&[("a", 45), ("b", 5)]));
    assert_eq!(stage.worker().await, worker, "no reload");
}

#[tokio::test]
async fn a_long_table_is_exact_too() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let shop = |left, right| {
        let targets = |name: &str, port| {
            let of = |number| Target {
                lookup_name: format!("t{name}{number:040}"),
                ..target(&format!("{name}{number}"), port)
            };
            [of(1), of(2)]
        };
        let routes = [route("a", left, &targets("a", a)), route("b", right, &targets("b", b))];
        gateway("shop", port, &routes)
    };
    stage.apply(&[shop(1, 1)]).await;
    let worker = stage.worker().await;
    stage.apply(&[shop(251, 249)]).await;
    assert_eq!(window(port, 500).await, counts(&[("a", 251), ("b", 249)]));
    assert_eq!(stage.worker().await, worker, "no reload");
}

#[tokio::test]
async fn a_server_that_is_gone_costs_no_request() {
    let a = service("a").await;
    let stage = Stage::new();
    let (port, nobody) = (free_port(), free_port());
    let routes = [route("a", 50, &[target("a", a)]), route("b", 50, &[target("b", nobody)])];
    stage.apply(&[gateway("shop", port, &routes)]).await;
    assert_eq!(window(port, 20).await, counts(&[("a", 20)]));
}

#[tokio::test]
async fn routes_with_backends_share_exactly_and_stickiness_holds() {
    let (a, b, c) = (service("a").await, service("b").await, service("c").await);
    let stage = Stage::new();
    let ports = [free_port(), free_port(), free_port()];
    let routes =
        [route("a", 80, &[target("a", a), target("c", c)]), route("b", 20, &[target("b", b)])];
    let mut gateways: Vec<Frontend> =
        ports.iter().map(|port| gateway("g", *port, &routes)).collect();
    for (index, gateway) in gateways.iter_mut().enumerate() {
        gateway.name = format!("g{index}");
        gateway
            .routes
            .iter_mut()
            .for_each(|route| route.lookup_name = format!("{}{index}", route.lookup_name));
    }
    gateways[0].sticky = Some(Sticky::Route);
    gateways[1].sticky = Some(Sticky::Instance);
    gateways[2].routes[1].rewrites =
        vec![Rewrite { path: "/new".into(), condition: "path_beg /echo".into() }];
    stage.apply(&gateways).await;
    assert_eq!(window(ports[0], 50).await, counts(&[("a", 20), ("b", 10), ("c", 20)]));
    let mut client = Client::connect(ports[0]).await.unwrap();
    let first = client.say().await;
    assert!(client.cookie.is_some());
    for _ in 0..10 {
        let (of_b, body) = (first == "b", client.get("/echo", "x").await.unwrap().1);
        assert_eq!(body.starts_with('b'), of_b, "{body}");
        assert!(!body.contains("g0") && !body.contains("ra0"), "the cookie stays here: {body}");
    }
    for forged in ["period", "0", "digest", "nobody"] {
        client.cookie = Some(format!("g{}={forged}; other=1", ports[0]));
        assert_eq!(client.get("/", "x").await.unwrap().0, 200, "{forged}");
    }
    let mut client = Client::connect(ports[1]).await.unwrap();
    let first = client.say().await;
    for _ in 0..10 {
        assert_eq!(client.say().await, first);
    }
    let mut client = Client::connect(ports[2]).await.unwrap();
    for _ in 0..10 {
        let body = client.get("/echo", "x").await.unwrap().1;
        assert_eq!(body.starts_with('b'), !body.contains("/echo"), "{body}");
        assert!(
            body == "b" || body.to_lowercase().matches("x-forwarded-for: 127.0.0.1").count() == 1,
            "{body}"
        );
    }
}

#[tokio::test]
async fn virtual_hosts_lead_to_gateways() {
    let a = service("a").await;
    let directory = tempfile::tempdir().unwrap();
    let virtual_port = free_port();
    let settings = Settings {
        program: "/usr/sbin/haproxy".into(),
        directory: directory.path().to_owned(),
        bind_address: Ipv4Addr::LOCALHOST.into(),
        virtual_hosts_port: Some(virtual_port),
        ..Settings::default()
    };
    let stage = Stage { driver: HaproxyDriver::new(settings).unwrap(), directory };
    let mut shop = gateway("shop", free_port(), &[route("a", 100, &[target("a", a)])]);
    shop.virtual_hosts = vec!["Shop.segue".into(), "it's \"$HOME\" #1".into()];
    stage.apply(&[shop]).await;
    let mut client = Client::connect(virtual_port).await.unwrap();
    let (status, body) = client.get("/echo", "shop.SEGUE").await.unwrap();
    assert_eq!(status, 200);
    let body = body.to_lowercase();
    assert!(
        body.contains("x-forwarded-for: 127.0.0.1")
            && body.contains(&format!("x-forwarded-port: {virtual_port}"))
    );
    assert_eq!(client.get("/", "other").await.unwrap().0, 503);
}

/// Clients with fresh and with kept connections, until told to stop. Gives their number of requests and failures.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Load {
    fn on(port: u16) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients =
            (0..6).map(|number| tokio::spawn(client(port, number < 3, stop.clone(), done.clone())));
        Self { clients: clients.collect(), stop, done }
    }

    /// Lets at least `requests` more be answered.
    async fn flow(&self, requests: usize) {
        let until = self.done.load(Ordering::Relaxed) + requests;
        let flows = async {
            while self.done.load(Ordering::Relaxed) < until {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), flows).await.expect("requests flow");
    }

    async fn failures(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        for client in self.clients {
            failures.extend(client.await.unwrap());
        }
        failures
    }
}

async fn client(
    port: u16,
    keeps: bool,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut kept: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        let fresh = kept.is_none();
        let mut client = match kept.take() {
            Some(client) => client,
            None => match Client::connect(port).await {
                Ok(client) => client,
                Err(error) => {
                    failures.push(format!("connect: {error}"));
                    continue;
                }
            },
        };
        match client.get("/", "x").await {
            Ok((200, _)) => kept = (keeps && !client.closing).then_some(client),
            Ok((status, _)) => failures.push(format!("status {status}")),
            Err(error) => failures.push(format!("read, fresh {fresh}: {error}")),
        }
        done.fetch_add(1, Ordering::Relaxed);
        // Leaves processor time to those under test.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_fails_while_weights_shift_and_servers_come_and_go() {
    let (a, b, c) = (service("a").await, service("b").await, service("c").await);
    let stage = Stage::new();
    let port = free_port();
    let shop = |left: u32, more: &[Target]| {
        let mut targets = vec![target("b", b)];
        targets.extend_from_slice(more);
        gateway(
            "shop",
            port,
            &[route("a", left, &[target("a", a)]), route("b", 100 - left, &targets)],
        )
    };
    stage.apply(&[shop(100, &[])]).await;
    let worker = stage.worker().await;
    let load = Load::on(port);
    for left in [0, 80, 100, 50, 20].into_iter().cycle().take(100) {
        stage.apply(&[shop(left, &[])]).await;
    }
    for _ in 0..20 {
        stage.apply(&[shop(20, &[target("c", c)])]).await;
        load.flow(30).await;
        stage.apply(&[shop(20, &[draining(target("c", c))])]).await;
        stage.apply(&[shop(20, &[])]).await;
        let idle = async { while !stage.driver.busy().await.unwrap().is_empty() {} };
        tokio::time::timeout(Duration::from_mins(1), idle)
            .await
            .expect("the removed target gets idle");
    }
    let failures = load.failures().await;
    assert!(
        failures.is_empty(),
        "{} failures: {:?}",
        failures.len(),
        &failures[..failures.len().min(5)]
    );
    assert_eq!(stage.worker().await, worker, "no reload");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_fails_while_the_shape_of_a_gateway_changes() {
    let (a, b, c) = (service("a").await, service("b").await, service("c").await);
    let stage = Stage::new();
    let port = free_port();
    let routes =
        [route("a", 83, &[target("a", a), target("c", c)]), route("b", 17, &[target("b", b)])];
    let plain = gateway("shop", port, &routes);
    let sticky = Frontend { sticky: Some(Sticky::Route), ..plain.clone() };
    let mut rewriting = plain.clone();
    rewriting.routes[1].rewrites =
        vec![Rewrite { path: "/new".into(), condition: "path_beg /echo".into() }];
    stage.apply(std::slice::from_ref(&plain)).await;
    let load = Load::on(port);
    for _ in 0..4 {
        for gateway in [&sticky, &rewriting, &plain] {
            assert!(stage.apply(std::slice::from_ref(gateway)).await.changed);
            load.flow(100).await;
        }
    }
    let failures = load.failures().await;
    let shown = &failures[..failures.len().min(5)];
    assert!(failures.is_empty(), "{} failures: {shown:?}", failures.len());
}

#[tokio::test]
async fn tcp_routes_with_backends_share_exactly() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let mut routes = [route("a", 80, &[target("a", a)]), route("b", 20, &[target("b", b)])];
    routes[0].balance = "source".into();
    let shop = Frontend { protocol: Protocol::Tcp, ..gateway("shop", port, &routes) };
    stage.apply(&[shop]).await;
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..50 {
        *shares.entry(Client::connect(port).await.unwrap().say().await).or_default() += 1;
    }
    assert_eq!(shares, counts(&[("a", 40), ("b", 10)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_fails_while_gateways_come_and_go() {
    let a = service("a").await;
    let stage = Stage::new();
    let (first, second) = (free_port(), free_port());
    let shop = gateway("shop", first, &[route("a", 100, &[target("a", a)])]);
    let other = gateway("other", second, &[route("x", 100, &[target("a", a)])]);
    stage.apply(std::slice::from_ref(&shop)).await;
    let load = Load::on(first);
    for _ in 0..5 {
        stage.apply(&[other.clone(), shop.clone()]).await;
        assert_eq!(window(second, 1).await, counts(&[("a", 1)]));
        stage.apply(std::slice::from_ref(&shop)).await;
        load.flow(50).await;
    }
    let failures = load.failures().await;
    assert!(
        failures.is_empty(),
        "{} failures: {:?}",
        failures.len(),
        &failures[..failures.len().min(5)]
    );
}

#[tokio::test]
async fn a_target_is_busy_until_its_last_request_is_answered() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let (port, other) = (free_port(), free_port());
    let shop = |targets: &[Target]| gateway("shop", port, &[route("a", 100, targets)]);
    stage.apply(&[shop(&[target("a", a)])]).await;
    for reloads in [false, true] {
        let mut client = Client::connect(port).await.unwrap();
        let slow = tokio::spawn(async move { client.get("/held", "x").await });
        let carried = async {
            while !stage
                .driver
                .observe(None)
                .await
                .unwrap()
                .unwrap()
                .servers
                .values()
                .any(|server| server.sessions > 0)
            {}
        };
        tokio::time::timeout(Duration::from_mins(1), carried)
            .await
            .expect("the request is under way");
        let mut gateways = vec![shop(&[target("b", b)])];
        gateways.extend(reloads.then(|| gateway("other", other, &[])));
        stage.apply(&gateways).await;
        assert_eq!(stage.driver.busy().await.unwrap(), BTreeSet::from(["a".to_owned()]));
        HELD.add_permits(1);
        assert_eq!(slow.await.unwrap().unwrap(), (200, "a".to_owned()));
        let idle = async { while !stage.driver.busy().await.unwrap().is_empty() {} };
        tokio::time::timeout(Duration::from_mins(1), idle)
            .await
            .expect("nothing is carried any more");
        stage.apply(&[shop(&[target("a", a)])]).await;
    }
}

#[tokio::test]
async fn a_taken_port_is_refused_and_all_others_are_served() {
    let a = service("a").await;
    let stage = Stage::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (port, bad) = (free_port(), taken.local_addr().unwrap().port());
    let routes = [route("a", 100, &[target("a", a)])];
    let gateways = [gateway("bad", bad, &routes), gateway("good", port, &routes)];
    let applied = stage.apply(&gateways).await;
    let reason =
        format!("port {bad} on 127.0.0.1 is used by another program: Address already in use");
    assert_eq!(applied.refused, BTreeMap::from([("bad".to_owned(), reason)]));
    assert_eq!(window(port, 1).await, counts(&[("a", 1)]));
    drop(taken);
    assert_eq!(stage.apply(&gateways).await.refused, BTreeMap::new());
    assert_eq!(window(bad, 1).await, counts(&[("a", 1)]));
}

#[tokio::test]
async fn what_haproxy_refuses_leaves_the_last_good_configuration() {
    let a = service("a").await;
    let stage = Stage::new();
    let port = free_port();
    let mut shop = gateway("shop", port, &[route("a", 100, &[target("a", a)])]);
    stage.apply(std::slice::from_ref(&shop)).await;
    let (good, worker) = (stage.file().await, stage.worker().await);
    // What no part alone shows: two routes of one name.
    shop.sticky = Some(Sticky::Route);
    shop.routes.push(shop.routes[0].clone());
    let error = stage
        .driver
        .apply(&Configuration { gateways: vec![shop], template: None })
        .await
        .unwrap_err();
    assert!(error.to_string().contains("HAProxy refuses the configuration"), "{error}");
    assert_eq!((stage.file().await, stage.worker().await), (good, worker));
    assert_eq!(window(port, 1).await, counts(&[("a", 1)]));
}

#[tokio::test]
async fn a_running_haproxy_is_adopted_and_a_dead_one_replaced() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    stage.driver.ping().await.unwrap();
    let port = free_port();
    let shop = |left, right| {
        gateway(
            "shop",
            port,
            &[route("a", left, &[target("a", a)]), route("b", right, &[target("b", b)])],
        )
    };
    stage.apply(&[]).await;
    stage.apply(&[shop(100, 0)]).await;
    stage.apply(&[shop(50, 50)]).await;
    let worker = stage.worker().await;
    let stage = stage.reborn();
    assert!(stage.driver.text().await.contains("# frontend: shop"));
    assert!(!stage.apply(&[shop(50, 50)]).await.changed);
    assert_eq!(stage.worker().await, worker);
    stage.driver.ping().await.unwrap();

    let mut changes = stage.driver.changes().subscribe();
    kill(stage.driver.process.running().unwrap().pid);
    tokio::time::timeout(Duration::from_mins(1), changes.changed())
        .await
        .expect("the end is noticed")
        .unwrap();
    assert!(stage.driver.ping().await.is_err());
    let applied = stage.apply(&[shop(50, 50)]).await;
    assert_eq!(applied.refused, BTreeMap::new());
    assert!(applied.troubles.iter().any(|words| words.contains("ended by itself")));
    assert_eq!(window(port, 10).await, counts(&[("a", 5), ("b", 5)]));
    assert_eq!(stage.apply(&[shop(50, 50)]).await.troubles, BTreeSet::new());
}

#[tokio::test]
async fn haproxy_that_was_never_recorded_is_found() {
    let a = service("a").await;
    let port = free_port();
    let shop = gateway("shop", port, &[route("a", 100, &[target("a", a)])]);
    let stage = Stage::new();
    // As if Segue was killed between starting and recording, or the disk did not take the record.
    let record = stage.directory.path().join("process.json");
    std::fs::create_dir(record.with_added_extension("new")).unwrap();
    stage.apply(std::slice::from_ref(&shop)).await;
    assert!(!record.exists());
    let worker = stage.worker().await;
    let stage = stage.reborn();
    assert!(!stage.apply(std::slice::from_ref(&shop)).await.changed);
    assert_eq!(stage.worker().await, worker);
    assert_eq!(window(port, 10).await, counts(&[("a", 10)]));
    // What died alone leaves workers that nothing but their mark tells of.
    kill(stage.driver.process.running().unwrap().pid);
    // Its last worker goes a moment after it does.
    until_marked(&stage, 0).await;
    stage.apply(std::slice::from_ref(&shop)).await;
    assert_ne!(stage.worker().await, worker);
    // One master, one worker; for a moment the master, that runs its program anew, bears no mark.
    until_marked(&stage, 2).await;
    stage.driver.shutdown().await.unwrap();
    assert_eq!(stage.driver.process.marked(), []);
    assert!(Client::connect(port).await.is_err());
}

async fn until_marked(stage: &Stage, count: usize) {
    let reached = async {
        while stage.driver.process.marked().len() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let words = format!("{count} processes of HAProxy run");
    tokio::time::timeout(Duration::from_mins(1), reached).await.expect(&words);
}

/// Without a record, and found while the master runs its program anew for every change of its configuration.
#[tokio::test]
async fn haproxy_that_was_never_recorded_is_never_doubled() {
    let a = service("a").await;
    let target = [target("a", a)];
    let mut gateways = vec![gateway("g0", free_port(), &[route("a", 100, &target)])];
    let mut stage = Stage::new();
    let record = stage.directory.path().join("process.json");
    std::fs::create_dir(record.with_added_extension("new")).unwrap();
    stage.apply(&gateways).await;
    let master = stage.driver.process.running();
    for turn in 1..20 {
        stage = stage.reborn();
        let name = format!("g{turn}");
        gateways.push(gateway(&name, free_port(), &[route("a", 100, &target)]));
        assert!(stage.apply(&gateways).await.changed);
        assert_eq!(stage.driver.process.running(), master);
    }
    // Workers that were reloaded away end once they carry nothing.
    until_marked(&stage, 2).await;
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
