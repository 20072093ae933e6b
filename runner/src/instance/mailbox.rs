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

impl ForTool {
    pub(super) fn refuse(self, refusal: Refusal) {
        // Whoever asked may be gone.
        match self {
            Self::Reach(answer) => _ = answer.send(Err(refusal)),
            Self::SetEnv(_, answer) => _ = answer.send(Err(refusal)),
        }
    }
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
    /// Commands that came during a launch, or while nobody knew what had become of the instance, and are followed
    /// after that.
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
        let mut before = std::mem::take(&mut self.kept);
        loop {
            let latest = self.kept.iter().filter_map(Order::token).fold(latest, Token::max);
            let order = match before.pop_front() {
                Some(kept) => Some(kept),
                None => self.commands.recv().await,
            };
            let given_up = match order {
                Some(Order::Stop { token, reason, .. }) if token >= latest => (token, reason),
                Some(Order::Kill { known, reason }) if known >= began => (latest, reason),
                Some(Order::Leave) | None => (latest, STOPPED.to_owned()),
                Some(Order::Stop { .. } | Order::Kill { .. }) => continue,
                Some(other) => {
                    self.kept.push_back(other);
                    continue;
                }
            };
            self.kept.append(&mut before);
            return given_up;
        }
    }

    /// Returns when the runner leaves. What is commanded until then is kept for [`Self::recv`], and tools are refused.
    /// A call that is dropped loses nothing.
    pub(super) async fn left(&mut self, refusal: &Refusal) {
        loop {
            tokio::select! {
                biased;
                order = self.commands.recv() => match order {
                    Some(Order::Leave) | None => return,
                    Some(order) => self.kept.push_back(order),
                },
                Some(what) = self.tools.recv() => what.refuse(refusal.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use skein_shared::Code;
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

    #[tokio::test]
    async fn what_is_commanded_while_nothing_is_known_of_an_instance_is_followed_afterwards() {
        let (orders, mut mailbox) = open();
        let refusal = Refusal::new(Code::Unavailable, "nobody knows");
        let token = |number| Token { epoch: Epoch(1), number };
        let (asked, answer) = oneshot::channel();
        assert!(orders.ask(ForTool::Reach(asked)).await);
        orders.give("a", Order::Freeze(token(2)));
        orders.give("a", Order::Kill { known: token(1), reason: "given away".to_owned() });
        orders.give("a", Order::Freeze(token(3)));
        assert!(mailbox.left(&refusal).now_or_never().is_none(), "the runner has not left");
        assert_eq!(answer.await.unwrap().unwrap_err(), refusal);
        // A launch is given up by what came before it, and the rest is not forgotten.
        let given_up = mailbox.given_up(token(1), token(1)).now_or_never();
        assert_eq!(given_up, Some((token(2), "given away".to_owned())));
        for number in [2, 3] {
            assert_eq!(mailbox.recv().await.unwrap().token(), Some(token(number)));
        }
        orders.give("a", Order::Leave);
        mailbox.left(&refusal).await;
    }
}
