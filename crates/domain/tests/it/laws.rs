//! What holds for every sequence of wishes and reports.

use crate::generate::{Step, steps};
use crate::rules::broken;
use crate::world::{World, rules};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use segue_domain::command::{Command, decide};
use segue_domain::event::{Origin, Position, Record};
use segue_domain::log::Log;
use segue_domain::state::State;
use segue_domain::store::{Store, replay};
use serde_json::Value;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_decided_leads_to_a_sound_state(steps in steps()) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step, |life, command| {
                drop(life.world.execute(command));
                let state = life.world.state();
                let wrong = broken(&state);
                prop_assert!(wrong.is_empty(), "after {:?}: {:#?}\n{:#?}", command, wrong, state);
                Ok(())
            })?;
        }
        let log = life.world.store.log();
        let (live, replayed) = (life.world.state(), replay(log).unwrap());
        prop_assert_eq!(&replayed, &*live);
        prop_assert_eq!(replayed.hash(), live.hash());
    }

    /// Shows: I4.1-validate-only
    #[test]
    fn validation_says_what_would_be_and_leaves_no_trace(steps in steps()) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step, |life, command| {
                let (before, last) = (life.world.state(), life.world.store.log().last());
                let foreseen = life.world.store.validate(command, &life.world.context_of_next());
                prop_assert_eq!(&*life.world.state(), &*before);
                prop_assert_eq!(life.world.store.log().last(), last);
                let refused = life.world.execute(command).err();
                match foreseen {
                    Ok(foreseen) => prop_assert_eq!(foreseen, (*life.world.state()).clone()),
                    Err(problems) => prop_assert_eq!(Some(problems), refused),
                }
                Ok(())
            })?;
        }
    }

    /// Shows: D2, D5, D33, I7-idempotent
    #[test]
    fn a_wish_repeated_is_archived_and_changes_nothing(steps in steps()) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step, |life, command| {
                let executed = life.world.execute(command);
                if !is_write(command) || executed.is_err() {
                    return Ok(());
                }
                let before = content(&life.world.state());
                let again = life.world.execute(command).unwrap();
                prop_assert!(!again.is_empty(), "it is archived all the same: {:?}", command);
                prop_assert_eq!(content(&life.world.state()), before, "{:?}", command);
                Ok(())
            })?;
        }
    }

    /// Shows: D20
    #[test]
    fn what_others_post_changes_nothing(steps in steps()) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step, |life, command| {
                let before = content(&life.world.state());
                let records = life.world.execute(command).unwrap_or_default();
                if matches!(command, Command::Post(_)) {
                    prop_assert_eq!(records.len(), 1);
                    prop_assert_eq!(content(&life.world.state()), before);
                }
                let external = matches!(command, Command::Post(_));
                for record in records {
                    let origin = record.provenance.origin;
                    prop_assert_eq!(origin == Origin::External, external);
                    prop_assert!(!external || record.event.fact.is_none());
                }
                Ok(())
            })?;
        }
    }

    /// Shows: D7
    #[test]
    fn several_wishes_at_once_are_all_or_nothing(steps in steps(), cut in 0..40_usize) {
        let mut life = Life::new();
        let cut = cut.min(steps.len());
        for step in &steps[..cut] {
            life.step(step, |life, command| {
                drop(life.world.execute(command));
                Ok(())
            })?;
        }
        let before = life.world.state();
        let context = life.world.context_of_next();
        let rest: Vec<Command> = steps[cut..]
            .iter()
            .filter_map(|step| step.command(&before, &life.reports))
            .filter(|command| !matches!(command, Command::Post(_)))
            .collect();
        let mut ordered: Vec<(usize, &Command)> = rest.iter().enumerate().collect();
        ordered.sort_by_key(|(_, command)| command.rank());
        let mut one_by_one: Result<State, usize> = Ok((*before).clone());
        for (index, command) in ordered {
            let Ok(state) = &mut one_by_one else { break };
            match decide(state, command, &context, &rules()) {
                Ok(events) => for event in events {
                    let position = state.position().next();
                    state.apply(&record(event, position, &context));
                },
                Err(_) => one_by_one = Err(index),
            }
        }
        let refused = life.world.execute(&Command::All(rest.clone())).err();
        match one_by_one {
            Ok(state) => prop_assert_eq!(state, (*life.world.state()).clone()),
            Err(first) => {
                let problems = refused.expect("one of them is refused");
                let index = |pointer: &str| pointer.split('/').nth(1)?.parse::<usize>().ok();
                prop_assert_eq!(index(&problems.first().pointer), Some(first));
                for problem in problems.iter() {
                    let told = index(&problem.pointer).expect("a pointer begins with an index");
                    prop_assert_eq!(rest[told].rank(), rest[first].rank());
                }
                prop_assert_eq!(&*life.world.state(), &*before);
            }
        }
    }

    #[test]
    fn how_the_log_is_read_makes_no_difference(steps in steps(), chunk in 1..20_usize) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step, |life, command| {
                drop(life.world.execute(command));
                Ok(())
            })?;
        }
        let (log, live) = (life.world.store.log(), life.world.state());
        let mut state = State::default();
        loop {
            let records = log.read(state.position(), chunk).unwrap();
            if records.is_empty() {
                break;
            }
            for record in records {
                let before = state.position();
                state.apply(&record);
                prop_assert_eq!(state.position(), before.next());
            }
        }
        prop_assert_eq!(&state, &*live);
        prop_assert_eq!(state.hash(), live.hash());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Closed and opened again on disk at any place, the log tells the same.
    #[test]
    fn when_the_log_was_opened_again_makes_no_difference(steps in steps(), open_at in 0..40_usize) {
        let directory = tempfile::tempdir().unwrap();
        let open = || Store::new(Log::open(directory.path()).unwrap(), rules()).unwrap();
        let mut life = Life::new();
        let mut straight = Life::new();
        life.world.store = open();
        for (index, step) in steps.iter().enumerate() {
            if index == open_at {
                let before = life.world.state();
                life.world.store = World::new().store;
                life.world.store = open();
                prop_assert_eq!(&*life.world.state(), &*before);
            }
            for life in [&mut life, &mut straight] {
                life.step(step, |life, command| {
                    drop(life.world.execute(command));
                    Ok(())
                })?;
            }
        }
        prop_assert_eq!(life.world.state().hash(), straight.world.state().hash());
    }
}

/// A world and the reports that were made in it.
struct Life {
    world: World,
    reports: Vec<Command>,
}

impl Life {
    fn new() -> Self {
        Self { world: World::new(), reports: Vec::new() }
    }

    fn step(
        &mut self,
        step: &Step,
        execute: impl FnOnce(&mut Self, &Command) -> TestCaseResult,
    ) -> TestCaseResult {
        let Some(command) = step.command(&self.world.state(), &self.reports) else { return Ok(()) };
        execute(self, &command)?;
        if matches!(command, Command::Report(_)) {
            self.reports.push(command);
        }
        Ok(())
    }
}

fn is_write(command: &Command) -> bool {
    matches!(command, Command::Store(_) | Command::Deploy { .. } | Command::Scale { .. })
}

/// Everything in the state but its position.
pub fn content(state: &State) -> Value {
    let mut content = serde_json::to_value(state).expect("a state has text keys only");
    content["position"].take();
    content
}

fn record(
    event: segue_domain::event::Event,
    position: Position,
    context: &segue_domain::command::Context,
) -> Arc<Record> {
    let provenance = segue_domain::event::Provenance {
        actor: context.actor.clone(),
        cause: context.cause,
        correlation: context.correlation.clone(),
        origin: Origin::Service,
    };
    Arc::new(segue_domain::event::Draft { time: context.now, provenance, event }.at(position))
}
