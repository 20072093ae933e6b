//! The command line: which command, with which arguments, and the request that it is.

use std::time::Duration;

use crate::exit::Failure;
use crate::json;
use crate::names::NAMES;

/// The exit status of a run that names none: another try will not help.
const UNRECOVERABLE: u8 = 15;
/// How long calls are waited for when nothing is said.
const PATIENCE: Duration = Duration::from_secs(900);

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Once(Request),
    /// It does not return from that.
    Shutdown(Request),
    /// The context comes from standard input.
    Call {
        agent: String,
    },
    Wait {
        calls: Vec<String>,
        timeout: Duration,
    },
    /// Without a value it comes from standard input.
    Return {
        value: Option<String>,
    },
    Exit {
        code: u8,
    },
    /// The event comes from standard input.
    Hook,
}

/// A request of the gateway.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// JSON; without it the request is a GET.
    pub(crate) body: Option<String>,
}

impl Request {
    fn post(path: &str, fields: &[(&str, String)]) -> Self {
        let fields: Vec<_> = fields.iter().map(|(name, json)| ((*name).to_owned(), json.clone())).collect();
        Self { path: path.to_owned(), body: Some(json::object(&fields)) }
    }

    pub(crate) fn call(agent: &str, context: &str) -> Self {
        Self::post("/calls", &[("targetAgent", json::text(agent)), ("context", json::text(context))])
    }

    pub(crate) fn check(call: &str, wait: u64) -> Self {
        Self { path: format!("/calls/{call}?wait={wait}"), body: None }
    }

    pub(crate) fn returned(value: &str) -> Self {
        Self::post("/signals/return", &[("value", json::text(value))])
    }

    /// `question` is JSON already.
    pub(crate) fn hook(question: &str) -> Self {
        Self { path: "/hook".to_owned(), body: Some(question.to_owned()) }
    }

    pub(crate) fn exit(code: u8) -> Self {
        Self::post("/signals/exit", &[("code", code.to_string())])
    }
}

/// Reads the name that the program was called by, and the arguments.
pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Command, Failure> {
    let mut words = words.peekable();
    let called = words.next().unwrap_or_default();
    let called = called.rsplit('/').next().unwrap_or_default().to_owned();
    let name = if is_name(&called) { called } else { words.next().unwrap_or_default() };
    let words: Vec<String> = words.collect();
    if matches!(name.as_str(), "" | "help" | "--help" | "-h") || words.iter().any(|word| word == "--help") {
        return Ok(Command::Help);
    }
    if !is_name(&name) {
        return Err(Failure::usage(format!("there is no command `{name}`; {}", usage())));
    }
    let wrong = |problem: &str| Failure::usage(format!("{problem}; usage: {}", line(&name)));
    command(&name, words).map_err(|problem| wrong(&problem))
}

fn command(name: &str, words: Vec<String>) -> Result<Command, String> {
    let option = match name {
        "rlock" | "rlock-heartbeat" => Some("--ttl"),
        "al-subagent-wait" => Some("--timeout"),
        _ => None,
    };
    let (words, seconds) = split(words, option)?;
    let lock = |path: &str| {
        let mut fields = vec![("resourceKey", json::text(&one(&words, "KEY")?))];
        fields.extend(seconds.map(|seconds| ("ttl", seconds.to_string())));
        Ok::<_, String>(Command::Once(Request::post(path, &fields)))
    };
    match name {
        "rlock" => lock("/locks/acquire"),
        "runlock" => lock("/locks/release"),
        "rlock-heartbeat" => lock("/locks/heartbeat"),
        "al-subagent" => Ok(Command::Call { agent: one(&words, "AGENT")? }),
        "al-subagent-check" => {
            let request = Request { path: format!("/calls/{}", id(&one(&words, "CALL")?)?), body: None };
            Ok(Command::Once(request))
        }
        "al-subagent-wait" if words.is_empty() => Err("name the calls to wait for".to_owned()),
        "al-subagent-wait" => {
            let calls = words.iter().map(|word| id(word)).collect::<Result<_, _>>()?;
            Ok(Command::Wait { calls, timeout: seconds.map_or(PATIENCE, Duration::from_secs) })
        }
        "al-return" => Ok(Command::Return { value: text(&words) }),
        "al-status" => {
            let text = text(&words).filter(|text| !text.is_empty()).ok_or("say what the run is doing")?;
            Ok(Command::Once(Request::post("/signals/status", &[("text", json::text(&text))])))
        }
        "al-rerun" => none(&words).map(|()| Command::Once(Request::post("/signals/rerun", &[]))),
        "al-exit" => {
            let code = match words.as_slice() {
                [] => UNRECOVERABLE,
                [code] => code.parse().map_err(|_| format!("`{code}` is no exit status from 0 to 255"))?,
                _ => return Err("one exit status is enough".to_owned()),
            };
            Ok(Command::Exit { code })
        }
        "skein-hook" => none(&words).map(|()| Command::Hook),
        _ => {
            let fields: Vec<_> = text(&words).iter().map(|text| ("reason", json::text(text))).collect();
            Ok(Command::Shutdown(Request::post("/shutdown", &fields)))
        }
    }
}

fn is_name(word: &str) -> bool {
    NAMES.iter().any(|(name, ..)| *name == word)
}

/// Takes an option with a number of seconds out of the words.
fn split(words: Vec<String>, option: Option<&str>) -> Result<(Vec<String>, Option<u64>), String> {
    let (mut rest, mut seconds) = (Vec::new(), None);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let given = option.filter(|option| word == *option || word.starts_with(&format!("{option}=")));
        let Some(option) = given else {
            // No key and no call begins so.
            if option.is_some() && word.starts_with("--") {
                return Err(format!("there is no option `{word}`"));
            }
            rest.push(word);
            continue;
        };
        let value = match word.split_once('=') {
            Some((_, value)) => value.to_owned(),
            None => words.next().unwrap_or_default(),
        };
        seconds = Some(value.parse().map_err(|_| format!("{option} needs a whole number of seconds"))?);
    }
    Ok((rest, seconds))
}

fn one(words: &[String], what: &str) -> Result<String, String> {
    match words {
        [word] if !word.is_empty() => Ok(word.clone()),
        [] | [_] => Err(format!("{what} is missing")),
        _ => Err(format!("one {what} is enough; put it into quotes if it has spaces")),
    }
}

fn none(words: &[String]) -> Result<(), String> {
    if words.is_empty() { Ok(()) } else { Err("it takes no arguments".to_owned()) }
}

/// All words as one text.
fn text(words: &[String]) -> Option<String> {
    (!words.is_empty()).then(|| words.join(" "))
}

/// The id of a call, which becomes a part of an address.
fn id(word: &str) -> Result<String, String> {
    let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if plain { Ok(word.to_owned()) } else { Err(format!("`{word}` is no id of a call")) }
}

fn line(name: &str) -> String {
    let found = NAMES.iter().find(|(known, ..)| *known == name);
    found.map_or_else(String::new, |(name, takes, _)| format!("{name} {takes}").trim_end().to_owned())
}

pub(crate) fn usage() -> String {
    let mut text = "usage: skein-agent COMMAND …, or the COMMAND by itself where it is linked:".to_owned();
    for (name, takes, does) in NAMES {
        text += &format!("\n  {:<44} {does}", format!("{name} {takes}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Failure> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn once(path: &str, body: &str) -> Command {
        Command::Once(Request { path: path.to_owned(), body: Some(body.to_owned()) })
    }

    #[test]
    fn a_command_is_known_by_its_name_or_its_first_argument() {
        let lock = once("/locks/acquire", r#"{"resourceKey":"a:b"}"#);
        for line in ["rlock a:b", "/app/bin/rlock a:b", "skein-agent rlock a:b", "./other rlock a:b"] {
            assert_eq!(parsed(line).as_ref(), Ok(&lock), "{line}");
        }
        for line in ["skein-agent", "skein-agent help", "rlock --help"] {
            assert_eq!(parsed(line), Ok(Command::Help), "{line}");
        }
    }

    #[test]
    fn each_command_is_a_request() {
        for (line, path, body) in [
            ("rlock a:b --ttl 60", "/locks/acquire", r#"{"resourceKey":"a:b","ttl":60}"#),
            ("runlock a:b", "/locks/release", r#"{"resourceKey":"a:b"}"#),
            ("rlock-heartbeat --ttl=5 a:b", "/locks/heartbeat", r#"{"resourceKey":"a:b","ttl":5}"#),
            ("al-status half way", "/signals/status", r#"{"text":"half way"}"#),
            ("al-rerun", "/signals/rerun", "{}"),
        ] {
            assert_eq!(parsed(line), Ok(once(path, body)), "{line}");
        }
        for (line, body) in [("al-shutdown", "{}"), ("al-shutdown disk full", r#"{"reason":"disk full"}"#)] {
            let request = Request { path: "/shutdown".to_owned(), body: Some(body.to_owned()) };
            assert_eq!(parsed(line), Ok(Command::Shutdown(request)), "{line}");
        }
        let check = Request { path: "/calls/1-a".to_owned(), body: None };
        assert_eq!(parsed("al-subagent-check 1-a"), Ok(Command::Once(check)));
        assert_eq!(parsed("al-subagent helper"), Ok(Command::Call { agent: "helper".to_owned() }));
        assert_eq!(parsed("al-return"), Ok(Command::Return { value: None }));
        assert_eq!(parsed("skein-hook"), Ok(Command::Hook));
        assert_eq!(
            (parsed("al-exit"), parsed("al-exit 3")),
            (Ok(Command::Exit { code: 15 }), Ok(Command::Exit { code: 3 }))
        );
        let (calls, timeout) = (vec!["1".to_owned(), "2".to_owned()], Duration::from_secs(7));
        assert_eq!(parsed("al-subagent-wait 1 2 --timeout 7"), Ok(Command::Wait { calls, timeout }));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_usage() {
        for line in [
            "rlock",
            "rlock a:b c:d",
            "rlock a:b --ttl",
            "rlock a:b --ttl soon",
            "runlock",
            "al-subagent",
            "al-subagent-check",
            "al-subagent-check ../x",
            "al-subagent-wait",
            "al-status",
            "al-rerun now",
            "skein-hook now",
            "al-exit 256",
            "al-exit 1 2",
            "skein-agent nonsense",
        ] {
            let failure = parsed(line).unwrap_err();
            assert_eq!(failure.status, crate::exit::USAGE, "{line}");
            assert!(failure.json().contains("usage: "), "{line}: {}", failure.json());
        }
    }

    /// Else it would be one call more that nobody knows, and the time to wait another.
    #[test]
    fn an_option_that_there_is_not_is_told_by_its_name() {
        for line in ["rlock a:b --tl 4", "rlock-heartbeat --tl=4 a:b", "al-subagent-wait 1 --timout 7"] {
            let failure = parsed(line).unwrap_err();
            assert_eq!(failure.status, crate::exit::USAGE, "{line}");
            assert!(failure.json().contains("there is no option `--t"), "{line}: {}", failure.json());
        }
    }
}
