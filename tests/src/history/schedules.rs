//! Schedules: each occurrence fires once, none is left out, and each makes one task.

use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds since 1970, by the coordinators' wall clock.
pub type Nominal = u64;

/// An event of the schedules, in the order of their commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logged {
    Planned {
        schedule: String,
        next: Option<Nominal>,
    },
    /// An occurrence became a task, and the next one is at `next`.
    Fired {
        schedule: String,
        nominal: Nominal,
        task: String,
        next: Option<Nominal>,
    },
    /// The pool said that it did not want an occurrence's task.
    Refused {
        schedule: String,
        why: String,
    },
}

/// Compares the log of the schedules with the tasks that the pool made of it, in the order of its log.
///
/// What was missed while nobody served the schedules is one occurrence; that `next` lies in the future of what fired is
/// the schedule's own rule, so an unbroken chain leaves none out.
pub fn check(log: &[Logged], made: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut due: BTreeMap<&str, Option<Nominal>> = BTreeMap::new();
    let mut fired: BTreeSet<(&str, Nominal)> = BTreeSet::new();
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for logged in log {
        let (schedule, nominal, task, next) = match logged {
            Logged::Fired { schedule, nominal, task, next } => (schedule, nominal, task, next),
            Logged::Planned { schedule, next } => {
                due.insert(schedule, *next);
                continue;
            }
            Logged::Refused { .. } => {
                broken.push(format!("doubled: {logged:?}, as if the task were there already"));
                continue;
            }
        };
        if !fired.insert((schedule, *nominal)) {
            broken.push(format!("doubled: {logged:?}, and it had fired before"));
        } else if due.get(schedule.as_str()) != Some(&Some(*nominal)) {
            let promised = due.get(schedule.as_str());
            broken.push(format!("left out: {logged:?}, and {promised:?} was to come"));
        }
        due.insert(schedule, *next);
        if !named.insert(task) {
            broken.push(format!("doubled: {logged:?}, and another occurrence has that task"));
        }
    }
    let mut there: BTreeSet<&str> = BTreeSet::new();
    for task in made {
        if !named.contains(task.as_str()) {
            broken.push(format!("invented: no occurrence made {task}"));
        }
        if !there.insert(task) {
            broken.push(format!("doubled: {task} was made twice"));
        }
    }
    broken.extend(named.difference(&there).map(|task| format!("lost: {task} was to be made, and was not")));
    broken
}

/// After everything was healed each schedule goes on: what is due next is not long past.
pub fn none_is_stuck(log: &[Logged], now: Nominal, late: u64) -> Vec<String> {
    let mut due: BTreeMap<&str, Option<Nominal>> = BTreeMap::new();
    for logged in log {
        if let Logged::Planned { schedule, next } | Logged::Fired { schedule, next, .. } = logged {
            due.insert(schedule, *next);
        }
    }
    due.into_iter()
        .filter_map(|(schedule, next)| Some((schedule, next.filter(|next| next + late < now)?)))
        .map(|(schedule, next)| format!("stuck: {schedule} was due at {next}, and it is {now}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::breaks;
    use super::*;

    fn planned(next: Nominal) -> Logged {
        Logged::Planned { schedule: "s".to_owned(), next: Some(next) }
    }

    fn fired(nominal: Nominal, task: &str, next: Nominal) -> Logged {
        let (schedule, task) = ("s".to_owned(), task.to_owned());
        Logged::Fired { schedule, nominal, task, next: Some(next) }
    }

    fn judge(log: &[Logged], made: &[&str]) -> Vec<String> {
        check(log, &made.iter().map(|&task| task.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_good_history_passes() {
        // Two occurrences were missed after the first and are one.
        let log = [planned(10), fired(10, "a", 40), fired(40, "b", 50)];
        assert_eq!(judge(&log, &["b", "a"]), [""; 0]);
        assert_eq!(none_is_stuck(&log, 60, 10), [""; 0]);
    }

    #[test]
    fn an_occurrence_fires_once() {
        breaks(&judge(&[planned(10), fired(10, "a", 20), fired(10, "b", 20)], &["a", "b"]), "doubled");
        breaks(&judge(&[planned(10), fired(10, "a", 20), fired(20, "a", 30)], &["a"]), "doubled");
        breaks(&judge(&[planned(10), fired(10, "a", 20)], &["a", "a"]), "doubled");
        // A delivery that came again was not known as such.
        let refused = Logged::Refused { schedule: "s".to_owned(), why: "it exists".to_owned() };
        breaks(&judge(&[planned(10), fired(10, "a", 20), refused], &["a"]), "doubled");
    }

    #[test]
    fn no_occurrence_is_left_out() {
        breaks(&judge(&[planned(10), fired(20, "a", 30)], &["a"]), "left out");
        breaks(&judge(&[planned(10), fired(10, "a", 20), fired(30, "b", 40)], &["a", "b"]), "left out");
        breaks(&judge(&[fired(10, "a", 20)], &["a"]), "left out");
    }

    #[test]
    fn each_makes_its_task_and_nothing_else_does() {
        breaks(&judge(&[planned(10), fired(10, "a", 20)], &[]), "lost");
        breaks(&judge(&[planned(10)], &["a"]), "invented");
    }

    #[test]
    fn a_schedule_goes_on() {
        breaks(&none_is_stuck(&[planned(10), fired(10, "a", 20)], 31, 10), "stuck");
    }
}
