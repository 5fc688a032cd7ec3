//! Project tasks: `cargo xtask <task>`. Light on purpose: builds in seconds, links nothing of Segue and calls its program.

mod api;
mod bench;
mod conformance;
mod demo;
mod fuzz_api;
mod load;
mod progress;
mod service;
mod setup;
mod shop;
mod tidy;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::{Command, ExitCode};
use workspace::{Profile, Workspace};

/// Tasks of this project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Find out what the machine lacks; as root install it.
    Setup(setup::Options),
    /// The main story on real input: a canary release under load, step by step.
    Demo(demo::Options),
    /// Build the program and run all tests.
    Test {
        /// Run long simulations and stress tests too.
        #[arg(long)]
        long: bool,
        /// For the test programs, after `--`.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Let schemathesis loose on a running service.
    FuzzApi(fuzz_api::Options),
    /// Measure, and compare with the limits.
    Bench(bench::Options),
    /// Read the whole log again: `segue replay`.
    Replay(Passed),
    /// Bring a store to the current format: `segue migrate`.
    Migrate(Passed),
    /// Write which test shows which rule: docs/reference/conformance.md.
    Conformance,
    /// Check what the compiler does not: layers, files, links, conformance.
    Tidy,
}

/// What is passed on as it is.
#[derive(Debug, clap::Args)]
struct Passed {
    /// Arguments of the program, such as `--data DIR`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        // Needs no workspace: it runs before anything else can.
        Task::Setup(options) => setup::run(options),
        Task::Demo(options) => demo::run(&Workspace::find()?, &options),
        Task::Test { long, arguments } => test(&Workspace::find()?, long, &arguments),
        Task::FuzzApi(options) => fuzz_api::run(&Workspace::find()?, &options),
        Task::Bench(options) => bench::run(&Workspace::find()?, options),
        Task::Replay(passed) => pass_on(&Workspace::find()?, "replay", &passed),
        Task::Migrate(passed) => pass_on(&Workspace::find()?, "migrate", &passed),
        Task::Conformance => conformance::run(&Workspace::find()?),
        Task::Tidy => tidy::run(&Workspace::find()?),
    }
}

fn test(workspace: &Workspace, long: bool, arguments: &[String]) -> Result<()> {
    setup::run(setup::Options { for_tests: true, ..setup::Options::default() })?;
    // The integration tests look for the program in the target folder.
    workspace.build_segue(Profile::Dev)?;
    let mut command = workspace.cargo(["test", "--workspace"]);
    if long {
        command.env("SEGUE_TEST_LONG", "1");
    }
    workspace::run(command.arg("--").args(arguments))
}

fn pass_on(workspace: &Workspace, task: &str, passed: &Passed) -> Result<()> {
    workspace::run(Command::new(workspace.built_segue()?).arg(task).args(&passed.arguments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn arguments_of_the_program_are_passed_on() {
        let task = Arguments::parse_from(["xtask", "replay", "--data", "x", "--verify"]).task;
        assert!(
            matches!(task, Task::Replay(passed) if passed.arguments == ["--data", "x", "--verify"])
        );
    }
}
