//! `skein-agent`: locks, calls and signals for agents that are shell scripts, over the HTTP routes of a coordinator.
//!
//! It is called by the name of a command (`rlock KEY`), as busybox is, or with the command as its first argument
//! (`skein-agent rlock KEY`). It prints one JSON value and its exit status says what came of it. Whatever is not a
//! clear success is a failure: a script that goes on after one has what it asked for.
//!
//! It also answers the hooks of Claude Code, whose manners are others: it prints what that reads, or nothing.
//!
//! `command` reads the command line, `gateway` asks, `json` reads and writes the little JSON that there is, `names` has
//! the commands, `exit` the statuses, and `hook` decides what is said to a hook.

mod command;
mod exit;
mod gateway;
mod hook;
mod json;
mod names;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use command::{Command, Request};
use exit::Failure;
use gateway::Gateway;
use hook::Hook;

/// Longest standard input that is read: the longest value that a caller can get.
const INPUT: usize = 16 << 20;
/// How long one question after a call may wait for its end.
const ASK: Duration = Duration::from_secs(5);
/// How long a wait rests that cannot ask just now.
const REST: Duration = Duration::from_secs(1);
/// How long a hook waits for the gateway. The model waits with it, before each tool.
const HOOK: Duration = Duration::from_secs(2);
/// How long a run that ends itself waits for that.
const END: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let (said, status) = match command::parse(std::env::args()).and_then(run) {
        Ok((said, status)) => (said, status),
        Err(failure) => (failure.json(), failure.status),
    };
    if !said.is_empty() {
        // A script that does not read what is printed still gets the status.
        let _ = writeln!(std::io::stdout(), "{said}");
    }
    ExitCode::from(status)
}

/// Gives what to print, and the exit status.
fn run(command: Command) -> Result<(String, u8), Failure> {
    match command {
        Command::Help => Ok((command::usage(), exit::OK)),
        Command::Once(request) => once(&Gateway::of_environment()?, &request).map(|said| (said, exit::OK)),
        Command::Call { agent } => {
            let gateway = Gateway::of_environment()?;
            let context = input(std::io::stdin())?;
            once(&gateway, &Request::call(&agent, &context)).map(|said| (said, exit::OK))
        }
        Command::Return { value } => {
            let gateway = Gateway::of_environment()?;
            let value = value.map_or_else(|| input(std::io::stdin()), Ok)?;
            once(&gateway, &Request::returned(&value)).map(|said| (said, exit::OK))
        }
        Command::Wait { calls, timeout } => wait(&Gateway::of_environment()?, &calls, timeout),
        Command::Shutdown(request) => {
            let said = once(&Gateway::of_environment()?, &request)?;
            rest_of_the_run();
            Ok((said, exit::OK))
        }
        Command::Exit { code } => {
            let said = once(&Gateway::of_environment()?, &Request::exit(code))?;
            rest_of_the_run();
            Ok((said, code))
        }
        Command::Hook => {
            // What is wrong with an event is nothing that a model can mend.
            let event = input(std::io::stdin()).unwrap_or_default();
            Ok((answer(&event, Gateway::of_environment().ok().as_ref()), exit::OK))
        }
    }
}

/// What is said to the event of a hook; nothing is an answer too.
#[expect(clippy::disallowed_methods, reason = "this program has no clock but the system's")]
fn answer(event: &str, gateway: Option<&Gateway>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or_default();
    // Its prompts are the runner's.
    let Some(hook) = Hook::begin(event, &std::env::temp_dir(), now, false) else { return String::new() };
    let question = hook.question().map(Request::hook);
    let told = gateway.zip(question).and_then(|(gateway, question)| gateway.ask_within(&question, HOOK).ok());
    hook.answer(told.as_deref()).unwrap_or_default()
}

fn once(gateway: &Gateway, request: &Request) -> Result<String, Failure> {
    gateway.ask(request, Duration::ZERO)
}

/// Asks after one call after the other, until all are over. A coordinator that is started again, or gives way to
/// another, ends no wait: the calls go on meanwhile.
#[expect(clippy::disallowed_methods, reason = "this program has no clock but the system's")]
fn wait(gateway: &Gateway, calls: &[String], timeout: Duration) -> Result<(String, u8), Failure> {
    let end = Instant::now() + timeout;
    let mut over = Vec::new();
    for call in calls {
        let said = loop {
            let left = end.saturating_duration_since(Instant::now());
            let patience = ASK.min(left);
            let said = match gateway.ask(&Request::check(call, patience.as_secs()), patience) {
                Err(failure) if failure.passes() && !left.is_zero() => {
                    std::thread::sleep(REST.min(left));
                    continue;
                }
                said => said?,
            };
            let status = json::field(&said, "status").unwrap_or_default();
            if matches!(status, "\"completed\"" | "\"error\"") {
                break said;
            }
            if left.is_zero() {
                return Ok((json::object(&over), exit::TIMED_OUT));
            }
            if patience.as_secs() == 0 {
                // Less than a second cannot be asked for.
                std::thread::sleep(patience);
            }
        };
        over.push((call.clone(), said));
    }
    Ok((json::object(&over), exit::OK))
}

/// The run is about to be ended, and this process with it: what follows in the script must not run. A run that no
/// runner watches goes on.
#[expect(clippy::disallowed_methods, reason = "it waits for its own end, which nothing announces")]
fn rest_of_the_run() {
    if std::env::var_os("SKEIN_INSTANCE").is_some() {
        std::thread::sleep(END);
    }
}

/// All of it or nothing: what is cut off must not pass for the whole.
fn input(from: impl Read) -> Result<String, Failure> {
    let mut text = Vec::new();
    let read = from.take(INPUT as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| Failure::usage(format!("the standard input cannot be read: {error}")))?;
    if text.len() > INPUT {
        let problem = format!("the standard input is longer than {INPUT} bytes; nothing was done, send less");
        return Err(Failure::new(exit::BAD_REQUEST, problem));
    }
    String::from_utf8(text).map_err(|_| Failure::usage("the standard input is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_read_to_its_end_or_refused() {
        let letters = |count: usize| std::io::repeat(b'x').take(count as u64);
        assert_eq!(input(letters(INPUT)).map(|text| text.len()), Ok(INPUT));
        assert_eq!(input(letters(INPUT + 1)).map_err(|failure| failure.status), Err(exit::BAD_REQUEST));
    }
}
