//! A registry of images on loopback that wants to know who asks (Debian: `docker-registry`, `apache2-utils`).

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The only user.
pub const USER: &str = "ann";
/// Her password; in base64 it takes the characters in which the alphabets differ.
pub const PASSWORD: &str = "open?~>sesame??~~>>";

const START_LIMIT: Duration = Duration::from_mins(1);
const PERIOD: Duration = Duration::from_millis(20);

/// A running registry; it ends when this is dropped.
pub struct Registry {
    directory: TempDir,
    port: u16,
    child: Child,
}

impl Registry {
    /// Starts a registry and waits until it takes connections.
    pub fn start() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("segue-registry-").tempdir()?;
        let root = directory.path().display();
        let passwords = Command::new("htpasswd")
            .args(["-nbB", USER, PASSWORD])
            .output()
            .context("tests with a registry need htpasswd: install the package apache2-utils")?;
        ensure!(passwords.status.success(), "htpasswd failed");
        fs::write(directory.path().join("passwords"), passwords.stdout)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let configuration = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {root}/data}}}}\n\
             http: {{addr: \"127.0.0.1:{port}\"}}\n\
             auth: {{htpasswd: {{realm: test, path: {root}/passwords}}}}\n"
        );
        fs::write(directory.path().join("configuration"), configuration)?;
        let log = File::create(directory.path().join("log"))?;
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(directory.path().join("configuration"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context(
                "tests with a registry need docker-registry: install the package docker-registry",
            )?;
        let mut registry = Self { directory, port, child };
        registry.wait_until_it_listens()?;
        Ok(registry)
    }

    /// As images name it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if self.child.try_wait()?.is_some() || since.elapsed() > START_LIMIT {
                let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                bail!("docker-registry did not start. It said:\n{log}");
            }
            std::thread::sleep(PERIOD);
        }
        Ok(())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
