//! Where requests may still go, and where they cannot.

use super::*;

/// A worker that was replaced answers one more request on each connection that it has, by what it knew when it was.
#[tokio::test]
async fn a_target_is_busy_as_long_as_a_replaced_worker_may_choose_it() {
    let (a, b) = (service("a").await, service("b").await);
    let stage = Stage::new();
    let port = free_port();
    let routes = |first: Target| [route("a", 50, &[first]), route("b", 50, &[target("b", b)])];
    let sticky =
        Frontend { sticky: Some(Sticky::Route), ..gateway("shop", port, &routes(target("a", a))) };
    for asks in [true, false] {
        stage.apply(std::slice::from_ref(&sticky)).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = Client::connect(port).await.unwrap();
            client.say().await;
            clients.push(client);
        }
        let worker = stage.worker().await;
        stage.apply(&[gateway("shop", port, &routes(draining(target("a", a))))]).await;
        assert_ne!(stage.worker().await, worker, "another shape takes a reload");
        assert!(stage.driver.busy().await.unwrap().contains("a"));
        for client in clients.iter_mut().filter(|_| asks) {
            assert_eq!(client.get("/", "x").await.unwrap().0, 200);
            assert!(client.closing);
        }
        // They close when they were answered, or have been silent for a while.
        let idle = async {
            while stage.driver.busy().await.unwrap().contains("a") {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), idle).await.expect("nobody may choose it");
    }
}

#[tokio::test]
async fn names_of_hosts_are_looked_up_and_unknown_ones_harm_nobody() {
    let a = service("a").await;
    let stage = Stage::new();
    let named = |name: &str, host: &str| Target { host: host.into(), ..target(name, a) };
    let unknown = named("b", "no-such-host.invalid");
    let routes = [route("a", 50, &[named("a", "localhost")]), route("b", 50, &[unknown])];
    let shop = gateway("shop", free_port(), &routes);
    let applied = stage.apply(std::slice::from_ref(&shop)).await;
    let trouble = applied.troubles.into_iter().collect::<Vec<_>>().join("; ");
    assert!(trouble.contains("'no-such-host.invalid'"), "{trouble}");
    assert_eq!(window(shop.port, 4).await, counts(&[("a", 4)]));
    let text = stage.file().await;
    assert!(text.contains("127.0.0.1:") && !text.contains("localhost"), "{text}");
}

/// Targets that went without draining, such as those of instances that ended, do not gather.
#[tokio::test]
async fn targets_that_vanish_are_removed_in_the_end() {
    let a = service("a").await;
    let stage = Stage::new();
    let port = free_port();
    let mut most = 0;
    for number in 0..150 {
        let name = format!("a{number}");
        stage.apply(&[gateway("shop", port, &[route("a", 100, &[target(&name, a)])])]).await;
        let observed = stage.driver.observe(None).await.unwrap().unwrap();
        most = most.max(observed.servers.len());
    }
    assert!((50..120).contains(&most), "{most}");
    assert_eq!(window(port, 2).await, counts(&[("a", 2)]));
    assert!(stage.driver.state.lock().await.names.len() < 120);
}
