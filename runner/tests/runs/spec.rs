//! What an engine is to start, without the runner.

use std::path::Path;

use skein_runner::container::{Limits, Spec};

/// A script as an instance, in a folder that has its log.
pub(crate) fn spec(folder: &Path, instance: &str, script: &str) -> Spec {
    let env = [("PATH", "/usr/bin:/bin"), ("SKEIN_INSTANCE", instance), ("SKEIN_RUNNER", "signals")];
    Spec {
        instance: instance.to_owned(),
        command: vec!["sh".into(), "-c".into(), script.into()],
        env: env.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        workdir: folder.to_owned(),
        log: folder.join("log"),
        unbegun: folder.join("unbegun"),
        user: None,
        closed: Vec::new(),
        open: vec![folder.to_owned()],
        readable: Vec::new(),
        definition: folder.to_owned(),
        credentials: None,
        input: None,
        limits: Limits::default(),
        agent_commands: None,
        kept: None,
        joined: None,
        container: None,
    }
}
