//! How much is read at once by whoever reads all that a store has.

use skein_shared::json::length;

use super::{DeadLetter, OutboxEntry, Record, StoreError, StoredDocument};

/// Bytes that a page has, about.
const BYTES: usize = 8 << 20;
/// Things that are read first, of which nobody knows what they weigh.
const FEW: usize = 16;

/// How many things the next page has. What they weigh is known only once they are read, so it is as many as would have
/// weighed some MiB of those before, and no more than twice as many as those were. A page that does not come is asked
/// for with fewer: one that is too large for the time in which Redis has to answer never comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    most: usize,
    next: usize,
}

/// What was read at once.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) things: Vec<T>,
    /// Whether these are as many as were asked for.
    pub(crate) is_full: bool,
    /// That of the page behind this one.
    pub(crate) pace: Pace,
}

/// Something of which the bytes are known, about.
pub(crate) trait Weighed {
    fn weight(&self) -> usize;
}

impl Pace {
    /// For the first page.
    pub(crate) fn up_to(most: usize) -> Self {
        Self { most, next: FEW.min(most) }
    }

    /// Reads a page by a function that is told how many things to ask for.
    pub(crate) async fn read<T, F>(mut self, page: impl Fn(usize) -> F) -> Result<Page<T>, StoreError>
    where
        T: Weighed,
        F: Future<Output = Result<Vec<T>, StoreError>>,
    {
        loop {
            match page(self.next).await {
                Ok(things) => {
                    let is_full = things.len() == self.next;
                    return Ok(Page { is_full, pace: self.behind(&things), things });
                }
                Err(problem) if self.next == 1 => return Err(problem),
                Err(_) => {
                    self.next = (self.next / 4).max(1);
                    self.most = self.next;
                }
            }
        }
    }

    fn behind<T: Weighed>(self, things: &[T]) -> Self {
        let weight: usize = things.iter().map(Weighed::weight).sum();
        let fitting = things.len().saturating_mul(BYTES) / weight.max(1);
        Self { next: fitting.min(things.len() * 2).clamp(1, self.most), ..self }
    }
}

impl Weighed for Record {
    fn weight(&self) -> usize {
        self.events.iter().map(|event| event.body.text().len()).sum()
    }
}

impl Weighed for StoredDocument {
    fn weight(&self) -> usize {
        length(&self.head) + length(&self.body)
    }
}

impl Weighed for OutboxEntry {
    fn weight(&self) -> usize {
        length(&self.effect)
    }
}

impl Weighed for DeadLetter {
    fn weight(&self) -> usize {
        self.entry.weight()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use super::*;

    /// Something that weighs so many MiB.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Thing(usize);

    impl Weighed for Thing {
        fn weight(&self) -> usize {
            self.0 << 20
        }
    }

    /// Reads all page by page from a store that gives no page of more MiB than it is able to. Tells how many things
    /// were asked for each time.
    async fn asked(things: &[Thing], most: usize, able: usize) -> Vec<usize> {
        let (asked, mut read) = (RefCell::new(Vec::new()), Vec::new());
        let mut pace = Pace::up_to(most);
        loop {
            let left = &things[read.len()..];
            let page = pace.read(|count| {
                asked.borrow_mut().push(count);
                let page = left[..count.min(left.len())].to_vec();
                let weight: usize = page.iter().map(|Thing(weight)| weight).sum();
                ready(if weight > able { Err(StoreError("it is late".to_owned())) } else { Ok(page) })
            });
            let page = page.await.unwrap();
            read.extend(page.things);
            pace = page.pace;
            if !page.is_full {
                assert_eq!(read, things, "each once, and in order");
                return asked.into_inner();
            }
        }
    }

    #[tokio::test]
    async fn a_page_has_as_many_things_as_weigh_some_mib() {
        let light = vec![Thing(0); 1000];
        assert_eq!(asked(&light, 100, 1).await[..5], [16, 32, 64, 100, 100]);
        let heavy = vec![Thing(1); 40];
        assert_eq!(asked(&heavy, 100, 100).await, [16, 8, 8, 8, 8]);
        let large = vec![Thing(20); 18];
        assert_eq!(asked(&large, 100, 1000).await, [16, 1, 1, 1]);
        assert_eq!(asked(&[Thing(0); 3], 2, 1).await, [2, 2]);
    }

    #[tokio::test]
    async fn a_page_that_does_not_come_is_asked_for_with_fewer() {
        let things = [vec![Thing(0); 112], vec![Thing(10); 40]].concat();
        let asked = asked(&things, 100, 300).await;
        assert_eq!(asked[..6], [16, 32, 64, 100, 25, 1]);
        assert!(asked[5..].iter().all(|count| *count == 1), "{asked:?}");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_given_up_in_the_end() {
        let tries = RefCell::new(Vec::new());
        let page = Pace::up_to(100).read(|count| {
            tries.borrow_mut().push(count);
            ready(Err::<Vec<Thing>, _>(StoreError("it is gone".to_owned())))
        });
        assert!(page.await.is_err());
        assert_eq!(tries.into_inner(), [16, 4, 1]);
    }
}
