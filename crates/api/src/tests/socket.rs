//! A WebSocket client that sends exactly the frames it is told.

use super::client::LIMIT;
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;
/// With the final bit, the frame is a whole message.
const FINAL: u8 = 0x80;
const MASK: [u8; 4] = [1, 2, 3, 4];

pub(super) struct Socket {
    connection: BufReader<TcpStream>,
}

impl Socket {
    pub(super) async fn open(address: SocketAddr, path: &str) -> Self {
        Self::try_open(address, path).await.unwrap_or_else(|head| panic!("{head}"))
    }

    /// A socket, or the head of the answer that refuses it.
    pub(super) async fn try_open(address: SocketAddr, path: &str) -> Result<Self, String> {
        let mut connection = BufReader::new(TcpStream::connect(address).await.unwrap());
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: segue.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        connection.get_mut().write_all(request.as_bytes()).await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = tokio::time::timeout(LIMIT, connection.read_line(&mut head)).await.unwrap();
            assert_ne!(read.unwrap(), 0, "{head}");
        }
        if !head.starts_with("HTTP/1.1 101 ") {
            return Err(head);
        }
        assert!(head.to_lowercase().contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        Ok(Self { connection })
    }

    pub(super) async fn send(&mut self, text: &str) {
        self.frame(FINAL | TEXT, text.as_bytes()).await;
    }

    /// One message in three frames.
    pub(super) async fn send_in_parts(&mut self, text: &str) {
        let (first, rest) = text.split_at(text.len() / 3);
        let (second, third) = rest.split_at(rest.len() / 2);
        self.frame(TEXT, first.as_bytes()).await;
        self.frame(0, second.as_bytes()).await;
        self.frame(FINAL, third.as_bytes()).await;
    }

    pub(super) async fn send_message(&mut self, kind: u8, bytes: &[u8]) {
        self.frame(FINAL | kind, bytes).await;
    }

    /// The head of a frame of `length` bytes, and as many of them as are taken; it never ends.
    pub(super) async fn send_for_ever(&mut self, length: u64) {
        let mut head = vec![FINAL | TEXT, 0x80 | 0x7f];
        head.extend(length.to_be_bytes());
        head.extend(MASK);
        let stream = self.connection.get_mut();
        let sending = async {
            stream.write_all(&head).await?;
            loop {
                stream.write_all(&[b'x'; 16 * 1024]).await?;
            }
        };
        let sent: std::io::Result<()> =
            tokio::time::timeout(LIMIT, sending).await.expect("the service takes no more in time");
        assert!(sent.is_err());
    }

    async fn frame(&mut self, first: u8, bytes: &[u8]) {
        let mut frame = vec![first];
        match bytes.len() {
            length @ 0..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
            length @ 126..65_536 => {
                frame.push(0x80 | 0x7e);
                frame.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            length => {
                frame.push(0x80 | 0x7f);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(MASK);
        frame.extend(bytes.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.connection.get_mut().write_all(&frame).await.unwrap();
    }

    /// The next message that is no ping; none when the connection ends.
    pub(super) async fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let (kind, bytes) =
                tokio::time::timeout(LIMIT, self.next()).await.expect("a message in time")?;
            if kind != PING {
                return Some((kind, bytes));
            }
        }
    }

    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let kind = self.connection.read_u8().await.ok()? & 0x0f;
        let length = match self.connection.read_u8().await.ok()? {
            126 => u64::from(self.connection.read_u16().await.ok()?),
            127 => self.connection.read_u64().await.ok()?,
            short => u64::from(short),
        };
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.connection.read_exact(&mut bytes).await.ok()?;
        Some((kind, bytes))
    }

    /// The next message, which is text.
    pub(super) async fn json(&mut self) -> Value {
        let (kind, bytes) = self.receive().await.expect("a message");
        assert_eq!(kind, TEXT, "{:?}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).unwrap()
    }
}
