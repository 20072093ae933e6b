//! Watches how Redis answers, and raises an alarm when it does so slowly, takes no writes, or holds what cannot be
//! read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::RedisError;
use tokio::time::Instant;

use super::connection::{MOVING, is_moving, is_said, key_of, sentence};
use crate::alarms::{Alarms, Kind};

/// An answer takes a millisecond, and a flush on a bad disk a hundred.
const SLOW: Duration = Duration::from_secs(1);

/// What one part of the store sees of the server.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    alarms: Alarms,
    part: &'static str,
    /// Whether there is something to take back, for that is asked at every answer.
    slow: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
    unconfirmed: Arc<AtomicBool>,
    unfit: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new(alarms: Alarms, part: &'static str) -> Self {
        let [slow, full, unconfirmed, unfit] = Default::default();
        Self { alarms, part, slow, full, unconfirmed, unfit }
    }

    /// Something was asked at this moment, and this came of it.
    pub(super) fn heard<T>(&self, asked: Instant, answer: &Result<T, RedisError>) {
        let took = asked.elapsed();
        if let Err(error) = answer {
            self.redirected(error);
        }
        match answer {
            Err(error) if !is_said(error) => self.is_away(&sentence(error)),
            _ if took >= SLOW => self.is_slow(&format!(
                "Redis takes more than {SLOW:?} to answer; look at its disk and processor, and at its SLOWLOG"
            )),
            _ if self.slow.swap(false, Ordering::Relaxed) => self.alarms.clear(Kind::StoreSlow, self.part),
            _ => {}
        }
    }

    /// It cannot be reached, or says nothing.
    pub(super) fn is_away(&self, problem: &str) {
        self.is_slow(&format!(
            "Redis does not answer: {problem}; see that it runs and can be reached, and look at its log"
        ));
    }

    /// Something was refused because its keys are on their way to another node of the Redis Cluster. Of those that are
    /// not yet there are answers meanwhile, so none takes this back: it passes once nobody is told so any more. One
    /// sentence for all that the server says of it, or the log would have each of them again and again.
    pub(super) fn redirected(&self, error: &RedisError) {
        if is_moving(error) {
            self.alarms.raise(Kind::StoreMoving, self.part, MOVING);
        }
    }

    /// A write was refused for the state that the server is in.
    pub(super) fn refused(&self, error: &RedisError) {
        self.redirected(error);
        if matches!(error.code(), Some("OOM" | "MISCONF" | "NOREPLICAS" | "READONLY" | "CLUSTERDOWN")) {
            self.full.store(true, Ordering::Relaxed);
            self.alarms.raise(Kind::StoreFull, self.part, &sentence(error));
        }
    }

    /// Whether the last write was refused for the state that the server is in.
    pub(super) fn is_refused(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// A write was taken.
    pub(super) fn taken(&self) {
        if self.full.swap(false, Ordering::Relaxed) {
            self.alarms.clear(Kind::StoreFull, self.part);
        }
    }

    /// What was written has been confirmed by a replica, or why it was not.
    pub(super) fn confirmed(&self, problem: Option<&str>) {
        if let Some(problem) = problem {
            self.unconfirmed.store(true, Ordering::Relaxed);
            self.alarms.raise(Kind::StoreUnconfirmed, self.part, problem);
        } else if self.unconfirmed.swap(false, Ordering::Relaxed) {
            self.alarms.clear(Kind::StoreUnconfirmed, self.part);
        }
    }

    /// Something went wrong that may lie in a key.
    pub(super) fn failed(&self, problem: &str) {
        if let Some(key) = key_of(problem) {
            self.alarms.raise(Kind::StoreGarbage, key, problem);
        }
    }

    /// The server was restarted or replaced, and is not one on which a node can rely.
    pub(super) fn unfit(&self, problem: &str) {
        self.unfit.store(true, Ordering::Relaxed);
        self.alarms.raise(
            Kind::StoreUnfit,
            self.part,
            &format!("Redis was restarted or replaced, and cannot be relied on as it is: {problem}"),
        );
    }

    /// An import fills the store, or has left a part of one: nobody can rely on that either.
    pub(super) fn half_filled(&self, problem: &str) {
        self.unfit.store(true, Ordering::Relaxed);
        self.alarms.raise(Kind::StoreUnfit, self.part, problem);
    }

    /// The server is one on which a node can rely.
    pub(super) fn fit(&self) {
        if self.unfit.swap(false, Ordering::Relaxed) {
            self.alarms.clear(Kind::StoreUnfit, self.part);
        }
    }

    /// The server lost what it had acknowledged, or all that there was.
    pub(super) fn lost(&self, what: &str, problem: &str) {
        self.alarms.raise(Kind::StoreLost, what, problem);
    }

    /// What was lost is there again.
    pub(super) fn found(&self, what: &str) {
        self.alarms.clear(Kind::StoreLost, what);
    }

    fn is_slow(&self, problem: &str) {
        self.slow.store(true, Ordering::Relaxed);
        self.alarms.raise(Kind::StoreSlow, self.part, problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(alarms: &Alarms) -> Vec<(Kind, String)> {
        alarms.all().into_iter().map(|alarm| (alarm.kind, alarm.subject)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_or_silent_server_is_an_alarm_until_it_answers_in_time() {
        let alarms = Alarms::default();
        let watch = Watch::new(alarms.clone(), "commits");
        let slow = [(Kind::StoreSlow, "commits".to_owned())];
        let asked = Instant::now();
        tokio::time::advance(SLOW).await;
        watch.heard(asked, &Ok(()));
        assert_eq!(shown(&alarms), slow);
        watch.heard(Instant::now(), &Ok(()));
        assert_eq!(shown(&alarms), []);
        let silence = std::io::Error::from(std::io::ErrorKind::TimedOut);
        watch.heard(Instant::now(), &Err::<(), _>(silence.into()));
        assert_eq!(shown(&alarms), slow);
        // An error is an answer.
        let refusal = redis::make_extension_error("OOM".to_owned(), None);
        watch.heard(Instant::now(), &Err::<(), _>(refusal));
        assert_eq!(shown(&alarms), []);
    }

    #[tokio::test]
    async fn a_write_that_no_replica_confirms_is_an_alarm_until_one_is_confirmed() {
        let alarms = Alarms::default();
        let watch = Watch::new(alarms.clone(), "commits");
        watch.confirmed(Some("no replica"));
        assert_eq!(shown(&alarms), [(Kind::StoreUnconfirmed, "commits".to_owned())]);
        watch.confirmed(None);
        assert_eq!(shown(&alarms), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_on_its_way_to_another_node_is_an_alarm_until_nobody_is_told_so_any_more() {
        let alarms = Alarms::default();
        let watch = Watch::new(alarms.clone(), "commits");
        let moving = [(Kind::StoreMoving, "commits".to_owned())];
        for (code, detail) in [
            ("ASK", "42 10.0.0.2:6379"),
            ("TRYAGAIN", "Multiple keys request during rehashing of slot"),
            (
                "ERR",
                "Script attempted to access a non local key in a cluster node script: 7b, on @user_script:9.",
            ),
        ] {
            let error = || redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
            watch.heard(Instant::now(), &Err::<(), _>(error()));
            // Other keys are there still.
            watch.heard(Instant::now(), &Ok(()));
            watch.taken();
            assert_eq!(shown(&alarms), moving, "{code}");
            tokio::time::advance(Duration::from_secs(60)).await;
            assert_eq!(shown(&alarms), [], "{code}");
            watch.refused(&error());
            assert_eq!(shown(&alarms), moving, "{code}");
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        // That one has moved is followed at once, and no other refusal is about this.
        for code in ["MOVED", "ERR", "WRONGTYPE"] {
            watch.refused(&redis::make_extension_error(code.to_owned(), Some("no".to_owned())));
            assert_eq!(shown(&alarms), [], "{code}");
        }
    }

    #[tokio::test]
    async fn a_full_server_is_an_alarm_until_it_takes_a_write() {
        let alarms = Alarms::default();
        let watch = Watch::new(alarms.clone(), "commits");
        watch.refused(&redis::make_extension_error("OOM".to_owned(), Some("used memory".to_owned())));
        assert_eq!(shown(&alarms), [(Kind::StoreFull, "commits".to_owned())]);
        assert!(alarms.all()[0].problem.contains("maxmemory"), "{:?}", alarms.all());
        watch.taken();
        assert_eq!(shown(&alarms), []);
    }
}
