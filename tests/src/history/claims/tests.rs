//! A good history passes, and for each rule a bad one is rejected, for that rule alone.

use std::time::Duration;

use super::super::record::tests::{breaks, fail, ok, unknown};
use super::*;

type Told = Operation<Call, Answer>;

fn create(from: u64, text: &str, priority: u8, needs: &[&str]) -> Told {
    let needs = needs.iter().map(|&task| task.to_owned()).collect();
    let call = Call::Create { text: text.to_owned(), priority, needs };
    ok(0, call, from, from + 5, Answer::Task(text.to_owned()))
}

fn claim(client: usize, from: u64, task: &str) -> Told {
    ok(client, Call::Claim { task: task.to_owned() }, from, from + 5, Answer::Task(task.to_owned()))
}

fn next(client: usize, from: u64, task: &str) -> Told {
    ok(client, Call::ClaimNext, from, from + 5, Answer::Task(task.to_owned()))
}

fn complete(client: usize, from: u64, task: &str) -> Told {
    let call = Call::Complete { task: task.to_owned(), output: format!("by {client}") };
    ok(client, call, from, from + 5, Answer::Done)
}

fn release(client: usize, from: u64, task: &str) -> Told {
    ok(client, Call::Release { task: task.to_owned() }, from, from + 5, Answer::Done)
}

fn done(text: &str, client: usize) -> (String, Task) {
    let task = Task {
        text: text.to_owned(),
        status: "completed".to_owned(),
        holder: Some(client),
        output: Some(format!("by {client}")),
    };
    (text.to_owned(), task)
}

fn held(text: &str, client: usize) -> (String, Task) {
    let (id, task) = done(text, client);
    (id, Task { status: "in_progress".to_owned(), output: None, ..task })
}

fn free(text: &str) -> (String, Task) {
    let (id, task) = held(text, 0);
    (id, Task { status: "unassigned".to_owned(), holder: None, ..task })
}

fn logged(version: u64, task: &str, fact: Fact) -> Logged {
    Logged { commit: version as usize, version, task: task.to_owned(), fact }
}

fn started(version: u64, task: &str, client: usize, attempt: u32) -> Logged {
    logged(version, task, Fact::Started { client, attempt })
}

fn completed(version: u64, task: &str, client: usize) -> Logged {
    logged(version, task, Fact::Completed { output: Some(format!("by {client}")) })
}

fn judge(history: &[Told], tasks: &[(String, Task)], log: Option<&[Logged]>) -> Vec<String> {
    let tasks = tasks.iter().cloned().collect();
    check(&Evidence { history, tasks: &tasks, log, capacity: 2 })
}

#[test]
fn a_good_history_passes() {
    let history = [
        create(0, "a", 50, &[]),
        create(10, "b", 90, &["a"]),
        fail(3, Call::Create { text: "refused".to_owned(), priority: 1, needs: Vec::new() }, 10, 15),
        unknown(3, Call::Create { text: "maybe".to_owned(), priority: 99, needs: Vec::new() }, 12),
        next(1, 20, "a"), // b is more urgent and waits for a
        fail(2, Call::Claim { task: "a".to_owned() }, 26, 30),
        release(1, 30, "a"),
        claim(2, 33, "a"),
        unknown(2, Call::Complete { task: "a".to_owned(), output: "by 2".to_owned() }, 40),
        unknown(4, Call::ClaimNext, 41),
        create(50, "c", 10, &[]),
        ok(4, Call::ClaimNext, 60, 65, Answer::Nothing),
    ];
    let tasks = [done("a", 2), held("b", 4), free("c"), free("maybe")];
    assert_eq!(judge(&history, &tasks, None), [""; 0]);
    let log = [
        logged(1, "a", Fact::Created),
        logged(2, "b", Fact::Created),
        logged(2, "maybe", Fact::Created),
        started(3, "a", 1, 1),
        logged(4, "a", Fact::Released),
        started(4, "a", 2, 2),
        completed(5, "a", 2),
        started(6, "b", 4, 1),
        logged(7, "b", Fact::Lost),
        started(8, "b", 4, 2),
        logged(9, "c", Fact::Created),
    ];
    assert_eq!(judge(&history, &tasks, Some(&log)), [""; 0]);
}

#[test]
fn c1_a_task_is_given_to_one() {
    let twice = [create(0, "a", 50, &[]), claim(1, 10, "a"), claim(2, 20, "a")];
    breaks(&judge(&twice, &[held("a", 2)], None), "C1");
    let log = [logged(1, "a", Fact::Created), started(2, "a", 1, 1), started(3, "a", 2, 2)];
    let unsaid = [
        create(0, "a", 50, &[]),
        unknown(1, Call::Claim { task: "a".to_owned() }, 10),
        unknown(2, Call::ClaimNext, 10),
    ];
    breaks(&judge(&unsaid, &[held("a", 2)], Some(&log)), "C1");
}

#[test]
fn c2_the_first_result_stays() {
    let made = || [create(0, "a", 50, &[]), claim(1, 10, "a"), complete(1, 20, "a")];
    let again: Vec<Told> = made().into_iter().chain([complete(1, 40, "a")]).collect();
    breaks(&judge(&again, &[done("a", 1)], None), "C2");
    let foreign = [create(0, "a", 50, &[]), claim(1, 10, "a"), complete(2, 20, "a")];
    breaks(
        &judge(
            &foreign,
            &[done("a", 1)].map(|(id, task)| (id, Task { output: Some("by 2".to_owned()), ..task })),
            None,
        ),
        "C2",
    );
    let late: Vec<Told> = made().into_iter().chain([claim(1, 40, "a")]).collect();
    breaks(&judge(&late, &[done("a", 1)], None), "C2");

    let good = || [logged(1, "a", Fact::Created), started(2, "a", 1, 1), completed(3, "a", 1)];
    assert_eq!(judge(&made(), &[done("a", 1)], Some(&good())), [""; 0]);
    let gap = [logged(1, "a", Fact::Created), started(2, "a", 1, 2), completed(3, "a", 1)];
    breaks(&judge(&made(), &[done("a", 1)], Some(&gap)), "C2");
    let twice: Vec<Logged> = good().into_iter().chain([completed(4, "a", 1)]).collect();
    breaks(&judge(&made(), &[done("a", 1)], Some(&twice)), "C2");
    let unheld = [
        logged(1, "a", Fact::Created),
        started(2, "a", 1, 1),
        logged(3, "a", Fact::Lost),
        completed(4, "a", 1),
    ];
    breaks(&judge(&made(), &[done("a", 1)], Some(&unheld)), "C2");
}

#[test]
fn c3_what_was_acknowledged_is_there() {
    let made = [create(0, "a", 50, &[]), claim(1, 10, "a")];
    breaks(&judge(&made, &[], None), "C3");
    breaks(&judge(&made, &[free("a")], None), "C3");
    let (id, task) = free("a");
    let stuck = Task { status: "limbo".to_owned(), ..task };
    breaks(&judge(&made[..1], &[(id, stuck)], None), "C3");
    let done_by_one = [create(0, "a", 50, &[]), claim(1, 10, "a"), complete(1, 20, "a")];
    breaks(&judge(&done_by_one, &[held("a", 1)], None), "C3");
    // An order is one too: its effect must arrive.
    let order = ok(0, Call::Order { text: "o".to_owned() }, 0, 5, Answer::Task("o".to_owned()));
    breaks(&judge(&[order], &[], None), "C3");

    let log = [logged(1, "a", Fact::Created)];
    breaks(&judge(&made, &[held("a", 1)], Some(&log)), "C3");
    let unfinished = [logged(1, "a", Fact::Created), started(2, "a", 1, 1)];
    breaks(&judge(&done_by_one, &[done("a", 1)], Some(&unfinished)), "C3");
    let forked = [logged(3, "a", Fact::Created), started(2, "a", 1, 1)];
    breaks(&judge(&made, &[held("a", 1)], Some(&forked)), "C3");
    let beside = [logged(3, "a", Fact::Created), Logged { commit: 4, ..started(3, "a", 1, 1) }];
    breaks(&judge(&made, &[held("a", 1)], Some(&beside)), "C3");
}

#[test]
fn c3_a_read_shows_what_was_acknowledged_before_it() {
    let read = |from, status: &str| {
        ok(3, Call::Read { task: "a".to_owned() }, from, from + 5, Answer::Seen(status.to_owned()))
    };
    let judge = |read| {
        let history = [create(0, "a", 50, &[]), claim(1, 10, "a"), complete(1, 20, "a"), read];
        judge(&history, &[done("a", 1)], None)
    };
    // While the completion was under way either was true.
    assert_eq!(judge(read(22, "in_progress")), [""; 0]);
    assert_eq!(judge(read(30, "completed")), [""; 0]);
    breaks(&judge(read(30, "in_progress")), "C3");
}

#[test]
fn c4_what_is_there_was_asked_for() {
    breaks(&judge(&[], &[free("a")], None), "C4");
    let refused = fail(0, Call::Create { text: "a".to_owned(), priority: 1, needs: Vec::new() }, 0, 5);
    breaks(&judge(&[refused], &[free("a")], None), "C4");
    breaks(&judge(&[create(0, "a", 50, &[])], &[held("a", 1)], None), "C4");
    let nothing = ok(1, Call::ClaimNext, 10, 15, Answer::Nothing);
    breaks(&judge(&[create(0, "a", 50, &[]), nothing], &[held("a", 1)], None), "C4");

    let log = [logged(1, "a", Fact::Created), started(2, "a", 1, 1), logged(3, "a", Fact::Released)];
    breaks(&judge(&[create(0, "a", 50, &[])], &[free("a")], Some(&log)), "C4");
    breaks(&judge(&[create(0, "a", 50, &[])], &[free("a")], Some(&[logged(1, "a", Fact::Released)])), "C4");
}

#[test]
fn c5_order_is_kept() {
    let early = [
        create(0, "a", 50, &[]),
        create(10, "b", 50, &["a"]),
        claim(1, 20, "a"),
        claim(2, 30, "b"),
        complete(1, 40, "a"),
    ];
    breaks(&judge(&early, &[done("a", 1), held("b", 2)], None), "C5");
    let less_urgent = [create(0, "a", 90, &[]), create(10, "b", 10, &[]), next(1, 20, "b"), next(2, 30, "a")];
    breaks(&judge(&less_urgent, &[held("a", 2), held("b", 1)], None), "C5");
    // Somebody who never heard of it may have had it already; if only another ever had it, nobody had.
    let silent = |holder, later: Option<Told>| {
        let mut history = less_urgent[..3].to_vec();
        history
            .extend([unknown(3, Call::ClaimNext, 12), unknown(2, Call::Claim { task: "a".to_owned() }, 40)]);
        history.extend(later);
        judge(&history, &[held("a", holder), held("b", 1)], None)
    };
    assert_eq!(silent(3, None), [""; 0]);
    breaks(&silent(2, None), "C5");
    assert_eq!(silent(2, Some(release(3, 30, "a"))), [""; 0]);
    breaks(&silent(2, Some(release(3, 30, "b"))), "C5");
    assert_eq!(silent(3, Some(ok(3, Call::ClaimNext, 30, 35, Answer::Again("a".to_owned())))), [""; 0]);
}

#[test]
fn what_was_lost_is_told_again_until_the_loss_is_heard_of() {
    let again =
        |client, from: u64| ok(client, Call::ClaimNext, from, from + 5, Answer::Again("a".to_owned()));
    let history = [next(1, 20, "a"), again(1, 40), again(2, 40), again(1, 90)];
    let moment = Duration::from_millis;
    let known = forget_lost(&history, &(moment(10)..moment(30)), moment(60));
    let counts: Vec<bool> = known.iter().map(|operation| operation.answer().is_some()).collect();
    assert_eq!(counts, [false, false, true, true]);
}

#[test]
fn c6_nobody_has_too_much() {
    let history = |last: &[Told]| -> Vec<Told> {
        let mut all: Vec<Told> = ["a", "b", "c"].map(|task| create(0, task, 50, &[])).into();
        all.extend([claim(1, 10, "a"), claim(1, 20, "b")]);
        all.extend_from_slice(last);
        all
    };
    let three = history(&[claim(1, 30, "c")]);
    breaks(&judge(&three, &[held("a", 1), held("b", 1), held("c", 1)], None), "C6");
    let in_turn = history(&[complete(1, 30, "a"), claim(1, 40, "c")]);
    let tasks = [done("a", 1), held("b", 1), held("c", 1)];
    assert_eq!(judge(&in_turn, &tasks, None), [""; 0]);
    let log: Vec<Logged> = [("a", 1), ("b", 2), ("c", 3)]
        .into_iter()
        .flat_map(|(task, version)| [logged(version, task, Fact::Created), started(version, task, 1, 1)])
        .chain([completed(4, "a", 1)])
        .collect();
    breaks(&judge(&in_turn, &tasks, Some(&log)), "C6");
}

#[test]
fn c7_an_effect_happens_once() {
    let order = || ok(0, Call::Order { text: "o".to_owned() }, 0, 5, Answer::Task("o".to_owned()));
    let (_, task) = free("o");
    let both = [("o".to_owned(), task.clone()), ("p".to_owned(), task)];
    breaks(&judge(&[order()], &both, None), "C7");
    let log = [logged(1, "o", Fact::Created), logged(2, "o", Fact::Created)];
    breaks(&judge(&[order()], &[free("o")], Some(&log)), "C7");
    let (_, task) = free("x");
    let other = unknown(0, Call::Create { text: "x".to_owned(), priority: 1, needs: Vec::new() }, 0);
    breaks(&judge(&[order(), other], &[("o".to_owned(), task)], None), "C7");
}
