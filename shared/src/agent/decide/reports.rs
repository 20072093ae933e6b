//! What runners report. Reports come at least once and may be late: the token tells which attempt they are
//! from.

use super::draft::Draft;
use super::runs::failed;
use crate::agent::event::Event;
use crate::agent::state::{End, Exit, Instance, RERUN, Spill, State};
use crate::agent::{Reply, Report, effects};
use crate::code::{Code, Refusal};
use crate::entity::{Effect, RunnerCommand};
use crate::fence::Token;
use crate::id::InstanceId;

/// Exit status of a run that took longer than it may.
pub(super) const TIMED_OUT: i32 = 124;

impl Draft<'_> {
    pub(super) fn report(
        &mut self,
        id: &InstanceId,
        token: Token,
        runner: &str,
        what: &Report,
    ) -> Result<Reply, Refusal> {
        let known = self.agent.instances.get(id).filter(|known| known.runner.as_deref() == Some(runner));
        let Some(instance) = known.cloned() else {
            self.dismiss(id, token, runner, what);
            return Ok(Reply::Done);
        };
        refuse_stale(&instance, token, what)?;
        if instance.token < Some(token) && is_turn(what) {
            self.overrule(&instance, Some(token));
            return Ok(Reply::Done);
        }
        match what {
            Report::Started { pid } => self.began(id, *pid),
            Report::Frozen => self.frozen(&instance),
            Report::Thawed => {}
            Report::Spilled => self.spilled(&instance),
            Report::Restored { pid } => self.restored(&instance, *pid),
            Report::Exited { code, signal, reason, usage } => {
                // The report that it had begun may still be on its way: one that is refused is sent again, behind
                // others.
                self.began(id, None);
                // Likewise that it was started again. What ends in its sleep has no status.
                if code.is_some() {
                    self.restored(&instance, None);
                }
                let exit = exit_of(&instance, *code, *signal, reason.as_deref());
                let exit = Exit { usage: *usage, ..exit };
                self.end(id, exit);
            }
            Report::StartFailed { reason, usage } => {
                let exit = instance.stop.unwrap_or_else(|| failed(&format!("start failed: {reason}")));
                self.end(id, Exit { usage: *usage, ..exit });
            }
        }
        Ok(Reply::Done)
    }

    fn frozen(&mut self, instance: &Instance) {
        if instance.spill == Some(Spill::Ordered) {
            return self.spill_refused(instance);
        }
        // A repeat, or the wait ended while the freeze was on its way.
        if instance.state != State::Freezing {
            return;
        }
        self.push(Event::Frozen { instance: instance.id.clone() });
        self.send(effects::free_slot(instance, true));
        self.bid_next();
    }

    /// An instance that this agent does not have on that runner: it ended here, or runs elsewhere. The token is that of
    /// the report: a higher one may be that of its next start there.
    fn dismiss(&mut self, id: &InstanceId, token: Token, runner: &str, what: &Report) {
        let instance = id.to_string();
        let command = match what {
            Report::Exited { .. } | Report::StartFailed { .. } => RunnerCommand::Forget { instance, token },
            Report::Started { .. }
            | Report::Frozen
            | Report::Thawed
            | Report::Spilled
            | Report::Restored { .. } => RunnerCommand::Stop {
                instance,
                token,
                reason: "the instance has ended".to_owned(),
                grace_ms: self.agent.limits().grace_ms,
            },
        };
        self.send([Effect::Runner { runner: runner.to_owned(), command }]);
    }
}

/// A report must answer the last command, except an end, which is final whatever was commanded since, and a start
/// before the end.
fn refuse_stale(instance: &Instance, token: Token, what: &Report) -> Result<(), Refusal> {
    let must_be_latest = is_turn(what) && !is_of_the_last_start(instance, token, what);
    let least = if must_be_latest { instance.token } else { instance.first_token };
    match least {
        Some(least) if token < least => Err(Refusal::new(
            Code::StaleToken,
            format!("the report on {} carries {token}, the instance is at {least}; drop it", instance.id),
        )),
        _ => Ok(()),
    }
}

/// Whether it says that a run was started again which was told to end since: it has heard what woke it all the same.
/// The number rises by one with each command, whatever the epoch.
fn is_of_the_last_start(instance: &Instance, token: Token, what: &Report) -> bool {
    let is_before_the_end = instance.token.is_some_and(|end| end.number == token.number + 1);
    instance.state == State::Stopping && is_before_the_end && matches!(what, Report::Restored { .. })
}

/// Whether it says that a run which had begun stands still, or goes on.
fn is_turn(what: &Report) -> bool {
    matches!(what, Report::Frozen | Report::Thawed | Report::Spilled | Report::Restored { .. })
}

/// What the end was: the one that was commanded, if one was, else what the process says. The exit status of a run
/// that outlived its runner's process reaches nobody; then a value that it returned is its word that it is done.
fn exit_of(instance: &Instance, code: Option<i32>, signal: Option<i32>, reason: Option<&str>) -> Exit {
    if let Some(stop) = &instance.stop {
        // The signal only carried out what was decided with the status.
        let signal = signal.filter(|_| stop.code.is_none());
        return Exit { code: stop.code.or(code), signal, ..stop.clone() };
    }
    exited(code, signal, reason, instance.returned.is_some())
}

/// The end that a run has chosen for itself.
pub(super) fn chosen(code: u8) -> Exit {
    let told = meaning(code).map(|meaning| format!("the run ended itself with status {code}: {meaning}"));
    exited(Some(code.into()), None, told.as_deref(), false)
}

/// What a status stands for that agents end with on purpose (spec: Action Llama 12).
fn meaning(code: u8) -> Option<&'static str> {
    Some(match code {
        10 => "authentication failed",
        11 => "permission denied",
        12 => "rate limited",
        13 => "invalid configuration",
        14 => "a dependency failed",
        15 => "it cannot be mended by another try",
        16 => "aborted by its user",
        _ => return None,
    })
}

fn exited(code: Option<i32>, signal: Option<i32>, reason: Option<&str>, returned: bool) -> Exit {
    let unknown = (code, signal) == (None, None);
    let completed = matches!(code, Some(0 | RERUN)) || (unknown && returned);
    let end = if completed { End::Completed } else { End::Error };
    let told = match (end, code, signal) {
        (End::Completed, Some(RERUN), _) => "completed, and asked to be run again".to_owned(),
        (End::Completed, ..) => "completed".to_owned(),
        (_, Some(TIMED_OUT), _) => "timeout".to_owned(),
        (_, Some(code), _) => format!("the run exited with status {code}"),
        (_, None, Some(signal)) => format!("the run was ended by signal {signal}"),
        (_, None, None) => {
            "how it ended is not known, since its runner was started anew meanwhile".to_owned()
        }
    };
    Exit { end, code, signal, reason: reason.map_or(told, str::to_owned), usage: None }
}
