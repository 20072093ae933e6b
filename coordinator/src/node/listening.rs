//! Opens the doors of a node.
//!
//! `[::]` is all addresses, those of IPv4 among them: whatever the system's usual way is, and also on a machine that
//! has no IPv6. So one setting fits every network, and whoever looks for the node on its own machine finds it at
//! 127.0.0.1.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket};

/// How many connections may wait to be taken in.
const BACKLOG: u32 = 1024;

/// Listens on an address of this machine, or on all of them.
///
/// # Errors
/// When another one listens there, or this machine has no such address.
pub(super) async fn on(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        return TcpListener::bind(address).await;
    }
    match on_all(address) {
        Err(error) if is_without_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        outcome => outcome,
    }
}

fn on_all(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    // A node that starts anew finds the connections of the last one still ending.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_kinds() {
        let listener = on((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.ip().is_unspecified() && address.port() != 0, "{address}");
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.unwrap();
        // A machine of the tests may have no IPv6.
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, address.port())).await.unwrap();
        }
        let taken = on((Ipv6Addr::UNSPECIFIED, address.port()).into()).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_machine_without_ipv6_is_told_from_an_address_that_is_taken() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(is_without_ipv6(&error(Errno::AFNOSUPPORT)));
        assert!(!is_without_ipv6(&error(Errno::ADDRINUSE)) && !is_without_ipv6(&error(Errno::ACCESS)));
    }

    #[tokio::test]
    async fn one_address_is_one_address() {
        let listener = on((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
}
