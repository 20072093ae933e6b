//! One order over many shards.

/// Least that is asked of each shard at a time.
const LEAST: usize = 8;

/// What one shard answered in a round.
pub(super) struct Part<T, P> {
    /// In the shard's own order.
    pub(super) found: Vec<T>,
    /// The place up to which the shard has answered, if it may have more behind that. What could not be read is not
    /// among what was found, and counts here.
    pub(super) to: Option<P>,
}

/// A page of what many shards hold together, in the order of their places, while it is being read.
///
/// Few shards hold most things, so each is asked for its share first, and for twice as much as long as the page is not
/// full. What lies behind the end of a shard's incomplete part is left for the next round: that shard may have
/// something before it.
pub(super) struct Merge<T, P> {
    page: Vec<T>,
    limit: usize,
    place: fn(&T) -> P,
    /// Where the next round begins and how much it asks of each shard; none when nothing is left to ask.
    next: Option<(P, usize)>,
}

impl<T, P: Ord + Clone> Merge<T, P> {
    pub(super) fn new(shards: usize, after: P, limit: usize, place: fn(&T) -> P) -> Self {
        let share = limit.div_ceil(shards.max(1)).max(LEAST).min(limit);
        Self { page: Vec::new(), limit, place, next: (share > 0).then_some((after, share)) }
    }

    /// Asks every shard for what it has after a place, in its own order, up to a count.
    pub(super) fn round(&self) -> Option<(P, usize)> {
        self.next.clone().filter(|_| self.page.len() < self.limit)
    }

    /// Takes in what the shards answered in this round.
    pub(super) fn take(&mut self, parts: Vec<Part<T, P>>) {
        let Some((_, count)) = self.next.take() else { return };
        let place = self.place;
        let to = parts.iter().filter_map(|part| part.to.clone()).min();
        let mut all: Vec<T> = parts.into_iter().flat_map(|part| part.found).collect();
        all.sort_by_key(place);
        self.page.extend(all.into_iter().take_while(|one| to.as_ref().is_none_or(|to| place(one) <= *to)));
        self.next = to.map(|to| (to, (count * 2).min(self.limit)));
    }

    pub(super) fn page(mut self) -> Vec<T> {
        self.page.truncate(self.limit);
        self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(shards: &[Vec<u64>], after: u64, limit: usize) -> (Vec<u64>, usize) {
        readable(shards, after, limit, |_| true)
    }

    fn readable(
        shards: &[Vec<u64>],
        after: u64,
        limit: usize,
        is_readable: fn(&u64) -> bool,
    ) -> (Vec<u64>, usize) {
        let mut merge = Merge::new(shards.len(), after, limit, |one| *one);
        let mut rounds = 0;
        while let Some((after, count)) = merge.round() {
            let later = |shard: &Vec<u64>| {
                let mut found: Vec<u64> =
                    shard.iter().copied().filter(|one| *one > after).take(count).collect();
                let to = found.last().copied().filter(|_| found.len() == count);
                found.retain(is_readable);
                Part { found, to }
            };
            merge.take(shards.iter().map(later).collect());
            rounds += 1;
        }
        (merge.page(), rounds)
    }

    #[test]
    fn pages_hold_everything_once_and_in_order() {
        let even: Vec<Vec<u64>> =
            (0..16).map(|shard| (0..100).map(|n| 1 + n * 16 + shard).collect()).collect();
        let mut lopsided = vec![Vec::new(); 15];
        lopsided.push((1..2000).collect());
        lopsided[3] = vec![5_000, 7_000];
        for shards in [even, lopsided, vec![Vec::new(); 4]] {
            let mut want: Vec<u64> = shards.concat();
            want.sort_unstable();
            for limit in [1, 7, 100, 5000] {
                let mut all: Vec<u64> = Vec::new();
                while all.len() < want.len() {
                    let (next, _) = page(&shards, all.last().copied().unwrap_or(0), limit);
                    assert_eq!(next.len(), limit.min(want.len() - all.len()), "only the last page is short");
                    all.extend(next);
                }
                assert_eq!(all, want);
            }
        }
        assert_eq!(page(&[vec![1]], 0, 0).0, [0; 0]);
    }

    #[test]
    fn what_cannot_be_read_hides_nothing_behind_it() {
        let shards: [Vec<u64>; 2] = [(1..=100).collect(), (101..=200).collect()];
        let (found, _) = readable(&shards, 0, 150, |one| one % 10 == 0);
        assert_eq!(found, (1..=20).map(|n| n * 10).collect::<Vec<_>>());
        assert_eq!(readable(&shards, 0, 5, |one| *one > 150).0, [151, 152, 153, 154, 155]);
    }

    #[test]
    fn one_full_shard_is_read_in_few_rounds() {
        let mut shards = vec![Vec::new(); 255];
        shards.push((1..=500).collect());
        let (all, rounds) = page(&shards, 0, 500);
        assert_eq!(all.len(), 500);
        assert!(rounds <= 8, "{rounds} rounds");
    }
}
