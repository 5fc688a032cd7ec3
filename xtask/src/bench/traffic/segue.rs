//! The changes as users of Segue make them: by its API, or to its process.

use super::record::{Kind, Record, Rows};
use crate::api::Api;
use crate::bench::by_hand::reload;
use crate::bench::sight::Sight;
use crate::bench::throughput::url;
use crate::progress::{self, Progress};
use crate::service::{self, Service};
use crate::shop::{self, INTERNAL_GATEWAY, Runtime};
use anyhow::Result;
use serde_json::{Value, json};

const SHOP: &str = "/api/v1/deployments/shop";
const NEIGHBOUR: &str = "/api/v1/deployments/neighbour";
const INSTANCES: u32 = 2;
const INSTANCES_MANY: u32 = 4;

/// How often weights are changed, every other time back.
const WEIGHTS: u32 = 200;
/// How often changes are made that take a reload of HAProxy.
const RULES: u32 = 20;
/// How often changes are made that start or end something.
const STARTS: u32 = 10;

/// What the changes are made to.
struct Stage<'a> {
    api: &'a Api,
    runtime: &'a Runtime,
    progress: &'a Progress,
    record: Record<'a>,
}

/// Makes every kind of change, several times.
pub(super) fn change_everything(
    service: &mut Service,
    runtime: &Runtime,
    progress: &Progress,
) -> Result<Rows> {
    progress::say("changes through Segue");
    let api = service.api().clone();
    let mut stage = Stage::set(&api, runtime, progress)?;
    stage.shift_weights()?;
    stage.change_rules()?;
    stage.delete_and_merge()?;
    stage.scale()?;
    stage.roll()?;
    stage.change_neighbour()?;
    let mut record = stage.record;
    for _ in 0..STARTS {
        record.change(Kind::Restarted, None, || service.restart(progress), || Ok(()))?;
        record.change(Kind::Killed, None, || service.kill_and_restart(progress), || Ok(()))?;
    }
    let master = service.haproxy()?;
    for _ in 0..RULES {
        record.change(Kind::Reloaded, None, || reload(master, progress), || Ok(()))?;
    }
    Ok(record.end())
}

impl<'a> Stage<'a> {
    /// Two versions behind a gateway, of which the first has all the traffic.
    fn set(api: &'a Api, runtime: &'a Runtime, progress: &'a Progress) -> Result<Self> {
        let both = shop::blueprint("shop", runtime, &[1, 2], INSTANCES)?;
        api.send("PUT", SHOP, &both, 202)?;
        shop::wait_done(api, progress, "shop", &[1, 2], INSTANCES as usize)?;
        api.send("POST", "/api/v1/gateways", &shop::edge("edge", service::free_port()?), 201)?;
        let port = shop::wait_gateway(api, progress, "edge")?;
        shop::wait_gateway(api, progress, INTERNAL_GATEWAY)?;
        put_gateway(api, &shop::with_weights(&gateway(api)?, &[(1, 100), (2, 0)])?)?;
        let record = Record::start(&url(port), &Sight::Version(1), progress)?;
        Ok(Self { api, runtime, progress, record })
    }

    fn shift_weights(&mut self) -> Result<()> {
        let api = self.api;
        let gateway = gateway(api)?;
        let to_version = [
            shop::with_weights(&gateway, &[(1, 100), (2, 0)])?,
            shop::with_weights(&gateway, &[(1, 0), (2, 100)])?,
        ];
        for change in 0..WEIGHTS {
            let (version, document) =
                if change % 2 == 0 { (2, &to_version[1]) } else { (1, &to_version[0]) };
            let sight = Sight::Version(version);
            self.record.change(
                Kind::Weights,
                Some(&sight),
                || put_gateway(api, document),
                || Ok(()),
            )?;
        }
        Ok(())
    }

    fn change_rules(&mut self) -> Result<()> {
        let api = self.api;
        let plain = gateway(api)?;
        let beta = shop::with_condition(&plain, 2, "has header X-Beta")?;
        let mut sticky = plain.clone();
        sticky["sticky"] = json!("instance");
        for _ in 0..RULES {
            for (kind, sight, document) in [
                (Kind::ConditionAdded, Sight::Version(2), &beta),
                (Kind::ConditionRemoved, Sight::Version(1), &plain),
                (Kind::StickyOn, Sight::Cookies(true), &sticky),
                (Kind::StickyOff, Sight::Cookies(false), &plain),
            ] {
                self.record.change(kind, Some(&sight), || put_gateway(api, document), || Ok(()))?;
            }
        }
        Ok(())
    }

    /// A version loses its weight and goes; it comes back with half of the traffic.
    fn delete_and_merge(&mut self) -> Result<()> {
        let (api, progress) = (self.api, self.progress);
        let mut body = shop::blueprint("shop", self.runtime, &[1, 2], INSTANCES)?;
        body["clusters"]["web"]["gateways"] =
            json!({"http": {"routes": {"web:1": {"weight": "50%"}, "web:2": {"weight": "50%"}}}});
        for round in 0..STARTS {
            let delete = || {
                put_gateway(api, &shop::with_weights(&gateway(api)?, &[(1, 100), (2, 0)])?)?;
                api.send("DELETE", SHOP, &shop::removal(2), 202).map(drop)
            };
            let gone = || shop::wait_gone(api, progress, 2);
            self.record.change(Kind::VersionDeleted, None, delete, gone)?;
            let newcomer = Sight::Newcomer(shop::instance_names(api, "shop")?);
            let merge = || api.send("PUT", SHOP, &body, 202).map(drop);
            let done = || shop::wait_done(api, progress, "shop", &[1, 2], INSTANCES as usize);
            self.record.change(Kind::VersionMerged, Some(&newcomer), merge, done)?;
            if round + 1 == STARTS {
                self.record.change(Kind::VersionDeleted, None, delete, gone)?;
            }
        }
        Ok(())
    }

    fn scale(&mut self) -> Result<()> {
        let (api, progress) = (self.api, self.progress);
        let scale = |instances| {
            let document = json!({"cpu": 0.1, "memory": "32MB", "instances": instances});
            let path = format!("{SHOP}/clusters/web/services/web:1/scale");
            api.send("PUT", &path, &document, 202).map(drop)
        };
        let done =
            |instances: u32| shop::wait_done(api, progress, "shop", &[1], instances as usize);
        for _ in 0..STARTS {
            let newcomer = Sight::Newcomer(shop::instance_names(api, "shop")?);
            let up = || scale(INSTANCES_MANY);
            self.record.change(Kind::ScaledUp, Some(&newcomer), up, || done(INSTANCES_MANY))?;
            let many = shop::instance_names(api, "shop")?;
            let down = || scale(INSTANCES);
            let change = self.record.change(Kind::ScaledDown, None, down, || done(INSTANCES))?;
            let left = &many - &shop::instance_names(api, "shop")?;
            self.record.silence(Kind::ScaledDown, &change, &left);
        }
        Ok(())
    }

    fn roll(&mut self) -> Result<()> {
        let mut body = shop::blueprint("shop", self.runtime, &[1], INSTANCES)?;
        body["clusters"]["web"]["services"][0]["breed"]["environment_variables"] =
            json!({"GREETING": "none"});
        let command = "/clusters/web/services/0/breed/deployable/definition";
        let command = body.pointer(command).and_then(Value::as_str).unwrap_or_default().to_owned();
        for round in 0..STARTS {
            let service = &mut body["clusters"]["web"]["services"][0];
            // Every other command is the first one again.
            let flags = if round % 2 == 0 { " --delay-ms 0" } else { "" };
            service["breed"]["deployable"]["definition"] = format!("{command}{flags}").into();
            self.roll_to(Kind::CommandChanged, &body)?;
            let service = &mut body["clusters"]["web"]["services"][0];
            service["environment_variables"] = json!({"GREETING": format!("hello {round}")});
            self.roll_to(Kind::VariableChanged, &body)?;
        }
        Ok(())
    }

    fn roll_to(&mut self, kind: Kind, body: &Value) -> Result<()> {
        let (api, progress) = (self.api, self.progress);
        let newcomer = Sight::Newcomer(shop::instance_names(api, "shop")?);
        let roll = || api.send("PUT", SHOP, body, 202).map(drop);
        let done = || shop::wait_done(api, progress, "shop", &[1], INSTANCES as usize);
        self.record.change(kind, Some(&newcomer), roll, done).map(drop)
    }

    fn change_neighbour(&mut self) -> Result<()> {
        let (api, progress) = (self.api, self.progress);
        let neighbour = shop::blueprint("neighbour", self.runtime, &[3], 1)?;
        let body = shop::removal_from("neighbour", 3);
        for _ in 0..STARTS {
            let deploy = || api.send("PUT", NEIGHBOUR, &neighbour, 202).map(drop);
            let done = || shop::wait_done(api, progress, "neighbour", &[3], 1);
            self.record.change(Kind::NeighbourDeployed, None, deploy, done)?;
            let delete = || api.send("DELETE", NEIGHBOUR, &body, 202).map(drop);
            let gone = || shop::wait_deployment_gone(api, progress, "neighbour");
            self.record.change(Kind::NeighbourDeleted, None, delete, gone)?;
        }
        Ok(())
    }
}

fn gateway(api: &Api) -> Result<Value> {
    api.get(&format!("/api/v1/gateways/{INTERNAL_GATEWAY}"))
}

fn put_gateway(api: &Api, document: &Value) -> Result<()> {
    api.send("PUT", &format!("/api/v1/gateways/{INTERNAL_GATEWAY}"), document, 200).map(drop)
}
