//! A line of the log for each call of a tool, also of one that its client gave up.

use skein_shared::Code;
use tokio::time::Instant;
use uuid::Uuid;

use super::catalogue::Tool;
use super::result::Reply;
use crate::auth::Principal;

/// A call under way. The line is written when it is dropped: a client that goes away drops the call with it.
pub(super) struct Audit {
    request: Uuid,
    who: Principal,
    tool: &'static str,
    started: Instant,
    outcome: Outcome,
}

enum Outcome {
    /// It was not answered, and may have changed something all the same.
    GivenUp,
    Answered {
        code: Option<Code>,
        error: bool,
    },
}

impl Audit {
    pub(super) fn begin(request: Uuid, who: Principal, tool: Option<&Tool>) -> Self {
        // The name of a tool that there is not is the caller's own words, and long perhaps.
        let tool = tool.map_or("unknown", |tool| tool.name);
        Self { request, who, tool, started: Instant::now(), outcome: Outcome::GivenUp }
    }

    pub(super) fn answered(mut self, reply: &Reply) {
        self.outcome = Outcome::Answered { code: reply.code, error: reply.is_error };
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        let (outcome, error) = match self.outcome {
            Outcome::GivenUp => ("given_up", false),
            Outcome::Answered { code, error } => (code.map_or("ok", Code::as_str), error),
        };
        let Principal { swarm, agent, agent_name, instance, role, .. } = &self.who;
        // Arguments and results stay out of the log: they may hold secrets.
        tracing::info!(
            target: "skein::audit",
            request = %self.request,
            %swarm,
            %agent,
            name = %agent_name,
            %instance,
            %role,
            tool = self.tool,
            outcome,
            error,
            ms = self.started.elapsed().as_millis() as u64,
            "tool call"
        );
    }
}
