//! A real HAProxy before real, small HTTP services.

use super::*;
use crate::gateways::{Frontend, Passage, Protocol, RouteModel, Target};
use crate::processes;
use segue_domain::artifact::{Rewrite, Sticky};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

mod conditions;
mod laws;
mod refusals;
mod requests;
mod targets;
mod templates;
mod traffic;

/// A driver with a directory of its own, whose HAProxy ends with the test, also with one that fails.
struct Stage {
    directory: tempfile::TempDir,
    driver: HaproxyDriver,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let driver = driver(directory.path());
        Self { directory, driver }
    }

    /// As if the service was killed and started again.
    fn reborn(mut self) -> Self {
        self.driver = driver(self.directory.path());
        self
    }

    async fn apply(&self, gateways: &[Frontend]) -> Applied {
        let configuration = Configuration { gateways: gateways.to_vec(), template: None };
        self.driver.apply(&configuration).await.unwrap()
    }

    async fn worker(&self) -> u32 {
        self.driver.observe(None).await.unwrap().unwrap().pid
    }

    /// The file, once it has followed.
    async fn file(&self) -> String {
        assert!(self.driver.keeper.kept(Duration::from_secs(10)).await, "the file follows");
        let file = self.directory.path().join(process::CONFIGURATION_FILE);
        std::fs::read_to_string(file).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(identity) = self.driver.process.running() {
            processes::signal_group(identity.pid, rustix::process::Signal::KILL);
        }
    }
}

fn driver(directory: &Path) -> HaproxyDriver {
    HaproxyDriver::new(Settings {
        program: "/usr/sbin/haproxy".into(),
        directory: directory.to_owned(),
        bind_address: Ipv4Addr::LOCALHOST.into(),
        virtual_hosts_port: None,
        ..Settings::default()
    })
    .unwrap()
}

/// A port that nobody listens on, and that no other call was given. It is none of those that the system gives to whoever
/// asks for any: it may be free for a while before a gateway has it.
fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let begin = std::process::id() as usize * 100;
    let numbers = std::iter::repeat_with(|| begin + NEXT.fetch_add(1, Ordering::Relaxed));
    let mut ports = numbers.map(|number| 12_000 + u16::try_from(number % 8_000).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// An HTTP service that answers with its name, and slowly where the path says so. Gives its port.
async fn service(name: &'static str) -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move { drop(answer(stream, name).await) });
        }
    });
    port
}

/// Lets as many requests for `/held` be answered as it has permits; one test asks for them.
static HELD: Semaphore = Semaphore::const_new(0);

async fn answer(mut stream: TcpStream, name: &'static str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    let mut request = String::new();
    while let Some(line) = lines.next_line().await? {
        if !line.is_empty() {
            request.push_str(&line);
            request.push('\n');
            continue;
        }
        if request.starts_with("GET /held") {
            HELD.acquire().await.unwrap().forget();
        }
        if request.starts_with("GET /slow") {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let body =
            if request.contains("/echo") { format!("{name}\n{request}") } else { name.to_owned() };
        write
            .write_all(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                    .as_bytes(),
            )
            .await?;
        request.clear();
    }
    Ok(())
}

/// A client with one connection.
struct Client {
    stream: BufReader<TcpStream>,
    cookie: Option<String>,
    /// More headers, each with its line end.
    headers: String,
    /// Whether the server said that this connection ends.
    closing: bool,
}

impl Client {
    async fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            cookie: None,
            headers: String::new(),
            closing: false,
        })
    }

    /// Status and body; an error also when the connection was closed.
    async fn get(&mut self, path: &str, host: &str) -> std::io::Result<(u16, String)> {
        let cookie =
            self.cookie.as_ref().map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
        let headers = &self.headers;
        let host =
            if headers.starts_with("Host: ") { String::new() } else { format!("Host: {host}\r\n") };
        let request = format!("GET {path} HTTP/1.1\r\n{host}{headers}{cookie}\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line == "connection: close" {
                self.closing = true;
            } else if let Some(rest) = line.strip_prefix("set-cookie: ") {
                self.keep(rest.split(';').next().unwrap_or_default());
            } else if line.is_empty() {
                let mut body = vec![0; length];
                self.stream.read_exact(&mut body).await?;
                return Ok((status, String::from_utf8(body).unwrap()));
            }
        }
    }

    /// Keeps a cookie as browsers do: beside others, in the place of one with the same name.
    fn keep(&mut self, cookie: &str) {
        let name = cookie.split('=').next();
        let kept = self.cookie.take().unwrap_or_default();
        let kept =
            kept.split("; ").filter(|kept| !kept.is_empty() && kept.split('=').next() != name);
        self.cookie = Some(kept.chain([cookie]).collect::<Vec<_>>().join("; "));
    }

    async fn say(&mut self) -> String {
        self.get("/", "x").await.unwrap().1
    }
}

/// How often each service answered `requests` requests in a row.
async fn window(port: u16, requests: usize) -> BTreeMap<String, usize> {
    let mut client = Client::connect(port).await.unwrap();
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        client.cookie = None;
        *counts.entry(client.say().await).or_default() += 1;
    }
    counts
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn target(name: &str, port: u16) -> Target {
    let draining = false;
    Target {
        name: name.to_owned(),
        lookup_name: format!("t{name}"),
        host: "127.0.0.1".into(),
        port,
        draining,
    }
}

fn draining(target: Target) -> Target {
    Target { draining: true, ..target }
}

fn route(name: &str, weight: u32, targets: &[Target]) -> RouteModel {
    RouteModel {
        path: name.to_owned(),
        lookup_name: format!("r{name}"),
        weight,
        balance: "default".to_owned(),
        rewrites: Vec::new(),
        targets: targets.to_vec(),
        passages: BTreeSet::from([Passage::route("g", name)]),
    }
}

fn gateway(name: &str, port: u16, routes: &[RouteModel]) -> Frontend {
    Frontend {
        name: name.to_owned(),
        lookup_name: format!("g{port}"),
        port,
        protocol: Protocol::Http,
        sticky: None,
        virtual_hosts: Vec::new(),
        routes: routes.to_vec(),
        conditions: Vec::new(),
    }
}

fn rendered(driver: &HaproxyDriver, gateways: &[Frontend]) -> Rendered {
    let usable: Vec<&Frontend> =
        gateways.iter().filter(|gateway| refusal::of_gateway(gateway).is_none()).collect();
    driver.rendered(&Model::of(&usable, driver.settings.bind_address, Some(8880)), None).unwrap()
}
