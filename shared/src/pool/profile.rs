//! The texts that a new member starts with, until it or its lead writes better ones.

use super::command::Join;

/// The member's standing instructions (`claudeMd`).
pub(super) fn claude_md(join: &Join) -> String {
    let duty = if join.lead {
        "You lead this swarm. Break goals into tasks, give each to the member that fits, answer what comes in \
         from people, and judge results before you pass them on. Do not do a worker's task yourself when a \
         worker is free."
    } else {
        "You work in this swarm. Take one task at a time, report progress as you go, and end each task with \
         its output or with the reason why it failed. Ask the lead when a task is unclear."
    };
    format!(
        "# {name}\n\n{about}{duty}\n\n## Work\n\n- Get work with `poll-task`; look at the pool with `get-tasks`.\n\
         - Report with `store-progress`; a task without a report is taken for lost.\n\
         - Keep what you learn: the swarm remembers results of finished tasks.\n",
        name = join.name,
        about = about(join),
    )
}

/// The member's manner (`soulMd`).
pub(super) fn soul_md(join: &Join) -> String {
    format!(
        "# The manner of {name}\n\n- Say what you know, what you assume, and what you do not know.\n\
         - Finish what you took on, or hand it back early.\n- Prefer the small change that can be checked.\n\
         - Leave things in a state that another member can take over.\n",
        name = join.name,
    )
}

/// Who the member is (`identityMd`).
pub(super) fn identity_md(join: &Join) -> String {
    let position = if join.lead { "lead" } else { "worker" };
    let role = join.role.as_deref().unwrap_or(position);
    let capabilities =
        if join.capabilities.is_empty() { "none named yet".to_owned() } else { join.capabilities.join(", ") };
    format!(
        "# Who {name} is\n\n- Name: {name}\n- Position: {position}\n- Role: {role}\n- Capabilities: {capabilities}\n",
        name = join.name,
    )
}

fn about(join: &Join) -> String {
    match join.description.as_deref() {
        Some(text) if !text.trim().is_empty() => format!("{}\n\n", text.trim()),
        _ => String::new(),
    }
}
