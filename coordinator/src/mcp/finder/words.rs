//! Words as the finder counts them: without case, endings and filling.

/// Words that people use for one another. Each group counts as one word in a query.
const SYNONYMS: [&[&str]; 22] = [
    &["task", "job", "todo", "ticket", "assignment", "work"],
    &["agent", "worker", "member", "peer", "teammate", "colleague"],
    &["swarm", "team", "crew", "group"],
    &["send", "assign", "delegate", "dispatch", "hand"],
    &["create", "make", "new", "add", "register", "start", "open"],
    &["delete", "remove", "drop", "unregister"],
    &["cancel", "abort", "stop", "kill"],
    &["list", "show", "all", "browse", "overview"],
    &["get", "read", "fetch", "details", "view", "look", "see", "check"],
    &["update", "change", "edit", "modify", "set", "adjust"],
    &["find", "search", "query"],
    &["lock", "mutex", "lease", "exclusive", "acquire"],
    &["release", "unlock", "free"],
    &["wait", "block", "sleep", "pause", "watch", "until"],
    &["message", "chat", "talk", "post", "reply", "say", "tell", "answer", "write"],
    &["email", "mail", "agentmail"],
    &[
        "schedule",
        "cron",
        "recurring",
        "periodic",
        "timer",
        "every",
        "hour",
        "hourly",
        "day",
        "daily",
        "weekly",
    ],
    &["epic", "project", "milestone", "initiative"],
    &["memory", "learning", "remember", "recall", "knowledge", "note", "lesson"],
    &["config", "configuration", "setting", "secret", "variable", "environment", "credential"],
    &["finish", "complete", "done", "result", "report"],
    &["command", "shell", "terminal", "execute", "run", "bash"],
];

/// Words that say nothing about which tool is meant.
const EMPTY: [&str; 30] = [
    "a",
    "an",
    "the",
    "to",
    "of",
    "for",
    "in",
    "on",
    "and",
    "or",
    "is",
    "are",
    "it",
    "my",
    "me",
    "i",
    "how",
    "with",
    "do",
    "that",
    "this",
    "can",
    "something",
    "what",
    "when",
    "should",
    "from",
    "by",
    "we",
    "our",
];

/// The words of a text, in their order, that say something.
pub(super) fn of(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !EMPTY.contains(&word.as_str()))
        .map(|word| stem(&word))
}

/// The words that are used for this one.
pub(super) fn synonyms(word: &str) -> impl Iterator<Item = String> {
    let group = SYNONYMS.iter().find(|group| group.iter().any(|other| stem(other) == *word));
    group.into_iter().flat_map(|group| group.iter()).map(|other| stem(other))
}

/// A name in any of the ways in which it may be written.
pub(in crate::mcp) fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', '.', ' '], "-")
}

/// `targetAgentId` as separate words.
pub(super) fn unhump(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_uppercase() {
            text.push(' ');
        }
        text.push(letter);
    }
    text
}

/// Takes the commonest English endings off, so that `locking`, `locks` and `lock` are one word. A plural is the same
/// word as its singular, whatever that ends with: `settings` as `setting`, `queries` as `query`.
fn stem(word: &str) -> String {
    if let Some(root) = word.strip_suffix("ies").filter(|root| root.len() >= 3) {
        return format!("{root}y");
    }
    // So long that the singular has an ending to lose, too.
    let one = word.strip_suffix('s').filter(|one| one.ends_with("ing") && one.len() >= 6);
    let word = one.unwrap_or(word);
    for ending in ["ing", "es", "ed", "s"] {
        if let Some(root) = word.strip_suffix(ending)
            && root.len() >= 3
            && !root.ends_with('s')
        {
            return root.trim_end_matches('e').to_owned();
        }
    }
    if word.len() > 3 { word.trim_end_matches('e').to_owned() } else { word.to_owned() }
}
