//! What a runner says of what it holds, and what has become of that when it is heard.

use super::*;

/// A runner of two coordinators, registered with the first.
async fn joined(script: &str) -> (Coordinator, Coordinator, Bed) {
    joined_in(Bed::new(script)).await
}

async fn joined_in(mut bed: Bed) -> (Coordinator, Coordinator, Bed) {
    let (first, second) = two().await;
    bed.run(&first, TOKEN);
    second.until("a stream to the other", |state| state.registrations.len() == 1).await;
    (first, second, bed)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_stream_shows_the_token_that_is_in_its_file_or_else_the_last_that_was() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let bed = Bed::new("sleep 1000");
    let _runner = bed.run_apart(&coordinator);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    fs::write(bed.token_file(), "\n").unwrap();
    coordinator.hang_up().await;
    coordinator.until("the token that was", |state| state.registrations.len() == 2).await;

    // The next one was written too late, and is taken all the same.
    coordinator.behave(|behaviour| behaviour.token = "later-token");
    coordinator.hang_up().await;
    coordinator.until("a refusal", |state| state.turned_away > 0).await;
    fs::write(bed.token_file(), "later-token\n").unwrap();
    coordinator.until("the later token", |state| state.registrations.len() == 3).await;
}

/// Has the runner register anew over a second stream, which is not answered yet.
async fn begin_to_register(second: &Coordinator) {
    second.behave(|behaviour| behaviour.hesitates = true);
    let given_up = v1::Refused { code: "stale_token".into(), message: "register again".into() };
    second.say(Message::Refused(given_up)).await;
    second.until("a registration", |state| state.unanswered == 1).await;
}

/// Answers it.
async fn end_to_register(second: &Coordinator) -> v1::Register {
    second.behave(|behaviour| behaviour.hesitates = false);
    second.until("a registration", |state| state.registrations.len() == 2).await.registrations.remove(1)
}

/// Whoever took the report in has lost it, with Redis perhaps.
#[tokio::test(flavor = "multi_thread")]
async fn how_an_instance_ended_is_said_until_it_is_let_go_of_and_to_whoever_asks_after_it() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("exit 3");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 5)).await;
    let end = |report: &&v1::Report| matches!(report.what, Some(What::Exited(_)));
    let ends = |count| move |state: &coordinator::State| state.reports.iter().filter(end).count() == count;
    let state = coordinator.until("its end", ends(1)).await;
    let exited = state.reports.into_iter().find(|report| end(&report)).unwrap();

    coordinator.hang_up().await;
    coordinator.until("its end for a new registration", ends(2)).await;
    coordinator.say(Message::Forget(Forget { instance: id(1).into(), token: token(7) })).await;
    coordinator.say(start(id(1), 5)).await;
    coordinator.until("its end for a start that it has had", ends(3)).await;
    coordinator.say(stop(id(1), 8)).await;
    coordinator.until("its end for a stop", ends(4)).await;
    coordinator.say(thaw(id(1), 8)).await;
    let state = coordinator.until("its end for whoever believes that it runs", ends(5)).await;
    let told: Vec<_> = state.reports.iter().filter(end).collect();
    assert!(told.iter().all(|report| report.what == exited.what), "{told:?}");
    let tokens: Vec<_> = told.iter().map(|report| report.token.clone()).collect();
    assert_eq!(tokens, [token(5), token(5), token(7), token(8), token(8)]);

    coordinator.hang_up().await;
    let state = coordinator.until("another registration", |state| state.registrations.len() == 3).await;
    assert!(state.registrations[2].held.is_empty(), "what is forgotten is not held");
    bed.leave().await.unwrap();
}

/// Its agent asks by what it has commanded last: a runner that has the instance knows that, and one that has not says
/// so.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_knows_nothing_of_an_instance_says_so_and_what_it_has_goes_on() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    coordinator.say(thaw(id(1), 1)).await;
    for (instance, command) in [(id(2), thaw(id(2), 1)), (id(3), freeze(id(3), 1))] {
        coordinator.say(command).await;
        let end = coordinator.reported(instance, |what| matches!(what, What::Exited(_))).await;
        let Some(What::Exited(exited)) = end.what else { unreachable!() };
        assert_eq!((exited.code, exited.signal), (None, None));
        assert_eq!(exited.reason, "its runner knows nothing of it");
    }
    // A start that was on its way all the time.
    coordinator.say(start(id(2), 1)).await;
    coordinator
        .until("its end again", |state| {
            state.reports.iter().filter(|report| report.instance == id(2)).count() == 2
        })
        .await;
    coordinator.reported(id(1), |what| matches!(what, What::Started(_))).await;
    assert!(is_running(id(1)) && marked(id(2)).is_empty());
    bed.leave().await.unwrap();
}

/// One coordinator has seen that Redis was replaced, and has forgotten how the instance ended. The other has not, and
/// lets go of it after the runner has told the first that it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_let_go_of_while_the_runner_registers_is_reported_to_whoever_may_have_forgotten_it() {
    let (first, second, mut bed) = joined("exit 3").await;
    first.say(start(id(1), 5)).await;
    first.reported(id(1), |what| matches!(what, What::Exited(_))).await;

    begin_to_register(&second).await;
    first.say(Message::Forget(Forget { instance: id(1).into(), token: token(7) })).await;
    // It is through once what comes behind it is.
    first.say(start(id(2), 6)).await;
    first.reported(id(2), |what| matches!(what, What::Exited(_))).await;
    let told = end_to_register(&second).await;
    assert!(!told.attaches && told.held.iter().any(|held| held.instance == id(1)), "{:?}", told.held);
    let again = |report: &v1::Report| report.instance == id(1) && report.token == token(7);
    first.until("its end once more", |state| state.reports.iter().any(again)).await;
    bed.leave().await.unwrap();
}

/// Its agent sends it again to a runner that does not hold it.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_of_which_nothing_was_done_when_the_runner_crashed_is_none() {
    let coordinator = Coordinator::open(MCP, 1000).await;
    let mut bed = Bed::new("sleep 1000");
    let mut first = bed.run_apart(&coordinator);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Started(_))).await;
    // Without a lease it begins nothing.
    coordinator.behave(|behaviour| behaviour.renew = false);
    until(|| is_frozen(id(1)).then_some(())).await;
    coordinator.say(start(id(2), 1)).await;
    // It has the start once what comes behind it is answered.
    coordinator.say(stop(id(3), 1)).await;
    coordinator.reported(id(3), |what| matches!(what, What::StartFailed(_))).await;
    first.kill().await.unwrap();

    coordinator.behave(|behaviour| behaviour.renew = true);
    bed.run(&coordinator, TOKEN);
    let state = coordinator.until("registration", |state| state.registrations.len() == 2).await;
    let held: Vec<_> = state.registrations[1].held.iter().map(|held| held.instance.as_str()).collect();
    assert_eq!(held, [id(1), id(3)]);
    coordinator.say(start(id(2), 1)).await;
    coordinator.reported(id(2), |what| matches!(what, What::Started(_))).await;
    until(|| (is_running(id(1)) && is_running(id(2))).then_some(())).await;
    bed.leave().await.unwrap();
}

/// The fleet has given an instance up, and its agent to the same runner again, over the stream of the other
/// coordinator: that comes before the word that the first is lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_started_anew_while_the_runner_registers_does_not_end_with_what_it_was_before() {
    let (first, second, mut bed) = joined("sleep 1000").await;
    first.say(start(id(1), 1)).await;
    first.reported(id(1), |what| matches!(what, What::Started(_))).await;

    second.behave(|behaviour| behaviour.lost = vec![id(1).into()]);
    begin_to_register(&second).await;
    first.say(start(id(1), 3)).await;
    let anew =
        |report: &v1::Report| report.token == token(3) && matches!(report.what, Some(What::Started(_)));
    first.until("another start", |state| state.reports.iter().any(anew)).await;
    end_to_register(&second).await;
    second.say(freeze(id(1), 4)).await;
    let told = |report: &v1::Report| report.token >= token(3) && matches!(report.what, Some(What::Frozen(_)));
    first.until("it follows", |state| state.reports.iter().any(told)).await;
    bed.leave().await.unwrap();
}

/// Its agent has not heard yet that its runner was lost, and goes on to command it over the stream of another
/// coordinator.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_away_ends_though_it_was_commanded_since() {
    let (first, second, mut bed) = joined("sleep 1000").await;
    first.say(start(id(1), 1)).await;
    first.reported(id(1), |what| matches!(what, What::Started(_))).await;

    second.behave(|behaviour| behaviour.lost = vec![id(1).into()]);
    begin_to_register(&second).await;
    first.say(freeze(id(1), 2)).await;
    first.reported(id(1), |what| matches!(what, What::Frozen(_))).await;
    end_to_register(&second).await;
    first.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    assert!(marked(id(1)).is_empty(), "it runs on beside what was started elsewhere");
    bed.leave().await.unwrap();
}

/// What takes its time to end.
const DEAF: &str = "trap '' TERM; sleep 1000";

/// It has more of it than what is said meanwhile takes on a busy machine.
fn deaf() -> Bed {
    let bed = Bed::new(DEAF);
    bed.define("worker", &format!("command = ['sh', '-c', \"{DEAF}\"]\ngrace = '10s'\n"));
    bed
}

/// Whether it has got as far as to ignore the request to end.
fn is_deaf(instance: &str) -> bool {
    let ignores = |process: &Process| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ignored.is_some_and(|mask| mask >> 14 & 1 == 1)
    };
    marked(instance).iter().any(ignores)
}

fn started(report: &&v1::Report) -> bool {
    report.instance == id(1) && matches!(report.what, Some(What::Started(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_the_end_of_an_earlier_one_is_called_off_by_a_stop() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = deaf();
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    until(|| is_deaf(id(1)).then_some(())).await;
    for command in [start(id(1), 3), stop(id(1), 4), start(id(1), 3), thaw(id(1), 4)] {
        coordinator.say(command).await;
    }
    let told = |report: &v1::Report| report.token == token(4);
    let state = coordinator.until("its end", |state| state.reports.iter().any(told)).await;
    let ends: Vec<_> = state.reports.iter().filter(|report| !started(report)).collect();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(matches!(ends[0].what, Some(What::Exited(_))) && ends[0].token == token(1), "{ends:?}");
    let Some(What::StartFailed(failed)) = &ends[1].what else { panic!("{ends:?}") };
    assert_eq!(failed.reason, "it was stopped before it was started");
    // Whoever asks again hears the same.
    coordinator.say(stop(id(1), 5)).await;
    let again =
        |report: &v1::Report| report.token == token(5) && matches!(report.what, Some(What::StartFailed(_)));
    let state = coordinator.until("its end again", |state| state.reports.iter().any(again)).await;
    assert_eq!(state.reports.iter().filter(started).count(), 1, "it began all the same");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_is_given_away_with_what_it_waits_for() {
    let (first, second, mut bed) = joined_in(deaf()).await;
    first.say(start(id(1), 1)).await;
    until(|| is_deaf(id(1)).then_some(())).await;
    first.say(start(id(1), 3)).await;
    // It is through once what comes behind it is.
    first.say(stop(id(3), 1)).await;
    first.reported(id(3), |what| matches!(what, What::StartFailed(_))).await;

    second.behave(|behaviour| behaviour.lost = vec![id(1).into()]);
    begin_to_register(&second).await;
    end_to_register(&second).await;
    first.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    first.say(start(id(2), 1)).await;
    first.reported(id(2), |what| matches!(what, What::Started(_))).await;
    let state = first.until("all that was said", |_| true).await;
    assert_eq!(state.reports.iter().filter(started).count(), 1, "it began beside what was started elsewhere");
    assert!(marked(id(1)).is_empty());
    bed.leave().await.unwrap();
}

/// Its first start came late, and its agent has given it to the same runner again meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_started_anew_once_its_earlier_start_has_ended() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Started(_))).await;
    coordinator.say(start(id(1), 3)).await;
    let started = |report: &&v1::Report| matches!(report.what, Some(What::Started(_)));
    let state =
        coordinator.until("another start", |state| state.reports.iter().filter(started).count() == 2).await;
    let told: Vec<_> = state.reports.iter().map(|report| (started(&report), report.token.clone())).collect();
    assert_eq!(told, [(true, token(1)), (false, token(1)), (true, token(3))]);
    coordinator.say(start(id(1), 3)).await;
    bed.leave().await.unwrap();
    assert!(marked(id(1)).is_empty(), "the runner left an instance behind");
}

#[tokio::test]
async fn a_runner_may_have_as_many_files_open_as_its_system_allows() {
    let bed = Bed::new("exec sleep 1000");
    fs::write(bed.token_file(), TOKEN).unwrap();
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 200 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_skein-runner")]);
    command.args(["--name", "r1", "--coordinator", "http://127.0.0.1:1"]);
    command.arg("--token-file").arg(bed.token_file());
    command.arg("--agents").arg(bed.folder.path().join("agents")).arg("--data").arg(bed.data());
    let mut runner = command.kill_on_drop(true).spawn().unwrap();
    let limits = format!("/proc/{}/limits", runner.id().unwrap());
    let open_files = || {
        // Its name is three words.
        let text = fs::read_to_string(&limits).ok()?;
        let line = text.lines().find(|line| line.starts_with("Max open files"))?;
        let mut words = line.split_ascii_whitespace().skip(3);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    until(|| open_files().filter(|(soft, hard)| soft == hard)).await;
    runner.kill().await.unwrap();
}

/// What the other coordinator had commanded last may have been lost with the stream, and nobody else would notice.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_runner_holds_is_said_again_when_the_stream_to_another_coordinator_breaks() {
    let (first, second, mut bed) = joined("sleep 1000").await;
    second.say(start(id(1), 1)).await;
    first.reported(id(1), |what| matches!(what, What::Started(_))).await;
    // It does not come back.
    second.behave(|behaviour| behaviour.token = "another-token");
    second.hang_up().await;
    let state = first.until("what it holds", |state| state.registrations.len() == 2).await;
    let told = &state.registrations[1];
    assert!(told.attaches && told.held.iter().any(|held| held.instance == id(1)), "{told:?}");
    bed.leave().await.unwrap();
}

/// Nobody but this stream knows that it is to be said again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_to_be_said_again_over_a_stream_that_breaks_is_said_over_the_next() {
    let (first, second) = two().await;
    let agent = v1::AgentName { swarm: "default".into(), name: "worker".into() };
    let problem = v1::AgentProblem { agent: Some(agent), problem: "it is being loaded".into(), again: true };
    first.behave(|behaviour| behaviour.problems = vec![problem]);
    let mut bed = Bed::new("sleep 1000");
    bed.run(&first, TOKEN);
    second.until("a stream to the other", |state| state.registrations.len() == 1).await;
    first.hang_up().await;
    let state = first.until("another registration", |state| state.registrations.len() == 2).await;
    assert!(!state.registrations[1].attaches, "its agent is said by nobody");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_about_to_end_offers_no_slot_when_it_registers_anew() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new(DEAF);
    bed.define("worker", &format!("command = ['sh', '-c', \"{DEAF}\"]\ngrace = '3s'\nautostart = true\n"));
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    until(|| is_deaf(id(1)).then_some(())).await;
    let anew = async {
        coordinator.until("its word", |state| !state.leaving.is_empty()).await;
        coordinator.hang_up().await;
        coordinator.until("another registration", |state| state.registrations.len() == 2).await
    };
    let (state, left) = tokio::join!(anew, bed.leave());
    left.unwrap();
    let [first, second] = state.registrations.as_slice() else { unreachable!("that was waited for") };
    assert!(first.slots > 0 && first.agents[0].autostart, "{first:?}");
    assert!(second.slots == 0 && !second.agents[0].autostart, "{second:?}");
}

/// It was started anew on another machine, and nobody has noticed that it was away.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_has_another_address_since_is_followed_there() {
    let (first, second, mut bed) = joined("sleep 1000").await;
    let moved = Coordinator::named("b", MCP, LEASE).await;
    for coordinator in [&first, &second] {
        let all = list(&first, &moved);
        // Whoever registers anew is told it too.
        coordinator.behave(|behaviour| behaviour.coordinators = Some(all.clone()));
        coordinator.say(Message::Coordinators(all)).await;
    }
    moved.until("a stream to where it is now", |state| state.registrations.len() == 1).await;
    bed.leave().await.unwrap();
}
