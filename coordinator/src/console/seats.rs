//! Places for pages that are kept up to date: each asks the services anew whenever its swarm changes. Those beyond are
//! shown and stay as they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skein_shared::id::Name;

use crate::auth::{Principal, Right, policy};

/// At a time; for those who do not administer; and for these of one swarm. An agent may log in with its token, too: it
/// keeps neither operators from following what it does, nor the people of other swarms.
const ALL: usize = 256;
const LOOKING: usize = 192;
const OF_A_SWARM: usize = 96;

/// Who has how many. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Seats(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    operators: usize,
    /// Those of all others, by their swarms.
    others: HashMap<Name, usize>,
}

/// A place, until it is dropped.
pub(super) struct Seat {
    seats: Seats,
    /// None of an operator's, who goes from swarm to swarm.
    swarm: Option<Name>,
}

impl Seats {
    /// A place, if there is one left for such a visitor.
    pub(super) fn take(&self, who: &Principal) -> Option<Seat> {
        let swarm = (!policy::may(who, Right::Administer)).then(|| who.swarm.clone());
        let mut taken = self.taken();
        let others: usize = taken.others.values().sum();
        if taken.operators + others >= ALL {
            return None;
        }
        if let Some(swarm) = &swarm {
            let of_swarm = taken.others.get(swarm).copied().unwrap_or_default();
            if others >= LOOKING || of_swarm >= OF_A_SWARM {
                return None;
            }
            taken.others.insert(swarm.clone(), of_swarm + 1);
        } else {
            taken.operators += 1;
        }
        drop(taken);
        Some(Seat { seats: self.clone(), swarm })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        let Some(swarm) = &self.swarm else {
            taken.operators -= 1;
            return;
        };
        let left = taken.others.get(swarm).map_or(0, |of_swarm| of_swarm - 1);
        if left == 0 {
            taken.others.remove(swarm);
        } else {
            taken.others.insert(swarm.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::auth::Role;

    #[test]
    fn those_who_only_look_leave_places_to_operators_and_other_swarms() {
        let seats = Seats::default();
        let (agent, operator) = (Principal::named("a", Role::Worker), Principal::named("o", Role::Operator));
        let of = |swarm: &str| Principal { swarm: Name::parse(swarm).unwrap(), ..agent.clone() };
        let take_all = |who: &Principal| iter::from_fn(|| seats.take(who)).collect::<Vec<_>>();
        let taken = [take_all(&agent), take_all(&of("build")), take_all(&of("third"))];
        assert_eq!(taken.each_ref().map(Vec::len), [OF_A_SWARM, LOOKING - OF_A_SWARM, 0]);
        assert_eq!(take_all(&operator).len(), ALL - LOOKING);
        drop(taken);
        assert_eq!(take_all(&operator).len(), ALL);
        assert_eq!(take_all(&of("third")).len(), OF_A_SWARM);
        assert!(seats.taken().others.is_empty() && seats.taken().operators == 0);
    }
}
