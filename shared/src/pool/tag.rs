//! The words that a task is found by. A swarm has few of them and many tasks, so each is in memory once.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A tag; copies share their text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(Arc<str>);

impl Tag {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Tag {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for Tag {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

/// Numbers for the tags of live tasks. A number is given again once no task has its tag any more, so it means
/// nothing outside of the memory that it was given in.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    of: BTreeMap<Tag, u32>,
    used: Vec<Option<Used>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Used {
    tag: Tag,
    tasks: u32,
}

impl Numbers {
    /// The tag's number, for one more task that has it.
    pub(super) fn take(&mut self, tag: &Tag) -> u32 {
        if let Some(&number) = self.of.get(tag) {
            if let Some(Some(used)) = self.used.get_mut(number as usize) {
                used.tasks += 1;
            }
            return number;
        }
        let used = Some(Used { tag: tag.clone(), tasks: 1 });
        let number = match self.free.pop() {
            Some(number) => {
                self.used[number as usize] = used;
                number
            }
            None => {
                self.used.push(used);
                (self.used.len() - 1) as u32
            }
        };
        self.of.insert(tag.clone(), number);
        number
    }

    pub(super) fn tag(&self, number: u32) -> Option<&Tag> {
        self.used.get(number as usize)?.as_ref().map(|used| &used.tag)
    }

    /// One task less has it.
    pub(super) fn give_back(&mut self, number: u32) {
        let Some(entry) = self.used.get_mut(number as usize) else { return };
        let Some(used) = entry else { return };
        used.tasks -= 1;
        if used.tasks == 0 {
            self.of.remove(&used.tag);
            *entry = None;
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_nobody_has_gives_its_number_back() {
        let mut numbers = Numbers::default();
        let (rust, docs) = (Tag::from("rust"), Tag::from("docs"));
        assert_eq!((numbers.take(&rust), numbers.take(&docs), numbers.take(&rust)), (0, 1, 0));
        numbers.give_back(0);
        assert_eq!(numbers.tag(0), Some(&rust));
        numbers.give_back(0);
        assert_eq!(numbers.tag(0), None);
        assert_eq!(numbers.take(&Tag::from("new")), 0);
    }
}
