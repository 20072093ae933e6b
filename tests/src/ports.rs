//! Ports for programs that cannot be asked which one the system gave them.

use std::fs;
use std::net::TcpListener;

use anyhow::{Context, Result};

/// Where Linux says from which port on it gives ports to whoever asks for any, and to connections.
const GIVEN: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Below this are those of well-known services.
const FIRST: u16 = 10_000;
/// Few are taken.
const TRIES: usize = 100;

/// A free loopback port that the system gives to nobody by itself: no connection takes it before it is used, nor while
/// the program that has it is started again, however many are made meanwhile. Another test hardly ever draws the same.
///
/// # Errors
/// When there is none.
pub fn free() -> Result<u16> {
    let given = fs::read_to_string(GIVEN)?;
    let given: u16 = given.split_whitespace().next().context("the range has no beginning")?.parse()?;
    if given <= FIRST {
        // There is none that the system does not give to others.
        return Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
    }
    let mut drawn = (0..TRIES).map(|_| fastrand::u16(FIRST..given));
    drawn.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).context("no port is free")
}
