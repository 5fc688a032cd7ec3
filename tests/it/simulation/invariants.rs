//! What must hold after every step, whoever did what.

use super::life::Life;
use super::turns::serving;
use segue_domain::artifact::{Leaving, PhaseName};
use segue_workers::containers::Condition;
use std::collections::BTreeSet;

impl Life {
    pub(super) fn check_step(&mut self) {
        self.follow();
        self.check_targets();
        self.check_ports();
        self.check_reasons();
        self.check_drained();
    }

    /// Checks the records that are new, and that folding them one by one comes to the state that the service shows.
    pub(super) fn follow(&mut self) {
        if let Err(words) = self.follow.read(&self.world.store, &self.tally, self.world.lives) {
            self.fail(&words);
        }
    }

    /// Nothing gets traffic that was taken away.
    ///
    /// Excused are instances that ended by themselves, and three kinds that only an untruthful or late driver makes: those
    /// that it showed as running when they were gone; those that were stopped because nobody wanted them, when the
    /// stop arrived only after they were wanted again; and those that it hid while their stop was under way, since they
    /// were taken for new afterwards. What the proxy serves against what its driver said is not asked about: there a
    /// target counts only when the driver says so, too.
    fn check_targets(&self) {
        let containers = &self.world.containers;
        let alive: BTreeSet<String> = containers
            .truth
            .instances()
            .into_iter()
            .filter(|instance| instance.condition == Condition::Running)
            .map(|instance| instance.name)
            .collect();
        let said = serving(&self.world.proxy.claimed());
        for name in serving(&self.world.served()).intersection(&said) {
            // Gateways and addresses outside are targets, too.
            if !self.names.contains(name) || alive.contains(name) {
                continue;
            }
            let excused = self.crashed.contains(name)
                || containers.was_ghost(name)
                || self.doomed.contains(name)
                || containers.was_hidden(name);
            self.hold(excused, || format!("'{name}' gets traffic and was taken away"));
        }
    }

    /// No port is given twice, neither in the state nor to the proxy.
    fn check_ports(&self) {
        let state = self.world.store.state();
        let mut ports = BTreeSet::new();
        for stored in state.gateways().values() {
            let number = stored.gateway.port.number;
            self.hold(number == 0 || ports.insert(number), || {
                format!("port {number} was given twice")
            });
        }
        let mut served = BTreeSet::new();
        for gateway in self.world.served().gateways {
            self.hold(gateway.port != 0 && served.insert(gateway.port), || {
                format!("port {} is served twice", gateway.port)
            });
        }
    }

    /// What failed has a reason.
    fn check_reasons(&self) {
        let state = self.world.store.state();
        for stored in state.deployments().values() {
            for (_, service) in stored.artifact.services() {
                let phase = &service.status.phase;
                let has_reason = phase.notification.as_ref().is_some_and(|words| !words.is_empty());
                self.hold(phase.name != PhaseName::Failed || has_reason, || {
                    format!("'{}' failed without reason", service.breed.name)
                });
            }
        }
    }

    /// What requests keep is not stopped before its time is over.
    ///
    /// One that the driver once hid may be: it seemed to be gone with its service, and what belongs to no service is
    /// not drained.
    fn check_drained(&mut self) {
        let now = self.world.now();
        let state = self.world.store.state();
        for stored in state.deployments().values() {
            for (_, service) in stored.artifact.services() {
                for instance in
                    service.instances.iter().filter(|found| found.leaving != Leaving::No)
                {
                    self.draining.entry(instance.name.clone()).or_insert(now);
                }
            }
        }
        let instances = self.world.containers.truth.instances();
        for name in self.kept.iter().filter(|name| !self.crashed.contains(*name)) {
            let there = instances.iter().any(|instance| {
                instance.name == **name && instance.condition != Condition::Stopping
            });
            let since = self.draining.get(name);
            let had_its_time = since.is_some_and(|since| now - *since >= self.world.drain());
            let excused = self.world.containers.was_hidden(name) || self.doomed.contains(name);
            self.hold(there || had_its_time || excused, || {
                format!("'{name}' was stopped under way")
            });
        }
    }
}
