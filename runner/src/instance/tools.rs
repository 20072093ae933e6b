//! Runs a transport tool inside an instance, by a process of its own there.

use serde_json::Value;
use skein_shared::transport::{self, Outcome, Tool};
use skein_shared::{Code, Refusal};
use tokio::sync::oneshot;

use super::{ForTool, Instances, Reach};
use crate::container::{Exec, Executed};
use crate::credentials::Mask;
use crate::transport::{Request, SUBCOMMAND};

impl Instances {
    /// Runs a tool and gives its [`Outcome`] as JSON. Dropped, it ends what it has started.
    ///
    /// # Errors
    /// `not_found` when the instance does not run here, `wrong_state` when it is frozen, `invalid_argument` for a tool
    /// that there is not, `internal` when the engine fails.
    pub async fn tool(&self, instance: &str, name: &str, arguments: Value) -> Result<String, Refusal> {
        let tool: Tool = serde_json::from_value(name.into()).map_err(|_| {
            Refusal::new(Code::InvalidArgument, format!("this runner has no tool `{name}`; update it"))
        })?;
        if tool == Tool::SetEnv {
            return self.set_env(instance, arguments).await;
        }
        let Reach { handle, spec, variables } = self.reach(instance).await?;
        let request = Request { tool, arguments, variables };
        let exec = Exec {
            spec,
            arguments: vec![SUBCOMMAND.to_owned()],
            input: serde_json::to_vec(&request).map_err(|error| {
                Refusal::new(Code::Internal, format!("the call cannot be written: {error}"))
            })?,
            limit: request.limit(),
            most: transport::ANSWER,
        };
        // Before it runs: with the end of the instance it is gone.
        let mask = self.shared.mask(instance).await;
        let executed = self.shared.engine.exec(&handle, &exec).await;
        let executed = executed.map_err(|problem| Refusal::new(Code::Internal, problem.to_string()))?;
        outcome(name, executed, &mask)
    }

    /// Nothing is run for it: the runner has the variables, and the commands get them.
    async fn set_env(&self, instance: &str, arguments: Value) -> Result<String, Refusal> {
        let change = serde_json::from_value(arguments);
        let change = change.map_err(|error| {
            Refusal::new(Code::InvalidArgument, format!("the arguments do not fit: {error}"))
        })?;
        written(&self.order_inside(instance, |answer| ForTool::SetEnv(change, answer)).await?)
    }

    async fn reach(&self, instance: &str) -> Result<Reach, Refusal> {
        self.order_inside(instance, ForTool::Reach).await
    }

    /// Asks an instance for what a tool needs.
    async fn order_inside<T>(
        &self,
        instance: &str,
        what: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> ForTool,
    ) -> Result<T, Refusal> {
        let gone = || {
            let problem = format!("{instance} does not run on this runner any more, and its tools with it");
            Refusal::new(Code::NotFound, problem)
        };
        let (answer, answered) = oneshot::channel();
        let orders = self.running().get(instance).cloned().ok_or_else(gone)?;
        if !orders.ask(what(answer)).await {
            return Err(gone());
        }
        answered.await.map_err(|_| gone())?
    }
}

fn written(outcome: &Outcome) -> Result<String, Refusal> {
    serde_json::to_string(outcome).map_err(|error| Refusal::new(Code::Internal, error.to_string()))
}

/// What came of a tool. What it shows may have been cut anywhere.
fn outcome(name: &str, executed: Executed, mask: &Mask) -> Result<String, Refusal> {
    let left = executed.left.map(|why| {
        format!("What it has started could not be ended, and may go on until this run ends: {why}")
    });
    if executed.timed_out {
        let told = match left {
            None => "was ended with all that it started".to_owned(),
            Some(left) => format!("nobody waits for it any more. {left}"),
        };
        return written(&Outcome::failed(format!("{name} did not come to an end in time, and {told}")));
    }
    // Written by a process of the instance: it is looked at before it is believed.
    match serde_json::from_slice::<Outcome>(&executed.output) {
        Ok(mut outcome) => {
            outcome.text = mask.hidden(&outcome.text);
            if let Some(left) = left {
                outcome.text = format!("{}\n\n{left}", outcome.text);
            }
            written(&outcome)
        }
        Err(_) => {
            let said = mask.hidden(executed.errors.trim());
            let mut problem =
                format!("{name} could not be run in the instance ({:?}): {said}", executed.exit);
            if let Some(left) = left {
                problem = format!("{problem}\n\n{left}");
            }
            Err(Refusal::new(Code::Internal, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_what_could_not_be_ended() {
        let told = |executed: Executed| outcome("bash", executed, &Mask::default()).unwrap();
        let left = || Some("nobody may do that".to_owned());
        let late = || Executed { timed_out: true, ..Executed::default() };
        assert!(told(late()).contains("was ended with all that it started"));
        let text = told(Executed { left: left(), ..late() });
        assert!(!text.contains("was ended") && text.contains("until this run ends: nobody may"), "{text}");
        let output = serde_json::to_vec(&Outcome::failed("ended after 2 seconds")).unwrap();
        let text = told(Executed { output, left: left(), ..Executed::default() });
        assert!(text.contains("ended after 2 seconds") && text.contains("nobody may do that"), "{text}");
        let unread = Executed { errors: "no such file".to_owned(), left: left(), ..Executed::default() };
        let text = outcome("bash", unread, &Mask::default()).unwrap_err().message;
        assert!(text.contains("no such file") && text.contains("nobody may do that"), "{text}");
    }
}
