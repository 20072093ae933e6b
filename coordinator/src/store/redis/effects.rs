//! How effects wait in a shard's outbox.
//!
//! Those of a batch are one entry of a stream, for an entry costs more than what it holds. Its id is the position of the
//! batch and the place of the last of them, so that to take out all needs no look at it, and whoever reads on from one
//! effect gets the entry that has the next one. While some of them are out and others wait, a hash says which are out
//! (`take_out.lua`).

use std::collections::HashMap;

use skein_shared::fence::Epoch;
use skein_shared::time::Timestamp;

use super::connection::at;
use super::packed::unpack;
use super::reader::{Entry, entity, json, number, parsed, required, required_bytes};
use super::shard::Shard;
use crate::store::{CommitError, Fence, OutboxEffect, OutboxEntry, StoreError};

/// Effects of one batch that an outbox position has room for.
pub(super) const EFFECTS: u64 = 1 << 16;

/// The position of an effect's batch, and its place there.
pub(super) fn split(position: u64) -> (u64, u64) {
    (position / EFFECTS, position % EFFECTS)
}

/// The least id of an entry that has an effect at this position, or only later ones.
pub(super) fn id(position: u64) -> String {
    let (batch, place) = split(position);
    format!("{batch}-{place}")
}

/// The greatest id that an entry of this effect's batch may have.
pub(super) fn last_id(position: u64) -> String {
    format!("{}-{}", split(position).0, EFFECTS - 1)
}

/// The position of the last effect of the entry with this id.
pub(super) fn last_position(key: &str, id: &str) -> Result<u64, StoreError> {
    let (batch, place) = id.split_once('-').unwrap_or((id, ""));
    // Another program may have written any number.
    Ok(parsed(key, batch)?.saturating_mul(EFFECTS).saturating_add(parsed(key, place)?))
}

/// The effects of an entry in their order, those that are out too.
pub(super) fn of_entry(shard: Shard, (id, fields): &Entry) -> Result<Vec<OutboxEntry>, StoreError> {
    let key = shard.outbox();
    let last = last_position(&key, id)?;
    let (first, count) = (last - last % EFFECTS, last % EFFECTS + 1);
    let text = unpack(&key, required_bytes(&key, fields, "effects")?)?;
    let effects: Vec<OutboxEffect> = json(&key, &text)?;
    if effects.len() as u64 != count {
        return Err(at(
            &key,
            &format!("its entry {id} has {} effects; restore it from a copy", effects.len()),
        ));
    }
    let source = entity(&key, required(&key, fields, "source")?)?;
    let (epoch, at) = (Epoch(number(&key, fields, "epoch")?), Timestamp(number(&key, fields, "at")?));
    let one = |(position, OutboxEffect { sequence, effect })| OutboxEntry {
        position,
        source: source.clone(),
        epoch,
        sequence,
        at,
        effect,
        fence: Fence::NONE,
    };
    Ok((first..).zip(effects).map(one).collect())
}

/// The effect that a dead letter has, of its fields.
pub(super) fn of_letter(
    key: &str,
    position: u64,
    fields: &HashMap<String, String>,
) -> Result<OutboxEntry, StoreError> {
    Ok(OutboxEntry {
        position,
        source: entity(key, required(key, fields, "source")?)?,
        epoch: Epoch(number(key, fields, "epoch")?),
        sequence: number(key, fields, "sequence")?,
        at: Timestamp(number(key, fields, "at")?),
        effect: json(key, required(key, fields, "effect")?)?,
        fence: Fence::NONE,
    })
}

/// The fields of a dead letter that say which effect it is, each with what it holds.
///
/// # Errors
/// When the effect cannot be written as JSON.
pub(super) fn letter(entry: &OutboxEntry) -> Result<[String; 10], CommitError> {
    let effect = serde_json::to_string(&entry.effect)
        .map_err(|error| CommitError::Failed(format!("an effect is not writable as JSON: {error}")))?;
    let name = str::to_owned;
    let (epoch, sequence) = (entry.epoch.0.to_string(), entry.sequence.to_string());
    let (source, at) = (entry.source.text(), entry.at.0.to_string());
    Ok([
        name("source"),
        source,
        name("epoch"),
        epoch,
        name("sequence"),
        sequence,
        name("at"),
        at,
        name("effect"),
        effect,
    ])
}

/// Whether the hash of what is out names an effect.
pub(super) fn is_out(taken: &HashMap<String, String>, position: u64) -> bool {
    !taken.is_empty() && taken.contains_key(&id(position))
}

/// What of effects lies in one batch: its position, how many, and their places, rising.
pub(super) fn by_batch(mut positions: Vec<u64>) -> Vec<Vec<u8>> {
    positions.sort_unstable();
    positions.dedup();
    let mut arguments = Vec::with_capacity(positions.len() + 2);
    for of_one in positions.chunk_by(|one, other| split(*one).0 == split(*other).0) {
        let places = of_one.iter().map(|position| split(*position).1);
        let batch = split(of_one[0]).0;
        arguments.extend(
            [batch, of_one.len() as u64].into_iter().chain(places).map(|number| number.to_string().into()),
        );
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_go_out_batch_by_batch() {
        let positions = vec![EFFECTS * 3 + 7, 5, EFFECTS * 3, 5, 0, EFFECTS - 1];
        let arguments = by_batch(positions).into_iter().map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(arguments.collect::<Vec<_>>(), ["0", "3", "0", "5", "65535", "3", "2", "0", "7"]);
        assert_eq!(id(EFFECTS * 3 + 7), "3-7");
        assert_eq!(last_position("key", "3-7").unwrap(), EFFECTS * 3 + 7);
    }
}
