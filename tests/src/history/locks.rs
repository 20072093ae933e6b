//! Locks: L1 tokens, L2 fenced exclusion, L3 exclusion in time, L4 none is stuck.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_shared::fence::Token;

use super::{Moment, Operation};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// With the time to live that is asked for.
    Acquire {
        key: String,
        ttl: Duration,
    },
    Release {
        key: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted(Token),
    Released,
}

pub type History = [Operation<Call, Answer>];

/// A write that a resource took, which refuses tokens lower than the highest it has seen. In the order of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: String,
    pub client: usize,
    pub token: Token,
}

/// An acquire that succeeded.
struct Grant<'a> {
    key: &'a str,
    client: usize,
    token: Token,
    invoked: Moment,
    returned: Moment,
    ttl: Duration,
}

/// L1 to L3. Holders are never paused here, so L3 holds too; the coordinators may be.
pub fn check(history: &History, writes: &[Write]) -> Vec<String> {
    let mut broken = check_tokens(history, history, writes);
    broken.extend(check_time(history));
    broken
}

/// L1 and L2: what holds even where a store has lost what it acknowledged. `told` is all that holders were told, lost
/// since or not: they may have written under it.
pub fn check_tokens(history: &History, told: &History, writes: &[Write]) -> Vec<String> {
    let mut broken = tokens(&grants(history));
    broken.extend(fenced_exclusion(&grants(told), writes));
    broken
}

/// L3: what a grant that was lost breaks.
pub fn check_time(history: &History) -> Vec<String> {
    exclusion_in_time(&grants(history), history)
}

fn grants(history: &History) -> Vec<Grant<'_>> {
    let grant = |operation: &'_ Operation<Call, Answer>| match (&operation.call, operation.answer()) {
        (Call::Acquire { ttl, .. }, Some(Answer::Granted(token))) => Some((*token, *ttl)),
        _ => None,
    };
    let mut grants = Vec::new();
    for operation in history {
        let Call::Acquire { key, .. } = &operation.call else { continue };
        let Some((token, ttl)) = grant(operation) else { continue };
        let Operation { client, invoked, returned, .. } = *operation;
        grants.push(Grant { key, client, token, invoked, returned, ttl });
    }
    grants
}

/// L1: a token is of one holder and one lock, and rises with every grant of it. A refresh keeps it.
fn tokens(grants: &[Grant]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut owners: BTreeMap<Token, &Grant> = BTreeMap::new();
    for grant in grants {
        let first = owners.entry(grant.token).or_insert(grant);
        if (first.client, first.key) != (grant.client, grant.key) {
            broken.push(format!(
                "L1: token {} was given to client {} for {} and to client {} for {}",
                grant.token, first.client, first.key, grant.client, grant.key
            ));
        }
    }
    for (key, grants) in by_key(grants) {
        let mut returned: Vec<&Grant> = grants.clone();
        returned.sort_by_key(|grant| grant.returned);
        let mut invoked = grants;
        invoked.sort_by_key(|grant| grant.invoked);
        let mut earlier = returned.into_iter().peekable();
        let mut highest: Option<&Grant> = None;
        for grant in invoked {
            while let Some(before) = earlier.next_if(|before| before.returned < grant.invoked) {
                highest = highest.filter(|highest| highest.token >= before.token).or(Some(before));
            }
            if let Some(highest) = highest
                && (grant.token < highest.token
                    || (grant.token == highest.token && grant.client != highest.client))
            {
                broken.push(format!(
                    "L1: {key} was granted with {} to client {} after {} was returned to client {}",
                    grant.token, grant.client, highest.token, highest.client
                ));
            }
        }
    }
    broken
}

fn by_key<'a>(grants: &'a [Grant<'a>]) -> BTreeMap<&'a str, Vec<&'a Grant<'a>>> {
    let mut keys: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
    for grant in grants {
        keys.entry(grant.key).or_default().push(grant);
    }
    keys
}

/// L2: the accepted writes of a resource never go back to a lower token, and each was written by whom it was given to.
fn fenced_exclusion(grants: &[Grant], writes: &[Write]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut last: BTreeMap<&str, &Write> = BTreeMap::new();
    for write in writes {
        let Write { key, client, token } = write;
        if !grants
            .iter()
            .any(|grant| (grant.key, grant.client, grant.token) == (key.as_str(), *client, *token))
        {
            broken.push(format!("L2: client {client} wrote {key} with {token}, which it was not granted"));
        }
        if let Some(before) = last.insert(key.as_str(), write)
            && (before.token > *token || (before.token == *token && before.client != *client))
        {
            broken.push(format!("L2: {key} took {write:?} after {before:?}"));
        }
    }
    broken
}

/// L3: two holders never have one lock at a time. A holder has it from when it was told so until it begins to release
/// it, or until the time to live has passed since it asked: the coordinator's count began later.
fn exclusion_in_time(grants: &[Grant], history: &History) -> Vec<String> {
    let mut releases: BTreeMap<(&str, usize), Vec<Moment>> = BTreeMap::new();
    for operation in history {
        if let Call::Release { key } = &operation.call {
            releases.entry((key, operation.client)).or_default().push(operation.invoked);
        }
    }
    let end = |grant: &Grant| {
        let own = releases.get(&(grant.key, grant.client)).into_iter().flatten();
        let released = own.filter(|moment| **moment >= grant.returned).min().copied();
        (grant.invoked + grant.ttl).min(released.unwrap_or(Moment::MAX))
    };
    let mut broken = Vec::new();
    for (key, mut grants) in by_key(grants) {
        grants.sort_by_key(|grant| grant.returned);
        let mut ends: BTreeMap<usize, Moment> = BTreeMap::new();
        for grant in grants {
            let until = end(grant);
            // Whoever was told late has it no more when it hears of it.
            if until <= grant.returned {
                continue;
            }
            for (other, end) in &ends {
                if *other != grant.client && *end > grant.returned {
                    broken.push(format!(
                        "L3: client {} had {key} from {:?}, and client {other} until {end:?}",
                        grant.client, grant.returned
                    ));
                }
            }
            let latest = ends.entry(grant.client).or_default();
            *latest = until.max(*latest);
        }
    }
    broken
}

/// L4: after everything was healed, each lock that was ever asked for is granted within a limit.
pub fn none_is_stuck(history: &History, healed: Moment, limit: Duration) -> Vec<String> {
    let mut keys: BTreeMap<&str, bool> = BTreeMap::new();
    for operation in history {
        let Call::Acquire { key, .. } = &operation.call else { continue };
        let in_time = operation.invoked >= healed && operation.returned <= healed + limit;
        *keys.entry(key).or_default() |= in_time && operation.answer().is_some();
    }
    let stuck = keys.into_iter().filter(|(_, granted)| !granted);
    stuck.map(|(key, _)| format!("L4: {key} was not granted within {limit:?} after all was healed")).collect()
}

#[cfg(test)]
mod tests {
    use skein_shared::fence::Epoch;

    use super::super::record::tests::{breaks, fail, ok, unknown};
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn token(number: u64) -> Token {
        Token { epoch: Epoch(1), number }
    }

    fn acquire() -> Call {
        Call::Acquire { key: "k".to_owned(), ttl: TTL }
    }

    fn granted(client: usize, from: u64, to: u64, number: u64) -> Operation<Call, Answer> {
        ok(client, acquire(), from, to, Answer::Granted(token(number)))
    }

    fn released(client: usize, from: u64, to: u64) -> Operation<Call, Answer> {
        ok(client, Call::Release { key: "k".to_owned() }, from, to, Answer::Released)
    }

    fn write(client: usize, number: u64) -> Write {
        Write { key: "k".to_owned(), client, token: token(number) }
    }

    #[test]
    fn a_good_history_passes() {
        let history = [
            granted(1, 0, 10, 1),
            granted(1, 20, 30, 1), // a refresh
            fail(2, acquire(), 25, 35),
            unknown(3, acquire(), 26), // explains a refusal, and proves nothing
            released(1, 40, 60),
            granted(2, 41, 50, 2),         // granted while the release is answered
            granted(1, 11_000, 11_010, 3), // the time to live of the other has passed
        ];
        assert_eq!(check(&history, &[write(1, 1), write(1, 1), write(2, 2), write(1, 3)]), [""; 0]);
        assert_eq!(none_is_stuck(&history, Duration::from_secs(11), TTL), [""; 0]);
    }

    #[test]
    fn l1_tokens_are_unique_and_rise() {
        let again = [granted(1, 0, 10, 1), released(1, 20, 30), granted(2, 5, 40, 1)];
        breaks(&check(&again, &[]), "L1");
        let falls = [granted(1, 0, 10, 5), released(1, 20, 30), granted(2, 40, 50, 4)];
        breaks(&check(&falls, &[]), "L1");
        let other = Call::Acquire { key: "other".to_owned(), ttl: TTL };
        breaks(&check(&[granted(1, 0, 10, 1), ok(1, other, 20, 30, Answer::Granted(token(1)))], &[]), "L1");
    }

    #[test]
    fn l2_a_resource_takes_no_lower_token_and_none_that_was_not_given() {
        let history = [granted(1, 0, 10, 1), released(1, 20, 30), granted(2, 40, 50, 2)];
        breaks(&check(&history, &[write(2, 2), write(1, 1)]), "L2");
        breaks(&check(&history, &[write(2, 1)]), "L2");
    }

    #[test]
    fn l3_two_holders_do_not_have_it_at_a_time() {
        breaks(&check(&[granted(1, 0, 10, 1), granted(2, 20, 30, 2)], &[]), "L3");
        // A release that is still to come ends nothing.
        breaks(&check(&[granted(1, 0, 10, 1), granted(2, 20, 30, 2), released(1, 40, 50)], &[]), "L3");
        // Nor does that of another.
        breaks(&check(&[granted(1, 0, 10, 1), released(3, 12, 15), granted(2, 20, 30, 2)], &[]), "L3");
    }

    #[test]
    fn l4_a_lock_that_nobody_gets_is_stuck() {
        let healed = Duration::from_secs(1);
        breaks(&none_is_stuck(&[granted(1, 0, 10, 1), fail(2, acquire(), 1000, 1010)], healed, TTL), "L4");
        breaks(&none_is_stuck(&[granted(1, 1000, 20_000, 1)], healed, TTL), "L4");
    }
}
