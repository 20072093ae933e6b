//! What is asked of a running instance, on its way to the instance's task. Commands wait for no room and behind no
//! tool: the coordinator takes one for given once it is here, and the task may be busy freezing for seconds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skein_shared::Refusal;
use skein_shared::fence::Token;
use skein_shared::transport::{Outcome, SetEnv};
use tokio::sync::{mpsc, oneshot};

use super::machine::STOPPED;
use crate::container::{Handle, Spec};

/// Tools that wait for an instance whose task is busy freezing or ending it. What is beyond waits for room.
const TOOLS: usize = 32;

/// What can be asked of a running instance.
#[derive(Debug)]
pub(super) enum Order {
    Freeze(Token),
    Thaw(Token),
    /// Ends its processes and keeps its files.
    Spill(Token),
    /// Starts it again, with what its wait came to.
    Restore {
        token: Token,
        input: String,
    },
    Stop {
        token: Token,
        reason: String,
        grace: Duration,
    },
    /// Ends it without a word: it was given away, as of this token.
    Kill {
        known: Token,
        reason: String,
    },
    /// The runner leaves.
    Leave,
    /// Of an agent that uses a tool.
    Tool(ForTool),
}

/// What a tool needs of the instance.
#[derive(Debug)]
pub(super) enum ForTool {
    /// Answers with what it takes to run something inside.
    Reach(oneshot::Sender<Result<Reach, Refusal>>),
    /// Sets a variable for the commands that are run inside.
    SetEnv(SetEnv, oneshot::Sender<Result<Outcome, Refusal>>),
}

/// What it takes to run something inside an instance.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) handle: Handle,
    pub(super) spec: Spec,
    /// What the agent has set for its commands.
    pub(super) variables: BTreeMap<String, String>,
}

impl Order {
    /// Of a command.
    pub(super) fn token(&self) -> Option<Token> {
        match self {
            Self::Freeze(token)
            | Self::Thaw(token)
            | Self::Spill(token)
            | Self::Restore { token, .. }
            | Self::Stop { token, .. } => Some(*token),
            Self::Kill { .. } | Self::Leave | Self::Tool(_) => None,
        }
    }
}

/// The way to an instance's task. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    commands: mpsc::UnboundedSender<Order>,
    tools: mpsc::Sender<ForTool>,
    /// The highest token that was given on.
    latest: Arc<Mutex<Option<Token>>>,
}

/// Where the task finds what was asked.
#[derive(Debug)]
pub(super) struct Mailbox {
    commands: mpsc::UnboundedReceiver<Order>,
    tools: mpsc::Receiver<ForTool>,
    /// Commands that came during a launch, and are followed after it.
    kept: VecDeque<Order>,
}

pub(super) fn open() -> (Orders, Mailbox) {
    let (commands, came) = mpsc::unbounded_channel();
    let (tools, asked) = mpsc::channel(TOOLS);
    (
        Orders { commands, tools, latest: Arc::default() },
        Mailbox { commands: came, tools: asked, kept: VecDeque::new() },
    )
}

impl Orders {
    /// Gives a command or a word of the runner's own.
    pub(super) fn give(&self, instance: &str, order: Order) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (*latest).max(order.token());
        drop(latest);
        if self.commands.send(order).is_err() {
            tracing::debug!(instance, "nothing to do: the instance has just ended");
        }
    }

    /// The highest token of what was commanded.
    pub(super) fn latest(&self) -> Option<Token> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for what a tool needs, once there is room. False when the instance has ended.
    pub(super) async fn ask(&self, what: ForTool) -> bool {
        self.tools.send(what).await.is_ok()
    }
}

impl Mailbox {
    /// The next order, commands first, in their order; none when nobody can give any more. A call that is dropped loses
    /// nothing.
    pub(super) async fn recv(&mut self) -> Option<Order> {
        if let Some(kept) = self.kept.pop_front() {
            return Some(kept);
        }
        tokio::select! {
            biased;
            order = self.commands.recv() => order,
            Some(what) = self.tools.recv() => Some(Order::Tool(what)),
        }
    }

    /// Returns when a launch is not wanted any more, with the token of that word and the reason. All that is commanded
    /// otherwise is kept for [`Self::recv`]. A call that is dropped loses nothing.
    pub(super) async fn given_up(&mut self, began: Token, latest: Token) -> (Token, String) {
        loop {
            let latest = self.kept.iter().filter_map(Order::token).fold(latest, Token::max);
            match self.commands.recv().await {
                Some(Order::Stop { token, reason, .. }) if token >= latest => return (token, reason),
                Some(Order::Kill { known, reason }) if known >= began => return (latest, reason),
                Some(Order::Leave) | None => return (latest, STOPPED.to_owned()),
                Some(Order::Stop { .. } | Order::Kill { .. }) => {}
                Some(other) => self.kept.push_back(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use skein_shared::fence::Epoch;

    use super::*;

    #[tokio::test]
    async fn commands_keep_their_order_and_wait_for_no_tool() {
        let (orders, mut mailbox) = open();
        for _ in 0..TOOLS {
            assert!(orders.ask(ForTool::Reach(oneshot::channel().0)).await);
        }
        let token = |number| Token { epoch: Epoch(1), number };
        for number in 0..100 {
            orders.give("a", Order::Thaw(token(number)));
        }
        for number in 0..100 {
            assert_eq!(mailbox.recv().await.unwrap().token(), Some(token(number)));
        }
        assert!(matches!(mailbox.recv().await, Some(Order::Tool(ForTool::Reach(_)))));
        drop(orders);
        assert!(mailbox.recv().await.is_none(), "nobody waits for tools any more");
    }
}
