//! The texts that a new member starts with, until it or its lead writes better ones.

use super::command::{Join, Profile};
use crate::json::{Fields, Json};

const LEADS: &str = "You lead this swarm. Break goals into tasks, give each to the member that fits, answer what comes \
     in from people, and judge results before you pass them on. Do not do a worker's task yourself when a worker is \
     free.";
const WORKS: &str = "You work in this swarm. Take one task at a time, report progress as you go, and end each task \
     with its output or with the reason why it failed. Ask the lead when a task is unclear.";
/// What a worker's texts say otherwise once it leads.
const TURNS: [(&str, &str); 3] = [
    (WORKS, LEADS),
    ("- Position: worker\n- Role: worker\n", "- Position: lead\n- Role: lead\n"),
    ("- Position: worker\n", "- Position: lead\n"),
];

/// The member's standing instructions (`claudeMd`).
pub(super) fn claude_md(join: &Join) -> String {
    let duty = if join.lead { LEADS } else { WORKS };
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

/// The texts that say whether a member leads, as they are stored.
pub(super) fn stored(body: &Json) -> Profile {
    let body = Fields::of(body);
    Profile { claude_md: body.read("claudeMd"), identity_md: body.read("identityMd"), ..Profile::default() }
}

/// What changes in a worker's texts when it comes to lead: the sentences that it has started with. All that it has
/// written itself stays.
pub(super) fn of_new_lead(texts: &Profile) -> Profile {
    let turned = |text: &Option<String>| {
        let turn = |text: String, (works, leads): (&str, &str)| text.replacen(works, leads, 1);
        let new = TURNS.into_iter().fold(text.clone()?, turn);
        (text.as_ref() != Some(&new)).then_some(new)
    };
    Profile {
        claude_md: turned(&texts.claude_md),
        identity_md: turned(&texts.identity_md),
        ..Profile::default()
    }
}

fn about(join: &Join) -> String {
    match join.description.as_deref() {
        Some(text) if !text.trim().is_empty() => format!("{}\n\n", text.trim()),
        _ => String::new(),
    }
}
