//! Ports of this host that belong to one test, also when several test programs run at a time.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;

/// Above what Segue gives to gateways by default, below what systems give to outgoing connections.
const FIRST: u16 = 25_100;
const BLOCK: u16 = 40;
const BLOCKS: u16 = 180;
/// The part of a block that a service gives to its gateways.
const GATEWAYS: u16 = 25;

/// A block of ports, held until this is dropped.
#[derive(Debug)]
pub struct Ports {
    first: u16,
    next: u16,
    _lock: File,
}

impl Ports {
    /// Takes a block of which nobody uses a port.
    pub fn take() -> Self {
        let directory = std::env::temp_dir().join("segue-test-ports");
        std::fs::create_dir_all(&directory)
            .unwrap_or_else(|error| panic!("{} cannot be made: {error}", directory.display()));
        for number in 0..BLOCKS {
            let path = directory.join(number.to_string());
            let lock = File::create(&path)
                .unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display()));
            let first = FIRST + number * BLOCK;
            if lock.try_lock().is_ok() && (first..first + BLOCK).all(is_free) {
                return Self { first, next: first + GATEWAYS, _lock: lock };
            }
        }
        panic!("no {BLOCK} ports in a row are free from {FIRST} on");
    }

    /// The range for gateways.
    pub fn gateways(&self) -> RangeInclusive<u16> {
        self.first..=self.first + GATEWAYS - 1
    }

    /// One more port outside of that range.
    pub fn one(&mut self) -> u16 {
        assert!(self.next < self.first + BLOCK, "a test takes more ports than a block has");
        self.next += 1;
        self.next - 1
    }
}

/// Whether nobody listens on `port`, whatever the address.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}
