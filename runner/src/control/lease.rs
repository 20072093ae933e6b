//! How long the runner may be sure that its instances are its own, on the monotonic clock.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The lease that the fleet gives the runner, renewed through any coordinator.
#[derive(Default)]
pub(super) struct Lease {
    /// When the instances must stand still; `None` before the first welcome.
    until: watch::Sender<Option<Instant>>,
}

impl Lease {
    /// The lease was renewed by a message sent at `sent`: from then on it lasts, not from the answer's arrival.
    /// The last fifth of it is kept for the freezing itself.
    pub(super) fn renew(&self, sent: Instant, lease: Duration) {
        let until = sent + lease * 4 / 5;
        self.until.send_if_modified(|known| {
            let later = known.is_none_or(|known| known < until);
            if later {
                *known = Some(until);
            }
            later
        });
    }

    /// Some coordinator has welcomed the runner since its start.
    pub(super) fn was_given(&self) -> bool {
        self.until.borrow().is_some()
    }

    pub(super) fn holds(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Calls `silence` each time that the lease runs out. Never returns.
    pub(super) async fn watch(&self, silence: impl Fn()) {
        let mut until = self.until.subscribe();
        loop {
            let deadline = *until.borrow_and_update();
            if let Some(deadline) = deadline {
                let renewed = tokio::time::timeout_at(deadline, until.changed()).await;
                if renewed.is_ok() {
                    continue;
                }
                silence();
            }
            if until.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn instances_stand_still_after_four_fifths_of_the_last_renewal_and_not_before() {
        let lease = Lease::default();
        let span = Duration::from_millis(250);
        let first = Instant::now();
        lease.renew(first, span);
        let second = first + span / 2;
        lease.renew(second, span);
        // An answer that was overtaken takes nothing back.
        lease.renew(first, span);
        assert!(lease.holds());
        let silenced = Notify::new();
        tokio::select! {
            () = lease.watch(|| silenced.notify_one()) => {}
            () = silenced.notified() => {}
        }
        assert!(Instant::now() >= second + span * 4 / 5);
        assert!(!lease.holds());
    }
}
