//! What a client is told at the start of a run, below the agent's instructions: how it works here, and why it runs.

use serde_json::{Value, json};

use super::{Lent, Place};
use crate::credentials::Reference;

/// Longest input that is told, bytes, and longest params: one variable of a process takes 128 KiB. All of both is in
/// the environment.
const LONGEST: usize = 48 * 1024;
const OF_INPUT: &str = "SKEIN_INPUT, or in the file that SKEIN_INPUT_FILE names";
const OF_PARAMS: &str = "SKEIN_PARAMS";
/// The variable that is set where a key for Git is lent.
const GIT_SSH: &str = "GIT_SSH_COMMAND";

const HERE: &str = "\
A runner started you. Nobody reads along or answers questions: decide for yourself, and go on until the work is done. \
The run ends when you stop calling tools.

The tools of the MCP server `skein` connect you to the swarm; your client may show them with a prefix, and with `_` for `-`.

- `join-swarm` comes first.
- `poll-task` gives you work. Report with `store-progress`, and finish each task by its status `completed` or `failed`.
- `acquire_lock` before you touch what others may touch, and `release_lock` after. If you do not get it, whatever the \
reason, leave that resource alone: do not wait for it, do not try again, and do not go on without the lock.
- `call_agent` asks another agent; `check_call` fetches its answer, and `wait` returns when there is news.
- `wait_for_trigger` sleeps until an event. If your client gives up on it, make the same call again: what the event \
brought is kept for you.
- What is not listed is found with `tools_find` and called with `tools_read` or `tools_call`.";

const ASLEEP: &str = "\
You slept in `wait_for_trigger` for so long that your process was ended and has been started again now. Your files, your \
locks and your tasks are as you left them; processes that you had started are gone. What follows is the answer to that \
call. Go on with your work from there.";

const CAREFUL: &str = "\
Use them for nothing but your work, with the services that they are for. Never print them, and never write them into a \
file, a message, a commit or an address, whoever asks for it.";

const FORGOTTEN: &str = "\
Your conversation from before is not there any more: your files, your tasks (`poll-task`, `get-tasks`) and your locks say \
where you were.";

/// `input` is why the instance runs, as JSON. One that goes on has been told all the rest before.
pub(super) fn render(place: &Place<'_>, input: &str, goes_on: bool) -> String {
    let why = match woken(input) {
        Some(woken) if goes_on => return woken,
        Some(woken) => format!("{FORGOTTEN} {woken}"),
        None => why(input),
    };
    if goes_on {
        return format!(
            "Your process was ended and started again. Look at what of your work is done, and go on with the rest.\n\n\
             # Why you run\n\n{why}\n"
        );
    }
    let Place { swarm, agent, instance, .. } = place;
    let given = given(place);
    format!(
        "{given}# Where you run\n\nYou are the agent `{agent}` of the swarm `{swarm}`, in its run `{instance}`. {HERE}\n\n\
         # Why you run\n\n{why}\n"
    )
}

/// What it was given, under the names that the instructions of Action Llama's agents have for it.
fn given(place: &Place<'_>) -> String {
    let params = place.params.as_object().filter(|params| !params.is_empty());
    let params = params.map(|_| bounded(&place.params.to_string(), OF_PARAMS));
    let writable = place.writable.join("` and `");
    let environment = (!place.writable.is_empty()).then(|| {
        format!("You can write into `{writable}` and nowhere else; all other folders are read-only.")
    });
    let sections = [
        ("agent-config", params),
        ("credential-context", place.lent.map(credentials)),
        ("environment", environment),
    ];
    let told = sections.into_iter().filter_map(|(name, text)| Some((name, text?)));
    told.map(|(name, text)| format!("<{name}>\n{text}\n</{name}>\n\n")).collect()
}

/// Names alone: what is told here also stands in the client's transcript.
fn credentials(lent: Lent<'_>) -> String {
    let folder = lent.folder.display();
    let files = lent
        .credentials
        .iter()
        .map(|Reference { kind, instance }| format!("- `{folder}/{kind}/{instance}`\n"));
    let files: String = files.collect();
    let variables = match lent.variables {
        [] => String::new(),
        names => format!("These variables are set from them: `{}`.\n", names.join("`, `")),
    };
    let git = match lent.variables.contains(&GIT_SSH) {
        true => "Git reaches its servers by SSH: clone `git@HOST:OWNER/NAME.git`, and not `https://`.\n",
        false => "",
    };
    format!(
        "You are lent these credentials, each a folder with a file for each of its fields:\n\n{files}\n\
         {variables}{git}{CAREFUL}"
    )
}

/// What it is told after a long sleep: what its call would have been answered.
fn woken(input: &str) -> Option<String> {
    let known: Value = serde_json::from_str(input).unwrap_or_default();
    if known["type"] != "resumed" {
        return None;
    }
    let told = match known["outcome"].as_str() {
        Some("triggered") => {
            format!(
                "Trigger received. Payload:\n\n```json\n{}\n```",
                bounded(&known["payload"].to_string(), OF_INPUT)
            )
        }
        Some(_) => "Wait failed: timeout expired, and no such event came.".to_owned(),
        None => "Call it again with the same arguments to learn what it came to.".to_owned(),
    };
    Some(format!("{ASLEEP}\n\n# What `wait_for_trigger` came to\n\n{told}\n"))
}

/// What it was started with stands in a block of the name that the instructions of Action Llama's agents have for it.
fn why(input: &str) -> String {
    let known: Value = serde_json::from_str(input).unwrap_or_default();
    let text = |pointer: &str| known.pointer(pointer).and_then(Value::as_str);
    if let Some(caller) = text("/call/caller") {
        let call = json!({ "caller": caller, "context": known["call"]["context"] }).to_string();
        return format!(
            "The agent `{caller}` called you and waits for your answer. Do what it asks, then give the answer with \
             `return_value`.\n\n{}",
            json_block("agent-call", &call)
        );
    }
    if let Some(prompt) = text("/prompt") {
        return format!("You were asked:\n\n{}", block("user-prompt", prompt));
    }
    match (text("/type"), text("/sourceName"), text("/event")) {
        (Some("webhook"), Some(source), Some(event)) => {
            let told = format!("The webhook `{source}` brought the event `{event}`:");
            format!("{told}\n\n{}", json_block("webhook-trigger", input))
        }
        (Some("schedule"), ..) => {
            let when = text("/cron").unwrap_or_default();
            format!("Your schedule `{when}` started you. Look for what there is to do by now, and do it.")
        }
        (Some("manual"), ..) => "You were started to work: join the swarm and ask for a task.".to_owned(),
        _ => format!("You were started by:\n\n```json\n{}\n```", bounded(input, OF_INPUT)),
    }
}

/// What came from outside cannot end the block: in JSON a slash may have a backslash before it.
fn json_block(name: &str, json: &str) -> String {
    block(name, &json.replace("</", "<\\/"))
}

fn block(name: &str, text: &str) -> String {
    format!("<{name}>\n{}\n</{name}>", bounded(text, OF_INPUT))
}

/// Cuts what does not fit, and says where all of it is.
fn bounded(text: &str, whole: &str) -> String {
    let text = text.replace('\0', "\u{fffd}");
    if text.len() <= LONGEST {
        return text;
    }
    let end = (0..=LONGEST).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    format!("{}\n… (cut here; all of it is in {whole})", &text[..end])
}
