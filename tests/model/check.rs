//! Runs a model to its end, or to the harm that it is expected to do.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use skein_tests::process::give_way;
use stateright::{Checker, HasDiscoveries, Model};

/// Two, because that is what the machines of the continuous integration have.
const THREADS: usize = 2;

/// Visits every reachable state: no harm is done in any, and all that must be reachable is.
///
/// The floor on their number tells when a change has taken the life out of a model.
pub(crate) fn holds<M>(model: M, at_least: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    give_way().unwrap();
    let checker = model.checker().threads(THREADS).spawn_bfs().join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    println!("{states} states, {} deep", checker.max_depth());
    assert!(states >= at_least, "{states} states: the model has lost most of its life");
}

/// Visits every reachable state and sees none of the named harms. For a part of a world that cannot reach all.
pub(crate) fn keeps<M>(model: M, harms: &[&'static str])
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    give_way().unwrap();
    let checker = model.checker().threads(THREADS).spawn_bfs().join();
    for harm in harms {
        checker.assert_no_discovery(harm);
    }
    println!("{} states, {} deep", checker.unique_state_count(), checker.max_depth());
}

/// Finds a way to the named harm: a short one, since one thread searches nearly in order of length.
pub(crate) fn fails<M>(model: M, harm: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    give_way().unwrap();
    let harms = HasDiscoveries::AnyOf(BTreeSet::from([harm]));
    let checker = model.checker().finish_when(harms).spawn_bfs().join();
    let path = checker.assert_any_discovery(harm);
    println!("{} states to: {harm}", checker.unique_state_count());
    for action in path.into_actions() {
        println!("  {action:?}");
    }
}
