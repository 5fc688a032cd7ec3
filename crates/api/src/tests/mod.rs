//! The API over real HTTP, with drivers that simulate.

mod abuse;
mod artifacts;
mod client;
mod clients;
mod collections;
mod deployments;
mod description;
mod escalations;
mod events;
mod idempotency;
mod interface;
mod legacy;
mod negotiation;
mod newest;
mod pages;
mod protocol;
mod proxy;
mod revisions;
mod slas;
mod socket;
mod streams;
mod system;
mod urls;
mod websocket;

use crate::config::{Config, Setting};
use crate::{Serving, serve};
use client::{Client, Reply};
use serde_json::json;
use tempfile::TempDir;

/// A service on a free port with a directory of its own.
struct Running {
    serving: Serving,
    client: Client,
    directory: TempDir,
}

impl Running {
    async fn start() -> Self {
        Self::start_with(tempfile::tempdir().unwrap(), vec![]).await
    }

    /// With settings beside those of all tests.
    async fn with(settings: &[(&str, serde_json::Value)]) -> Self {
        let settings = settings.iter().map(|(key, value)| Setting::flag(key, value.clone()));
        Self::start_with(tempfile::tempdir().unwrap(), settings.collect()).await
    }

    async fn start_with(directory: TempDir, mut settings: Vec<Setting>) -> Self {
        settings.extend([
            Setting::flag("data", json!(directory.path())),
            Setting::flag("api.port", json!(0)),
            Setting::flag("container_driver.type", json!("simulated")),
            Setting::flag("gateway_driver.type", json!("simulated")),
            Setting::flag("gateway_driver.haproxy.version", json!("2.6")),
        ]);
        let mut serving = serve(Config::load(None, [], settings).unwrap()).unwrap();
        serving.ready().await.unwrap();
        let client = Client::new(serving.address());
        Self { serving, client, directory }
    }

    async fn stop(self) -> TempDir {
        self.serving.stop().await.unwrap();
        self.directory
    }

    /// Waits until the answer at `path` is as wished.
    async fn wait(&self, path: &str, wished: impl Fn(&Reply) -> bool) -> Reply {
        let deadline = tokio::time::Instant::now() + client::LIMIT;
        loop {
            let answer = self.get(path).await;
            if wished(&answer) {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "{path} stays {answer:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn get(&self, path: &str) -> Reply {
        self.client.send("GET", path, &[], "").await
    }

    async fn post(&self, path: &str, body: &str) -> Reply {
        self.client.send("POST", path, &[], body).await
    }

    async fn put(&self, path: &str, body: &str) -> Reply {
        self.client.send("PUT", path, &[], body).await
    }

    async fn delete(&self, path: &str, body: &str) -> Reply {
        self.client.send("DELETE", path, &[], body).await
    }
}
