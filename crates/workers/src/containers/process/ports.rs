//! Ports of this host: choosing free ones, and asking whether they are in use.

use super::HOST;
use crate::containers::probe::{self, Answer};
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Ports that belong to gateways by default; an instance there could take one away.
const GATEWAYS: RangeInclusive<u16> = 20000..=25000;
const TRIES_MAX: usize = 1000;
const CONNECT_LIMIT: Duration = Duration::from_millis(200);
/// How often ports are tried while a process starts, and after it has taken `SLOW_AFTER`.
const PROBE_PERIOD: Duration = Duration::from_millis(50);
const PROBE_PERIOD_SLOW: Duration = Duration::from_millis(500);
const SLOW_AFTER: Duration = Duration::from_mins(1);

/// A free port for each of `declared`, none of which is in `taken`.
pub(super) fn choose(
    declared: &IndexMap<String, u16>,
    taken: &BTreeSet<u16>,
) -> Result<IndexMap<String, u16>, String> {
    // Holding on to every listener until the end keeps the system from giving the same port twice.
    let mut listeners = Vec::new();
    let mut chosen = IndexMap::new();
    for name in declared.keys() {
        let port = loop {
            if listeners.len() >= TRIES_MAX {
                return Err(format!("no free port on {HOST} was found for '{name}'"));
            }
            let listener = TcpListener::bind((HOST, 0));
            let listener = listener
                .map_err(|error| format!("no free port on {HOST} for '{name}': {error}"))?;
            let port = listener.local_addr().map_err(|error| error.to_string())?.port();
            listeners.push(listener);
            if !GATEWAYS.contains(&port) && !taken.contains(&port) {
                break port;
            }
        };
        chosen.insert(name.clone(), port);
    }
    Ok(chosen)
}

/// Whether nobody listens on any of `ports`.
pub(super) fn all_free(mut ports: impl Iterator<Item = u16>) -> bool {
    ports.all(|port| TcpListener::bind((HOST, port)).is_ok())
}

/// Whether somebody listens on each of `ports` now. On this host a port that nobody listens on is refused at once. No
/// answer at all is that of a process that has more connections waiting than it takes: it is busy, not away.
pub(super) fn all_taken(mut ports: impl Iterator<Item = u16>) -> bool {
    ports.all(|port| {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            // A socket may be connected to itself, see `probe`.
            Ok(stream) => stream.local_addr().is_ok_and(|own| own != address),
            Err(error) => error.kind() == ErrorKind::TimedOut,
        }
    })
}

/// Returns once every one of `ports` has accepted a connection.
pub(super) async fn accepting(ports: Vec<u16>) {
    let since = tokio::time::Instant::now();
    for port in ports {
        while probe::connect(HOST, port, CONNECT_LIMIT).await != Answer::Accepted {
            let slow = since.elapsed() > SLOW_AFTER;
            tokio::time::sleep(if slow { PROBE_PERIOD_SLOW } else { PROBE_PERIOD }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ports_are_free_different_and_not_taken() {
        let declared: IndexMap<String, u16> =
            (0..50).map(|number| (format!("p{number}"), number)).collect();
        let first = choose(&declared, &BTreeSet::new()).unwrap();
        let taken: BTreeSet<u16> = first.values().copied().collect();
        assert_eq!(taken.len(), 50);
        let second = choose(&declared, &taken).unwrap();
        assert!(second.values().all(|port| !taken.contains(port) && !GATEWAYS.contains(port)));
        assert!(second.keys().eq(declared.keys()));
    }

    #[tokio::test]
    async fn a_port_whose_process_is_too_busy_to_answer_is_taken() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(all_taken([address.port()].into_iter()));
        // Nobody accepts anything, so that soon no connection is made any more.
        let connect = |_| TcpStream::connect_timeout(&address, CONNECT_LIMIT);
        let waiting: Vec<_> = (0..100).map(connect).take_while(Result::is_ok).collect();
        assert!(waiting.len() < 100, "the system lets {} wait", waiting.len());
        assert!(all_taken([address.port()].into_iter()));
        drop((waiting, listener));
        assert!(!all_taken([address.port()].into_iter()), "nobody listens there any more");
    }
}
