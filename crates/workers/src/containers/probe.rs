//! Whether somebody accepts connections at an address.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A connection was accepted.
    Accepted,
    /// There is somebody, but not for this port.
    Refused,
    /// Nothing came back at all.
    Unreachable,
}

/// Tries to connect to `host`, a name or an address, and gives up after `limit`.
pub(super) async fn connect(host: &str, port: u16, limit: Duration) -> Answer {
    match timeout(limit, open(host, port)).await {
        Ok(Ok(Some(_))) => Answer::Accepted,
        Ok(Ok(None)) => Answer::Refused,
        Ok(Err(error)) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Answer::Refused,
            _ => Answer::Unreachable,
        },
        Err(_) => Answer::Unreachable,
    }
}

/// Like [`connect`], for an address behind a proxy that accepts first and connects then: the connection has to stay
/// open for `hold`, or to bring data.
pub(super) async fn connect_and_hold(
    host: &str,
    port: u16,
    limit: Duration,
    hold: Duration,
) -> Answer {
    let Ok(Ok(Some(stream))) = timeout(limit, open(host, port)).await else {
        return Answer::Refused;
    };
    let mut byte = [0];
    match timeout(hold, stream.peek(&mut byte)).await {
        Ok(Ok(0) | Err(_)) => Answer::Refused,
        Ok(Ok(_)) | Err(_) => Answer::Accepted,
    }
}

/// A connection; `None` when it is one to itself: TCP connects a socket to itself when the system happens to choose
/// the port asked for as the port to ask from.
async fn open(host: &str, port: u16) -> std::io::Result<Option<TcpStream>> {
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    let stream = TcpStream::connect(addresses.as_slice()).await?;
    Ok((stream.local_addr()? != stream.peer_addr()?).then_some(stream))
}
