//! An ordered map whose copy costs next to nothing: a decision follows its events on a copy of the entity, and a fleet
//! may have ten thousand places, an agent as many instances that wait.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// While copies live, each keeps what it changed beside what they share; the last one left owns all.
#[derive(Clone, Debug)]
pub(crate) struct CowMap<K, V> {
    shared: Arc<BTreeMap<K, V>>,
    /// `None` for what was removed.
    changes: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        Self { shared: Arc::default(), changes: BTreeMap::new() }
    }
}

impl<K: Ord, V: Clone> CowMap<K, V> {
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match self.changes.get(key) {
            Some(change) => change.as_ref(),
            None => self.shared.get(key),
        }
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// In the order of the keys, whatever is shared.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        merged(self.shared.iter(), self.changes.iter())
    }

    /// The same, from this key on.
    pub(crate) fn from<'a>(&'a self, start: &K) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        merged(self.shared.range(start..), self.changes.range(start..))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(own) = self.own() {
            own.insert(key, value);
            return;
        }
        self.changes.insert(key, Some(value));
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V>
    where
        K: Clone,
    {
        if Arc::get_mut(&mut self.shared).is_some() {
            return self.own()?.get_mut(key);
        }
        if !self.changes.contains_key(key) {
            self.changes.insert(key.clone(), Some(self.shared.get(key)?.clone()));
        }
        self.changes.get_mut(key)?.as_mut()
    }

    /// Takes out the first in the order of the keys.
    pub(crate) fn pop_first(&mut self) -> Option<(K, V)>
    where
        K: Clone,
    {
        let first = self.keys().next()?.clone();
        let value = self.remove(&first)?;
        Some((first, value))
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V>
    where
        K: Clone,
    {
        if let Some(own) = self.own() {
            return own.remove(key);
        }
        let removed = self.get(key).cloned()?;
        self.changes.insert(key.clone(), None);
        Some(removed)
    }

    /// All of it, unless a copy shares it.
    fn own(&mut self) -> Option<&mut BTreeMap<K, V>> {
        let own = Arc::get_mut(&mut self.shared)?;
        for (key, change) in std::mem::take(&mut self.changes) {
            match change {
                Some(value) => own.insert(key, value),
                None => own.remove(&key),
            };
        }
        Some(own)
    }
}

/// What is shared and was not changed, and what it was changed to.
fn merged<'a, K: Ord + 'a, V: 'a>(
    same: impl Iterator<Item = (&'a K, &'a V)>,
    changed: impl Iterator<Item = (&'a K, &'a Option<V>)>,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    let (mut same, mut changed) = (same.peekable(), changed.peekable());
    std::iter::from_fn(move || {
        loop {
            #[cfg(test)]
            walked::step();
            let order = match (same.peek(), changed.peek()) {
                (Some((left, _)), Some((right, _))) => left.cmp(right),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            if order == Ordering::Less {
                return same.next();
            }
            if order == Ordering::Equal {
                same.next();
            }
            if let Some((key, Some(value))) = changed.next() {
                return Some((key, value));
            }
        }
    })
}

/// How many entries of maps were walked over. Other than time it is the same wherever a test runs.
#[cfg(test)]
pub(crate) mod walked {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// By what is done in it.
    pub(crate) fn by<T>(done: impl FnOnce() -> T) -> (usize, T) {
        let before = STEPS.get();
        let result = done();
        (STEPS.get() - before, result)
    }
}

impl<K: Ord, V: Clone + PartialEq> PartialEq for CowMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model(map: &CowMap<u8, u8>) -> BTreeMap<u8, u8> {
        assert!(map.iter().is_sorted_by_key(|(key, _)| *key), "{map:?}");
        map.iter().map(|(key, value)| (*key, *value)).collect()
    }

    fn change(map: &mut CowMap<u8, u8>, model: &mut BTreeMap<u8, u8>, (key, value): (u8, Option<u8>)) {
        match value {
            // An odd value changes what is there.
            Some(value) if value % 2 == 1 => {
                if let Some(known) = map.get_mut(&key) {
                    *known = value;
                }
                model.entry(key).and_modify(|known| *known = value);
            }
            Some(value) => {
                map.insert(key, value);
                model.insert(key, value);
            }
            None if key == 0 => assert_eq!(map.pop_first(), model.pop_first()),
            None => assert_eq!(map.remove(&key), model.remove(&key)),
        }
    }

    proptest! {
        /// Whatever happens to a map, its copy and the map again, each is as if it had been copied whole.
        #[test]
        fn a_copy_goes_its_own_way(
            before in prop::collection::vec((0..8_u8, any::<Option<u8>>()), 0..20),
            copied in prop::collection::vec((0..8_u8, any::<Option<u8>>()), 0..20),
            after in prop::collection::vec((0..8_u8, any::<Option<u8>>()), 0..20),
            copy_lives in any::<bool>(),
        ) {
            let (mut map, mut expected) = (CowMap::default(), BTreeMap::new());
            before.into_iter().for_each(|step| change(&mut map, &mut expected, step));
            let (mut copy, mut expected_copy) = (map.clone(), expected.clone());
            copied.into_iter().for_each(|step| change(&mut copy, &mut expected_copy, step));
            prop_assert_eq!(&model(&copy), &expected_copy);
            let copy = copy_lives.then_some(copy);
            after.into_iter().for_each(|step| change(&mut map, &mut expected, step));
            prop_assert_eq!(&model(&map), &expected);
            prop_assert!((0..8).all(|key| map.get(&key) == expected.get(&key)));
            for key in 0..8 {
                prop_assert!(map.from(&key).eq(expected.range(key..)), "{:?} from {}", map, key);
            }
            if let Some(copy) = copy {
                prop_assert_eq!(&model(&copy), &expected_copy);
                prop_assert_eq!(copy == map, expected_copy == expected);
            }
        }
    }
}
