//! `PostgreSQL` 15 with the same events: a table, a GIN index on tags and one on the timestamp, fsync on, on a private
//! socket in a folder that goes away. It refuses to run as root, so it runs as the user of Debian's package.

use super::{Bench, CONNECTIONS, Peer, SECONDS};
use crate::setup;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const USER: &str = "postgres";
/// How many rows the queries are asked of.
const ROWS: u32 = 10_000_000;
const QUERY_SECONDS: u32 = 30;

const SCHEMA: &str = "create table events (position bigserial primary key, kind text not null, tags text[] not null, \
     stamp timestamptz not null, value jsonb not null);\n\
     create index on events using gin (tags);\ncreate index on events (stamp desc, position desc);\n";
/// A colon before a name is a variable to pgbench, also inside of quotes.
const INSERT: &str = "insert into events (kind, tags, stamp, value) values ('metrics', \
     array[E'gateways\\x3afront', 'gateways', E'metrics\\x3arate', 'metrics'], now(), '12.5');\n";
const QUERY: &str = "\\set tenth random(0, 9)\n\\set from random(0, 4999999)\n\
     select count(*) from events where tags @> array['all', 'tenth:' || :tenth] and \
     stamp >= timestamptz '2026-01-01Z' + :from * interval '10 ms' and \
     stamp < timestamptz '2026-01-01Z' + (:from + 5000000) * interval '10 ms';\n\
     select * from events where tags @> array['all', 'tenth:' || :tenth] and \
     stamp >= timestamptz '2026-01-01Z' + :from * interval '10 ms' and \
     stamp < timestamptz '2026-01-01Z' + (:from + 5000000) * interval '10 ms' \
     order by stamp desc, position desc limit 30;\n";

/// Inserts and queries a second. A query is a page and its total, as in `query_bench`.
pub(super) fn measure(bench: &Bench) -> Result<(f64, f64)> {
    let folder = bench.folder.join("postgres");
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    open_to_all(bench.folder)?;
    workspace::run(Command::new("chown").arg(USER).arg(&folder))?;
    let data = folder.join("data");
    workspace::run(
        as_user("initdb")?.args(["--auth=trust", "--no-instructions", "-D"]).arg(&data),
    )?;
    let mut command = as_user("postgres")?;
    command.arg("-D").arg(&data).arg("-k").arg(&folder);
    command.args(["-c", "listen_addresses=", "-c", "fsync=on", "-c", "synchronous_commit=on"]);
    command.args(["-c", "max_connections=100", "-c", "shared_buffers=1GB"]);
    let peer = Peer::start("postgres", &mut command, bench.folder)?;
    let measured = peer
        .wait(bench, || {
            psql(&folder, "select 1").is_ok_and(|mut command| workspace::run(&mut command).is_ok())
        })
        .and_then(|()| rates(&folder));
    // SIGINT is its fast shutdown; setpriv has become postgres itself.
    peer.stop(bench, Signal::INT)?;
    measured
}

fn rates(folder: &Path) -> Result<(f64, f64)> {
    workspace::run(&mut psql(folder, SCHEMA)?)?;
    let inserted = pgbench(folder, "insert.sql", INSERT, CONNECTIONS, SECONDS)?;
    let fill = format!(
        "truncate events; insert into events (kind, tags, stamp, value) select 'metrics', \
         array['all', 'tenth:' || n % 10, 'tenth', 'hosts:' || n % 1000, 'hosts'], \
         timestamptz '2026-01-01Z' + n * interval '10 ms', to_jsonb(n % 5000) from generate_series(0, {}) n; \
         ",
        ROWS - 1
    );
    workspace::run(&mut psql(folder, &fill)?)?;
    workspace::run(&mut psql(folder, "vacuum analyze events")?)?;
    Ok((inserted, pgbench(folder, "query.sql", QUERY, 1, QUERY_SECONDS)?))
}

/// Transactions a second of a script, prepared.
fn pgbench(folder: &Path, name: &str, script: &str, clients: u32, seconds: u32) -> Result<f64> {
    let file = folder.join(name);
    fs::write(&file, script).with_context(|| format!("{} cannot be written", file.display()))?;
    let mut command = as_user("pgbench")?;
    command.args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--username=postgres"]);
    command.arg(format!("--client={clients}")).arg(format!("--time={seconds}"));
    let output = command.arg("--file").arg(&file).arg("--host").arg(folder).arg(USER).output();
    let output = output.context("pgbench cannot be started")?;
    let words = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "pgbench failed: {words}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    tps(&words)
}

fn tps(words: &str) -> Result<f64> {
    let line = words.lines().find_map(|line| line.strip_prefix("tps = "));
    let number = line.and_then(|line| line.split(' ').next()).context("pgbench printed no rate")?;
    number.parse().context("the rate is no number")
}

fn psql(folder: &Path, text: &str) -> Result<Command> {
    let mut command = as_user("psql")?;
    command.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--username=postgres"]);
    command.arg("--host").arg(folder).args(["--command", text, USER]);
    Ok(command)
}

/// A program of `PostgreSQL` as its own user.
fn as_user(name: &str) -> Result<Command> {
    let path: PathBuf = [PROGRAMS, name].iter().collect();
    ensure!(path.is_file(), "{} is missing; run cargo xtask setup --for-bench", path.display());
    let setpriv = setup::program("setpriv").context("setpriv of util-linux is missing")?;
    let mut command = Command::new(setpriv);
    command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--"]).arg(path);
    Ok(command)
}

/// The user of the package has to pass through the folder.
fn open_to_all(folder: &Path) -> Result<()> {
    workspace::run(Command::new("chmod").arg("a+rx").arg(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let words = "latency average = 1 ms\ntps = 1234.5 (without initial connection time)\n";
        assert!((tps(words).unwrap() - 1234.5).abs() < 1e-9);
        assert!(tps("nothing").is_err());
    }
}
