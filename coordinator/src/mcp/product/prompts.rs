//! The prompts: how to begin as a lead and as a worker, with how the swarm stands.

use serde_json::{Map, Value};
use skein_shared::Refusal;

use crate::auth::Role;
use crate::mcp::content::Content;
use crate::mcp::dispatch::Context;
use crate::mcp::offer::{Argument, Prompt, Written, no_prompt};
use crate::mcp::result::counted;
use crate::service::lists::Tasks;

const LEAD: Prompt = Prompt {
    name: "lead",
    title: "Lead the swarm",
    about: "Begin as the lead: plan the goal, hand out tasks, and see them through.",
    arguments: &[
        Argument { name: "goal", about: "What the swarm shall reach", required: false },
        Argument { name: "epic", about: "Id of the epic that it belongs to", required: false },
    ],
};

const WORKER: Prompt = Prompt {
    name: "worker",
    title: "Work in the swarm",
    about: "Begin as a worker: join, take tasks, report, and finish them.",
    arguments: &[Argument { name: "name", about: "What you are called in the swarm", required: false }],
};

const LEADING: &str = "\
1. Call join-swarm with `lead: true`, then get-swarm: who is there, and who is idle.
2. Cut the goal into tasks that one agent finishes alone and whose result can be checked. Say in each what is to be \
done, where, and how you will know that it is done. create-epic keeps them together; dependsOn orders them.
3. Hand them out with send-task: to an agent by agentId, or to the pool. Do not do the work yourself.
4. wait for tasks and messages, and pass its cursor on. Look at each result with get-task-details before you build on \
it; send a failed task again with what was missing, or cancel-task it.
5. Report when all is done: what was reached, what was not, and why.";

const WORKING: &str = "\
1. Call join-swarm, then poll-task: it waits until there is work for you.
2. Read the task whole. If it cannot be done as it is, ask in post-message, give it back with task-action `release`, \
or end it as `failed` and say why; task-action `reject` is for offers.
3. acquire_lock before you touch what others may touch, and release_lock when you are done with it.
4. Report with store-progress while you work, and finish with status `completed` and the result, or `failed` and why.
5. Call poll-task again. Nothing is lost when it times out.";

/// What a role may be prompted with.
pub(super) fn of(role: Role) -> Vec<Prompt> {
    match role {
        Role::Lead => vec![LEAD, WORKER],
        Role::Worker => vec![WORKER],
        Role::Observer | Role::Operator | Role::Runner => Vec::new(),
    }
}

pub(super) async fn write(
    caller: &Context,
    name: &str,
    arguments: &Map<String, Value>,
) -> Result<Written, Refusal> {
    let offered = of(caller.who.role);
    let known: Vec<&str> = offered.iter().map(|prompt| prompt.name).collect();
    let prompt = offered.iter().find(|prompt| prompt.name == name).ok_or_else(|| no_prompt(name, &known))?;
    let given =
        |argument: &str| arguments.get(argument).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut text = match prompt.name {
        "lead" => format!("You lead the swarm `{}`.\n\n{LEADING}", caller.who.swarm),
        _ => format!("You work in the swarm `{}`.\n\n{WORKING}", caller.who.swarm),
    };
    for (argument, says) in [("goal", "The goal"), ("epic", "The epic"), ("name", "Join as")] {
        if let Some(given) = given(argument) {
            text.push_str(&format!("\n\n{says}: {given}"));
        }
    }
    text.push_str(&format!("\n\n{}", standing(caller).await?));
    Ok(Written::Messages(vec![Content::Text(text)]))
}

/// How the swarm stands now.
async fn standing(caller: &Context) -> Result<String, Refusal> {
    const COUNTED: usize = 100;
    let members = caller.service.list_members(&caller.who).await?;
    let idle = members.rows.iter().filter(|member| member["status"] == "idle").count();
    let free = Tasks { unassigned: true, limit: COUNTED, ..Tasks::default() };
    let tasks = caller.service.list_tasks(&caller.who, free).await?;
    let warning = members.warning().or(tasks.warning());
    let free = tasks.rows.len();
    let many = if free == COUNTED { " or more" } else { "" };
    Ok(format!(
        "Now: {}, {idle} idle; {}{many} in the pool.{}",
        counted(members.rows.len(), "agent", "agents"),
        counted(free, "task", "tasks"),
        warning.map(|warning| format!(" ({warning})")).unwrap_or_default()
    ))
}
