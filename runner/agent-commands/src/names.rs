//! The commands. The runner reads this too, and links each name to the program.

/// The names under which the program is called, each with what it takes and what it does.
pub(crate) const NAMES: [(&str, &str, &str); 12] = [
    ("rlock", "KEY [--ttl SECONDS]", "take a lock; never waits"),
    ("runlock", "KEY", "give it back"),
    ("rlock-heartbeat", "KEY [--ttl SECONDS]", "start its time to live anew"),
    ("al-subagent", "AGENT < CONTEXT", "call another agent"),
    ("al-subagent-check", "CALL", "how a call stands"),
    ("al-subagent-wait", "CALL… [--timeout SECONDS]", "wait until calls are over (900)"),
    ("al-return", "[VALUE] [< VALUE]", "set what your caller gets"),
    ("al-status", "TEXT", "set the line that people see"),
    ("al-rerun", "", "have this run followed by another"),
    ("al-exit", "[STATUS]", "end this run with an exit status (15)"),
    ("al-shutdown", "[REASON]", "kill this run"),
    ("skein-hook", "< EVENT", "answer a hook of Claude Code"),
];
