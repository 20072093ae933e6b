//! Ends what a tool has started and left behind, by one more process of this program beside it. A runner that is not
//! root cannot do that in a container, of which the processes are another user's; this one is the same user's.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::container::freeze;

/// The variable by which this program is told to do so, and what stands in the environment of those that end.
pub const END: &str = "SKEIN_END";

/// Whether this process was started for that, and by which mark they are known.
pub(super) fn is_asked_for() -> Option<String> {
    std::env::var(END).ok()
}

/// Kills all that has the mark, with what descends from it.
pub(super) fn serve(mark: String) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    match runtime.and_then(|runtime| runtime.block_on(freeze::kill_marked(vec![mark]))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where nobody hears it the status says it.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    use super::*;

    fn sleeper(entry: &str) -> Child {
        Command::new("sleep").arg("1000").env("SKEIN_EXEC", entry).spawn().unwrap()
    }

    #[test]
    fn all_that_has_the_mark_is_killed_and_nothing_else() {
        let mark = format!("left-by-{}", std::process::id());
        let (mut left, mut other) = (sleeper(&mark), sleeper("another's"));
        assert_eq!(serve(format!("SKEIN_EXEC={mark}")), ExitCode::SUCCESS);
        let ended = left.try_wait().unwrap();
        let runs = other.try_wait().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        left.wait().unwrap();
        assert_eq!((ended.and_then(|ended| ended.signal()), runs), (Some(9), None));
    }
}
