//! A client that sends exactly what it is told, and reads answers and streams.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// No answer takes as long as this.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Client {
    address: SocketAddr,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

/// An answer that goes on.
pub(super) struct Stream {
    pub(super) headers: BTreeMap<String, String>,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends bytes as they are and reads until the connection is closed; none when nothing comes.
    pub(super) async fn raw(&self, bytes: &[u8]) -> Option<Reply> {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        // The service may answer and close before it has read everything.
        let _ = connection.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(LIMIT, connection.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let headers = headers.lines().filter_map(|line| line.split_once(": "));
        Some(Reply {
            status: first.split(' ').nth(1)?.parse().ok()?,
            headers: headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect(),
            body: body.to_owned(),
        })
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut stream = self.open(method, path, headers, body).await;
        let mut body = Vec::new();
        tokio::time::timeout(LIMIT, stream.reader.read_to_end(&mut body)).await.unwrap().unwrap();
        let status = stream.headers.remove("status").unwrap().parse().unwrap();
        Reply { status, headers: stream.headers, body: String::from_utf8_lossy(&body).into_owned() }
    }

    pub(super) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Stream {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: segue.test\r\nConnection: close\r\n");
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        write!(request, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut stream = Stream { headers: BTreeMap::new(), reader: BufReader::new(connection) };
        let first = stream.line().await;
        let status = first.split(' ').nth(1).unwrap_or_default().to_owned();
        stream.headers.insert("status".to_owned(), status);
        loop {
            let line = stream.line().await;
            let Some((name, value)) = line.split_once(": ") else { break };
            stream.headers.insert(name.to_lowercase(), value.to_owned());
        }
        stream
    }
}

impl Stream {
    pub(super) async fn line(&mut self) -> String {
        let mut line = String::new();
        tokio::time::timeout(LIMIT, self.reader.read_line(&mut line))
            .await
            .expect("a line in time")
            .unwrap();
        line.trim_end().to_owned()
    }

    /// The next line that begins with `start`, without it; none when the stream ends before.
    pub(super) async fn field(&mut self, start: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(LIMIT, self.reader.read_line(&mut line))
                .await
                .expect("a line in time");
            if read.unwrap() == 0 {
                return None;
            }
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return Some(rest.to_owned());
            }
        }
    }
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The type of the problem, when it is one.
    pub(super) fn problem(&self) -> (u16, String) {
        (self.status, self.json()["type"].as_str().unwrap_or_default().to_owned())
    }
}
