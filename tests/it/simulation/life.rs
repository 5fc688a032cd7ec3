//! One life: what happens in which order, until everything is at rest.

use super::follow::Follow;
use super::measures::Key;
use super::tally::{Counts, Tally};
use super::world::{Who, World};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use segue_workers::Settings;
use segue_workers::health::Windows;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};

/// How many quiet seconds everything may take to come to rest.
const QUIET_SECONDS_MAX: u32 = 600;
/// How long nothing has to happen for that. A pause after failures lasts 30 s at the most, an SLA looks away for 20 s.
const REST_SECONDS: u32 = 50;

/// A world, the chance that drives it, and what is known of both.
pub struct Life {
    pub(super) random: StdRng,
    pub(super) world: World,
    pub(super) follow: Follow,
    pub(super) tally: Tally,
    /// Instances that ended by themselves: what happens to traffic to those is not Segue's doing.
    pub(super) crashed: BTreeSet<String>,
    /// Instances that requests keep.
    pub(super) kept: BTreeSet<String>,
    /// Since when instances were seen on their way out.
    pub(super) draining: BTreeMap<String, OffsetDateTime>,
    /// Instances that fail their checks in the end.
    pub(super) sick: BTreeSet<String>,
    /// Every name that an instance was ever to be started with.
    pub(super) names: BTreeSet<String>,
    /// What was measured of something that was gone when it was to be recorded.
    pub(super) unrecorded: BTreeSet<Key>,
    /// Instances that were to be stopped when nobody wanted them.
    pub(super) doomed: BTreeSet<String>,
}

impl Life {
    pub fn new(mut random: StdRng) -> Self {
        let tally = Tally::default();
        let world = World::new(settings(&mut random, &tally), &tally);
        if random.random_bool(0.5) {
            let takes = Duration::milliseconds(random.random_range(0..3_000));
            world.containers.truth.stop_takes(takes);
        }
        Self {
            random,
            world,
            follow: Follow::default(),
            tally,
            crashed: BTreeSet::new(),
            kept: BTreeSet::new(),
            draining: BTreeMap::new(),
            sick: BTreeSet::new(),
            names: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            doomed: BTreeSet::new(),
        }
    }

    /// Something happens.
    pub fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..7 => self.merge(),
            7..10 => self.shift(),
            10..12 => self.scale(),
            12..15 => self.delete(),
            15..19 => self.store_gateway(),
            19..21 => self.delete_gateway(),
            21 => self.set_sla(),
            22..25 => self.post_measurement(),
            25 => self.post_alarm(),
            26..28 => self.send_traffic(&[20, 300, 900]),
            28..31 => self.check_instance(),
            31..34 => self.end_instance(),
            34..38 => self.fail_containers(),
            38..40 => self.fail_proxy(),
            40..42 => self.calm(),
            42 => self.carry(),
            43 => self.take_ports(),
            44 => self.kill(),
            45 => self.kill_before_report(),
            46..49 => self.kill_under_way(),
            49..53 => self.overtake(),
            53..63 => self.pass_time(),
            63..65 => self.everybody_turns(),
            _ => {
                let who = self.anybody();
                self.take_turn(&who);
            }
        }
        self.check_step();
    }

    /// Nobody does anything any more, drivers are honest; the workers get as many turns as they want.
    pub fn settle(&mut self) {
        self.calm();
        // Where some clusters are slow and others are not, SLAs may pull at each other for ever.
        self.send_traffic(&[20]);
        self.world.note("from now on nothing happens from outside");
        self.come_to_rest();
    }

    /// Lets time pass until nothing changes any more.
    pub(super) fn come_to_rest(&mut self) {
        let mut calm = 0;
        for _ in 0..QUIET_SECONDS_MAX {
            let before = self.world.store.state();
            self.pass_second();
            let after = self.world.store.state();
            let is_same = before.gateways().ptr_eq(after.gateways())
                && before.deployments().ptr_eq(after.deployments());
            let is_quiet = self.world.containers.is_quiet() && self.world.proxy.is_quiet();
            calm = if is_same && is_quiet { calm + 1 } else { 0 };
            if calm > REST_SECONDS {
                return;
            }
        }
        self.fail(&format!("no rest after {QUIET_SECONDS_MAX} s"));
    }

    /// A second in which everybody gets turns and checks find what they find.
    pub(super) fn pass_second(&mut self) {
        for _ in 0..2 {
            self.everybody_turns();
            self.answer_checks();
        }
        self.check_step();
        self.world.advance(Duration::seconds(1));
    }

    /// How often what happened.
    pub fn counts(&self) -> Counts {
        self.tally.of_life(self.world.store.log().last().0)
    }

    /// Somebody who may take a turn; deployments and gateways have more to do than the others.
    pub(super) fn anybody(&mut self) -> Who {
        let mut everybody = self.world.everybody();
        let busy = |who: &&Who| matches!(who, Who::Deployment(_) | Who::Gateways);
        everybody.extend(everybody.iter().filter(busy).cloned().collect::<Vec<_>>());
        everybody.choose(&mut self.random).expect("there is always somebody").clone()
    }

    fn everybody_turns(&mut self) {
        for who in self.world.everybody() {
            self.take_turn(&who);
        }
    }

    /// Every instance passes its checks, but for those that serve and are sick.
    fn answer_checks(&mut self) {
        let state = self.world.store.state();
        let services = state.deployments().values().flat_map(|stored| {
            let services = stored.artifact.services();
            services.map(|(_, service)| service).collect::<Vec<_>>()
        });
        let serving: BTreeSet<&String> = services
            .flat_map(|service| &service.instances)
            .filter(|instance| instance.deployed)
            .map(|instance| &instance.name)
            .collect();
        for check in self.world.checks() {
            let name = &check.instance;
            let fails = self.sick.contains(name) && serving.contains(name);
            let outcome = if fails { Err("status 500".to_owned()) } else { Ok(()) };
            self.world.answer(&check, outcome);
        }
    }

    /// Says what does not hold, and everything that led to it.
    pub(super) fn fail(&self, words: &str) -> ! {
        panic!("{words}\n{}", self.world.story())
    }

    /// What `holds` must; `words` say what it is.
    pub(super) fn hold(&self, holds: bool, words: impl FnOnce() -> String) {
        if !holds {
            self.fail(&words());
        }
    }
}

/// Some lives have time-outs, so that services fail; some measure less.
fn settings(random: &mut StdRng, tally: &Tally) -> Settings {
    let seconds = std::time::Duration::from_secs;
    let mut settings = Settings {
        ready_for_deployment: None,
        ready_for_undeployment: None,
        ..Settings::default()
    };
    if random.random_bool(0.35) {
        tally.count("life with time-outs");
        settings.ready_for_deployment = Some(seconds(random.random_range(3..30)));
        settings.ready_for_undeployment = Some(seconds(random.random_range(2..20)));
    }
    let window = Some(seconds(30));
    settings.windows = match random.random_range(0..10) {
        0 => Windows { health: None, metrics: window },
        1 => Windows { health: window, metrics: None },
        _ => Windows { health: window, metrics: window },
    };
    settings
}
