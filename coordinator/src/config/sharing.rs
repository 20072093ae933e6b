//! Settings for coordinators that share a Redis, where none is named.

use super::load::ConfigError;
use super::schema::{Cluster, Config};
use crate::store::redis::Durability;

/// Looks whether the settings of a node are of a cluster that it would be no part of: whoever sets them means one, and
/// each of its coordinators would keep tasks of its own. Other commands read the same settings without what the command
/// line of the node adds, such as the Redis, so a node alone asks.
///
/// # Errors
/// For the first setting that is of no use without a Redis, if there is none.
pub fn check_sharing(config: &Config) -> Result<(), ConfigError> {
    let Config { store, cluster, .. } = config;
    if store.redis.is_some() {
        return Ok(());
    }
    let settings = [
        ("`cluster.node` (--node-addr)", cluster.node != Cluster::default().node),
        ("`cluster.advertise`", cluster.advertise.is_some()),
        ("`cluster.tls` (--cluster-tls)", cluster.tls.is_some()),
        ("`store.durability`", store.durability != Durability::default()),
    ];
    let Some((setting, _)) = settings.into_iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
    Err(ConfigError(format!(
        "{setting} is for coordinators that share a Redis, and none is named: this one would keep tasks of its own; \
         name it with `skein serve --redis` or as `redis` in [store], or leave the setting out"
    )))
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn settings_of_a_cluster_want_a_redis() {
        type Set = fn(&mut Config);
        let settings: [(&str, Set); 4] = [
            ("cluster.node", |config| config.cluster.node = "node-1:7703".to_owned()),
            ("cluster.advertise", |config| config.cluster.advertise = Some("10.0.0.9:17703".to_owned())),
            ("cluster.tls", |config| config.cluster.tls = Some("certificates".into())),
            ("store.durability", |config| config.store.durability = Durability::Replicated),
        ];
        for (setting, set) in settings {
            let mut config = Config::default();
            check_sharing(&config).unwrap();
            set(&mut config);
            let refused = check_sharing(&config).unwrap_err().to_string();
            assert!(refused.contains(setting) && refused.contains("--redis"), "{refused}");
            config.store.redis = Some(SecretString::from("redis://box"));
            check_sharing(&config).unwrap();
        }
    }
}
