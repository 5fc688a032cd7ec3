//! etcd with one member. Its JSON gateway takes the same connections as the service, so wrk measures both alike; a
//! client of its own protocol would be somewhat faster.

use super::{Bench, CONNECTIONS, Peer, SECONDS, script};
use crate::bench::throughput;
use crate::service;
use crate::setup;
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use std::process::Command;

/// Key `event` and the event, in the base64 that the gateway takes.
const PUT: &str = "{\"key\":\"ZXZlbnQ=\",\"value\":\"eyJ0YWdzIjpbImdhdGV3YXlzOmZyb250IiwibWV0cmljczpyYXRlIl0sInR5cGUiOiJtZXRyaWNzIiwidmFsdWUiOjEyLjV9\"}";

/// Puts a second, each synced before it is answered.
pub(super) fn measure(bench: &Bench) -> Result<f64> {
    let program = setup::program("etcd")
        .context("etcd is not installed; run cargo xtask setup --for-bench")?;
    let client = format!("http://127.0.0.1:{}", service::free_port()?);
    let peer_url = format!("http://127.0.0.1:{}", service::free_port()?);
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(bench.folder.join("etcd"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    command.args(["--initial-cluster", &format!("default={peer_url}"), "--logger", "zap"]);
    let peer = Peer::start("etcd", &mut command, bench.folder)?;
    let script = script(bench.folder, "put.lua", PUT)?;
    let agent = crate::load::agent(crate::load::Connection::Fresh);
    let ready =
        || agent.get(format!("{client}/health")).call().is_ok_and(|answer| answer.status() == 200);
    let measured = peer.wait(bench, ready).and_then(|()| {
        throughput::wrk_with(&format!("{client}/v3/kv/put"), CONNECTIONS, SECONDS, Some(&script))
    });
    peer.stop(bench, Signal::TERM)?;
    measured
}
