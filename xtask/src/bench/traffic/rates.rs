//! Requests per second through gateways with rules: a condition, or clients bound by cookies. Against a file by hand that
//! says the same about the same servers.

use crate::bench::by_hand::{HAPROXY_TIME_MAX, Server, Setup};
use crate::bench::throughput::{Rounds, against_hand, url, wait_for_answer};
use crate::bench::{Bench, Measure};
use crate::load;
use crate::service;
use crate::shop::{self, INTERNAL_GATEWAY};
use anyhow::{Context as _, Result, anyhow};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

const INSTANCES: u32 = 2;
const ROUNDS: usize = 11;
const ROUND_SECONDS: u32 = 2;
const RATIO_MIN: f64 = 0.85;
/// What matches the condition.
const BETA: [(&str, &str); 1] = [("X-Beta", "1")];
/// How many requests in a row tell that the rules are in force.
const IN_A_ROW: usize = 20;

/// Measures both kinds of rules, on the shop with a second version. Of the requests every other one matches the condition, or
/// brings the cookie.
pub(super) fn compare(bench: &Bench) -> Result<Vec<Measure>> {
    let (api, progress) = (bench.api(), bench.progress);
    let second = shop::blueprint("shop", bench.runtime, &[2], INSTANCES)?;
    api.send("PUT", "/api/v1/deployments/shop", &second, 202)?;
    shop::wait_done(api, progress, "shop", &[1, 2], INSTANCES as usize)?;
    let path = format!("/api/v1/gateways/{INTERNAL_GATEWAY}");
    let ours = url(shop::wait_gateway(api, progress, INTERNAL_GATEWAY)?);
    let plain = shop::with_weights(&api.get(&path)?, &[(1, 50), (2, 50)])?;
    let servers = |version| -> Result<Vec<Server>> {
        let addresses = shop::addresses_of(api, "shop", version)?.into_iter();
        Ok(addresses.map(|address| Server { version, ..Server::at(address) }).collect())
    };
    let servers = [servers(1)?, servers(2)?].concat();
    let mut measures = Vec::new();
    for (what, sticky) in [("condition", false), ("cookies", true)] {
        let mut gateway = plain.clone();
        if sticky {
            gateway["sticky"] = json!("instance");
        } else {
            gateway = shop::with_condition(&plain, 2, "has header X-Beta")?;
        }
        api.send("PUT", &path, &gateway, 200)?;
        let setup = Setup {
            port: service::free_port()?,
            servers: servers.clone(),
            condition: !sticky,
            sticky,
            neighbour: None,
            log: true,
        };
        wait_for_rules(bench, &ours, sticky)?;
        let ratio = against_hand(bench, &ours, &setup, |urls| {
            let scripts = [script(bench, urls[0], "ours")?, script(bench, urls[1], "theirs")?];
            Ok(Rounds { count: ROUNDS, seconds: ROUND_SECONDS, scripts: Some(scripts) })
        })?;
        let what = format!("throughput with {what} against by hand");
        measures.push(Measure::at_least(what, ratio, "", RATIO_MIN));
    }
    Ok(measures)
}

/// Waits until a gateway answers as its rules say.
fn wait_for_rules(bench: &Bench, url: &str, sticky: bool) -> Result<()> {
    let agent = load::agent(load::Connection::Fresh);
    let fits = || {
        load::ask(&agent, url, &BETA).is_ok_and(|answer| {
            if sticky { !answer.cookies.is_empty() } else { answer.version == 2 }
        })
    };
    bench.progress.wait("the rules are in force", HAPROXY_TIME_MAX, || {
        Ok(if (0..IN_A_ROW).all(|_| fits()) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue("not yet".into())
        })
    })
}

/// Lets wrk send requests in turn without headers and with them: the one that matches, and the cookies that `url` gives.
fn script(bench: &Bench, url: &str, name: &str) -> Result<PathBuf> {
    wait_for_answer(bench, url)?;
    let answer = load::ask(&load::agent(load::Connection::Fresh), url, &[]);
    let answer = answer.map_err(|reason| anyhow!("{url}: {reason}"))?;
    let mut headers = String::from("[\"X-Beta\"] = \"1\"");
    if !answer.cookies.is_empty() {
        write!(headers, ", [\"Cookie\"] = {:?}", answer.cookies.join("; "))?;
    }
    let file = bench.folder.join(format!("{name}.lua"));
    let text = format!(
        "local requests, number = {{}}, 0\n\
         init = function()\n  requests[0] = wrk.format(\"GET\", \"/\")\n  \
         requests[1] = wrk.format(\"GET\", \"/\", {{ {headers} }})\nend\n\
         request = function()\n  number = 1 - number\n  return requests[number]\nend\n"
    );
    fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(file)
}
