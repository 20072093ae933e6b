//! After a start: the ledger says what should run, the machine says what does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use skein_shared::{Code, Refusal};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::folders::Folders;
use super::ledger::{Row, State, What};
use super::machine::{Machine, REST};
use super::shared::LeftBehind;
use super::sleeper::Sleeper;
use super::start::Begun;
use super::{Instances, Mailbox, Orders, Shared};
use crate::container::{Exit, Failure, Handle};
use crate::endpoint::Endpoint;
use crate::error::Error;

/// How long all engines may take at the start to say what has become of the instances, and once more to end what
/// nobody asked for: the fleet gives up a runner that does not register.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long one of them may take when it is asked again, and the longest pause before that. The first pause is
/// [`REST`], and each is twice as long as the one before.
const LOOK: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);
/// How long the definition of an agent in a container may take to be there, once Docker is.
const DEFINED: Duration = Duration::from_secs(10);

/// What an engine says of an instance.
enum Seen {
    /// It runs, or stands still, and is followed from now on.
    There(Handle),
    /// It has no process, or is to have none.
    Asleep,
    /// Its process has ended.
    Ended(Handle),
    /// Nothing of it has begun, or nothing is left of what had.
    Nothing,
}

/// How an instance goes on.
enum Fate {
    Runs(Box<(Row, Begun)>),
    Sleeps(Box<Row>),
    /// What is left of it is ended, for this reason.
    Ends(Box<Row>, &'static str),
}

impl Instances {
    /// Takes over what still runs, frozen until a coordinator has spoken; reports what ended meanwhile; and ends what
    /// nobody asked for. A start with which no program had begun yet is as good as one that never came: it is not held,
    /// so its agent sends it again. What an engine cannot say anything of now counts as alive until it can.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub async fn reconcile(self: &Arc<Self>) -> Result<(), Error> {
        self.reconcile_within(PATIENCE).await
    }

    /// The same with engines that have no longer than this.
    pub(crate) async fn reconcile_within(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        let until = Instant::now() + patience;
        let (mut rows, mut known) = (Vec::new(), BTreeSet::new());
        for row in self.shared.ledger.held().await?.into_iter().filter(|row| row.state.is_live()) {
            match row.state {
                State::Accepted => self.forget(&row.instance).await?,
                _ => rows.push(row),
            }
        }
        // At one time: each may take as long as all.
        let mut looks = Vec::with_capacity(rows.len());
        for row in &rows {
            looks.push(timeout_at(until, self.look(row)));
        }
        let seen = join_all(looks).await;
        for (row, seen) in rows.into_iter().zip(seen) {
            let instance = row.instance.clone();
            let goes_on = match seen.unwrap_or_else(|_| Err(unanswered())) {
                Ok(seen) => self.take_over(row, seen, until).await?,
                Err(problem) => {
                    self.ask_again(row, problem);
                    true
                }
            };
            if goes_on {
                known.insert(instance);
            }
        }
        for borrower in self.shared.folders.borrowers().into_iter().filter(|one| !known.contains(one)) {
            self.shared.clear(&borrower).await;
        }
        self.end_strays(&known, Instant::now() + patience).await;
        Ok(())
    }

    /// What is not ended in time is ended as often as it takes, beside all else.
    async fn end_strays(self: &Arc<Self>, known: &BTreeSet<String>, until: Instant) {
        let engine = &self.shared.engine;
        let Ok(all) = timeout_at(until, engine.list()).await else {
            return tracing::error!("strays are looked for at the next start: {}", unanswered());
        };
        for stray in all.into_iter().filter(|stray| !known.contains(stray)) {
            tracing::warn!(instance = stray, "ending processes that the ledger knows no live instance for");
            let swept = timeout_at(until, engine.sweep(&stray)).await;
            if let Err(problem) = swept.unwrap_or_else(|_| Err(unanswered())) {
                tracing::error!(instance = stray, %problem, "stray processes were not ended; tried again");
                let (shared, instance) = (Arc::clone(&self.shared), stray.clone());
                self.adopt(&stray, |_| async move {
                    // A runner that leaves leaves them to its next start.
                    let _ = shared.sweep(&instance).await;
                    None
                });
            }
        }
    }

    /// Asks what has become of one. Dropped, it has changed nothing.
    ///
    /// # Errors
    /// When that is not known now: nothing may be concluded from that.
    async fn look(&self, row: &Row) -> Result<Seen, Failure> {
        let (engine, folders) = (&self.shared.engine, &self.shared.folders);
        engine.reaches(is_contained(folders, row))?;
        let found = match &row.handle {
            None if may_have_begun(folders, row) => engine.find(&row.instance, row.user).await?,
            known => known.clone(),
        };
        // One of which a process is found was being started again.
        if row.state == State::Spilled && (row.handle.is_some() || found.is_none()) {
            return Ok(Seen::Asleep);
        }
        let Some(handle) = found else { return Ok(Seen::Nothing) };
        let is_there = engine.adopt(&handle, &folders.log(&row.instance)).await;
        Ok(if is_there { Seen::There(handle) } else { Seen::Ended(handle) })
    }

    /// False for one that has ended, or counts for nothing.
    async fn take_over(self: &Arc<Self>, mut row: Row, seen: Seen, until: Instant) -> Result<bool, Error> {
        if matches!(seen, Seen::Nothing) && self.never_began(&row, until).await {
            return self.forget(&row.instance).await.map(|()| false);
        }
        self.note_found(&mut row, &seen).await?;
        let (instance, fate) = (row.instance.clone(), self.fate(row, seen).await);
        if let Fate::Ends(row, reason) = &fate {
            let ended = timeout_at(until, end(&self.shared, row)).await;
            match ended.unwrap_or_else(|_| Err(unanswered())) {
                Ok(()) => {
                    let row = ended_alone(&self.shared, Row::clone(row), reason).await;
                    let token = row.token;
                    return self.shared.report_end(row, token).await.map(|()| false);
                }
                Err(problem) => {
                    tracing::error!(instance, %problem, "what is left of it was not ended; tried again");
                }
            }
        }
        let shared = Arc::clone(&self.shared);
        self.adopt(&instance, |mailbox| live_on(shared, fate, mailbox));
        Ok(true)
    }

    /// Whether it is one that the runner was starting when it ended, and of which no program had begun. Whatever there
    /// is of it was started before this runner had the data folder, so it is found and ended, and begins nothing
    /// afterwards.
    async fn never_began(&self, row: &Row, until: Instant) -> bool {
        row.state == State::Starting
            && matches!(timeout_at(until, self.shared.engine.sweep(&row.instance)).await, Ok(Ok(())))
            && self.shared.folders.unbegun(&row.instance).exists()
    }

    /// Takes a start for one that never came.
    async fn forget(&self, instance: &str) -> Result<(), Error> {
        tracing::info!(instance, "it had not begun when the runner ended; its start comes again");
        self.shared.ledger.remove(instance).await?;
        self.shared.clear(instance).await;
        Ok(())
    }

    /// Writes down the process that was found of one which the runner had started, or started again after a long sleep,
    /// when it ended: what has begun goes on as if that had been known.
    async fn note_found(&self, row: &mut Row, seen: &Seen) -> Result<(), Error> {
        let (Seen::There(handle) | Seen::Ended(handle)) = seen else { return Ok(()) };
        if row.handle.is_some() {
            return Ok(());
        }
        let pid = handle.pid;
        let mut found = row.clone();
        let what = if row.state == State::Spilled {
            found.input.clear();
            What::Restored { pid }
        } else {
            What::Started { pid }
        };
        (found.handle, found.state) = (Some(handle.clone()), State::Running);
        self.shared.ledger.save(found.clone(), Some(what)).await?;
        *row = found;
        self.shared.reported.send_modify(|count| *count += 1);
        Ok(())
    }

    /// How one goes on of which that much is known.
    async fn fate(&self, row: Row, seen: Seen) -> Fate {
        let reason = match seen {
            Seen::There(handle) => match Endpoint::open(&row, self.shared.upstreams.clone()).await {
                Ok(endpoint) => {
                    tracing::info!(instance = row.instance, pid = handle.pid, "taken over");
                    // Its former runner knew the definition as it was then.
                    let definition = self.shared.definition(&row).ok();
                    return Fate::Runs(Box::new((row, Begun { handle, endpoint, definition })));
                }
                Err(error) => {
                    tracing::error!(instance = row.instance, %error, "its endpoint could not be opened again");
                    "its endpoint's port was taken while the runner was away"
                }
            },
            Seen::Asleep => return Fate::Sleeps(Box::new(row)),
            Seen::Ended(_) => "it ended while the runner was away",
            Seen::Nothing => "the runner ended while it started this instance",
        };
        Fate::Ends(Box::new(row), reason)
    }

    /// Takes one for alive of which nobody can say what has become, for an end would be reported of what runs on. What
    /// it is told is kept until that is known. A runner that leaves before leaves it to its next start.
    fn ask_again(self: &Arc<Self>, row: Row, problem: Failure) {
        let (instances, instance) = (Arc::clone(self), row.instance.clone());
        let unknown = Refusal::new(
            Code::Unavailable,
            format!(
                "what has become of {instance} is not known now: {problem}; try again once that is mended"
            ),
        );
        self.adopt(&instance, |mut mailbox| async move {
            instances.hold_unknown(&row).await;
            let (row, seen) = tokio::select! {
                biased;
                () = mailbox.left(&unknown) => return None,
                known = instances.see(row, problem) => known,
            };
            instances.learn(row, seen, mailbox).await
        });
    }

    /// Lets one stand still, if that can be done: elsewhere another may have taken its place.
    async fn hold_unknown(&self, row: &Row) {
        let Some(handle) = &row.handle else { return };
        if let Err(problem) = self.shared.engine.freeze(handle).await {
            tracing::warn!(instance = row.instance, %problem, "it may run on, though nothing is known of it");
        }
    }

    /// Asks until it is known what has become of one, and written down.
    async fn see(&self, mut row: Row, first: Failure) -> (Row, Seen) {
        let (mut told, mut problem, mut pause): (Option<Failure>, _, _) = (None, first, REST);
        loop {
            if told.as_ref() != Some(&problem) {
                tracing::error!(
                    instance = row.instance,
                    %problem,
                    "what has become of it is not known; it counts as alive, and is looked for until that is known"
                );
            }
            told = Some(problem);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            let looked = timeout(LOOK, self.look(&row)).await;
            problem = match looked.unwrap_or_else(|_| Err(unanswered())) {
                Ok(seen) => match self.note_found(&mut row, &seen).await {
                    Ok(()) => return (row, seen),
                    Err(error) => Failure(error.to_string()),
                },
                Err(problem) => problem,
            };
        }
    }

    /// Goes on with one of which it is known at last what has become.
    async fn learn(&self, mut row: Row, seen: Seen, mailbox: Mailbox) -> Option<Row> {
        let agent = (row.swarm.clone(), row.agent.clone());
        let mut definitions = self.shared.definitions.clone();
        // Without one it goes on all the same, as any other that is taken over.
        let _ = timeout(DEFINED, definitions.wait_for(|known| known.contains_key(&agent))).await;
        if matches!(seen, Seen::There(_)) && row.state == State::Running {
            // It stands still as far as it could be told to, and there may be a lease by now: it goes on by that.
            row.state = State::Silenced;
        }
        let mut fate = self.fate(row, seen).await;
        if let Fate::Ends(row, _) = &mut fate {
            // Whoever has commanded it meanwhile hears of its end.
            let told = self.running().get(&row.instance).and_then(Orders::latest);
            row.token = told.map_or(row.token, |told| told.max(row.token));
        }
        live_on(Arc::clone(&self.shared), fate, mailbox).await
    }
}

fn unanswered() -> Failure {
    let problem = "what it lives in does not answer; if that is Docker, look whether its daemon is stuck \
        (`docker ps`), and start that anew";
    Failure(problem.to_owned())
}

/// Whether an instance lives in a container, or sleeps with the files of one, so that nobody but Docker can say
/// anything of it: its processes would be taken for plain ones, and what is kept of it cannot be woken.
fn is_contained(folders: &Folders, row: &Row) -> bool {
    let keeps_files = || folders.kept(&row.instance).home.exists();
    match (&row.handle, row.state) {
        (Some(handle), _) => handle.container.is_some(),
        (None, State::Spilled) => keeps_files(),
        // A plain one has its endpoint at the loopback. One that has not begun is started again.
        (None, _) => {
            !folders.unbegun(&row.instance).exists() && (keeps_files() || !row.address.is_loopback())
        }
    }
}

/// Whether it is one that the runner was starting when it ended, or starting again, and that may have begun by then.
fn may_have_begun(folders: &Folders, row: &Row) -> bool {
    let was_started = row.state == State::Starting || (row.state == State::Spilled && !row.input.is_empty());
    was_started && !folders.unbegun(&row.instance).exists()
}

/// Lives with an instance to its end and gives that, as [`Machine::run`] does.
async fn live_on(shared: Arc<Shared>, fate: Fate, mailbox: Mailbox) -> Option<Row> {
    match fate {
        Fate::Runs(run) => {
            let (row, begun) = *run;
            Box::pin(Machine::new(shared, row, begun, mailbox).resume()).await
        }
        Fate::Sleeps(row) => Box::pin(sleep_on(shared, *row, mailbox)).await,
        Fate::Ends(row, reason) => end_rest(&shared, *row, reason).await.ok(),
    }
}

/// One whose processes were ended, or were to be, for the rest of a long wait. What a start that was cut short has left
/// of it is ended too: if its program had not begun, it is started again once a coordinator has spoken. One of which
/// nothing was started since waits for no engine, of which another may not answer.
async fn sleep_on(shared: Arc<Shared>, mut row: Row, mailbox: Mailbox) -> Option<Row> {
    let may_have_left = row.handle.is_some() || !row.input.is_empty();
    if let Some(handle) = row.handle.take() {
        shared.kill(&handle).await.ok()?;
        shared.take_back(&row.instance).await;
        shared.save_asleep(&row).await;
    }
    if may_have_left {
        shared.sweep(&row.instance).await.ok()?;
    }
    if !row.input.is_empty() && !shared.folders.unbegun(&row.instance).exists() {
        let row = ended_alone(&shared, row, "the runner ended while it started this instance again").await;
        shared.clear(&row.instance).await;
        return Some(row);
    }
    tracing::info!(instance = row.instance, "sleeps on");
    Sleeper { shared, row, mailbox }.run().await
}

/// Ends what is left of an instance that nobody can go on with.
async fn end(shared: &Shared, row: &Row) -> Result<(), Failure> {
    match &row.handle {
        Some(handle) => shared.engine.kill(handle).await,
        None => shared.engine.sweep(&row.instance).await,
    }
}

/// The same as often as it takes: only then it has ended.
async fn end_rest(shared: &Shared, row: Row, reason: &str) -> Result<Row, LeftBehind> {
    match &row.handle {
        Some(handle) => _ = shared.kill(handle).await?,
        None => shared.sweep(&row.instance).await?,
    }
    let row = ended_alone(shared, row, reason).await;
    shared.clear(&row.instance).await;
    Ok(row)
}

async fn ended_alone(shared: &Shared, mut row: Row, reason: &str) -> Row {
    if row.handle.is_none() {
        row.usage = shared.ending(&row, Exit::default()).await.usage;
        (row.state, row.reason) = (State::Ended, reason.to_owned());
        return row;
    }
    let exit = row.exit.unwrap_or_default();
    let ending = shared.ending(&row, exit).await;
    // A client that has said how it ended knows better.
    let reason = if ending.exit == exit { reason.to_owned() } else { String::new() };
    row.ended(ending, reason);
    row
}

#[cfg(test)]
mod tests {
    use skein_shared::fence::{Epoch, Token};

    use super::*;
    use crate::container::Isolation;

    #[test]
    fn what_lives_in_a_container_or_is_kept_of_one_is_known_without_docker() {
        let root = tempfile::tempdir().unwrap();
        let (data, work) = (root.path().join("data"), root.path().join("work"));
        let (folders, _lock) = Folders::open(&data, Some(&work), Isolation::None).unwrap();
        let token = Token { epoch: Epoch(1), number: 1 };
        let row = |state| {
            let row = Row::new("worker-1".to_owned(), "default".to_owned(), "worker".to_owned(), token, "");
            Row { state, ..row }
        };
        assert!(
            !is_contained(&folders, &row(State::Spilled)) && !is_contained(&folders, &row(State::Starting))
        );
        // Of this one the runner crashed before it knew its container.
        let started = Row { address: [172, 18, 0, 1].into(), ..row(State::Starting) };
        assert!(is_contained(&folders, &started));
        std::fs::write(folders.unbegun("worker-1"), "").unwrap();
        assert!(!is_contained(&folders, &started), "it has not begun, and is started again");
        folders.open_kept("worker-1", None).unwrap();
        assert!(is_contained(&folders, &row(State::Spilled)));
    }
}
