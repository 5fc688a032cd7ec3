//! `segue example-service`: a tiny service to deploy in demos and tests. It says which version and instance it is,
//! over HTTP or as a TCP echo, and can be slow or failing on request. Knows nothing of the rest of Segue.

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::{App, HttpResponse, HttpResponseBuilder, HttpServer, web};
use anyhow::{Context as _, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};

/// How long requests under way may take after TERM. With what it takes to start and stop it stays below 10 s.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);
/// Longer than a gateway keeps unused connections, so that the gateway is the one to close them.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
const CONNECTIONS_MAX: usize = 4_096;
const LINE_BYTES_MAX: u64 = 64 * 1_024;
const PER_MILLE: f64 = 1_000.0;

/// How the service answers.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The version that it says it is.
    #[arg(long, value_name = "TEXT", default_value = "1")]
    pub version_name: String,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub host: IpAddr,
    /// The port to listen on.
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Wait this long before each answer.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pub delay_ms: u64,
    /// Answer this share of the requests, 0 to 1, with 500.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub fail_rate: f64,
    /// Instead of HTTP answer each line with version, instance and the line.
    #[arg(long)]
    pub tcp: bool,
}

/// Runs until TERM or Ctrl-C; then finishes what is under way and returns within 10 s.
pub fn run(options: &Options) -> Result<()> {
    let shared = Arc::new(Shared::new(options));
    let address = SocketAddr::from((options.host, options.port));
    let listener = std::net::TcpListener::bind(address)
        .with_context(|| format!("example-service cannot listen at {address}"))?;
    if options.tcp {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime
            .context("no runtime could be started")?
            .block_on(async { serve_tcp(listener, shared, stop_signal()?).await })
    } else {
        actix_web::rt::System::new()
            .block_on(async { serve_http(listener, shared, stop_signal()?).await })
    }
}

/// What every connection knows.
#[derive(Debug)]
struct Shared {
    version: String,
    instance: String,
    delay: Duration,
    failing_per_mille: u64,
    requests: AtomicU64,
    stopping: AtomicBool,
    /// How many requests are under way.
    under_way: watch::Sender<usize>,
}

impl Shared {
    fn new(options: &Options) -> Self {
        Self {
            version: options.version_name.clone(),
            instance: std::env::var("SEGUE_INSTANCE")
                .unwrap_or_else(|_| std::process::id().to_string()),
            delay: Duration::from_millis(options.delay_ms),
            failing_per_mille: per_mille(options.fail_rate),
            requests: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            under_way: watch::Sender::new(0),
        }
    }

    fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.send_modify(|count| *count += 1);
        UnderWay(Arc::clone(self))
    }

    /// Spreads failures evenly: which request fails depends on its number only.
    fn fails(&self) -> bool {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let failed_before = |number: u64| number * self.failing_per_mille / 1_000;
        failed_before(number + 1) > failed_before(number)
    }

    async fn stop_and_drain(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let mut under_way = self.under_way.subscribe();
        let drained = under_way.wait_for(|count| *count == 0);
        // What is still under way after the time is given up.
        tokio::time::timeout(DRAIN_TIME_MAX, drained).await.ok();
    }
}

/// A request that is under way for as long as this lives.
#[derive(Debug)]
struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

async fn serve_http(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let data = web::Data::from(Arc::clone(&shared));
    let server = HttpServer::new(move || {
        App::new()
            .app_data(data.clone())
            .route("/healthz", web::get().to(health))
            .default_service(web::to(answer))
    })
    .workers(1)
    .worker_max_blocking_threads(1)
    .max_connections(CONNECTIONS_MAX)
    .keep_alive(KEEP_ALIVE)
    .shutdown_timeout(DRAIN_TIME_MAX.as_secs())
    .disable_signals()
    .listen(listener)?
    .run();
    let handle = server.handle();
    let mut server = actix_web::rt::spawn(server);
    tokio::select! {
        ended = &mut server => Ok(ended.context("the server was lost")??),
        () = stop => {
            stop_http(&handle, &shared).await;
            Ok(())
        }
    }
}

/// Closes the listener and waits for requests, but not for connections that are merely kept open.
async fn stop_http(handle: &ServerHandle, shared: &Shared) {
    shared.stopping.store(true, Ordering::Relaxed);
    let stopped = handle.stop(true);
    tokio::select! {
        () = stopped => {}
        () = shared.stop_and_drain() => {}
    }
}

async fn answer(shared: web::Data<Shared>) -> HttpResponse {
    let shared = shared.into_inner();
    let under_way = shared.begin();
    if !shared.delay.is_zero() {
        actix_web::rt::time::sleep(shared.delay).await;
    }
    let status = if shared.fails() { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    let mut response = HttpResponseBuilder::new(status);
    response.insert_header(("X-Version", shared.version.as_str()));
    if shared.stopping.load(Ordering::Relaxed) {
        response.force_close();
    }
    let body = serde_json::json!({"version": shared.version, "instance": shared.instance});
    // The connection's task writes the answer before it gives way to another one: the request is under way until then.
    actix_web::rt::spawn(async move { drop(under_way) });
    response.json(body)
}

async fn health() -> HttpResponse {
    HttpResponse::Ok().body("ok\n")
}

async fn serve_tcp(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::pin!(stop);
    loop {
        let permit =
            Arc::clone(&free).acquire_owned().await.context("the semaphore is never closed")?;
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A client that goes away is no error of the service.
                    echo(stream, &shared).await.ok();
                    drop(permit);
                });
            }
            () = &mut stop => break,
        }
    }
    drop(listener);
    shared.stop_and_drain().await;
    Ok(())
}

/// `<version> <instance> <line>` for each line, until the client is done.
async fn echo(stream: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    while !shared.stopping.load(Ordering::Relaxed) {
        line.clear();
        if (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
            break;
        }
        let under_way = shared.begin();
        tokio::time::sleep(shared.delay).await;
        if shared.fails() {
            break;
        }
        let text = format!("{} {} {}\n", shared.version, shared.instance, line.trim_end());
        writer.write_all(text.as_bytes()).await?;
        drop(under_way);
    }
    Ok(())
}

/// Completes with TERM or Ctrl-C, which are watched from the call on.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("TERM cannot be watched")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("Ctrl-C cannot be watched")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "a number between 0 and 1 is expected".to_owned())?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err("a share lies between 0 and 1".to_owned())
    }
}

fn per_mille(share: f64) -> u64 {
    let wanted = (share * PER_MILLE).round();
    (0..=1_000_u32).find(|candidate| f64::from(*candidate) >= wanted).map_or(1_000, u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::{TestRequest, call_service, init_service, read_body_json};

    fn options() -> Options {
        Options {
            version_name: "7".into(),
            host: [127, 0, 0, 1].into(),
            port: 0,
            delay_ms: 0,
            fail_rate: 0.0,
            tcp: false,
        }
    }

    #[actix_web::test]
    async fn every_path_says_which_version_answers() {
        let data = web::Data::new(Shared::new(&options()));
        let app = init_service(App::new().app_data(data).default_service(web::to(answer))).await;
        let response = call_service(&app, TestRequest::get().uri("/any/path").to_request()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers().get("X-Version").unwrap(), "7");
        let body: serde_json::Value = read_body_json(response).await;
        assert_eq!(body["version"], "7");
        assert!(body["instance"].is_string());
    }

    #[test]
    fn the_wanted_share_of_requests_fails() {
        let shared = Shared::new(&Options { fail_rate: 0.25, ..options() });
        let failed: Vec<bool> = (0..8).map(|_| shared.fails()).collect();
        assert_eq!(failed, [false, false, false, true, false, false, false, true]);
        let never = Shared::new(&options());
        assert!((0..100).all(|_| !never.fails()));
        let always = Shared::new(&Options { fail_rate: 1.0, ..options() });
        assert!((0..100).all(|_| always.fails()));
    }

    #[test]
    fn a_share_lies_between_0_and_1() {
        assert_eq!(share("0.5"), Ok(0.5));
        assert!(share("1.5").is_err() && share("half").is_err() && share("NaN").is_err());
    }

    #[tokio::test]
    async fn each_line_comes_back_with_the_version() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::new(Shared::new(&options()));
        client.write_all(b"hello\nthere\n").await.unwrap();
        client.shutdown().await.unwrap();
        echo(stream, &shared).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap_or_default();
        let instance = &shared.instance;
        assert_eq!(answer, format!("7 {instance} hello\n7 {instance} there\n"));
    }

    /// Serves, stops while a request is under way, and returns what its client and an idle one read until the end.
    async fn stop_under_way(tcp: bool, request: &'static [u8]) -> (String, String) {
        let shared = Arc::new(Shared::new(&Options { delay_ms: 2000, ..options() }));
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (ask, asked) = tokio::sync::oneshot::channel::<()>();
        let stop = async move { asked.await.unwrap_or_default() };
        let serving = actix_web::rt::spawn({
            let shared = Arc::clone(&shared);
            async move {
                if tcp {
                    serve_tcp(listener, shared, stop).await
                } else {
                    serve_http(listener, shared, stop).await
                }
            }
        });
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut busy = TcpStream::connect(address).await.unwrap();
        busy.write_all(request).await.unwrap();
        // Asked to stop while it waits: much sooner than it answers, however busy the machine.
        let mut under_way = shared.under_way.subscribe();
        let begun = under_way.wait_for(|count| *count == 1);
        tokio::time::timeout(Duration::from_mins(1), begun).await.unwrap().unwrap();
        ask.send(()).unwrap();
        serving.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
        let mut texts = (String::new(), String::new());
        busy.read_to_string(&mut texts.0).await.unwrap();
        // Only the end of the process closes a connection that is merely kept open.
        drop(idle.shutdown().await);
        idle.read_to_string(&mut texts.1).await.unwrap_or_default();
        texts
    }

    #[actix_web::test]
    async fn stopping_finishes_the_http_request_under_way() {
        let (busy, idle) = stop_under_way(false, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(
            busy.starts_with("HTTP/1.1 200 OK") && busy.contains("connection: close"),
            "{busy}"
        );
        assert!(busy.contains("\"version\":\"7\""), "{busy}");
        assert_eq!(idle, "");
    }

    #[actix_web::test]
    async fn stopping_finishes_the_line_under_way() {
        let (busy, idle) = stop_under_way(true, b"hello\n").await;
        assert!(busy.starts_with("7 ") && busy.ends_with(" hello\n"), "{busy}");
        assert_eq!(idle, "");
    }
}
