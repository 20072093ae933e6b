//! A runner's reports on their way to its agents: those of one agent one after another, in their order; those of
//! different agents beside one another. So a runner that starts a thousand instances does not wait for a thousand
//! commits in a row, and its heartbeats do not wait behind them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::pending;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use skein_proto::convert::{self, command};
use skein_proto::v1::report::What;
use skein_proto::v1::{Exited, Report, Restored, StartFailed, Started};
use skein_shared::agent::{self, Agent};
use skein_shared::id::{EntityKey, InstanceId, Name};
use skein_shared::{Code, Refusal};
use tracing::warn;

use crate::entity::{Entities, Request};

/// Reports that are taken in at a time, of all agents and of one: what its owner cannot take in just now keeps no other
/// agent's out. Past them a report counts as never said: heartbeats come over the same stream, so it is read on all the
/// same, and the runner says the report again. One whose reports are acknowledged says no more than some 300 at a time,
/// and these may be of one agent.
const MOST: usize = 4096;
const OF_ONE: usize = 512;

/// The agent that a report is about.
type Lane = (String, String);

/// The reports of one stream.
pub(super) struct Reports {
    entities: Entities,
    runner: String,
    under_way: FuturesUnordered<BoxFuture<'static, (Lane, u64, bool)>>,
    /// What waits behind the one of its agent that is under way.
    waiting: HashMap<Lane, VecDeque<Report>>,
    /// The sequences of those that are under way or wait. The runner says each again and again until it is
    /// acknowledged.
    taken: HashSet<u64>,
}

impl Reports {
    pub(super) fn new(entities: Entities, runner: &str) -> Self {
        Self {
            entities,
            runner: runner.to_owned(),
            under_way: FuturesUnordered::new(),
            waiting: HashMap::new(),
            taken: HashSet::new(),
        }
    }

    /// Takes in a report, unless it is under way already or there is no room.
    pub(super) fn take_in(&mut self, report: Report) {
        let lane = (report.swarm.clone(), report.agent.clone());
        let before = self.waiting.get(&lane).map_or(0, VecDeque::len);
        let has_room = self.taken.len() < MOST && before < OF_ONE;
        if !has_room || !self.taken.insert(report.sequence) {
            return;
        }
        match self.waiting.get_mut(&lane) {
            Some(waiting) => waiting.push_back(report),
            None => {
                self.waiting.insert(lane.clone(), VecDeque::new());
                self.send(lane, report);
            }
        }
    }

    /// The sequence of the next report that is to be acknowledged: it was committed, or can never be. Waits for
    /// as long as none is under way. A call that is dropped loses nothing.
    pub(super) async fn acknowledged(&mut self) -> u64 {
        loop {
            let Some((lane, sequence, is_done)) = self.under_way.next().await else { pending().await };
            self.taken.remove(&sequence);
            match self.waiting.get_mut(&lane).and_then(VecDeque::pop_front) {
                Some(next) => self.send(lane, next),
                None => {
                    self.waiting.remove(&lane);
                }
            }
            if is_done {
                return sequence;
            }
        }
    }

    fn send(&mut self, lane: Lane, report: Report) {
        let (entities, runner) = (self.entities.clone(), self.runner.clone());
        self.under_way.push(Box::pin(async move {
            let sequence = report.sequence;
            (lane, sequence, hand_over(&entities, runner, report).await)
        }));
    }
}

/// Whether the runner need not send it again.
async fn hand_over(entities: &Entities, runner: String, report: Report) -> bool {
    let instance = report.instance.clone();
    let Err(refusal) = tell(entities, runner.clone(), report).await else { return true };
    // One whose agent cannot be loaded waits until that is repaired, as an effect does.
    let is_unloadable = refusal.code == Code::Internal && refusal.retry_after_ms.is_some();
    let again = refusal.code.is_passing() || is_unloadable;
    warn!(runner, instance, again, problem = %refusal.message, "a runner's report was refused");
    !again
}

async fn tell(entities: &Entities, runner: String, report: Report) -> Result<(), Refusal> {
    let key = EntityKey::agent(&Name::parse(&report.swarm)?, &Name::parse(&report.agent)?);
    let command = agent::Command::Report {
        instance: InstanceId(report.instance),
        token: command::token(&report.token)?,
        runner,
        what: what(report.what)?,
    };
    entities.ask::<Agent>(&key, Request::read(), command).await.map(|_| ())
}

fn what(what: Option<What>) -> Result<agent::Report, Refusal> {
    Ok(match what {
        Some(What::Started(Started { pid })) => agent::Report::Started { pid: (pid != 0).then_some(pid) },
        Some(What::Frozen(_)) => agent::Report::Frozen,
        Some(What::Thawed(_)) => agent::Report::Thawed,
        Some(What::Spilled(_)) => agent::Report::Spilled,
        Some(What::Restored(Restored { pid })) => agent::Report::Restored { pid: (pid != 0).then_some(pid) },
        Some(What::Exited(Exited { code, signal, reason, usage })) => {
            let (reason, usage) = ((!reason.is_empty()).then_some(reason), usage.map(convert::usage));
            agent::Report::Exited { code, signal, reason, usage }
        }
        Some(What::StartFailed(StartFailed { reason, usage })) => {
            agent::Report::StartFailed { reason, usage: usage.map(convert::usage) }
        }
        None => {
            return Err(Refusal::new(Code::InvalidArgument, "the report says nothing; update the runner"));
        }
    })
}

#[cfg(test)]
mod tests {
    use skein_shared::fence::{Epoch, Token};

    use super::*;
    use crate::entity::tests::{node, poison};
    use crate::store::memory::{Fault, Gate};

    fn report(sequence: u64, agent: &str) -> Report {
        Report {
            sequence,
            instance: format!("{agent}-00000001"),
            swarm: "default".to_owned(),
            agent: agent.to_owned(),
            token: Token { epoch: Epoch(1), number: sequence }.to_string(),
            what: Some(What::Started(Started { pid: 1 })),
        }
    }

    #[tokio::test]
    async fn a_slow_commit_delays_its_agents_reports_alone() {
        let (node, gate) = (node(), Gate::default());
        node.store.contents().faults().push(Fault::Slow(gate.clone()));
        let mut reports = Reports::new(node.entities.clone(), "r1");
        for (sequence, agent) in [(1, "one"), (2, "one"), (3, "two"), (4, "two")] {
            reports.take_in(report(sequence, agent));
        }
        let quick = [reports.acknowledged().await, reports.acknowledged().await];
        gate.open();
        let slow = [reports.acknowledged().await, reports.acknowledged().await];
        let mut both = [quick, slow];
        both.sort_unstable();
        assert_eq!(both, [[1, 2], [3, 4]]);
        assert!(reports.waiting.is_empty() && reports.taken.is_empty());
    }

    #[tokio::test]
    async fn a_report_that_is_said_again_and_again_takes_no_more_room() {
        let (node, gate) = (node(), Gate::default());
        node.store.contents().faults().push(Fault::Slow(gate.clone()));
        let mut reports = Reports::new(node.entities.clone(), "r1");
        for _ in 0..2 * MOST {
            reports.take_in(report(1, "one"));
            reports.take_in(report(2, "one"));
        }
        assert_eq!(reports.taken.len(), 2);
        gate.open();
        assert_eq!([reports.acknowledged().await, reports.acknowledged().await], [1, 2]);
        assert!(reports.under_way.is_empty() && reports.taken.is_empty());
    }

    #[tokio::test]
    async fn an_agent_that_takes_nothing_in_keeps_the_reports_of_no_other_waiting() {
        let (node, gate) = (node(), Gate::default());
        node.store.contents().faults().push(Fault::Slow(gate.clone()));
        let mut reports = Reports::new(node.entities.clone(), "r1");
        let all = 2 * MOST as u64;
        for sequence in 1..=all {
            reports.take_in(report(sequence, "one"));
        }
        assert_eq!(reports.taken.len(), OF_ONE + 1);
        let commits = async {
            while node.store.contents().faults().left() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            sequence = reports.acknowledged() => panic!("{sequence} was taken in"),
            () = commits => {}
        }
        reports.take_in(report(all + 1, "two"));
        assert_eq!(reports.acknowledged().await, all + 1);
        gate.open();
        // The runner says the rest again once these are acknowledged.
        assert_eq!([reports.acknowledged().await, reports.acknowledged().await], [1, 2]);
        reports.take_in(report(all, "one"));
        assert!(reports.taken.contains(&all), "it is never taken in");
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_to_an_agent_that_cannot_be_loaded_waits_for_its_repair() {
        let node = node();
        let agent = EntityKey::agent(&Name::parse("default").unwrap(), &Name::parse("one").unwrap());
        poison(&node, agent).await;
        assert!(!hand_over(&node.entities, "r1".to_owned(), report(1, "one")).await);
        let unknown = hand_over(&node.entities, "r1".to_owned(), report(2, "two")).await;
        assert!(unknown, "nobody will ever want it");
    }
}
