//! What goes wrong in a life: instances end, drivers fail and lie, the service is killed.

use super::drivers::{Fault, Sight};
use super::life::Life;
use super::world::{PORTS, Who};
use rand::RngExt;
use rand::seq::IndexedRandom;
use segue_domain::artifact::Leaving;
use segue_workers::gateways::{Count, Passage, Request, Traffic};
use std::collections::BTreeSet;
use time::Duration;

impl Life {
    pub(super) fn end_instance(&mut self) {
        let instances = self.world.containers.truth.instances();
        let Some(instance) = instances.choose(&mut self.random) else { return };
        self.crashed.insert(instance.name.clone());
        self.world.note(format!("'{}' ends", instance.name));
        if self.random.random_bool(0.5) {
            self.tally.count("instance crashed");
            self.world.containers.truth.crash(&instance.name, "exited with status 1");
        } else {
            self.tally.count("instance vanished");
            self.world.containers.truth.vanish(&instance.name);
        }
    }

    /// Some of the next calls of the container driver go wrong.
    pub(super) fn fail_containers(&mut self) {
        let (which, times) = (self.random.random_range(0..7), self.random.random_range(1..4));
        for _ in 0..times {
            match which {
                0..3 => {
                    let fault = self.any_fault();
                    self.world.note(format!("a start goes wrong: {fault:?}"));
                    self.world.containers.fail_start(fault);
                }
                3..5 => {
                    let fault = self.any_fault();
                    self.world.note(format!("a stop goes wrong: {fault:?}"));
                    self.world.containers.fail_stop(fault);
                }
                _ => {
                    let sight = match self.random.random_range(0..4) {
                        0 => Sight::Failed,
                        1 => Sight::Past,
                        _ => Sight::Lacking(self.random.random_range(1..3)),
                    };
                    self.world.note(format!("an observation goes wrong: {sight:?}"));
                    self.world.containers.fail_observation(sight);
                }
            }
        }
    }

    /// Some of the next changes of the proxy go wrong, or it is away, or it loses everything.
    pub(super) fn fail_proxy(&mut self) {
        match self.random.random_range(0..6) {
            0 => {
                self.world.note("the proxy is away");
                self.world.proxy.go_away();
            }
            1 => self.lose_proxy(),
            _ => {
                let fault = self.any_fault();
                self.world.note(format!("a change of the proxy goes wrong: {fault:?}"));
                self.world.proxy.fail(fault);
            }
        }
    }

    fn any_fault(&mut self) -> Fault {
        match self.random.random_range(0..12) {
            0..3 => Fault::Refused,
            3 => Fault::RefusedForGood,
            4..6 => Fault::Denied,
            6..8 => Fault::NotDone,
            _ => Fault::Late(self.some_time(8_000)),
        }
    }

    pub(super) fn lose_proxy(&mut self) {
        self.world.note("the proxy loses everything");
        self.tally.count("proxy lost");
        self.world.proxy.lose();
    }

    /// Drivers are quick and honest again, and no request hangs.
    pub(super) fn calm(&mut self) {
        self.world.note("calm");
        self.kept.clear();
        self.world.proxy.calm();
        self.world.containers.calm();
    }

    /// Other programs sit on some ports of the pool.
    pub(super) fn take_ports(&mut self) {
        let ports = PORTS.filter(|_| self.random.random_bool(0.4)).collect();
        self.world.note(format!("others have the ports {ports:?}"));
        self.tally.count("ports taken by others");
        self.world.proxy.take_ports(ports);
    }

    /// Requests under way keep some instances for a while.
    pub(super) fn carry(&mut self) {
        let instances = self.world.containers.truth.instances().into_iter();
        let kept: BTreeSet<String> =
            instances.map(|found| found.name).filter(|_| self.random.random_bool(0.3)).collect();
        // What is on its way out already gets no new requests.
        let state = self.world.store.state();
        let staying = state.deployments().values().flat_map(|stored| {
            let services = stored.artifact.services();
            services.flat_map(|(_, service)| &service.instances).collect::<Vec<_>>()
        });
        let staying: BTreeSet<&String> = staying
            .filter(|instance| instance.leaving == Leaving::No)
            .map(|instance| &instance.name)
            .collect();
        let kept: BTreeSet<String> =
            kept.into_iter().filter(|name| staying.contains(name)).collect();
        if !kept.is_empty() {
            self.tally.count("requests hanging");
        }
        self.world.note(format!("requests hang: {kept:?}"));
        self.kept.clone_from(&kept);
        self.world.proxy.carry(kept);
    }

    /// From now on other requests come, end otherwise, and take one of so many milliseconds.
    pub(super) fn send_traffic(&mut self, times_ms: &[u64]) {
        let state = self.world.store.state();
        let mut traffic = Traffic { lost: self.random.random_range(0..3), ..Traffic::default() };
        for (name, stored) in state.published_gateways() {
            if self.random.random_bool(0.4) {
                continue;
            }
            let mut whole = Count::default();
            for path in stored.gateway.routes.keys() {
                let count = self.any_requests(times_ms);
                whole.merge(&count);
                if count != Count::default() {
                    traffic.counts.insert(Passage::route(name, path.as_str()), count);
                }
            }
            if whole != Count::default() {
                traffic.counts.insert(Passage::gateway(name), whole);
            }
        }
        self.tally.count("requests of another kind");
        self.world.note("other requests come");
        self.world.proxy.send(traffic);
    }

    fn any_requests(&mut self, choice_ms: &[u64]) -> Count {
        let (number, every) = (self.random.random_range(0..8), self.random.random_range(1..6));
        let time_ms = *choice_ms.choose(&mut self.random).expect("there are some");
        let mut count = Count::default();
        for index in 0..number {
            let failed = every < 3 && index % every == 0;
            let status = Some(if failed { 503 } else { 200 });
            count.add(&Request { failed, status, time_ms: Some(time_ms) });
        }
        count
    }

    /// An instance is checked.
    pub(super) fn check_instance(&mut self) {
        // What is to be checked is known once it was looked.
        self.take_turn(&Who::Checks);
        let checks = self.world.checks();
        let Some(check) = checks.choose(&mut self.random) else { return };
        let passes = self.random.random_bool(0.6);
        if !passes && self.random.random_bool(0.3) {
            self.sick.insert(check.instance.clone());
        }
        let kind = if passes { "answer of a check: passed" } else { "answer of a check: failed" };
        self.tally.count(kind);
        let outcome = if passes { Ok(()) } else { Err("status 500".to_owned()) };
        self.world.answer(check, outcome);
    }

    pub(super) fn kill(&mut self) {
        self.tally.count("kill");
        self.world.note("killed and started again");
        self.world.kill_service();
    }

    /// Somebody acts, and the service is killed before what was done is reported.
    pub(super) fn kill_before_report(&mut self) {
        let who = self.anybody();
        self.tally.count("kill between act and report");
        self.world.note(format!("{who:?} acts; killed before the report"));
        let taken = self.world.turn_and_kill(&who);
        self.check_taken(&taken);
    }

    /// Somebody acts, the service is killed, and what was done arrives while the next life goes on.
    pub(super) fn kill_under_way(&mut self) {
        let who = self.anybody();
        let delay = Some(self.some_time(6_000));
        self.tally.count("action under way at a kill");
        self.world.note(format!("{who:?} acts, which takes {delay:?}; killed meanwhile"));
        self.world.containers.delay(delay);
        self.world.proxy.delay(delay);
        let taken = self.world.turn_and_kill(&who);
        self.world.containers.delay(None);
        self.world.proxy.delay(None);
        self.check_taken(&taken);
    }

    /// Somebody writes between what a worker did and what it reports.
    pub(super) fn overtake(&mut self) {
        let who = self.anybody();
        self.tally.count("change during a turn");
        self.world.note(format!("{who:?} is overtaken"));
        self.follow.remember();
        let (taken, report) = self.world.turn_overtaken(&who);
        self.check_taken(&taken);
        match self.random.random_range(0..8) {
            0..2 => self.merge(),
            2 => self.shift(),
            3 => self.scale(),
            4 => self.delete(),
            5 => self.store_gateway(),
            6 => self.set_sla(),
            _ => self.post_alarm(),
        }
        if let Some(report) = report {
            let seen = self.told(&taken.before, &report.1);
            let recorded = self.told(&self.world.store.state(), &report.1);
            let gone = seen.into_keys().filter(|key| !recorded.contains_key(key));
            self.unrecorded.extend(gone);
            self.world.report(&report);
        }
    }

    pub(super) fn pass_time(&mut self) {
        self.tally.count("time passes");
        let limit = if self.random.random_bool(0.1) { 20_000 } else { 3_000 };
        let time = self.some_time(limit);
        self.world.advance(time);
    }

    fn some_time(&mut self, milliseconds_max: i64) -> Duration {
        Duration::milliseconds(self.random.random_range(1..milliseconds_max))
    }
}
