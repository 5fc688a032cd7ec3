//! Templates of one's own.

use super::*;

fn own(from: &str, to: &str) -> String {
    assert!(TEMPLATE.contains(from), "the template has '{from}'");
    TEMPLATE.replacen(from, to, 1)
}

#[tokio::test]
async fn a_template_of_ones_own_is_used_and_weights_still_change_without_a_reload() {
    let (a, b) = (service("a").await, service("b").await);
    let port = free_port();
    let stage = Stage::new();
    let apply = async |left, right, template: Option<&str>| {
        let routes = [route("a", left, &[target("a", a)]), route("b", right, &[target("b", b)])];
        let template = template.map(|template| Arc::new(template.to_owned()));
        let gateways = vec![gateway("shop", port, &routes)];
        stage.driver.apply(&Configuration { gateways, template }).await
    };
    apply(100, 0, None).await.unwrap();
    let first = stage.worker().await;
    let slow = own("timeout client", "# {{ model.listeners | length }}\n    timeout client");
    stage.driver.check_template(&slow).await.unwrap();
    assert!(apply(100, 0, Some(&slow)).await.unwrap().changed);
    let second = stage.worker().await;
    assert_ne!(second, first, "another text takes a reload");
    assert!(stage.file().await.contains("\n    # 1\n    timeout client"));
    assert!(apply(0, 100, Some(&slow)).await.unwrap().changed);
    assert_eq!(stage.worker().await, second);
    assert_eq!(window(port, 10).await, counts(&[("b", 10)]));

    // What cannot be used is refused beforehand, with the reason; whoever does not ask keeps the last good file.
    let endless = format!(
        "{{% for a in range(9999) %}}{{% for b in range(9999) %}}.{{% endfor %}}{{% endfor %}}{TEMPLATE}"
    );
    for (template, words) in [
        (own("{% for", "{% four"), "unknown statement four"),
        (own("timeout client", "time-out client"), "unknown keyword 'time-out'"),
        (own("{{ structure | quote }}", "nothing"), "it leaves out 'structure'"),
        (endless, "fuel"),
        (
            format!("{{% for a in range(1000) %}}{{{{ 'x' * 100000 }}}}{{% endfor %}}{TEMPLATE}"),
            "more than 64 MB",
        ),
    ] {
        let error = stage.driver.check_template(&template).await.unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains(words), "{words}: {error}");
        let error = apply(50, 50, Some(&template)).await.unwrap_err();
        assert!(!error.is_permanent() && error.to_string().contains(words), "{words}: {error}");
        assert_eq!(stage.worker().await, second);
        assert_eq!(window(port, 10).await, counts(&[("b", 10)]));
    }
    assert!(apply(50, 50, None).await.unwrap().changed);
    assert_eq!(window(port, 10).await, counts(&[("a", 5), ("b", 5)]));
}

/// Shows that the limits of a template leave room: ours takes the largest configuration that is promised.
#[test]
fn our_template_stays_within_the_limits_of_others() {
    let gateways: Vec<Frontend> = (0..100)
        .map(|number| {
            let routes: Vec<RouteModel> = (0..100)
                .map(|route| {
                    let name = format!("r{number}x{route}");
                    super::route(&name, 1, &[target(&name, 1)])
                })
                .collect();
            gateway(&format!("g{number}"), 10_000 + number, &routes)
        })
        .collect();
    let model = Model::of(&gateways.iter().collect::<Vec<_>>(), Ipv4Addr::LOCALHOST.into(), None);
    let base = Base { hard_stop_after_seconds: 1, stats_port: None, stats_bind: String::new() };
    let ours = render::render(&model, &base, None).unwrap();
    assert_eq!(render::render(&model, &base, Some(TEMPLATE)), Ok(ours));
}
