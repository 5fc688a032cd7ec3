//! What is counted of requests through a running HAProxy.

use super::*;
use crate::gateways::Count;

/// What is counted of the last minute, once `fits` says that all is there.
async fn counted(
    stage: &Stage,
    fits: impl Fn(&BTreeMap<String, Count>) -> bool,
) -> BTreeMap<String, Count> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let now = OffsetDateTime::now_utc();
        let traffic = stage.driver.traffic(now, Duration::from_mins(1)).await.unwrap();
        let name = |passage: &Passage| match &passage.route {
            Some(route) => format!("{}//{route}", passage.gateway),
            None => passage.gateway.clone(),
        };
        let counts: BTreeMap<String, Count> =
            traffic.counts.iter().map(|(passage, count)| (name(passage), count.clone())).collect();
        if fits(&counts) {
            return counts;
        }
        assert!(tokio::time::Instant::now() < deadline, "{counts:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn passing(route: RouteModel, passages: &[(&str, Option<&str>)]) -> RouteModel {
    let passage = |(gateway, route): &(&str, Option<&str>)| Passage {
        gateway: (*gateway).to_owned(),
        route: route.map(str::to_owned),
    };
    RouteModel { passages: passages.iter().map(passage).collect(), ..route }
}

/// Every request is counted for all gateways and routes that it passed, whatever answered it, and also when a worker
/// ends it that was replaced meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_for_everything_that_they_passed() {
    let stage = Stage::new();
    let (one, two) = (service("one").await, service("two").await);
    let (http, tcp, nothing) = (free_port(), free_port(), free_port());
    let a = passing(
        route("a", 1, &[target("one", one)]),
        &[("out", Some("in")), ("in", None), ("in", Some("a"))],
    );
    let b = passing(
        route("b", 1, &[target("two", two)]),
        &[("out", Some("in")), ("in", None), ("in", Some("b"))],
    );
    let mut out = gateway("out", http, &[a, b]);
    let mut stream = gateway("stream", tcp, &[route("s", 1, &[target("one", one)])]);
    stream.protocol = Protocol::Tcp;
    let dead = gateway("dead", nothing, &[route("d", 1, &[target("none", free_port())])]);
    stage.apply(&[out.clone(), stream.clone(), dead.clone()]).await;
    assert_eq!(window(http, 10).await, counts(&[("one", 5), ("two", 5)]));
    assert_eq!(window(tcp, 1).await, counts(&[("one", 1)]));
    let status = Client::connect(nothing).await.unwrap().get("/", "x").await.unwrap().0;
    assert_eq!(status, 503);
    let seen = counted(&stage, |counts| {
        let requests = |name: &str| counts.get(name).map(|count| count.requests);
        ["out", "out//in", "in"].iter().all(|name| requests(name) == Some(10))
            && requests("stream") == Some(1)
            && requests("dead") == Some(1)
    })
    .await;
    assert_eq!((seen["in//a"].requests, seen["in//b"].requests), (5, 5));
    assert_eq!((seen["out"].failed, seen["out"].classes), (0, [0, 10, 0, 0, 0]));
    assert_eq!((seen["dead"].failed, seen["dead"].classes[4]), (1, 1));

    // A slow request, and what it goes to disappears while a new configuration is loaded.
    let slow = tokio::spawn(async move {
        let mut client = Client::connect(http).await.unwrap();
        client.get("/slow", "x").await.unwrap().1
    });
    let worker = stage.worker().await;
    let server = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let servers = stage.driver.observe(None).await.unwrap().unwrap().servers;
            let busy = servers.into_iter().find(|(_, server)| server.sessions > 0);
            if let Some(((_, name), _)) = busy {
                return name;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let server = server.await.expect("the request gets to its target");
    let (route, answer) = if server == "tone" { ("in//a", "one") } else { ("in//b", "two") };
    out.routes.retain(|route| route.targets[0].lookup_name != server);
    stage.apply(&[out, stream, dead, gateway("new", free_port(), &[])]).await;
    assert_ne!(stage.worker().await, worker, "it was a reload");
    assert_eq!(slow.await.unwrap(), answer);
    let seen = counted(&stage, |counts| counts[route].requests == 6).await;
    assert!(seen[route].times.percentile_ms(100) > 1500.0, "{:?}", seen[route]);
    assert_eq!(seen["out"].requests, 11);
}

/// What nobody takes is lost, and holds up nobody; who comes back later sees what came last.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_those_who_count() {
    let stage = Stage::new();
    let (one, port) = (service("one").await, free_port());
    let gateways = [gateway("g", port, &[route("a", 1, &[target("one", one)])])];
    stage.apply(&gateways).await;
    let stage = stage.reborn();
    assert_eq!(window(port, 50).await, counts(&[("one", 50)]));
    // The new life takes over what gathered in between.
    stage.apply(&gateways).await;
    counted(&stage, |counts| counts.get("g").is_some_and(|count| count.requests == 50)).await;
}
