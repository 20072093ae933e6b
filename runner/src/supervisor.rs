//! Who has started this process and wants to hear when it works: systemd, by what is known as `sd_notify`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where it listens, as it has said in the environment.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Hears what this process says of itself; nobody by default.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Option<OsString>);

impl Supervisor {
    /// The one that this process was told of, if there is one.
    pub fn of_this_process() -> Self {
        Self(std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()))
    }

    /// The process does its work from now on.
    pub fn is_ready(&self) {
        self.say("READY=1");
    }

    /// The process ends what is under way, and then itself.
    pub fn is_stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, state: &str) {
        let Some(socket) = &self.0 else { return };
        if let Err(problem) = send(socket, state) {
            tracing::warn!(%problem, state, "{SOCKET} leads nowhere, so nobody is told");
        }
    }
}

/// A name that begins with `@` is an abstract one, and all others are paths.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 64];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_supervisor_is_told_at_a_path_and_by_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("skein-test-{}", std::process::id());
        let places = [
            (SocketAddr::from_pathname(&path).unwrap(), path.into_os_string()),
            (SocketAddr::from_abstract_name(&name).unwrap(), format!("@{name}").into()),
        ];
        for (address, socket) in places {
            let listener = UnixDatagram::bind_addr(&address).unwrap();
            let supervisor = Supervisor(Some(socket));
            supervisor.is_ready();
            supervisor.is_stopping();
            assert_eq!([heard(&listener), heard(&listener)], ["READY=1", "STOPPING=1"]);
        }
        // Whom nobody listens to goes on.
        Supervisor(Some("/nowhere/at/all".into())).is_ready();
        Supervisor::default().is_ready();
    }
}
