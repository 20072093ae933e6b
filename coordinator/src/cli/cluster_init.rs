//! `skein cluster init`: the files by which the coordinators of a cluster know one another.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use skein_shared::time::Timestamp;

use super::{CliError, table};
use crate::auth::token::Keys;
use crate::cluster::authority::{Authority, AuthorityError, Host};
use crate::cluster::identity::{CA, CERTIFICATE, KEY};
use crate::entity::Clock;
use crate::vault::{self, Vault};

/// The authority's own key, which no node needs.
pub(super) const CA_KEY: &str = "ca.key";
/// What signs the tokens of the cluster.
const TOKEN_KEYS: &str = "keys.json";

#[derive(Debug, Args)]
pub(super) struct Init {
    /// Where the authority is, or is to be; each node gets a folder in it.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long the certificates are good.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// A node: the host of its --node-addr, and after commas what else it is reached by.
    #[arg(required = true, value_name = "HOST[,HOST…]")]
    nodes: Vec<String>,
}

/// A node that gets a certificate.
struct Node {
    hosts: Vec<Host>,
    folder: PathBuf,
}

impl Init {
    pub(super) fn run(self) -> Result<(), CliError> {
        let now = Clock::start().wall();
        let nodes = self.nodes()?;
        let fresh = self.make(&nodes, now)?;
        let mut out = io::stdout().lock();
        for node in &nodes {
            writeln!(out, "{}", node.folder.display())?;
        }
        self.explain(&nodes, fresh);
        Ok(())
    }

    /// Who gets a certificate. Nothing is made unless all of them can get one.
    fn nodes(&self) -> Result<Vec<Node>, CliError> {
        let mut nodes: Vec<Node> = Vec::new();
        for text in &self.nodes {
            let hosts: Result<Vec<Host>, AuthorityError> = text.split(',').map(Host::parse).collect();
            let hosts = hosts.map_err(|error| CliError::Usage(error.to_string()))?;
            let name = hosts.first().map_or("", Host::as_str);
            let folder = self.out.join(name);
            if nodes.iter().any(|node| node.folder == folder) {
                return Err(CliError::Usage(format!(
                    "{name} is named twice; give each node a host of its own"
                )));
            }
            if folder.exists() {
                return Err(CliError::Certificates(format!(
                    "{} is there already, and nothing was changed; to renew its certificate, remove that folder first",
                    folder.display()
                )));
            }
            nodes.push(Node { hosts, folder });
        }
        Ok(nodes)
    }

    /// Makes what is missing. Says whether the authority is new.
    fn make(&self, nodes: &[Node], now: Timestamp) -> Result<bool, CliError> {
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| CliError::Certificates(format!("{path}: {error}"))
        };
        folder(&self.out).map_err(at(&self.out))?;
        let (authority, fresh) = self.authority(now)?;
        Keys::load_or_create(&self.out).map_err(at(&self.out.join(TOKEN_KEYS)))?;
        let keys =
            std::fs::read_to_string(self.out.join(TOKEN_KEYS)).map_err(at(&self.out.join(TOKEN_KEYS)))?;
        let keys = SecretString::from(keys);
        let sealing = self.out.join(vault::FILE);
        let made = Vault::open(&self.out, None).and_then(|_| std::fs::read_to_string(&sealing));
        let sealing = SecretString::from(made.map_err(at(&sealing))?);
        for node in nodes {
            let issued = authority.issue(&node.hosts, now, self.days).map_err(refused)?;
            let written = folder(&node.folder)
                .and_then(|()| write(&node.folder.join(CA), authority.certificate()))
                .and_then(|()| write(&node.folder.join(CERTIFICATE), &issued.certificate))
                .and_then(|()| write(&node.folder.join(KEY), issued.key.expose_secret()))
                .and_then(|()| write(&node.folder.join(TOKEN_KEYS), keys.expose_secret()))
                .and_then(|()| write(&node.folder.join(vault::FILE), sealing.expose_secret()));
            written.map_err(at(&node.folder))?;
        }
        Ok(fresh)
    }

    /// The authority in the folder, or a new one if there is none.
    fn authority(&self, now: Timestamp) -> Result<(Authority, bool), CliError> {
        let (certificate, key) = (self.out.join(CA), self.out.join(CA_KEY));
        let at =
            |path: &Path, error: io::Error| CliError::Certificates(format!("{}: {error}", path.display()));
        match (certificate.exists(), key.exists()) {
            (true, true) => {
                let text = std::fs::read_to_string(&certificate).map_err(|error| at(&certificate, error))?;
                let secret = std::fs::read_to_string(&key).map_err(|error| at(&key, error))?;
                let authority = Authority::open(text, &SecretString::from(secret)).map_err(refused)?;
                Ok((authority, false))
            }
            (false, false) => {
                let (authority, secret) = Authority::create(now).map_err(refused)?;
                write(&key, secret.expose_secret()).map_err(|error| at(&key, error))?;
                write(&certificate, authority.certificate()).map_err(|error| at(&certificate, error))?;
                Ok((authority, true))
            }
            (has, _) => Err(CliError::Certificates(format!(
                "{} is missing beside {}; put it back, or begin in another folder",
                if has { &key } else { &certificate }.display(),
                if has { &certificate } else { &key }.display(),
            ))),
        }
    }

    fn explain(&self, nodes: &[Node], fresh: bool) {
        let out = self.out.display();
        if fresh {
            table::note(format_args!(
                "{out} has a new authority; keep {out}/{CA_KEY} to add nodes, and give it to none of them"
            ));
        }
        for node in nodes {
            let host = node.hosts.first().map_or("", Host::as_str);
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            table::note(format_args!(
                "copy {} to {host} and start it with: skein serve --redis URL --node-addr {host}:7703 --cluster-tls DIR",
                node.folder.display()
            ));
        }
        table::note(
            "each folder has private keys: copy it over an encrypted connection, and keep the mode of its files",
        );
    }
}

fn refused(error: AuthorityError) -> CliError {
    CliError::Certificates(error.to_string())
}

/// A folder that this user alone can look into.
fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that is not there yet, for this user alone.
fn write(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cluster::identity::Identity;

    fn init(out: &Path, nodes: &[&str]) -> Result<(), CliError> {
        let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        Init { out: out.to_owned(), days: 90, nodes }.run()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn each_node_gets_a_folder_with_all_that_it_needs_and_no_more() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("certificates");
        init(&out, &["Node-1,10.0.0.1", "[::1]"]).unwrap();
        let now = Clock::start().wall();
        for (node, hosts) in [("node-1", &["node-1", "10.0.0.1"][..]), ("::1", &["::1"])] {
            let folder = out.join(node);
            for host in hosts {
                Identity::load(&folder, host, now).unwrap();
            }
            assert!(Identity::load(&folder, "10.0.0.2", now).is_err());
            assert_eq!((mode(&folder), mode(&folder.join(KEY))), (0o700, 0o600));
            let files = std::fs::read_dir(&folder).unwrap().count();
            assert_eq!(files, 5, "the authority's key is in a node's folder");
            let keys = std::fs::read(folder.join(TOKEN_KEYS)).unwrap();
            assert_eq!(keys, std::fs::read(out.join(TOKEN_KEYS)).unwrap());
            let sealing = std::fs::read(folder.join(vault::FILE)).unwrap();
            assert_eq!(sealing, std::fs::read(out.join(vault::FILE)).unwrap());
            assert_eq!(mode(&folder.join(vault::FILE)), 0o600);
        }
        assert_eq!(mode(&out.join(CA_KEY)), 0o600);
    }

    #[test]
    fn a_second_time_adds_nodes_of_the_same_authority_and_changes_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path();
        init(out, &["a"]).unwrap();
        let (authority, key) =
            (std::fs::read(out.join(CA)).unwrap(), std::fs::read(out.join("a").join(KEY)).unwrap());
        // Nobody gets anything when one of them has it.
        let refused = init(out, &["b", "a"]).unwrap_err();
        assert!(refused.to_string().contains("remove that folder") && refused.exit() == 5, "{refused}");
        assert!(!out.join("b").exists());
        init(out, &["b"]).unwrap();
        for file in [out.join(CA), out.join("b").join(CA)] {
            assert_eq!(std::fs::read(file).unwrap(), authority);
        }
        assert_eq!(std::fs::read(out.join("a").join(KEY)).unwrap(), key);
    }

    #[test]
    fn the_keys_of_a_node_that_was_alone_become_those_of_its_cluster() {
        let parent = tempfile::tempdir().unwrap();
        let (alone, out) = (parent.path().join("alone"), parent.path().join("authority"));
        for dir in [&alone, &out] {
            folder(dir).unwrap();
        }
        Keys::load_or_create(&alone).unwrap();
        Vault::open(&alone, None).unwrap();
        let kept = [TOKEN_KEYS, vault::FILE];
        for file in kept {
            std::fs::copy(alone.join(file), out.join(file)).unwrap();
        }
        init(&out, &["a"]).unwrap();
        for file in kept {
            let given = std::fs::read(out.join("a").join(file)).unwrap();
            assert_eq!(given, std::fs::read(alone.join(file)).unwrap(), "{file}");
        }
    }

    #[test]
    fn half_an_authority_is_refused_with_what_is_missing() {
        let parent = tempfile::tempdir().unwrap();
        init(parent.path(), &["a"]).unwrap();
        std::fs::remove_file(parent.path().join(CA_KEY)).unwrap();
        let refused = init(parent.path(), &["b"]).unwrap_err().to_string();
        assert!(refused.contains("ca.key is missing"), "{refused}");
        let port = init(parent.path(), &["b:7703"]).unwrap_err();
        assert!(port.to_string().contains("without a port") && port.exit() == 2, "{port}");
    }
}
