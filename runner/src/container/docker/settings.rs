//! The keys of a definition that put its agent into a container, and what holds when they, or those of its limits, are
//! left out.

use serde::Deserialize;

use crate::container::{User, limits};
use crate::endpoint::tunnel::Place;

/// Bytes of memory without the key `memory`.
const MEMORY: u64 = 4 << 30;
/// Docker takes no less.
const LEAST_MEMORY: u64 = 6 * 1024 * 1024;
const CPUS: f64 = 2.0;
/// Most processors that may be asked for.
const MOST_CPUS: f64 = 1024.0;
const PIDS: u32 = 1024;
const USER: User = User { uid: 1000, gid: 1000 };
const NETWORKS: [(&str, Network); 2] = [("open", Network::Open), ("internal", Network::Internal)];

/// The keys as they are written. All others mean nothing without `image`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Keys {
    image: Option<String>,
    pull: Option<bool>,
    cpus: Option<f64>,
    network: Option<String>,
    egress: Option<Vec<String>>,
    user: Option<String>,
}

/// The container of an agent's instances.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    pub image: String,
    /// Whether an image that is not on the machine is fetched.
    pub pull: bool,
    /// In bytes; what is in the writable folders counts.
    pub memory: u64,
    /// In billionths of a processor.
    pub nano_cpus: i64,
    pub pids: u32,
    pub network: Network,
    /// The places that it reaches through its runner's endpoint, if its network leads nowhere else.
    pub egress: Vec<Place>,
    pub user: User,
}

/// What an instance reaches besides its runner's endpoint. No instance reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Whatever the machine reaches.
    Open,
    /// Nothing.
    Internal,
}

impl Keys {
    /// The container that the keys ask for; `None` without `image`.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn container(self, limits: &limits::Keys) -> Result<Option<Container>, String> {
        let Some(image) = &self.image else {
            return self.first_given().map_or(Ok(None), |key| {
                Err(format!(
                    "{key}: only an agent in a container has it; name an `image` too, or leave it out"
                ))
            });
        };
        if let Some(key) = limits.of_processes() {
            return Err(format!("{key}: an agent in a container does not have it; leave it out"));
        }
        if image.trim().is_empty() || image.contains(char::is_whitespace) {
            return Err(format!("image: `{image}` is no image; write it as docker(1) takes it"));
        }
        Ok(Some(Container {
            image: image.clone(),
            pull: self.pull.unwrap_or(false),
            memory: limits.memory(LEAST_MEMORY)?.unwrap_or(MEMORY),
            nano_cpus: nano_cpus(self.cpus.unwrap_or(CPUS))?,
            pids: limits.pids()?.unwrap_or(PIDS),
            network: self.reach()?,
            egress: self.egress()?,
            user: self.user.as_deref().map_or(Ok(USER), user)?,
        }))
    }

    /// Whoever lists what may be reached means that nothing else may.
    fn reach(&self) -> Result<Network, String> {
        let usual = if self.egress.is_some() { Network::Internal } else { Network::Open };
        let network = self.network.as_deref().map_or(Ok(usual), network)?;
        if network == Network::Open && self.egress.is_some() {
            return Err("egress: an open network reaches everything; leave `network` out".into());
        }
        Ok(network)
    }

    fn egress(&self) -> Result<Vec<Place>, String> {
        let places = self.egress.iter().flatten().map(|place| place.parse());
        places.collect::<Result<_, String>>().map_err(|problem| format!("egress: {problem}"))
    }

    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("pull", self.pull.is_some()),
            ("cpus", self.cpus.is_some()),
            ("network", self.network.is_some()),
            ("egress", self.egress.is_some()),
            ("user", self.user.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }
}

fn nano_cpus(cpus: f64) -> Result<i64, String> {
    if !(0.01..=MOST_CPUS).contains(&cpus) {
        return Err(format!("cpus: {cpus} is not between 0.01 and {MOST_CPUS}"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    Ok((cpus * 1e9).round() as i64)
}

fn network(text: &str) -> Result<Network, String> {
    let known = NETWORKS.iter().find(|(name, _)| *name == text);
    known
        .map(|(_, network)| *network)
        .ok_or_else(|| format!("network: `{text}` is none; use one of open, internal"))
}

fn user(text: &str) -> Result<User, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    match (uid.parse(), gid.parse()) {
        (Ok(0), _) | (_, Ok(0)) => {
            Err("user: an agent in a container does not run as root; give another number".into())
        }
        (Ok(uid), Ok(gid)) => Ok(User { uid, gid }),
        _ => Err(format!("user: `{text}` is no user; write numbers, such as \"1000:1000\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Container>, String> {
        toml::from_str::<Keys>(text).unwrap().container(&toml::from_str(text).unwrap())
    }

    #[test]
    fn an_image_alone_has_every_limit() {
        let container = read("image = \"busybox\"").unwrap().unwrap();
        assert_eq!((container.memory, container.nano_cpus, container.pids), (4 << 30, 2_000_000_000, 1024));
        assert_eq!((container.pull, container.network, container.user), (false, Network::Open, USER));
        assert_eq!(read("").unwrap(), None);
    }

    #[test]
    fn limits_are_read() {
        let text = "image = \"a/b:c\"\nmemory = \"512M\"\ncpus = 0.5\npids = 64\nnetwork = \"internal\"\nuser = \"7:8\"";
        let container = read(text).unwrap().unwrap();
        assert_eq!((container.memory, container.nano_cpus, container.pids), (512 << 20, 500_000_000, 64));
        assert_eq!((container.network, container.user), (Network::Internal, User { uid: 7, gid: 8 }));
        let listed = read("image = \"a\"\negress = [\"api.example.com:443\"]").unwrap().unwrap();
        assert_eq!((listed.network, listed.egress.len()), (Network::Internal, 1));
        assert_eq!(
            read("image = \"a\"\ncpus = 1\nuser = \"7\"").unwrap().unwrap().user,
            User { uid: 7, gid: 7 }
        );
    }

    #[test]
    fn mistakes_are_named() {
        let problem = |text: &str| read(text).unwrap_err();
        assert!(problem("cpus = 1").starts_with("cpus: only an agent in a container"));
        assert!(read("memory = \"1g\"\npids = 64").unwrap().is_none(), "processes have them too");
        for (keys, word) in [
            ("memory = \"lots\"", "no size"),
            ("memory = \"1m\"", "at least 6m"),
            ("file_size = \"1g\"", "file_size: an agent in a container"),
            ("cpus = 0", "between"),
            ("pids = 1", "at least 8"),
            ("network = \"host\"", "open, internal"),
            ("network = \"open\"\negress = [\"a:1\"]", "leave `network` out"),
            ("egress = [\"example.com\"]", "egress: `example.com` is no place"),
            ("user = \"0:0\"", "root"),
            ("user = \"1000:0\"", "root"),
            ("user = \"node\"", "numbers"),
        ] {
            let found = problem(&format!("image = \"a\"\n{keys}"));
            assert!(found.contains(word), "{keys}: {found}");
        }
        assert!(problem("image = \"a b\"").contains("no image"));
    }
}
