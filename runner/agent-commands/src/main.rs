//! `skein-agent`: locks, calls and signals for agents that are shell scripts, over the HTTP routes of a coordinator.
//!
//! It is called by the name of a command (`rlock KEY`), as busybox is, or with the command as its first argument
//! (`skein-agent rlock KEY`). It prints one JSON value and its exit status says what came of it. Whatever is not a
//! clear success is a failure: a script that goes on after one has what it asked for.
//!
//! `command` reads the command line, `gateway` asks, `json` reads and writes the little JSON that there is, `names` has
//! the commands and `exit` the statuses.

mod command;
mod exit;
mod gateway;
mod json;
mod names;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use command::{Command, Request};
use exit::Failure;
use gateway::Gateway;

/// Longest standard input that is read: the longest value that a caller can get.
const INPUT: usize = 16 << 20;
/// How long one question after a call may wait for its end.
const ASK: Duration = Duration::from_secs(5);
/// How long a run that ends itself waits for that.
const END: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let (said, status) = match command::parse(std::env::args()).and_then(run) {
        Ok((said, status)) => (said, status),
        Err(failure) => (failure.json(), failure.status),
    };
    // A script that does not read what is printed still gets the status.
    let _ = writeln!(std::io::stdout(), "{said}");
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
    }
}

fn once(gateway: &Gateway, request: &Request) -> Result<String, Failure> {
    gateway.ask(request, Duration::ZERO)
}

/// Asks after one call after the other, until all are over.
#[expect(clippy::disallowed_methods, reason = "this program has no clock but the system's")]
fn wait(gateway: &Gateway, calls: &[String], timeout: Duration) -> Result<(String, u8), Failure> {
    let end = Instant::now() + timeout;
    let mut over = Vec::new();
    for call in calls {
        let said = loop {
            let left = end.saturating_duration_since(Instant::now());
            let patience = ASK.min(left);
            let said = gateway.ask(&Request::check(call, patience.as_secs()), patience)?;
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
