use super::*;

/// A session with a file of its own, which goes with it.
struct Session {
    id: String,
    now: u64,
    is_attended: bool,
}

impl Session {
    fn new(name: &str) -> Self {
        Self { id: format!("{name}-{}", std::process::id()), now: 1_790_000_000_000, is_attended: true }
    }

    /// Tells of an event a second later, and has the swarm answer so. Gives what it was asked, and what is printed.
    fn event(&mut self, event: &str, more: &str, told: Option<&str>) -> (Option<String>, Option<String>) {
        self.now += 1000;
        let text = format!(r#"{{"session_id":"{}","hook_event_name":"{event}"{more}}}"#, self.id);
        let hook = Hook::begin(&text, &std::env::temp_dir(), self.now, self.is_attended).unwrap();
        let asked = hook.question().map(str::to_owned);
        (asked, hook.answer(told))
    }

    fn tool(&mut self, name: &str, input: &str, told: Option<&str>) -> (Option<String>, Option<String>) {
        self.event("PreToolUse", &format!(r#","tool_name":"{name}","tool_input":{input}"#), told)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for agent in ["", "a-1", "a-2"] {
            let _ = std::fs::remove_file(state::file(&std::env::temp_dir(), &self.id, agent));
        }
    }
}

const HEARD: &str = r#"{"ok":true}"#;
const CANCELLED: &str = r#"{"ok":true,"block":"the task \"dig\" was cancelled"}"#;
const DENIED: &str = concat!(
    r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","#,
    r#""permissionDecisionReason":"the task \"dig\" was cancelled"}}"#
);

#[test]
fn a_reason_of_the_swarm_stops_a_tool_and_holds_a_prompt_up_once() {
    let mut session = Session::new("cancelled");
    let (asked, said) = session.event("UserPromptSubmit", r#","prompt":"dig""#, Some(HEARD));
    assert_eq!(asked.as_deref(), Some(r#"{"event":"UserPromptSubmit","sessionAgeMs":0}"#));
    assert_eq!(said, None);
    let (asked, said) = session.tool("Bash", r#"{"command":"dig"}"#, Some(CANCELLED));
    assert_eq!(asked.as_deref(), Some(r#"{"event":"PreToolUse","sessionAgeMs":1000}"#));
    assert_eq!(said.as_deref(), Some(DENIED));
    assert_eq!(session.tool("Read", "{}", Some(CANCELLED)).1.as_deref(), Some(DENIED), "and each other one");

    let held = session.event("UserPromptSubmit", "", Some(CANCELLED)).1;
    assert_eq!(held.as_deref(), Some(r#"{"decision":"block","reason":"the task \"dig\" was cancelled"}"#));
    // Whoever sends it again knows.
    assert_eq!(session.event("UserPromptSubmit", "", Some(CANCELLED)).1, None);
    assert_eq!(session.tool("Bash", "{}", Some(CANCELLED)).1, None);
    let other = CANCELLED.replace("dig", "saw");
    assert!(session.tool("Bash", "{}", Some(&other)).1.is_some_and(|said| said.contains("saw")));
}

#[test]
fn what_cannot_be_asked_or_understood_stops_nothing() {
    let mut session = Session::new("fails");
    for told in [None, Some(""), Some("{"), Some("[]"), Some(r#"{"block":7}"#), Some(r#"{"error":"no"}"#)] {
        for event in ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact"] {
            let tool = format!(r#","tool_name":"Bash","tool_input":{{"n":{}}}"#, session.now);
            assert_eq!(session.event(event, &tool, told).1, None, "{event} {told:?}");
        }
    }
    let folder = std::env::temp_dir();
    for text in ["", "{", "[]", "{}", r#"{"hook_event_name":"Stop","session_id":"s"}"#] {
        assert!(Hook::begin(text, &folder, 1, true).is_none(), "{text}");
    }
}

#[test]
fn a_runner_s_prompt_is_never_held_up() {
    let mut session = Session::new("runner");
    session.is_attended = false;
    session.event("SessionStart", "", Some(HEARD));
    assert_eq!(session.tool("Bash", "{}", Some(CANCELLED)).1.as_deref(), Some(DENIED));
    session.event("SessionStart", r#","source":"resume""#, Some(HEARD));
    let said = session.event("UserPromptSubmit", r#","prompt":"it came""#, Some(CANCELLED)).1;
    assert_eq!(said.as_deref(), Some(r#"the task "dig" was cancelled"#), "its model is told with it");
    assert_eq!(session.tool("Bash", "{}", Some(CANCELLED)).1, None, "and does what the prompt says");
}

#[test]
fn no_tool_waits_again_and_again_for_a_swarm_that_does_not_answer() {
    let mut session = Session::new("unheard");
    session.event("SessionStart", "", Some(HEARD));
    assert!(session.tool("Bash", r#"{"n":1}"#, None).0.is_some());
    for n in 2..16 {
        assert_eq!(session.tool("Bash", &format!(r#"{{"n":{n}}}"#), None).0, None, "{n}");
    }
    assert!(session.event("UserPromptSubmit", "", Some(HEARD)).0.is_some(), "a prompt is always asked about");
    assert!(session.tool("Bash", r#"{"n":16}"#, Some(CANCELLED)).1.is_some(), "it is asked again");
    assert!(session.tool("Bash", r#"{"n":17}"#, None).0.is_some(), "and has answered");
}

#[test]
fn what_agents_of_a_session_do_at_the_same_time_is_no_circle() {
    let mut session = Session::new("agents");
    let by = |agent: &str| {
        format!(r#","agent_id":"{agent}","tool_name":"Read","tool_input":{{"file_path":"/{agent}"}}"#)
    };
    for _ in 0..7 {
        for agent in ["a-1", "a-2"] {
            assert_eq!(session.event("PreToolUse", &by(agent), None).1, None, "{agent}");
        }
    }
    assert!(session.event("PreToolUse", &by("a-1"), None).1.is_some(), "each is looked after all the same");
}

#[test]
fn circles_are_seen_without_the_swarm() {
    let mut session = Session::new("circles");
    let mut said = Vec::new();
    for _ in 0..16 {
        said.push(session.tool("Bash", r#"{"command":"make"}"#, None));
    }
    assert_eq!(said[6].1, None);
    assert!(said[7].1.as_ref().is_some_and(|said| said.contains(r#""additionalContext":"It looks"#)));
    for (asked, said) in &said[14..] {
        assert!(
            said.as_ref().is_some_and(|said| said.contains(r#""permissionDecision":"deny""#)),
            "{said:?}"
        );
        assert_eq!(*asked, None, "there is nothing to ask any more");
    }
    assert_eq!(session.tool("Bash", r#"{"command":"look"}"#, None).1, None);
    // A new session begins with nothing, and one that goes on does not.
    for source in ["compact", "resume"] {
        session.event("SessionStart", &format!(r#","source":"{source}""#), None);
        assert!(session.tool("Bash", r#"{"command":"make"}"#, None).1.is_some(), "{source}");
    }
    session.event("SessionStart", r#","source":"clear""#, None);
    assert_eq!(session.tool("Bash", r#"{"command":"make"}"#, None).1, None);
}

#[test]
fn who_waits_goes_round_in_no_circle_and_the_swarms_tools_run_unasked() {
    let mut session = Session::new("waits");
    for name in ["mcp__skein__wait_for_trigger", "mcp__skein__check_call", "mcp__skein__read-messages"] {
        for _ in 0..20 {
            assert_eq!(session.tool(name, "{}", Some(CANCELLED)), (None, None), "{name}");
        }
    }
    for name in ["BashOutput", "TaskOutput"] {
        for _ in 0..20 {
            assert_eq!(session.tool(name, r#"{"task_id":"b1"}"#, Some(HEARD)).1, None, "{name}");
        }
    }
    for _ in 0..20 {
        let input = r#"{"name":"wait","arguments":{}}"#;
        assert_eq!(session.tool("mcp__skein__tools_call", input, Some(CANCELLED)), (None, None));
    }
    for (name, input) in
        [("mcp__skein__poll-task", "{}"), ("mcp__skein__tools_call", r#"{"name":"poll-task"}"#)]
    {
        let (asked, said) = session.tool(name, input, Some(r#"{"ok":true,"block":"no more"}"#));
        assert!(asked.is_some_and(|asked| asked.contains(r#""tool":"poll-task""#)), "{name}");
        assert!(said.is_some_and(|said| said.contains("no more")), "{name}");
    }
}

#[test]
fn after_a_tool_the_swarm_hears_of_the_session_now_and_then() {
    let mut session = Session::new("signs");
    session.event("SessionStart", "", Some(HEARD));
    let asked = (0..25).filter(|_| session.event("PostToolUse", "", Some(HEARD)).0.is_some()).count();
    assert_eq!(asked, 2, "once in ten seconds");
    // Its clock was set back.
    session.now -= 3_600_000;
    assert!(session.event("PostToolUse", "", None).0.is_some());
}

#[test]
fn what_the_swarm_says_at_a_start_is_printed_as_it_stands() {
    let told = r#"{"ok":true,"say":"You are \"ann\".\n\u00fc \\"}"#;
    let mut session = Session::new("says");
    for event in ["SessionStart", "PreCompact"] {
        assert_eq!(
            session.event(event, "", Some(told)).1.as_deref(),
            Some("You are \"ann\".\nü \\"),
            "{event}"
        );
    }
    assert_eq!(session.tool("Bash", "{}", Some(told)).1, None);
}
