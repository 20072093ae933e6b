//! Where an instance's door is opened.
//!
//! An instance keeps its door's address for life, over restarts of its runner too. So a port is taken from below
//! those that the system lends to outgoing connections: between two lives of the runner one of them could have it.

use std::net::IpAddr;
use std::ops::Range;

use tokio::net::TcpListener;

/// Ports tried before the system is asked for any.
const TRIES: usize = 64;
/// Ports below the lent ones that doors are opened on.
const SPAN: u16 = 12_000;
/// The first port that the system lends unless it is told otherwise.
const LENT: u16 = 32_768;

/// Listens on a port that nobody is lent, or on any if all that were tried are taken.
///
/// # Errors
/// When the system has no port left.
pub(super) async fn listen(address: IpAddr) -> std::io::Result<TcpListener> {
    let ports = quiet();
    for _ in 0..TRIES {
        if let Ok(listener) = TcpListener::bind((address, fastrand::u16(ports.clone()))).await {
            return Ok(listener);
        }
    }
    TcpListener::bind((address, 0)).await
}

fn quiet() -> Range<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    below(range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(LENT))
}

/// The ports below the lent ones that need no privilege; if there are none, the usual ones.
fn below(lent: u16) -> Range<u16> {
    let first = lent.saturating_sub(SPAN).max(1024);
    if first < lent { first..lent } else { LENT - SPAN..LENT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lie_below_those_that_are_lent() {
        assert_eq!(below(32_768), 20_768..32_768);
        assert_eq!(below(2_000), 1_024..2_000);
        assert_eq!(below(1_024), 20_768..32_768, "no room below");
    }

    #[tokio::test]
    async fn doors_are_opened_where_nobody_is_lent_a_port() {
        let ports = quiet();
        let here = IpAddr::from([127, 0, 0, 1]);
        let doors = [listen(here).await.unwrap(), listen(here).await.unwrap()];
        for door in doors {
            let port = door.local_addr().unwrap().port();
            assert!(ports.contains(&port), "{port}");
        }
    }
}
