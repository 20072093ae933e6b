//! Sends what runs have written, and goes on while they write.

use std::time::Duration;

use skein_shared::ask::LogQuery;
use skein_shared::id::InstanceId;
use skein_shared::{Code, Refusal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::logs::Run;
use crate::auth::Principal;

/// How long a runner holds a question for a line that is not there yet.
const HOLD: Duration = Duration::from_secs(15);
/// How long to wait before a runner that cannot be reached is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often, and for how many times, to look whether an end is written down.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 50;
/// Most lines of one answer.
pub const PAGE: u32 = 2000;

type Listener = mpsc::Sender<Part>;

/// Lines of a run, or something that is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub instance: InstanceId,
    pub lines: Vec<String>,
    pub note: String,
}

/// What is to be sent of which runs.
pub struct Logs {
    pub service: Service,
    pub who: Principal,
    pub runs: Vec<Run>,
    /// The last of each to begin with.
    pub lines: u32,
    /// Only lines that match this regular expression.
    pub grep: Option<String>,
    pub follow: bool,
    pub stop: CancellationToken,
}

/// Nobody listens any more.
struct Gone;

impl Logs {
    /// Sends the last lines of each run; with `follow` it goes on with the last run until that has ended.
    ///
    /// # Errors
    /// `unavailable` where the node stops before that.
    pub async fn run(self, listener: Listener) -> Result<(), Refusal> {
        let stop = self.stop.clone();
        let sending = async {
            let last = self.runs.len().saturating_sub(1);
            for (number, run) in self.runs.iter().enumerate() {
                if self.send(run, self.follow && number == last, &listener).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = sending => Ok(()),
            () = listener.closed() => Ok(()),
            () = stop.cancelled() => {
                let problem = "this coordinator is stopping, and what comes after this was not sent; call again";
                Err(Refusal::new(Code::Unavailable, problem))
            }
        }
    }

    async fn send(&self, run: &Run, follow: bool, listener: &Listener) -> Result<(), Gone> {
        let run = &(if follow { self.placed(run, listener).await? } else { run.clone() });
        let Some(runner) = &run.runner else {
            return say(run, Vec::new(), format!("{}. It is on no runner", run.state), listener).await;
        };
        let (mut after, mut over) = (None, false);
        while !over {
            let wait_ms = if after.is_some() { u64::try_from(HOLD.as_millis()).unwrap_or(0) } else { 0 };
            let lines = if after.is_some() { PAGE } else { self.lines };
            let query = LogQuery { after, lines, grep: self.grep.clone(), wait_ms };
            let part = match self.service.log(&run.instance, runner, query).await {
                Ok(part) => part,
                Err(refusal) => {
                    let now = self.now(run).await;
                    // A runner that restarts comes back, and its logs with it; one that is told to start the run has no
                    // log of it before that. Once the run is over it may be gone for good.
                    let is_away = refusal.code.is_passing() || refusal.code == Code::NotFound;
                    if follow && is_away && !now.ended {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    say(run, Vec::new(), refusal.message, listener).await?;
                    return say(run, Vec::new(), now.state, listener).await;
                }
            };
            // Behind the last line there is none, but more may fit behind the end of a page.
            over = !follow || (part.over && part.lines.is_empty());
            after = Some(part.next);
            if !part.lines.is_empty() {
                say(run, part.lines, String::new(), listener).await?;
            }
        }
        let state = if follow { self.end(run).await } else { run.state.clone() };
        say(run, Vec::new(), state, listener).await
    }

    /// A run that waits for a slot, as soon as it has one or is over.
    async fn placed(&self, run: &Run, listener: &Listener) -> Result<Run, Gone> {
        let mut now = run.clone();
        if now.runner.is_none() && !now.ended {
            say(run, Vec::new(), format!("{}. It has no runner yet", run.state), listener).await?;
        }
        while now.runner.is_none() && !now.ended {
            tokio::time::sleep(LOOK).await;
            now = self.now(&now).await;
        }
        Ok(now)
    }

    /// How a run that the runner knows to be over has ended: a moment later it is written down.
    async fn end(&self, run: &Run) -> String {
        let mut now = self.now(run).await;
        for _ in 0..LOOKS {
            if now.ended {
                break;
            }
            tokio::time::sleep(LOOK).await;
            now = self.now(run).await;
        }
        now.state
    }

    /// A run as it is now, or as it was when it cannot be found out. Of one that was queued for a call nothing is left
    /// once an instance that waited has taken the call.
    async fn now(&self, run: &Run) -> Run {
        match self.service.runs(&self.who, &run.instance.0, None).await {
            Ok(runs) => runs.into_iter().next().unwrap_or_else(|| run.clone()),
            Err(refusal) if refusal.code == Code::NotFound => {
                let state =
                    format!("{}: not known any more; another instance may have its call", run.instance);
                Run { state, ended: true, ..run.clone() }
            }
            Err(_) => run.clone(),
        }
    }
}

async fn say(run: &Run, lines: Vec<String>, note: String, listener: &Listener) -> Result<(), Gone> {
    let part = Part { instance: run.instance.clone(), lines, note };
    listener.send(part).await.map_err(|_| Gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::{Node, node};

    fn queued(number: u32) -> Run {
        Run {
            instance: InstanceId(format!("worker-{number:08}")),
            runner: None,
            state: "It is queued".to_owned(),
            ended: false,
        }
    }

    fn logs(node: &Node, runs: Vec<Run>, follow: bool) -> Logs {
        Logs {
            service: Service::new(node.entities.clone()),
            who: Principal::named("operator", Role::Operator),
            runs,
            lines: 10,
            grep: None,
            follow,
            stop: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn who_follows_a_queued_run_whose_call_another_one_has_taken_is_told_so() {
        let node = node();
        let (listener, mut parts) = mpsc::channel(10);
        let following = tokio::spawn(logs(&node, vec![queued(1)], true).run(listener));
        let followed = tokio::time::timeout(Duration::from_secs(60), following).await;
        followed.expect("it follows a run that is not there").unwrap().unwrap();
        let mut notes = Vec::new();
        while let Some(part) = parts.recv().await {
            notes.push(part.note);
        }
        assert!(notes.last().is_some_and(|note| note.contains("not known any more")), "{notes:?}");
    }

    #[tokio::test]
    async fn who_follows_runs_and_does_not_read_is_told_all_the_same_why_it_ends() {
        let node = node();
        let logs = logs(&node, (1..4).map(queued).collect(), false);
        let stop = logs.stop.clone();
        let (listener, mut parts) = mpsc::channel(1);
        let following = tokio::spawn(logs.run(listener));
        while parts.is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        let stopped = tokio::time::timeout(Duration::from_secs(60), following).await.unwrap();
        assert_eq!(stopped.unwrap().unwrap_err().code, Code::Unavailable);
        assert!(parts.recv().await.is_some());
        assert!(parts.recv().await.is_none());
    }
}
