//! What a coding agent is told, in sentences for its model.

use serde_json::Value;

use crate::auth::Principal;

/// Letters of a text that one line of several shows, and of one that stands alone. Claude Code takes ten thousand
/// letters from a hook, and cuts off what is beyond.
const BRIEF: usize = 100;
const LONG: usize = 2000;

/// What waits for an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tray {
    pub(super) unread: u64,
    pub(super) mentions: u64,
    pub(super) offered: usize,
    pub(super) pool: usize,
    pub(super) active: usize,
}

/// What goes on around a lead, of which its other sessions may have begun a part.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) messages: Vec<Value>,
    pub(super) handed_out: Vec<Value>,
    pub(super) active: Vec<Value>,
}

pub(super) fn stranger(who: &Principal) -> String {
    format!(
        "You are the agent {} ({}) of the swarm {} and have not joined it yet: call join-swarm first.",
        who.agent_name, who.agent, who.swarm
    )
}

pub(super) fn welcome(who: &Principal, me: &Value, tray: &Tray, tasks: &[Value]) -> String {
    let role = if me["isLead"] == true { "its lead" } else { "a worker" };
    let name = me["name"].as_str().unwrap_or(who.agent_name.as_str());
    let Tray { unread, mentions, offered, pool, active } = tray;
    let mut text = format!(
        "You are {name} ({}) in the swarm {}, {role}.\nMessages unread: {unread}, with mentions of you: {mentions}. \
         Tasks offered to you: {offered}, in the pool: {pool}, in progress with you: {active}.",
        who.agent, who.swarm
    );
    if !tasks.is_empty() {
        text += &format!("\nYou are working on:{}", lines(tasks, "task"));
    }
    text
}

/// Nothing if nothing is.
pub(super) fn under_way(known: &UnderWay) -> String {
    let part = |title: &str, rows: &[Value], field: &str| match rows {
        [] => String::new(),
        rows => format!("\n{title}:{}", lines(rows, field)),
    };
    let told = [
        part("Messages of your inbox that you have in hand", &known.messages, "content"),
        part("Tasks that you handed out in the last five minutes", &known.handed_out, "task"),
        part("Tasks in progress in the swarm", &known.active, "task"),
    ];
    match told.concat() {
        nothing if nothing.is_empty() => nothing,
        told => format!("\nOther sessions of yours may have begun these; do none of it twice.{told}"),
    }
}

pub(super) fn reminder(tasks: &[Value]) -> String {
    let most = LONG / tasks.len().max(1);
    let each = tasks.iter().map(|task| {
        let progress = match task["progress"].as_str() {
            Some(progress) => format!("\nProgress: {}", clip(progress, most)),
            None => String::new(),
        };
        format!("\nTask {}: {}{progress}", text(task, "id"), clip(text(task, "task"), most))
    });
    let each: String = each.collect();
    format!("Keep what you are working on in the swarm, with its id, for you report on it by that.{each}")
}

pub(super) fn no_more_polls(polls: u64) -> String {
    format!(
        "{polls} polls in a row found no task for you, so this one is not made: do not poll again, and end your turn. \
         If you are asked to look again later, call join-swarm first, which begins the count anew."
    )
}

/// The same for as long as the task is told of: by it a person is asked once.
pub(super) fn cancelled(task: &Value) -> String {
    let reason = match text(task, "failureReason") {
        "" => String::new(),
        reason => format!(", because: {}", clip(reason, BRIEF)),
    };
    format!(
        "The task {} that you were working on ({}) was cancelled{reason}. Stop working on it now. The tools of the \
         swarm still run: say what is left half done if somebody has to know, take another task with poll-task, or end \
         your turn.",
        text(task, "id"),
        clip(text(task, "task"), BRIEF)
    )
}

fn lines(rows: &[Value], field: &str) -> String {
    let line = |row: &Value| {
        let mut line = format!("\n- {}: {}", text(row, "id"), clip(text(row, field), BRIEF));
        if let Some(progress) = row["progress"].as_str() {
            line += &format!(" [{}]", clip(progress, BRIEF));
        }
        line
    };
    rows.iter().map(line).collect()
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

/// The beginning of a text in one line.
fn clip(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut clipped: String = line.chars().take(most).collect();
    if clipped.len() < line.len() {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::Role;

    #[test]
    fn an_agent_is_told_who_it_is_and_what_waits_for_it() {
        let who = Principal::named("ann", Role::Worker);
        assert!(stranger(&who).contains("agent ann (") && stranger(&who).contains("call join-swarm first"));
        let tray = Tray { unread: 3, mentions: 1, offered: 0, pool: 4, active: 1 };
        let task = json!({ "id": "t-1", "task": "dig\n  a hole", "progress": "half way" });
        let told = welcome(&who, &json!({ "name": "Ann", "isLead": false }), &tray, &[task]);
        for part in [
            "You are Ann (",
            "in the swarm default, a worker.\n",
            "unread: 3, with mentions of you: 1.",
            "offered to you: 0, in the pool: 4, in progress with you: 1.",
            "\nYou are working on:\n- t-1: dig a hole [half way]",
        ] {
            assert!(told.contains(part), "{part} is missing in {told}");
        }
        let lead = welcome(&who, &json!({ "name": "Ann", "isLead": true }), &tray, &[]);
        assert!(lead.contains(", its lead.") && !lead.contains("working on"), "{lead}");
    }

    #[test]
    fn a_lead_is_told_what_its_other_sessions_may_have_begun() {
        let row = |id: &str, field: &str, text: &str| vec![json!({ "id": id, field: text })];
        let known = UnderWay {
            messages: row("m-1", "content", "please dig"),
            handed_out: row("t-1", "task", "dig"),
            active: Vec::new(),
        };
        let told = under_way(&known);
        assert!(told.contains("in hand:\n- m-1: please dig\nTasks that you handed out"), "{told}");
        assert!(told.ends_with("\n- t-1: dig"), "{told}");
        let nothing = UnderWay { messages: Vec::new(), handed_out: Vec::new(), active: Vec::new() };
        assert_eq!(under_way(&nothing), "");
    }

    #[test]
    fn long_texts_are_cut_and_reasons_stand_where_there_are_any() {
        let long = "ü ".repeat(2000);
        let task = json!({ "id": "t-1", "task": long, "failureReason": "it\nrains" });
        let told = cancelled(&task);
        assert!(told.contains("task t-1") && told.contains("was cancelled, because: it rains."), "{told}");
        assert!(told.chars().count() < 600, "{told}");
        assert!(cancelled(&json!({ "id": "t-1", "task": "dig" })).contains("(dig) was cancelled. Stop"));
        let told = reminder(&[json!({ "id": "t-1", "task": long, "progress": long })]);
        assert!(told.contains("Task t-1: ü ü") && told.chars().count() < 2 * LONG + 200, "{told}");
        assert!(no_more_polls(2).starts_with("2 polls in a row"));
    }

    #[test]
    fn all_that_is_told_at_once_is_short_enough_for_a_hook() {
        let (long, id) = ("ü ".repeat(2000), "00000000-0000-7000-8000-000000000000");
        let rows = vec![json!({ "id": id, "task": long, "progress": long }); 10];
        let messages = vec![json!({ "id": id, "content": long }); 10];
        let tray = Tray { unread: 9999, mentions: 9999, offered: 9999, pool: 9999, active: 10 };
        let who = Principal::named("ann", Role::Lead);
        let me = json!({ "name": "a".repeat(64), "isLead": true });
        let known = UnderWay { messages, handed_out: rows.clone(), active: rows.clone() };
        let told = welcome(&who, &me, &tray, &rows) + &under_way(&known);
        for told in [told, reminder(&rows)] {
            assert!(told.chars().count() < 10_000, "{}", told.chars().count());
        }
    }
}
