//! The keys of a definition, by all their names.

use skein_shared::spelling;

/// Every key, with the names that Action Llama and others have for it.
const KEYS: [(&str, &[&str]); 41] = [
    ("command", &[]),
    ("harness", &[]),
    ("model", &[]),
    ("args", &[]),
    ("prompt", &[]),
    ("tool_timeout", &[]),
    ("swarm_hooks", &["swarmHooks"]),
    ("image", &[]),
    ("pull", &[]),
    ("memory", &[]),
    ("cpus", &[]),
    ("pids", &[]),
    ("open_files", &["openFiles"]),
    ("file_size", &["fileSize"]),
    ("network", &[]),
    ("egress", &[]),
    ("user", &[]),
    ("role", &[]),
    ("swarm", &[]),
    ("instances", &["scale", "defaultAgentScale"]),
    ("timeout", &[]),
    ("grace", &[]),
    ("env", &["environment"]),
    ("subscriptions", &["webhooks"]),
    ("autostart", &[]),
    ("work_queue", &["workQueueSize", "maxWorkQueueSize", "webhookQueueSize", "work_queue_size"]),
    ("max_waiting", &["maxWaiting"]),
    ("max_call_depth", &["maxCallDepth", "maxTriggerDepth"]),
    ("max_reruns", &["maxReruns"]),
    ("cancel_children", &["cancelChildren"]),
    ("wait_timeout", &["waitTimeout", "defaultWaitTimeout"]),
    ("max_wait_timeout", &["maxWaitTimeout"]),
    ("spill_after", &["spillAfter"]),
    ("workdir", &["workspace"]),
    ("labels", &[]),
    ("schedule", &[]),
    ("zone", &["timezone"]),
    ("hooks", &[]),
    ("credentials", &[]),
    ("params", &[]),
    // Where the agent was taken from: for people alone.
    ("source", &[]),
];
const HOOKS: [&str; 2] = ["pre", "post"];
/// Keys of Action Llama that say what its agents are and where they live. That has other words here.
const FOREIGN: [&str; 2] = ["models", "runtime"];
/// Keys of its projects that say nothing of an agent, and where that is said here.
const ELSEWHERE: [(&str, &str); 3] = [
    ("resourceLockTimeout", "how long locks last is the swarm's: `skein swarm locks NAME --ttl 30m`"),
    (
        "historyRetentionDays",
        "how long what is over is kept is the node's: `[retention]` in its own config.toml",
    ),
    ("local", "write `image`, `memory`, `cpus` and `timeout` as keys of their own"),
];

/// Takes out the keys that have no meaning here, and names them.
pub(super) fn without_foreign(table: &mut toml::Table) -> Vec<&'static str> {
    FOREIGN.into_iter().filter(|key| table.remove(*key).is_some()).collect()
}

/// The keys that both tables have, whatever they call them, in the order of the first.
pub(super) fn doubled(one: &toml::Table, other: &toml::Table) -> Vec<&'static str> {
    let names = |table: &toml::Table| table.keys().filter_map(|key| name(key)).collect::<Vec<_>>();
    let others = names(other);
    names(one).into_iter().filter(|key| others.contains(key)).collect()
}

/// The one name of a key.
pub(super) fn name(written: &str) -> Option<&'static str> {
    KEYS.iter().find(|(key, others)| *key == written || others.contains(&written)).map(|(key, _)| *key)
}

/// Gives every key its one name.
///
/// # Errors
/// When nobody knows a key, naming the one that was probably meant: a misspelt limit that is silently ignored is found
/// out too late. Also when a key is there by two names.
pub(super) fn canonical(table: toml::Table) -> Result<toml::Table, String> {
    let mut named = toml::Table::new();
    for (written, value) in table {
        let Some(key) = name(&written) else { return Err(unknown(&written)) };
        if named.insert(key.to_owned(), value).is_some() {
            return Err(format!("`{written}` is another name of `{key}`, which is there too; keep one"));
        }
    }
    if let Some(hooks) = named.get("hooks") {
        within("hooks", hooks, &HOOKS)?;
    }
    Ok(named)
}

/// Whether a key is one of a definition, by any of its names.
pub(super) fn is_known(written: &str) -> bool {
    names().any(|name| name == written)
}

fn within(section: &str, table: &toml::Value, known: &[&str]) -> Result<(), String> {
    for written in table.as_table().into_iter().flat_map(toml::Table::keys) {
        if !known.contains(&written.as_str()) {
            return Err(format!(
                "{section}: {}",
                wrong(written, spelling::nearest(written, known.iter().copied()), known)
            ));
        }
    }
    Ok(())
}

fn unknown(written: &str) -> String {
    if let Some((_, place)) = ELSEWHERE.iter().find(|(key, _)| *key == written) {
        return format!("`{written}` is no key of a definition: {place}");
    }
    let keys = KEYS.map(|(key, _)| key);
    wrong(written, spelling::nearest(written, names()), &keys)
}

fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().flat_map(|(key, others)| std::iter::once(*key).chain(others.iter().copied()))
}

fn wrong(written: &str, nearest: Option<&str>, keys: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("`{written}` is no key of a definition; did you mean `{nearest}`?"),
        None => format!("`{written}` is no key of a definition; the keys are {}", keys.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_action_llama_knows_is_taken_out_and_named() {
        let mut table: toml::Table =
            "models = [\"sonnet\"]\nscale = 2\n[runtime]\ntype = \"container\"".parse().unwrap();
        assert_eq!(without_foreign(&mut table), ["models", "runtime"]);
        assert_eq!(table.keys().collect::<Vec<_>>(), ["scale"]);
        assert!(without_foreign(&mut table).is_empty());
    }

    #[test]
    fn what_a_project_of_action_llama_says_of_all_its_agents_is_known_or_has_its_place() {
        let read = |text: &str| canonical(text.parse().unwrap());
        let all = read("defaultAgentScale = 2\nmaxTriggerDepth = 1\nwebhookQueueSize = 20").unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["instances", "max_call_depth", "work_queue"]);
        for (text, said) in [
            ("resourceLockTimeout = 60", "skein swarm locks"),
            ("historyRetentionDays = 7", "[retention]"),
            ("[local]\nmemory = \"4g\"", "`memory`"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
        assert!(read("maxReruns = 1\nmax_reruns = 2").unwrap_err().contains("keep one"));
    }

    #[test]
    fn keys_are_the_same_by_any_of_their_names() {
        let table = |text: &str| text.parse::<toml::Table>().unwrap();
        let skill = table("scale = 3\ntimeout = \"5m\"\nlicense = \"MIT\"\nmaxWaiting = 1");
        let file = table("instances = 2\nmax_waiting = 4\nharness = \"command\"");
        assert_eq!(doubled(&skill, &file), ["max_waiting", "instances"]);
        assert!(doubled(&file, &table("")).is_empty());
    }
}
