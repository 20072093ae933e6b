//! The processes of a run, one after the other: the hooks before the agent, the agent, the hooks after it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use skein_shared::agent::RERUN;
use tokio::time::Instant;

use crate::container::Exit;
use crate::definition::Hooks;

/// A hook that takes longer is ended, and has failed (spec: Action Llama 7.2).
pub const HOOK: Duration = Duration::from_secs(5 * 60);

/// Which process of a run it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Before(usize),
    #[default]
    Agent,
    After(usize),
}

impl Stage {
    pub fn first(hooks: &Hooks) -> Self {
        if hooks.pre.is_empty() { Self::Agent } else { Self::Before(0) }
    }

    /// What comes when this process has ended. None when the run is over.
    pub fn next(self, hooks: &Hooks) -> Option<Self> {
        match self {
            Self::Before(number) if number + 1 < hooks.pre.len() => Some(Self::Before(number + 1)),
            Self::Before(_) => Some(Self::Agent),
            Self::Agent if hooks.post.is_empty() => None,
            Self::Agent => Some(Self::After(0)),
            Self::After(number) if number + 1 < hooks.post.len() => Some(Self::After(number + 1)),
            Self::After(_) => None,
        }
    }

    /// The shell's line, unless it is the agent's turn.
    pub fn hook(self, hooks: &Hooks) -> Option<&str> {
        let line = match self {
            Self::Before(number) => hooks.pre.get(number)?,
            Self::Agent => return None,
            Self::After(number) => hooks.post.get(number)?,
        };
        Some(line)
    }

    pub fn is_hook(self) -> bool {
        self != Self::Agent
    }
}

/// When a process has had the time of a hook. While it is made to stand still, that does not go on.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    stands_since: Option<Instant>,
}

impl Deadline {
    /// Of one that begins now.
    pub fn begin() -> Self {
        Self { at: Instant::now() + HOOK, stands_since: None }
    }

    /// Notes whether the process runs. Gives the moment, if it does.
    pub fn while_running(&mut self, runs: bool) -> Option<Instant> {
        if !runs {
            self.stands_since.get_or_insert_with(Instant::now);
            return None;
        }
        if let Some(since) = self.stands_since.take() {
            self.at += since.elapsed();
        }
        Some(self.at)
    }
}

/// What a failed hook is told as. None when it did not fail.
pub fn failure(hook: &str, exit: Exit, late: bool) -> Option<String> {
    let shown: String = hook.chars().take(100).collect();
    let how = match exit {
        _ if late => format!("took longer than {} seconds", HOOK.as_secs()),
        Exit { code: Some(0), .. } => return None,
        Exit { code: Some(code), .. } => format!("ended with exit code {code}"),
        Exit { signal: Some(signal), .. } => format!("was ended by signal {signal}"),
        // Nobody but its parent learns that, and its parent was the runner before this one.
        Exit { .. } => "ended after the runner was started again, so that nobody knows how".to_owned(),
    };
    Some(format!("the hook `{shown}` {how}; its output is in the run's log"))
}

/// How a run ends whose agent a hook has kept from beginning. A status by which an agent says that it is done, or wants
/// to be run again, says neither for a hook.
pub fn not_begun(hook: Exit) -> Exit {
    Exit { code: hook.code.map(|code| if matches!(code, 0 | RERUN) { 1 } else { code }), ..hook }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(pre: usize, post: usize) -> Vec<Stage> {
        let lines = |count| vec!["true".to_owned(); count];
        let hooks = Hooks { pre: lines(pre), post: lines(post) };
        let mut stages = vec![Stage::first(&hooks)];
        while let Some(next) = stages[stages.len() - 1].next(&hooks) {
            assert_eq!(next.hook(&hooks).is_some(), next.is_hook());
            stages.push(next);
        }
        stages
    }

    #[test]
    fn hooks_run_in_order_around_the_agent() {
        assert_eq!(stages(0, 0), [Stage::Agent]);
        assert_eq!(stages(2, 0), [Stage::Before(0), Stage::Before(1), Stage::Agent]);
        assert_eq!(stages(1, 2), [Stage::Before(0), Stage::Agent, Stage::After(0), Stage::After(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_stands_still_does_not_use_up_its_time() {
        let mut deadline = Deadline::begin();
        let at = deadline.while_running(true).unwrap();
        assert_eq!(at, Instant::now() + HOOK);
        assert_eq!(deadline.while_running(false), None);
        tokio::time::advance(HOOK).await;
        assert_eq!(deadline.while_running(false), None);
        tokio::time::advance(HOOK).await;
        assert_eq!(deadline.while_running(true), Some(at + 2 * HOOK));
        assert_eq!(deadline.while_running(true), Some(at + 2 * HOOK));
    }

    #[test]
    fn a_hook_that_fails_is_told_with_how_it_ended() {
        let ended = |code, signal| failure("git pull", Exit { code, signal, ..Exit::default() }, false);
        assert_eq!(ended(Some(0), None), None);
        assert!(ended(Some(3), None).unwrap().contains("`git pull` ended with exit code 3"));
        assert!(ended(None, Some(9)).unwrap().contains("signal 9"));
        assert!(ended(None, None).unwrap().contains("nobody knows"));
        assert!(failure("sleep 999", Exit::default(), true).unwrap().contains("300 seconds"));
    }
}
