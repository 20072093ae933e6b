//! What the demo shows while it runs: a line for each agent, and the tasks by status.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use serde_json::Value;
use skein_shared::Refusal;

use crate::api::client::{self, Admin};

const ROWS: u32 = 200;
/// Longest line. A wrapped one would put the cursor in the wrong row, and 80 columns are what any terminal has.
const WIDTH: usize = 79;

/// The swarm as it is now.
pub(super) struct Scene {
    instances: Vec<Value>,
    tasks: Vec<Value>,
    calls: Vec<Value>,
    locks: Vec<Value>,
}

impl Scene {
    pub(super) async fn read(admin: &mut Admin, swarm: &str) -> Result<Self, Refusal> {
        Ok(Self {
            instances: client::list(admin, "instances", swarm, ROWS).await?.rows,
            tasks: client::list(admin, "tasks", swarm, ROWS).await?.rows,
            calls: client::list(admin, "calls", swarm, ROWS).await?.rows,
            locks: client::list(admin, "locks", swarm, ROWS).await?.rows,
        })
    }

    /// Tasks there are, and all of them have ended.
    pub(super) fn tasks_done(&self) -> bool {
        let planned = self.tasks.iter().any(|task| has_tag(task, "compare"));
        let open = |task: &&Value| text(task, "taskType") == "survey" && text(task, "status") != "completed";
        planned && self.tasks.iter().filter(open).count() == 0
    }

    pub(super) fn sleeps(&self, agent: &str) -> bool {
        self.instances.iter().any(|i| text(i, "agent") == agent && text(i, "state") == "frozen")
    }

    /// Whether a run of the agent has ended well.
    pub(super) fn completed(&self, agent: &str) -> bool {
        self.instances.iter().any(|i| text(i, "agent") == agent && text(i, "state") == "completed")
    }

    /// What the agent returned to its caller.
    pub(super) fn report(&self, agent: &str) -> Option<String> {
        let call = self
            .calls
            .iter()
            .find(|call| text(call, "targetAgent") == agent && text(call, "status") == "completed")?;
        Some(text(call, "returnValue").to_owned())
    }

    /// An agent that ended badly, or a task that failed, with the reason.
    pub(super) fn failed(&self) -> Option<(String, String)> {
        let reason = |row: &Value| serde_json::to_string(&row["exit"]).unwrap_or_default();
        let instance =
            self.instances.iter().find(|instance| matches!(text(instance, "state"), "error" | "killed"));
        if let Some(instance) = instance {
            return Some((text(instance, "instance").to_owned(), reason(instance)));
        }
        let task = self.tasks.iter().find(|task| text(task, "status") == "failed")?;
        Some((text(task, "agentId").to_owned(), text(task, "failureReason").to_owned()))
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.instances.iter().map(|instance| self.agent_line(instance)).collect();
        lines.sort();
        lines.push(self.task_line());
        lines
    }

    fn agent_line(&self, instance: &Value) -> String {
        let id = text(instance, "instance");
        let lock = self.locks.iter().find(|lock| text(lock, "holder") == id);
        let mut doing = text(instance, "statusText").to_owned();
        if let Some(lock) = lock {
            doing = format!("holds {}", text(lock, "resourceKey"));
        } else if instance["waitingFor"].is_object() {
            let filter = &instance["waitingFor"]["filter"];
            let event = filter["event"].as_str().unwrap_or("event");
            doing = format!("waits for {} {event}", filter["source"].as_str().unwrap_or("any"));
        }
        let line = format!("{id:<22} {:<9} {doing}", text(instance, "state"));
        // Folders have the names that somebody gave them in the repository.
        let plain = line.chars().filter(|letter| !letter.is_control());
        plain.take(WIDTH).collect::<String>().trim_end().to_owned()
    }

    fn task_line(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        // What tells the lead of an ended task is no work of the survey.
        for task in self.tasks.iter().filter(|task| text(task, "taskType") == "survey") {
            *counts.entry(text(task, "status")).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
        format!("tasks: {}", if counts.is_empty() { "none yet".to_owned() } else { counts.join(", ") })
    }
}

/// Shows scenes on stderr: in place on a terminal, otherwise each line when it changes.
pub(super) struct Screen {
    in_place: bool,
    shown: Vec<String>,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { in_place: std::io::stderr().is_terminal(), shown: Vec::new() }
    }

    pub(super) fn show(&mut self, scene: &Scene) {
        let lines = scene.lines();
        if lines == self.shown {
            return;
        }
        let mut err = std::io::stderr().lock();
        if self.in_place {
            let up = self.shown.len();
            if up > 0 {
                let _ = write!(err, "\x1b[{up}A\x1b[J");
            }
            for line in &lines {
                let _ = writeln!(err, "{line}");
            }
        } else {
            for line in lines.iter().filter(|line| !self.shown.contains(line)) {
                let _ = writeln!(err, "{line}");
            }
        }
        self.shown = lines;
    }

    /// A line that stays.
    pub(super) fn say(&mut self, line: &str) {
        let _ = writeln!(std::io::stderr(), "{line}");
        self.shown.clear();
    }

    pub(super) fn close(&mut self) {
        self.say("the report is there");
    }
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

fn has_tag(task: &Value, tag: &str) -> bool {
    task["tags"].as_array().is_some_and(|tags| tags.iter().any(|t| t == tag))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_agent_has_its_line_and_the_survey_its_count() {
        let scene = Scene {
            instances: vec![
                json!({"instance": "summariser-1", "agent": "summariser", "state": "frozen", "statusText": null,
                    "waitingFor": {"wait": "w", "filter": {"kind": "webhook", "source": "github", "event": "push"}}}),
                json!({"instance": "worker-1", "agent": "worker-1", "state": "running", "statusText": "x".repeat(200)}),
                json!({"instance": "worker-2", "agent": "worker-2", "state": "running", "statusText": "a\u{1b}[2Jb\n"}),
            ],
            tasks: vec![
                json!({"status": "completed", "taskType": "survey"}),
                json!({"status": "pending", "taskType": "follow-up"}),
            ],
            calls: Vec::new(),
            locks: Vec::new(),
        };
        let lines = scene.lines();
        assert_eq!(lines[0], "summariser-1           frozen    waits for github push");
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert_eq!(lines[2], "worker-2               running   a[2Jb");
        assert_eq!(lines[3], "tasks: 1 completed");
        assert!(scene.sleeps("summariser") && !scene.sleeps("worker-1"));
    }
}
