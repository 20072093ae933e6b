//! Ports for programs that cannot be asked which one the system gave them.

use std::net::TcpListener;

use anyhow::Result;

/// A free loopback port. Another program could take it before it is used, and then the start fails.
///
/// # Errors
/// When there is none.
pub fn free() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
