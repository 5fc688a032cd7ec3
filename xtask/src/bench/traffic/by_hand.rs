//! The same changes as a person makes them without Segue: the file is written anew, HAProxy is reloaded, and servers are
//! started before and ended after that.

use super::record::{Kind, Record, Rows};
use crate::bench::by_hand::{ByHand, HAPROXY_TIME_MAX, Server, Setup};
use crate::bench::sight::Sight;
use crate::bench::throughput::url;
use crate::load;
use crate::progress::{self, Progress};
use crate::service;
use crate::shop::Runtime;
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const INSTANCES: usize = 2;
/// How often weights are changed, every other time back.
const WEIGHTS: u32 = 40;
/// How often other changes are made that start and end nothing.
const RULES: u32 = 20;
/// How often changes are made that start or end something.
const STARTS: u32 = 10;

/// A server that was started here; it ends at the latest with this.
#[derive(Debug)]
struct Instance {
    name: String,
    server: Server,
    child: Child,
}

/// What the changes are made to.
struct Stage<'a> {
    program: &'a Path,
    progress: &'a Progress,
    haproxy: ByHand,
    setup: Setup,
    /// In the order in which they came.
    instances: Vec<Instance>,
    started: u32,
}

/// Makes every kind of change that there is without Segue, several times.
pub(super) fn change_everything(
    runtime: &Runtime,
    folder: &Path,
    progress: &Progress,
) -> Result<Rows> {
    progress::say("the same by hand");
    let Runtime::Process(program) = runtime else { bail!("this bench runs processes") };
    let mut stage = Stage::set(program, folder.join("changed-by-hand.cfg"), progress)?;
    let made = stage.make_changes();
    let stopped = stage.haproxy.stop(progress);
    let rows = made?;
    stopped?;
    Ok(rows)
}

impl<'a> Stage<'a> {
    fn set(program: &'a Path, file: PathBuf, progress: &'a Progress) -> Result<Self> {
        let setup = Setup { port: service::free_port()?, ..Setup::default() };
        let haproxy = ByHand::start(file, &setup, progress)?;
        Ok(Self { program, progress, haproxy, setup, instances: Vec::new(), started: 0 })
    }

    fn make_changes(&mut self) -> Result<Rows> {
        self.start(1, 100)?;
        self.start(2, 0)?;
        self.apply()?;
        let mut record = Record::start(&url(self.setup.port), &Sight::Version(1), self.progress)?;
        self.shift_weights(&mut record)?;
        self.change_rules(&mut record)?;
        self.delete_and_add(&mut record)?;
        self.scale(&mut record)?;
        self.roll(&mut record)?;
        for _ in 0..STARTS {
            self.setup.neighbour = Some(service::free_port()?);
            record.change(Kind::NeighbourDeployed, None, || self.apply(), || Ok(()))?;
            self.setup.neighbour = None;
            record.change(Kind::NeighbourDeleted, None, || self.apply(), || Ok(()))?;
        }
        for _ in 0..RULES {
            record.change(Kind::Reloaded, None, || self.apply(), || Ok(()))?;
        }
        Ok(record.end())
    }

    fn shift_weights(&mut self, record: &mut Record) -> Result<()> {
        for change in 0..WEIGHTS {
            let version = if change % 2 == 0 { 2 } else { 1 };
            self.weigh(if version == 1 { [100, 0] } else { [0, 100] });
            record.change(
                Kind::Weights,
                Some(&Sight::Version(version)),
                || self.apply(),
                || Ok(()),
            )?;
        }
        Ok(())
    }

    fn change_rules(&mut self, record: &mut Record) -> Result<()> {
        for _ in 0..RULES {
            for (kind, sight) in [
                (Kind::ConditionAdded, Sight::Version(2)),
                (Kind::ConditionRemoved, Sight::Version(1)),
                (Kind::StickyOn, Sight::Cookies(true)),
                (Kind::StickyOff, Sight::Cookies(false)),
            ] {
                self.setup.condition = kind == Kind::ConditionAdded;
                self.setup.sticky = kind == Kind::StickyOn;
                record.change(kind, Some(&sight), || self.apply(), || Ok(()))?;
            }
        }
        Ok(())
    }

    fn delete_and_add(&mut self, record: &mut Record) -> Result<()> {
        for _ in 0..STARTS {
            let delete = || {
                self.weigh([100, 0]);
                self.apply()?;
                self.end_those(|instance| instance.server.version == 2)
            };
            record.change(Kind::VersionDeleted, None, delete, || Ok(()))?;
            let newcomer = Sight::Newcomer(self.names());
            let add = || {
                self.weigh([50, 0]);
                self.start(2, 50)?;
                self.apply()
            };
            record.change(Kind::VersionMerged, Some(&newcomer), add, || Ok(()))?;
        }
        let delete = || self.end_those(|instance| instance.server.version == 2);
        record.change(Kind::VersionDeleted, None, delete, || Ok(()))?;
        Ok(())
    }

    fn scale(&mut self, record: &mut Record) -> Result<()> {
        for _ in 0..STARTS {
            let before = self.names();
            let up = || {
                self.start(1, 100)?;
                self.apply()
            };
            record.change(Kind::ScaledUp, Some(&Sight::Newcomer(before.clone())), up, || Ok(()))?;
            let left = &self.names() - &before;
            let down = || self.end_those(|instance| left.contains(&instance.name));
            let change = record.change(Kind::ScaledDown, None, down, || Ok(()))?;
            record.silence(Kind::ScaledDown, &change, &left);
        }
        Ok(())
    }

    /// New servers take the place of all others with one reload.
    fn roll(&mut self, record: &mut Record) -> Result<()> {
        for _ in 0..STARTS {
            let before = self.names();
            let roll = || {
                self.start(1, 100)?;
                self.end_those(|instance| before.contains(&instance.name))
            };
            record.change(
                Kind::CommandChanged,
                Some(&Sight::Newcomer(before.clone())),
                roll,
                || Ok(()),
            )?;
        }
        Ok(())
    }

    fn weigh(&mut self, weights: [u8; 2]) {
        for Instance { server, .. } in &mut self.instances {
            server.weight = weights[usize::from(server.version == 2)];
        }
    }

    /// Writes the file and reloads; returns when a new worker runs.
    fn apply(&mut self) -> Result<()> {
        self.setup.servers =
            self.instances.iter().map(|instance| instance.server.clone()).collect();
        self.haproxy.change(&self.setup, self.progress)
    }

    /// Starts the usual number of servers and waits until they answer.
    fn start(&mut self, version: u32, weight: u8) -> Result<()> {
        for _ in 0..INSTANCES {
            self.started += 1;
            let port = service::free_port()?;
            let name = format!("by-hand-{}", self.started);
            let mut command = Command::new(self.program);
            command.args(["example-service", "--host", "127.0.0.1", "--port", &port.to_string()]);
            command.args(["--version-name", &version.to_string()]).env("SEGUE_INSTANCE", &name);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let child = command.spawn().context("the example service cannot be started")?;
            let server = Server { version, address: format!("127.0.0.1:{port}"), weight };
            self.instances.push(Instance { name, server, child });
        }
        for instance in &self.instances[self.instances.len() - INSTANCES..] {
            instance.wait(self.progress)?;
        }
        Ok(())
    }

    /// Takes servers out of the file, reloads, and ends them.
    fn end_those(&mut self, goes: impl Fn(&Instance) -> bool) -> Result<()> {
        let (going, staying) = std::mem::take(&mut self.instances).into_iter().partition(goes);
        self.instances = staying;
        self.apply()?;
        let going: Vec<Instance> = going;
        going.into_iter().try_for_each(|instance| instance.end(self.progress))
    }

    fn names(&self) -> BTreeSet<String> {
        self.instances.iter().map(|instance| instance.name.clone()).collect()
    }
}

impl Instance {
    fn wait(&self, progress: &Progress) -> Result<()> {
        let (agent, url) =
            (load::agent(load::Connection::Fresh), format!("http://{}/", self.server.address));
        progress.wait_quietly(&format!("{url} answers"), HAPROXY_TIME_MAX, || {
            Ok(match load::ask(&agent, &url, &[]) {
                Ok(_) => ControlFlow::Break(()),
                Err(reason) => ControlFlow::Continue(reason),
            })
        })
    }

    /// TERM: it finishes what it carries.
    fn end(mut self, progress: &Progress) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .context("a server cannot be signalled")?;
        progress.wait_quietly("a server ends", HAPROXY_TIME_MAX, || {
            let ended = self.child.try_wait()?;
            Ok(ended.map_or(ControlFlow::Continue("it runs".into()), |_| ControlFlow::Break(())))
        })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // One that ended already has nothing against it.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
