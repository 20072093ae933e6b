//! One runner of an identity at a time. A data folder that was copied has that of the first one: each of the two would
//! take the other's instances for its own strays, and end them.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::error::Error;

/// Claims an identity on this machine until what it gives is dropped.
///
/// # Errors
/// When another runner has it.
pub(super) fn of(identity: &str) -> Result<UnixListener, Error> {
    // The kernel knows the name, and forgets it with the process. No file is left by a crash.
    let address = SocketAddr::from_abstract_name(format!("skein-runner-{identity}"));
    let claimed = address.and_then(|address| UnixListener::bind_addr(&address));
    claimed.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Error::config(
            "another runner of this machine has a copy of this data folder; give this one an empty folder with --data",
        ),
        _ => Error::config(format!("the runner cannot claim its identity on this machine: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_data_folder_has_no_runner_beside_that_of_the_first() {
        let identity = format!("{:014x}", std::process::id());
        let first = of(&identity).unwrap();
        let refused = of(&identity).unwrap_err().to_string();
        assert!(refused.contains("copy of this data folder"), "{refused}");
        drop(first);
        of(&identity).unwrap();
    }
}
