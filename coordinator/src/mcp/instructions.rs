//! What a client is told about the server before its first call. Some clients keep only the first 512
//! characters, others cut at two kilobytes: the head stands alone, and the whole stays below 1,900 bytes.

use crate::auth::Role;

const HEAD: &str = "Skein coordinates a swarm of agents: a lead hands out tasks, workers do them, and all share locks, \
messages and memory. Start with join-swarm, then my-agent-info. Workers loop: poll-task, work, store-progress \
(status completed or failed). The listed tools are the core; tools_find searches all others, tools_read and \
tools_call run them by name. A refusal says why and what to do next.";

const REST: &str = "\n\nWaiting: poll-task, wait and wait_for_trigger block until something happens; call them again \
when they time out, nothing is lost in between. wait takes the cursor of its last answer.\n\
Locks: acquire_lock before you touch what others may touch; pass its fencing_token to the guarded resource; one lock at a time; \
release_lock when done.\n\
Calls: call_agent gives a call_id, check_call asks for its result, return_value answers a call made to you.\n\
Lists: format \"columns\" gives a list as {cols, rows}, which costs less (tools_find and wait do so by themselves; \
\"rows\" gives objects); fields gives only what you name; cursor, with that of the last answer, the next page.\n\
Repeats: every changing tool takes idempotency_key; the same key returns the first answer.";

const LEAD: &str = "\n\nYou lead: call join-swarm with lead: true, then send-task (agentId for one agent, offerMode \
to let it refuse, neither for the pool), get-tasks and get-swarm to watch, wait for news, cancel-task and epics \
through tools_find. get-inbox-message shows what people wrote to you; slack-reply or inbox-delegate ends it.";
const WORKER: &str = "\n\nYou work: take what poll-task gives, report with store-progress while you work, and ask \
in post-message when you are stuck. task-action claims, accepts, rejects and releases.";
const OTHERS: &str = "\n\nYou watch: get-swarm and get-tasks show how the swarm stands.";

/// The instructions for a role; without one, for a client of which it is not known.
pub fn for_role(role: Option<Role>) -> String {
    let own = match role {
        Some(Role::Lead) => LEAD,
        Some(Role::Worker) => WORKER,
        Some(Role::Observer | Role::Operator | Role::Runner) => OTHERS,
        None => "",
    };
    format!("{HEAD}{REST}{own}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without it a lead is a worker, and what it then does is refused.
    #[test]
    fn a_lead_is_told_to_join_as_one() {
        assert!(for_role(Some(Role::Lead)).contains("join-swarm with lead: true"));
    }

    /// Whoever writes to it waits for an answer.
    #[test]
    fn a_lead_is_told_of_its_inbox() {
        assert!(for_role(Some(Role::Lead)).contains("get-inbox-message"));
    }

    #[test]
    fn no_client_cuts_them() {
        assert!(HEAD.chars().count() <= 512, "{}", HEAD.chars().count());
        for role in Role::ALL {
            let bytes = for_role(Some(role)).len();
            assert!(bytes <= 1900, "{role}: {bytes}");
        }
    }
}
