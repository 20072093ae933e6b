//! Who lives, as far as one can hear. This is a hint, and who may write is decided by the leases alone.

use std::time::Duration;

use tokio::time::Instant;

use super::member::Member;
use crate::store::redis::members::Said;
use crate::store::redis::vigil::{Vigil, Word};

/// Tells by a node's own clock who of those who said so lives still.
#[derive(Debug)]
pub struct Living {
    vigil: Vigil<String>,
    /// How long somebody lives who does not say it, as this node does.
    usual: Duration,
}

impl Living {
    pub fn new(usual: Duration) -> Self {
        Self { vigil: Vigil::over_hints(), usual }
    }

    /// Takes in what all have said last, and gives those of them who live. `clock` is what that of the store said.
    /// Whoever writes a record that this program cannot read gets no shards from it, and none are taken from it.
    pub fn hear(&mut self, said: Vec<Said>, clock: u64, now: Instant) -> Vec<Member> {
        let read = |said: Said| (serde_json::from_str::<Member>(&said.record).ok(), said);
        let all: Vec<(Option<Member>, Said)> = said.into_iter().map(read).collect();
        let words = all.iter().map(|(member, said)| {
            let lasts = member.as_ref().and_then(|member| member.lives_ms).map(Duration::from_millis);
            (said.id.clone(), Word { epoch: 0, until: said.until, lasts: lasts.unwrap_or(self.usual) })
        });
        self.vigil.look(words, clock, now);
        let living = all.into_iter().filter(|(_, said)| self.vigil.over(&said.id, now).is_none());
        living.filter_map(|(member, _)| member).collect()
    }

    /// Those who have fallen silent, by their ids and the ends of what they said last.
    pub fn silent(&self, now: Instant) -> Vec<(String, u64)> {
        self.vigil.all_over(now).map(|(id, word)| (id.clone(), word.until)).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const CLOCK: u64 = 1_790_000_000_000;
    const LIVES: Duration = Duration::from_secs(5);
    const BEAT: Duration = Duration::from_millis(1667);

    fn said(id: &str, until: u64, lives_ms: Option<u64>) -> Said {
        let member = Member { lives_ms, ..Member::new(id, Uuid::nil(), "") };
        Said { id: id.to_owned(), until, record: serde_json::to_string(&member).unwrap() }
    }

    fn ids(living: Vec<Member>) -> Vec<String> {
        living.into_iter().map(|member| member.id).collect()
    }

    /// It says so in time, and the clock of the store is set meanwhile.
    #[test]
    fn who_lives_is_heard_and_who_is_silent_is_not_whichever_way_the_clock_is_set() {
        for step in [-3_600_000, 0, 3_600_000] {
            let (mut living, mut now) = (Living::new(LIVES), Instant::now());
            let dead = said("dead", CLOCK + 5_000, None);
            let all = vec![dead.clone(), said("lives", CLOCK + 5_000, None)];
            assert_eq!(ids(living.hear(all, CLOCK, now)), ["dead", "lives"]);
            for beat in 1..10 {
                now += BEAT;
                let clock = (CLOCK + beat * 1667).saturating_add_signed(step);
                let all = vec![dead.clone(), said("lives", clock + 4_000, None)];
                let heard = ids(living.hear(all, clock, now));
                assert_eq!(heard.contains(&"dead".to_owned()), beat < 3, "beat {beat}, a step of {step} ms");
                assert!(heard.contains(&"lives".to_owned()), "beat {beat}, a step of {step} ms");
            }
            assert_eq!(living.silent(now), [("dead".to_owned(), CLOCK + 5_000)]);
        }
    }

    #[test]
    fn who_lives_longer_on_a_word_says_so_and_what_cannot_be_read_is_nobody_until_it_is_forgotten() {
        let (mut living, now) = (Living::new(LIVES), Instant::now());
        living.hear(Vec::new(), CLOCK, now);
        let strange = Said { id: "c".to_owned(), until: CLOCK + 5_000, record: "{}".to_owned() };
        let all = vec![said("a", CLOCK + 30_000, Some(30_000)), said("b", CLOCK + 30_000, None), strange];
        assert_eq!(ids(living.hear(all.clone(), CLOCK, now)), ["a", "b"]);
        let later = now + LIVES * 2;
        assert_eq!(ids(living.hear(all, CLOCK, later)), ["a"]);
        let silent = [("b".to_owned(), CLOCK + 30_000), ("c".to_owned(), CLOCK + 5_000)];
        assert_eq!(living.silent(later), silent);
    }
}
