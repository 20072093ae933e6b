//! What people ask by a slash command, and see alone (spec: Agent Swarm 4.4).

use crate::pool::{MemberView, Survey};
use crate::text::excerpt;

/// Most agents that an answer lists: Slack shows a part of a longer one.
const LISTED: usize = 50;
/// How much of an agent's name it shows, characters.
const NAME: usize = 80;

/// A command that the swarm answers itself. Its other names are those under which Agent Swarm's users have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Help,
    Status,
}

impl Question {
    /// None for commands that are agents' business.
    pub fn of(command: &str) -> Option<Self> {
        match command {
            "/skein-help" | "/agent-swarm-help" => Some(Self::Help),
            "/skein-status" | "/agent-swarm-status" => Some(Self::Status),
            _ => None,
        }
    }
}

/// How people talk to the swarm.
pub fn help() -> &'static str {
    "*How to talk to the swarm*\n\
     • Mention the bot, or write to it alone: the lead gets it.\n\
     • `swarm#ID do this`: the agent with this id gets a task. `swarm#all …`: every agent but the lead gets one.\n\
     • In a thread no mention is needed: whoever works there gets what is said.\n\
     • `/skein-status`, or `/agent-swarm-status`, shows the agents and their ids."
}

/// The agents, and what waits for them.
pub fn status(survey: &Survey) -> String {
    let Survey { members, claimable, open } = survey;
    let at_work = members.iter().filter(|member| member.current > 0).count();
    let mut text = format!(
        "*{} agents*, {at_work} at work; {open} open tasks, {claimable} of them for anybody to claim",
        members.len()
    );
    for member in members.iter().take(LISTED) {
        text.push_str(&format!("\n• {}", line(member)));
    }
    if let Some(more) = members.len().checked_sub(LISTED).filter(|more| *more > 0) {
        text.push_str(&format!("\n… and {more} more"));
    }
    text
}

fn line(member: &MemberView) -> String {
    let MemberView { id, name, lead, offline, max_tasks, current, .. } = member;
    let role = if *lead { " (lead)" } else { "" };
    let doing = match (offline, current) {
        (true, _) => "offline".to_owned(),
        (false, 0) => "idle".to_owned(),
        (false, current) => format!("{current} of {max_tasks} tasks in progress"),
    };
    let name = plain(name);
    format!("{name}{role}: {doing} · `swarm#{id}`")
}

/// Names are the agents' own words, and would be markup or further lines.
fn plain(name: &str) -> String {
    let words: Vec<&str> = name.split(|letter: char| letter.is_whitespace() || letter.is_control()).collect();
    let line = excerpt(&words.join(" "), NAME).replace(['`', '*', '_', '~'], "");
    line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn member(number: u128, name: &str, current: usize) -> MemberView {
        MemberView {
            id: Uuid::from_u128(number),
            name: name.to_owned(),
            lead: number == 1,
            managed: false,
            offline: number == 2,
            max_tasks: 3,
            current,
            empty_polls: 0,
        }
    }

    #[test]
    fn a_status_has_a_line_for_each_agent() {
        let members = vec![member(1, "ada", 0), member(2, "bob", 1), member(3, "<!channel>\n• `*eve*`", 2)];
        let text = status(&Survey { members, claimable: 4, open: 9 });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "*3 agents*, 2 at work; 9 open tasks, 4 of them for anybody to claim");
        assert_eq!(lines[1], "• ada (lead): idle · `swarm#00000000-0000-0000-0000-000000000001`");
        assert!(lines[2].starts_with("• bob: offline"));
        assert!(lines[3].starts_with("• &lt;!channel&gt; • eve: 2 of 3 tasks in progress"));
        let many = (0..60).map(|number| member(number, "x", 0)).collect();
        let text = status(&Survey { members: many, claimable: 0, open: 0 });
        assert_eq!((text.lines().count(), text.lines().last()), (52, Some("… and 10 more")));
    }

    #[test]
    fn only_the_swarms_own_commands_are_answered() {
        assert_eq!(Question::of("/agent-swarm-status"), Some(Question::Status));
        assert_eq!(Question::of("/skein-help"), Some(Question::Help));
        assert_eq!((Question::of("/deploy"), Question::of("skein-help")), (None, None));
    }
}
