//! What is said and heard on one control stream, from the registration to its end.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use skein_proto::convert::command;
use skein_proto::trace::{self, TRACES};
use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::runner_message::Message as Said;
use skein_proto::v1::{CoordinatorMessage, Heartbeat, Leaving, Outranked, RunnerMessage, Welcome};
use skein_shared::entity::Reign;
use skein_shared::fence::Epoch;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tonic::Streaming;
use tracing::{Instrument, debug_span};

use super::announcement::{Announcement, Occasion};
use super::asks::Asked;
use super::backlog::{Backlog, Part};
use super::stream::{Control, Ended, GIVEN_UP, Opened};
use super::{Departure, reports};

/// How long a registration may take: the fleet may be about to get another owner.
const WELCOME: Duration = Duration::from_secs(20);
/// A report that is not acknowledged for about this long is sent again.
const RESEND: Duration = Duration::from_secs(5);
/// Heartbeats whose answers are still awaited.
const PENDING: usize = 16;

/// A stream while it lasts.
pub(super) struct Session<'a> {
    control: &'a Control,
    said: mpsc::Sender<RunnerMessage>,
    heard: Streaming<CoordinatorMessage>,
    /// Which reports are sent on this stream, and when.
    backlog: Backlog,
    /// What goes beside all else: large answers must not hold up a heartbeat.
    answers: mpsc::Sender<RunnerMessage>,
    asked: Asked,
    /// Heartbeats under way, with the times at which they were sent.
    pending: Vec<(u64, Instant)>,
    beats: u64,
    /// As the welcome said.
    lease: Duration,
    /// What was said of changed agents, and is not yet answered.
    announcements: VecDeque<Announcement>,
    /// When the agents are said again, for some could not be taken, or not be written down, for a reason that passes.
    again: Option<Instant>,
    /// How much of its leaving the runner has said on this stream.
    departed: Departure,
    /// The registration that the stream belongs to, by its number.
    registration: u64,
}

impl<'a> Session<'a> {
    pub(super) fn new(control: &'a Control, opened: Opened) -> Self {
        let Opened { said, answers, heard } = opened;
        Self {
            control,
            said,
            answers,
            asked: Asked::default(),
            heard,
            backlog: Backlog::default(),
            pending: Vec::new(),
            beats: 0,
            lease: Duration::ZERO,
            announcements: VecDeque::new(),
            again: None,
            departed: Departure::None,
            registration: control.runner.registrations.load(Ordering::Acquire),
        }
    }

    pub(super) async fn run(mut self) -> Ended {
        let ended = match self.serve().await {
            Ok(()) => Ended::Broken("the coordinator closed it".into()),
            Err(ended) => ended,
        };
        // Another stream may have registered since: then the refusal is about what was before.
        let given_up = matches!(&ended, Ended::Refused { code, .. } if code == GIVEN_UP)
            && self.registration == self.control.runner.registrations.load(Ordering::Acquire);
        let unanswered = self.announcements.iter().any(|announcement| !announcement.attaches);
        let unsaid = unanswered || self.again.is_some();
        if given_up || unsaid {
            // Nobody else will say it: the next stream has to register.
            self.control.runner.lost.store(true, Ordering::Release);
        }
        ended
    }

    async fn serve(&mut self) -> Result<(), Ended> {
        let runner = &self.control.runner;
        // Before the first report is sent: none may fall between.
        let mut reported = runner.instances.reported();
        let mut speakers = runner.speakers.changes();
        let mut losses = runner.speakers.losses();
        let mut definitions = runner.definitions.clone();
        definitions.mark_unchanged();
        let mut engines = runner.engines.clone();
        engines.mark_unchanged();
        let mut departure = runner.departure.subscribe();
        self.register().await?;
        let mut heartbeat = interval(self.lease / 3);
        let mut resend = interval(RESEND);
        loop {
            tokio::select! {
                message = self.heard.message() => match message? {
                    Some(message) => self.hear(message).await?,
                    None => return Ok(()),
                },
                _ = heartbeat.tick() => self.beat()?,
                _ = reported.changed() => self.speak().await?,
                _ = speakers.changed() => self.speak().await?,
                _ = losses.changed() => self.compare().await?,
                Ok(()) = definitions.changed() => self.announce(runner.takes_turn()).await?,
                Ok(()) = engines.changed() => self.announce(runner.takes_turn()).await?,
                () = at(self.again) => self.announce(Occasion::Changed).await?,
                Ok(()) = departure.changed() => self.depart()?,
                _ = resend.tick() => self.repeat().await?,
            }
        }
    }

    /// Registers, or attaches to the registration of another stream: one is enough to say what the runner is.
    async fn register(&mut self) -> Result<(), Ended> {
        let runner = &self.control.runner;
        let turn = if runner.is_registered() { None } else { Some(runner.registering.lock().await) };
        let occasion = if runner.is_registered() { Occasion::Attaches } else { Occasion::Registers };
        let (registration, announcement) = runner.announcement(occasion).await?;
        let unsaid = say(&self.said, Said::Register(registration)).err();
        // Also where nothing can be said: a server that is no coordinator has answered already, and that says why.
        let answer = tokio::time::timeout(WELCOME, self.heard.message()).await;
        let answer = answer.map_err(|_| Ended::Broken("no answer to the registration".into()))??;
        if let Some(unsaid) = unsaid {
            return Err(unsaid);
        }
        match answer.and_then(|answer| answer.message) {
            Some(Message::Welcome(welcome)) => self.welcome(&welcome, announcement).await?,
            Some(Message::Refused(refused)) => {
                return Err(Ended::Refused { code: refused.code, message: refused.message });
            }
            _ => return Err(Ended::Broken("the coordinator does not answer the registration".into())),
        }
        drop(turn);
        self.speak().await
    }

    /// Says that the agents or engines have changed. The answer is a welcome again.
    async fn announce(&mut self, occasion: Occasion) -> Result<(), Ended> {
        self.again = None;
        self.announce_as(occasion).await
    }

    async fn announce_as(&mut self, occasion: Occasion) -> Result<(), Ended> {
        let (registration, announcement) = self.control.runner.announcement(occasion).await?;
        self.announcements.push_back(announcement);
        say(&self.said, Said::Register(registration))
    }

    /// Says what is here once more: what was commanded on a stream that broke may never have come.
    async fn compare(&mut self) -> Result<(), Ended> {
        match self.control.runner.speakers.speaks(self.control.index) {
            true => self.announce_as(Occasion::Attaches).await,
            false => Ok(()),
        }
    }

    async fn hear(&mut self, heard: CoordinatorMessage) -> Result<(), Ended> {
        let reign = command::reign(&heard);
        let traceparent = heard.traceparent;
        let Some(message) = heard.message else { return Ok(()) };
        let access_token = match &message {
            Message::Start(start) => start.access_token.clone(),
            _ => String::new(),
        };
        match command::from_message(message) {
            Ok(Ok(command)) => {
                let reign = match reign {
                    Ok(reign) => reign,
                    Err(refusal) => {
                        tracing::error!(%refusal, "a command does not say whose it is");
                        return Ok(());
                    }
                };
                let span = debug_span!(target: TRACES, "runner command", otel.kind = "consumer");
                trace::follow(&span, &traceparent);
                let taken = self.control.runner.instances.command(command, &access_token, &reign);
                match taken.instrument(span).await {
                    Ok(Some(Reign { source, epoch: Epoch(epoch) })) => {
                        say(&self.said, Said::Outranked(Outranked { source: source.to_string(), epoch }))
                    }
                    Ok(None) => Ok(()),
                    // Behind it there may be the end of what has filled the disk. Once the runner has said again what
                    // is here, what was not taken comes again.
                    Err(error) => {
                        tracing::error!(%error, "a command could not be followed");
                        self.again.get_or_insert(Instant::now() + self.lease);
                        Ok(())
                    }
                }
            }
            Ok(Err(other)) => self.note(other).await,
            Err(refusal) => {
                tracing::error!(%refusal, "a command could not be read");
                Ok(())
            }
        }
    }

    async fn note(&mut self, message: Message) -> Result<(), Ended> {
        let runner = &self.control.runner;
        match message {
            Message::Coordinators(all) => {
                runner.roster.hear(self.control.index, all);
                Ok(())
            }
            Message::Renewed(renewed) => {
                self.renewed(renewed.heartbeat);
                Ok(())
            }
            Message::Acknowledge(acknowledge) => self.acknowledged(acknowledge.sequence).await,
            Message::Ask(ask) => {
                self.asked.take_in(&runner.asks, &runner.instances, ask, &self.answers);
                Ok(())
            }
            Message::Withdraw(withdraw) => {
                self.asked.withdraw(withdraw.number);
                Ok(())
            }
            Message::Welcome(welcome) => match self.announcements.pop_front() {
                Some(announcement) => self.welcome(&welcome, announcement).await,
                None => Ok(()),
            },
            Message::Refused(refused) => Err(Ended::Refused { code: refused.code, message: refused.message }),
            _ => Ok(()),
        }
    }

    async fn welcome(&mut self, welcome: &Welcome, announcement: Announcement) -> Result<(), Ended> {
        let runner = &self.control.runner;
        let (sent, attaches) = (announcement.sent, announcement.attaches);
        let lease = Duration::from_millis(welcome.lease_ms.max(30));
        tracing::info!(coordinator = %self.control.endpoint.uri(), epoch = welcome.epoch, attaches, "welcome");
        self.lease = lease;
        for wrong in &welcome.problems {
            let agent = wrong.agent.clone().unwrap_or_default();
            tracing::error!(
                swarm = agent.swarm,
                agent = agent.name,
                problem = wrong.problem,
                "an agent was not taken as it is"
            );
        }
        runner.instances.upstreams().connected(self.control.index, &welcome.mcp_url);
        if !attaches {
            runner.lost.store(false, Ordering::Release);
            runner.registrations.fetch_add(1, Ordering::AcqRel);
            let lost = welcome.lost.iter().filter_map(|lost| announcement.held.get_key_value(lost));
            // Before the lease holds: an answer to a heartbeat would have what is lost go on.
            runner.instances.verdict(lost);
            runner.lease.renew(sent, lease);
            let noted = async {
                runner.instances.report_ends(&announcement.ended).await?;
                runner.note_taken(announcement, &welcome.problems).await
            };
            let noted = noted.await.inspect_err(|error| {
                // On a disk that is full it has to hear all the more what it is to end.
                tracing::error!(%error, "a registration was not written down; it is said again");
            });
            let again = noted.is_err() || welcome.problems.iter().any(|wrong| wrong.again);
            self.again = again.then(|| Instant::now() + lease);
        }
        self.registration = runner.registrations.load(Ordering::Acquire);
        runner.speakers.join(self.control.index);
        Ok(())
    }

    fn beat(&mut self) -> Result<(), Ended> {
        self.beats += 1;
        if self.pending.len() == PENDING {
            self.pending.remove(0);
        }
        self.pending.push((self.beats, Instant::now()));
        let instances = self.control.runner.instances.live();
        say(&self.said, Said::Heartbeat(Heartbeat { instances, number: self.beats }))
    }

    fn renewed(&mut self, number: u64) {
        let sent = self.pending.iter().find(|(pending, _)| *pending == number).map(|(_, sent)| *sent);
        let Some(sent) = sent else { return };
        self.pending.retain(|(pending, _)| *pending > number);
        let runner = &self.control.runner;
        runner.lease.renew(sent, self.lease);
        // The fleet did not give up on a runner whose heartbeat it answers. The instances are asked whether they stand
        // still, and not the lease whether it had ended: at its very end that is not the same for a moment.
        if runner.lease.holds() && runner.instances.is_silent() {
            runner.instances.verdict([]);
        }
    }

    /// Says how far the runner is with leaving.
    fn depart(&mut self) -> Result<(), Ended> {
        let departure = *self.control.runner.departure.borrow();
        if departure == self.departed {
            return Ok(());
        }
        self.departed = departure;
        say(&self.said, Said::Leaving(Leaving { done: departure == Departure::Done }))
    }

    /// Sends what this stream has not yet sent, if it is the one that speaks.
    async fn speak(&mut self) -> Result<(), Ended> {
        self.depart()?;
        self.send(self.backlog.new_ones()).await
    }

    /// Sends a part of the reports for the first time, if this stream is the one that speaks.
    async fn send(&mut self, part: Option<Part>) -> Result<(), Ended> {
        let speaks = self.control.runner.speakers.speaks(self.control.index);
        let Some(part) = part.filter(|_| speaks) else { return Ok(()) };
        let sent = self.say_part(part, u64::MAX).await?;
        self.backlog.send(part, &sent);
        Ok(())
    }

    /// A report has arrived. If that cannot be written down it is sent again, and acknowledged once more.
    async fn acknowledged(&mut self, sequence: u64) -> Result<(), Ended> {
        let runner = &self.control.runner;
        if let Err(error) = runner.instances.ledger().acknowledge(sequence).await {
            tracing::error!(sequence, %error, "that a report has arrived was not written down");
            return Ok(());
        }
        runner.speakers.note_acknowledged();
        let more = self.backlog.acknowledged();
        self.send(more).await
    }

    /// Sends again what was there at the last look.
    async fn repeat(&mut self) -> Result<(), Ended> {
        let newest = self.control.runner.instances.ledger().newest_report().await?;
        let (part, seen) = self.backlog.overdue(newest);
        let sent = self.say_part(part, seen).await?;
        self.backlog.send_again(part, &sent);
        Ok(())
    }

    /// Says a part of the reports, up to the last one that is wanted, and gives their sequences.
    async fn say_part(&mut self, part: Part, last: u64) -> Result<Vec<u64>, Ended> {
        let mut reports = self.control.runner.instances.ledger().reports(part.after, part.most).await?;
        reports.retain(|(sequence, _)| *sequence <= last);
        let mut sequences = Vec::with_capacity(reports.len());
        for (sequence, report) in reports {
            say(&self.said, Said::Report(reports::to_wire(sequence, report)))?;
            sequences.push(sequence);
        }
        Ok(sequences)
    }
}

fn say(said: &mpsc::Sender<RunnerMessage>, message: Said) -> Result<(), Ended> {
    let sent = said.try_send(RunnerMessage { message: Some(message) });
    sent.map_err(|_| Ended::Broken("the coordinator does not read what it is sent".into()))
}

/// Returns at that moment; never if there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn interval(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
