//! What holds for every configuration, shown without a running HAProxy.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn shares_are_exact_or_near(routes in prop::collection::vec((0_u32..=100, 0_usize..=6), 0..6)) {
        let weights = model::shares(&routes);
        let counted = |route: &(u32, usize)| route.0 > 0 && route.1 > 0;
        let whole: u32 = routes.iter().filter(|route| counted(route)).map(|route| route.0).sum();
        let gets = |(route, weight): (&(u32, usize), &u16)| f64::from(u32::from(*weight) * u32::try_from(route.1).unwrap());
        let given: f64 = routes.iter().zip(&weights).map(gets).sum();
        for (route, weight) in routes.iter().zip(&weights) {
            prop_assert!(*weight <= model::WEIGHT_MAX);
            prop_assert_eq!(*weight > 0, counted(route));
            if counted(route) {
                let (wanted, got) = (f64::from(route.0) / f64::from(whole), gets((route, weight)) / given);
                prop_assert!((wanted - got).abs() < 0.03, "{wanted}, got {got}: {routes:?} {weights:?}");
            }
        }
    }

    #[test]
    fn no_value_adds_a_line_or_a_directive(
        name in any::<String>(), path in any::<String>(), rewrite in any::<String>(), balance in any::<String>(),
        host in any::<String>(), target_host in any::<String>(),
    ) {
        let stage_free = |gateway: &Frontend| refusal::of_gateway(gateway).is_none();
        let mut hostile = gateway(&name, 1000, &[route(&path, 1, &[target("a", 1)])]);
        hostile.routes[0].lookup_name = "r".into();
        hostile.virtual_hosts = vec![host];
        hostile.routes[0].rewrites = vec![Rewrite { path: rewrite, condition: "{ path_beg /x }".into() }];
        hostile.routes[0].balance = balance;
        hostile.routes[0].targets[0].host = target_host;
        let mut tame = hostile.clone();
        "shop".clone_into(&mut tame.name);
        "a".clone_into(&mut tame.routes[0].path);
        tame.virtual_hosts = vec!["h".into()];
        "/x".clone_into(&mut tame.routes[0].rewrites[0].path);
        "source".clone_into(&mut tame.routes[0].balance);
        "h".clone_into(&mut tame.routes[0].targets[0].host);
        if stage_free(&hostile) {
            let base = Base { hard_stop_after_seconds: 1, stats_port: None, stats_bind: String::new() };
            let text = |gateway| {
                render::render(&Model::of(&[gateway], Ipv4Addr::LOCALHOST.into(), Some(80)), &base, None).unwrap().files.text
            };
            let directives = |text: &str| -> Vec<String> {
                let lines = text.split(['\n', '\r', '\0']).map(|line| line.split_whitespace().next().unwrap_or("").to_owned());
                lines.collect()
            };
            prop_assert_eq!(directives(&text(&hostile)), directives(&text(&tame)));
        }
        for text in [&hostile.name, &hostile.routes[0].balance] {
            let quoted = render::quote(text);
            prop_assert!(!quoted.contains(['\n', '\r', '\0']));
            let one_line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            prop_assert_eq!(shlex::split(&quoted), Some(vec![one_line]));
        }
    }
}

#[test]
fn percentages_become_the_smallest_weights() {
    assert_eq!(model::shares(&[(80, 1), (20, 1)]), [4, 1]);
    assert_eq!(model::shares(&[(90, 3), (10, 1)]), [3, 1]);
    assert_eq!(model::shares(&[(100, 2), (0, 1)]), [1, 0]);
    assert_eq!(model::shares(&[(99, 1), (1, 5)]), [256, 1]);
    assert_eq!(model::shares(&[]), [0; 0]);
}

#[tokio::test]
async fn one_level_is_rendered_as_one_backend() {
    let stage = Stage::new();
    let mut shop = gateway(
        "shop/9080",
        9080,
        &[
            route("shop/web/a", 80, &[target("a1", 1001), draining(target("a2", 1002))]),
            route("shop/web/b", 20, &[target("b1", 1003)]),
        ],
    );
    shop.virtual_hosts = vec!["9080.shop.segue".into()];
    shop.routes[0].lookup_name = "ra".into();
    shop.routes[1].lookup_name = "rb".into();
    let rendered = rendered(&stage.driver, &[shop.clone()]);
    let (_, tail) =
        rendered.files.text.split_once("frontend virtual_hosts from http_gateways").unwrap();
    let expected = include_str!("one_level.cfg");
    assert_eq!(tail.trim(), expected.trim(), "{tail}");
    shop.routes[0].weight = 60;
    shop.routes[1].targets.push(target("b2", 1004));
    let other = super::rendered(&stage.driver, &[shop]);
    assert_eq!(rendered.structure, other.structure, "weights and servers need no reload");
}

#[tokio::test]
async fn tcp_gateways_have_no_virtual_hosts() {
    let stage = Stage::new();
    let mut shop = gateway("shop", 9080, &[route("a", 100, &[target("a1", 1)])]);
    shop.virtual_hosts = vec!["shop.segue".into()];
    let mut listening = |protocol: Protocol| {
        shop.protocol = protocol;
        rendered(&stage.driver, &[shop.clone()]).files.text.contains("shop.segue")
    };
    assert!(listening(Protocol::Http));
    assert!(!listening(Protocol::Tcp));
}

#[tokio::test]
async fn routes_with_rules_of_their_own_have_backends_of_their_own() {
    let stage = Stage::new();
    let routes =
        [route("a", 80, &[target("a1", 1), target("a2", 2)]), route("b", 20, &[target("b1", 3)])];
    let backends = |change: &dyn Fn(&mut Frontend)| {
        let mut gateway = gateway("shop", 9080, &routes);
        change(&mut gateway);
        rendered(&stage.driver, &[gateway]).files.text.matches("\nbackend ").count()
    };
    assert_eq!(backends(&|_| {}), 1);
    assert_eq!(backends(&|gateway| gateway.sticky = Some(Sticky::Instance)), 3);
    assert_eq!(backends(&|gateway| gateway.sticky = Some(Sticky::Route)), 3);
    assert_eq!(backends(&|gateway| gateway.routes[1].balance = "leastconn".into()), 3);
    assert_eq!(backends(&|gateway| gateway.routes[0].weight = 997), 1);
    assert_eq!(backends(&|gateway| gateway.routes[1].targets = vec![target("a1", 1)]), 3);
    let rewrite = Rewrite { path: "/x".into(), condition: "path_beg /y".into() };
    assert_eq!(backends(&|gateway| gateway.routes[1].rewrites = vec![rewrite.clone()]), 3);
}
