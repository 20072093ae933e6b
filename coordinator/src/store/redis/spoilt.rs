//! Lists of shards that another program has written into: what they belong to stands still, and all else goes on.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::watch::Watch;
use crate::store::StoreError;

/// What is left out of readings over many shards.
#[derive(Default)]
pub(super) struct Spoilt {
    /// Whoever has the store for itself copies it: what is left out there would be lost, so garbage is an error.
    pub(super) needs_all: bool,
    /// The keys of the lists that hold garbage.
    lists: Mutex<BTreeSet<String>>,
}

impl Spoilt {
    /// What was read, or nothing and an alarm where there is garbage.
    ///
    /// # Errors
    /// The garbage, where nothing may be left out.
    pub(super) fn left_out<T>(
        &self,
        watch: &Watch,
        read: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match read {
            Ok(found) => Ok(Some(found)),
            Err(problem) if self.needs_all => Err(problem),
            Err(StoreError(problem)) => {
                watch.failed(&problem);
                Ok(None)
            }
        }
    }

    /// A list was read, or holds garbage. Says whether it did when it was last read, and does no more: whoever has read
    /// past what it holds has to begin anew.
    pub(super) fn is_mended(&self, list: &str, is_sound: bool) -> bool {
        if self.needs_all {
            return false;
        }
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if is_sound {
            return lists.remove(list);
        }
        lists.insert(list.to_owned());
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarms::Alarms;

    #[test]
    fn garbage_is_left_out_with_an_alarm_unless_all_is_needed() {
        let (alarms, garbage) =
            (Alarms::default(), StoreError("the key {skein}:s1:outbox in Redis: no".into()));
        let watch = Watch::new(alarms.clone(), "reads");
        let mut spoilt = Spoilt::default();
        assert_eq!(spoilt.left_out::<()>(&watch, Err(garbage.clone())), Ok(None));
        assert_eq!(alarms.all()[0].subject, "{skein}:s1:outbox");
        spoilt.needs_all = true;
        assert_eq!(spoilt.left_out::<()>(&watch, Err(garbage.clone())), Err(garbage));
    }

    #[test]
    fn a_list_is_mended_once() {
        let spoilt = Spoilt::default();
        assert!(!spoilt.is_mended("a", true), "it was never spoilt");
        assert!(!spoilt.is_mended("a", false));
        assert!(!spoilt.is_mended("b", true));
        assert!(spoilt.is_mended("a", true));
        assert!(!spoilt.is_mended("a", true));
    }
}
