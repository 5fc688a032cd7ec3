//! `cargo xtask fuzz-api`: schemathesis sends what the description of the API allows, and what it does not, to a
//! running service with simulated drivers. No answer may be a 5xx or differ from its description.

use crate::demo::fresh_folder;
use crate::progress::Progress;
use crate::service::{Containers, Service, Settings};
use crate::workspace::{self, Profile, Workspace};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The version that is installed when there is none.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// What is checked of every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// Streams do not end, so that there is no answer to check.
const ENDLESS: &str = "/(events/stream|logs?)$";

/// The options of `fuzz-api`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long, in seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u32,
    /// The seed of what is sent.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// For schemathesis, after `--`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Starts a service, lets schemathesis loose on it, and stops it.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let progress = Progress::new()?;
    let schemathesis = schemathesis(workspace)?;
    let program = workspace.build_segue(Profile::Dev)?;
    let folder = fresh_folder(None)?;
    let settings = Settings {
        program: &program,
        folder: &folder,
        containers: Containers::Simulated,
        docker_socket: None,
    };
    let mut service = Service::start(&settings, &progress)?;
    let fuzzed = fuzz(&schemathesis, service.api().base(), options);
    let words = service.last_words();
    let stopped = service.stop(&progress);
    fuzzed.context(words)?;
    stopped?;
    fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be removed", folder.display()))
}

fn fuzz(schemathesis: &PathBuf, base: &str, options: &Options) -> Result<()> {
    let mut command = Command::new(schemathesis);
    command.arg("run").arg(format!("{base}/openapi.json")).args(["--checks", CHECKS]);
    command.args([
        "--exclude-path-regex",
        ENDLESS,
        "--request-timeout",
        "20",
        "--continue-on-failure",
    ]);
    command.args(["--max-time", &options.seconds.to_string(), "--seed", &options.seed.to_string()]);
    workspace::run(command.args(&options.arguments))
}

/// The program: the one that is installed, else one of our own in the target folder.
fn schemathesis(workspace: &Workspace) -> Result<PathBuf> {
    let works = |program: &PathBuf| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let installed = PathBuf::from("schemathesis");
    if works(&installed) {
        return Ok(installed);
    }
    let folder = workspace.target().join("schemathesis");
    let own = folder.join("bin").join("schemathesis");
    if !works(&own) {
        let mut venv = Command::new("python3");
        workspace::run(venv.args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin").join("pip"));
        workspace::run(pip.args(["install", "--quiet", SCHEMATHESIS]))?;
    }
    ensure!(works(&own), "{} does not run", own.display());
    Ok(own)
}
