//! What a coordinator says of itself to the others.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::redis::shard::SHARDS;

/// The version in which nodes write what they forward. A node forwards to those alone that read it.
pub const FORMAT: u32 = 20;
/// Those that this program reads. A search of the memory is not as it was before 4, and the delegation of an inbox
/// message not as before 5: one that an older node forwards is refused. Before 6 no node knew a swarm's limit of slots,
/// before 7 none what its work cost, before 8 none what people ask the swarm for at a forge, before 9 none where the
/// files of an agent are, before 10 none which of an instance's calls were refused, before 11 none how the locks of a
/// swarm are, nor that agents of one name in two swarms are two, before 12 none that an answer reached nobody, before
/// 13 no document came along with an answer, before 14 an agent gave runs up that their runner had not held yet, before
/// 15 no lockspace knew who waits, and no inbox what was posted under a key, before 16 an answer about a task named
/// what the task does not have, before 17 nobody's questions were withdrawn together, before 18 no inbox was handed
/// on to whoever leads next, no question told to it, no text remembered at once, no list of schedules went on, no
/// channel forgot what was removed of it or what an agent that left had read, and no epic heard that its channel was
/// refused, before 19 neither inboxes nor questions could be read in which it stands who leads, no entity was handed a
/// command to refuse whose repeat it answers, and no service had word that its agent itself has said where it is, and
/// before 20 no pool was asked for a task that is to be alone, no schedule passed over a time for its task that is under
/// way, no settings knew repositories, no version of a profile that a lead or a program had changed it, and no agent was
/// told its scale by operators.
pub const READS: RangeInclusive<u32> = 2..=FORMAT;

/// A coordinator that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The same over restarts: whose data folder it is, which one process has at a time.
    pub id: String,
    /// New with each process.
    pub incarnation: Uuid,
    /// Where the others reach it.
    pub address: String,
    /// The lowest and the highest format that it reads.
    pub formats: (u32, u32),
    /// It gives its shards away and takes no more, unless nobody else is left that could.
    pub draining: bool,
    /// Its process is about to end: it takes nothing then either. The others need not know.
    #[serde(skip)]
    pub ending: bool,
    /// It owns nothing and passes everything on, as an ingress of its own does.
    #[serde(default)]
    pub passes_on: bool,
    /// It speaks mutual TLS, and no plain text.
    #[serde(default)]
    pub tls: bool,
    /// Where runners reach it, as a URL; empty for one that they do not.
    #[serde(default)]
    pub runners: String,
    /// Into how many shards it divides the store.
    #[serde(default = "shards")]
    pub shards: u16,
    /// For how long it holds that it lives when it has said so, in milliseconds; with an older program for as long as
    /// with whoever hears it.
    #[serde(default)]
    pub lives_ms: Option<u64>,
}

/// What a record that does not say has, for there was never another number.
fn shards() -> u16 {
    SHARDS
}

impl Member {
    /// A coordinator of this program, in plain text, which takes shards and no runners.
    pub fn new(id: impl Into<String>, incarnation: Uuid, address: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            incarnation,
            address: address.into(),
            formats: (*READS.start(), *READS.end()),
            draining: false,
            ending: false,
            passes_on: false,
            tls: false,
            runners: String::new(),
            shards: SHARDS,
            lives_ms: None,
        }
    }

    /// Why this node cannot work with another one, whose program is another, if that is so.
    pub fn quarrel(&self, other: &Member) -> Option<String> {
        if other.shards != self.shards {
            return Some(format!(
                "it divides the store into {} shards and this one into {}; run the same program on all nodes",
                other.shards, self.shards
            ));
        }
        let (lowest, highest) = other.formats;
        (!other.reads(FORMAT)).then(|| {
            format!(
                "it reads the formats {lowest} to {highest} and this one writes {FORMAT}; nodes of different formats do not \
                 work together: stop all nodes, update them, and start them"
            )
        })
    }

    /// Whether shards may come to it.
    pub fn takes_shards(&self) -> bool {
        !self.draining && !self.passes_on && self.reads(FORMAT)
    }

    /// Whether shards may come to it where nobody else is left that takes any, also while it drains.
    pub fn is_last_resort(&self) -> bool {
        !self.ending && !self.passes_on && self.reads(FORMAT)
    }

    /// Whether it reads a format.
    pub fn reads(&self, format: u32) -> bool {
        (self.formats.0..=self.formats.1).contains(&format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_do_not_understand_one_another_say_so() {
        let me = Member::new("a", Uuid::nil(), "");
        let newer = Member { formats: (FORMAT, FORMAT + 1), ..me.clone() };
        assert_eq!(me.quarrel(&newer), None);
        let much_newer = Member { formats: (FORMAT + 1, FORMAT + 1), ..me.clone() };
        assert!(
            me.quarrel(&much_newer).unwrap().contains(&format!("reads the formats {0} to {0}", FORMAT + 1))
        );
        let older = Member { formats: (2, FORMAT - 1), ..me.clone() };
        let said = me.quarrel(&older).unwrap();
        assert!(said.contains("stop all nodes, update them, and start them"), "{said}");
        let other = Member { shards: 64, ..me.clone() };
        assert!(me.quarrel(&other).unwrap().contains("64 shards"));
        // What an older program wrote.
        let older = serde_json::json!({
            "id": "b", "incarnation": Uuid::nil(), "address": "127.0.0.1:1", "formats": [FORMAT, FORMAT],
            "draining": false,
        });
        assert_eq!(me.quarrel(&serde_json::from_value(older).unwrap()), None);
    }
}
