//! What the calls of an agent give back, of any length: written by the run that is called, read by its caller.

use std::str::from_utf8;

use skein_shared::agent::{Blob, CallStatus, Command, Returned};
use skein_shared::blobs::{self, Blobs, Bounds};
use skein_shared::id::{EntityKey, Kind, derived};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::Service;
use super::calls::inspect;
use crate::auth::{Principal, Right, policy};

/// The longest part of a value that is read at once, and what is read when nobody says how much, bytes.
pub const PART_MAX: usize = 256 * 1024;
pub const PART: usize = 32 * 1024;

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub text: String,
    /// Where the next part begins; none at the end.
    pub next: Option<u64>,
    /// Of the whole value.
    pub bytes: u64,
}

impl Service {
    /// Allows values of calls so long, and so much of them in a swarm.
    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Says what the calls that the caller's instance serves will get. The last word wins.
    ///
    /// # Errors
    /// `too_large`, and `no_capacity` when the long values of the swarm have no room for it.
    pub async fn return_value(&self, who: &Principal, request: Uuid, value: String) -> Result<(), Refusal> {
        policy::require(who, Right::Work)?;
        let value = match value.len() {
            0..=limits::TEXT => Returned::Text(value),
            _ => {
                // The agent has to know the instance before there is something to sweep up after it.
                self.ask_own(who, inspect(who)).await?;
                self.store_value(who, request, &value).await?
            }
        };
        let blob = value.blob();
        let command = Command::ReturnValue { instance: who.instance.clone(), value };
        let told = self.change_own(who, request, command).await;
        if let (Err(refusal), Some(blob)) = (&told, blob) {
            self.give_room_back(who, blob.id, refusal).await;
        }
        told.map(|_| ())
    }

    /// Writes a value that is too long for a document, so that the agent can name it.
    async fn store_value(&self, who: &Principal, request: Uuid, value: &str) -> Result<Returned, Refusal> {
        let blob = derived(request, "blob");
        let room = who.entity(Kind::Blobs);
        let reserve = blobs::Command::Reserve { blob, bytes: value.len() as u64, bounds: self.bounds };
        self.change::<Blobs>(&room, derived(request, "room"), reserve).await?;
        let written = self.entities.write_blob(&who.own_agent(), blob, value.as_bytes()).await;
        if let Err(refusal) = &written {
            self.give_room_back(who, blob, refusal).await;
        }
        written.map(|()| Returned::long(blob, value))
    }

    /// Of a value that came to nothing, for certain. Should this fail, the reservation lapses by itself.
    async fn give_room_back(&self, who: &Principal, blob: Uuid, why: &Refusal) {
        if why.code != Code::Unknown {
            let command = blobs::Command::Withdraw { blob };
            let _ = self.ask::<Blobs>(&who.entity(Kind::Blobs), command).await;
        }
    }

    /// Reads a part of what a call of the caller's gave back: at most so many bytes from an offset on, cut between
    /// characters.
    ///
    /// # Errors
    /// `not_found` for calls of others; `wrong_state` while the call is not over or when it has failed;
    /// `invalid_argument` for an offset behind the end.
    pub async fn read_value(
        &self,
        who: &Principal,
        call: Uuid,
        offset: u64,
        limit: usize,
    ) -> Result<Part, Refusal> {
        let (key, view) = self.find_call(who, call).await?;
        if view.status != CallStatus::Completed {
            let problem = "the call has given nothing back; check_call says how it stands";
            return Err(Refusal::new(Code::WrongState, problem));
        }
        let text = view.return_value.unwrap_or_default();
        let total = view.blob.map_or(text.len() as u64, |blob| blob.bytes);
        if offset > total {
            let problem =
                format!("cursor: the value ends at byte {total}; give the cursor of the last answer");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let bytes = match view.blob {
            Some(blob) => self.part_of(&key, blob, offset, limit).await?,
            None => {
                let text = text.as_bytes();
                let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                text[begin..text.len().min(begin + limit)].to_vec()
            }
        };
        Ok(part(&bytes, offset, total))
    }

    async fn part_of(
        &self,
        key: &EntityKey,
        blob: Blob,
        offset: u64,
        limit: usize,
    ) -> Result<Vec<u8>, Refusal> {
        self.entities.read_blob(key, blob, offset, limit).await?.ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                "the value is gone: it is kept for ten minutes after its call; call again",
            )
        })
    }
}

/// What bytes from an offset on say, without the halves of characters at both ends.
fn part(bytes: &[u8], offset: u64, total: u64) -> Part {
    let is_continued = |byte: &&u8| **byte & 0xc0 == 0x80;
    let begin = bytes.iter().take_while(is_continued).count();
    let whole = match from_utf8(&bytes[begin..]) {
        Ok(text) => text,
        Err(cut) => from_utf8(&bytes[begin..begin + cut.valid_up_to()]).unwrap_or_default(),
    };
    let end = offset + (begin + whole.len()) as u64;
    Part { text: whole.to_owned(), next: (end < total).then_some(end), bytes: total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_between_characters_and_none_is_lost() {
        let text = "aé€😀".repeat(50);
        for limit in 4..20 {
            let (mut read, mut next) = (String::new(), Some(0));
            while let Some(offset) = next {
                let begin = usize::try_from(offset).unwrap();
                let bytes = &text.as_bytes()[begin..text.len().min(begin + limit)];
                let part = part(bytes, offset, text.len() as u64);
                read.push_str(&part.text);
                next = part.next;
            }
            assert_eq!(read, text, "{limit} bytes at a time");
        }
        // Whoever begins within a character gets the next one.
        assert_eq!(part(&"é!".as_bytes()[1..], 1, 3).text, "!");
    }
}
