use super::*;
use crate::entity::Entity;

fn call_by(world: &mut World, number: u128, agent: &str, chain: &[&str]) -> Result<Reply, Refusal> {
    world.run(Command::Call {
        call: id(number),
        caller: caller(agent, chain),
        context: String::new(),
        noted: false,
    })
}

#[test]
fn a_call_runs_and_gives_back_its_last_value() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    let Some(RunnerCommand::Start { input, instance, .. }) = world.told.first().cloned() else { panic!() };
    assert_eq!(input, json!({ "call": { "call_id": id(1), "caller": "lead", "context": "do it" } }));
    let run = InstanceId(instance);
    assert_eq!(world.instance(&run).chain, [(name("lead"), caller("lead", &[]).instance)]);
    for value in ["first", "last"] {
        world.must(Command::ReturnValue { instance: run.clone(), value: value.into() });
    }
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    world.exit(&run, 0);
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("last".to_owned())));
    assert_eq!(world.agent.body(&format!("call/{}", id(1))).unwrap()["status"], "completed");

    world.advance(601);
    let instance = caller("lead", &[]).instance;
    assert_eq!(world.refused(Command::CheckCall { call: id(1), instance }), Code::NotFound);
}

#[test]
fn a_run_that_returns_nothing_completes_its_call_without_a_value() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    world.exit(&run, 0);
    assert_eq!(world.call_status(1), (CallStatus::Completed, None));
}

#[test]
fn a_queued_call_outlives_a_restart_and_runs_when_a_slot_is_free() {
    let mut world = World::new(1);
    let busy = world.manual();
    world.call(1).unwrap();
    assert_eq!(world.call_status(1).0, CallStatus::Pending);
    world.agent.restart();
    assert_eq!(world.call_status(1).0, CallStatus::Pending);
    world.exit(&busy, 0);
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    world.must(Command::ReturnValue { instance: run.clone(), value: "late".into() });
    world.exit(&run, 0);
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("late".to_owned())));
}

#[test]
fn a_failed_run_gives_the_real_reason() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    world.must(Command::ReturnValue { instance: run.clone(), value: "half".into() });
    world.exit(&run, 3);
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("the run exited with status 3".to_owned())));
}

#[test]
fn a_call_that_fails_says_why() {
    type Blow = fn(&mut World, &InstanceId);
    let blows: [(Blow, &str); 6] = [
        (|world, _| world.advance(3600), "timeout"),
        (
            |world, run| {
                world.must(Command::Kill {
                    instance: run.clone(),
                    reason: "killed by the operator".to_owned(),
                });
            },
            "killed by the operator",
        ),
        (
            |world, run| {
                let instances = vec![run.clone()];
                world.agent.run(Command::RunnerLost { runner: "r1".to_owned(), instances }).unwrap();
            },
            "runner lost: r1",
        ),
        (
            |world, run| {
                let reason = "hook failed: the pre hook exited with status 1".to_owned();
                let token = world.token(run);
                world.report(run, token, Report::StartFailed { reason, usage: None }).unwrap();
            },
            "start failed: hook failed: the pre hook exited with status 1",
        ),
        (
            |world, run| {
                let token = world.token(run);
                let exited = Report::Exited { code: None, signal: Some(9), reason: None, usage: None };
                world.report(run, token, exited).unwrap();
            },
            "the run was ended by signal 9",
        ),
        (
            |world, _| {
                world.must(Command::Undefine);
            },
            "the agent was removed",
        ),
    ];
    for (blow, reason) in blows {
        let mut world = World::new(1);
        world.call(1).unwrap();
        let run = world.agent.entity.instances.keys().next().unwrap().clone();
        blow(&mut world, &run);
        assert_eq!(world.call_status(1), (CallStatus::Error, Some(reason.to_owned())));
    }
}

#[test]
fn refusals_by_the_chain() {
    let mut world = World::new(1);
    let code = |reply: Result<Reply, Refusal>| reply.unwrap_err().code;
    assert_eq!(code(call_by(&mut world, 1, "worker", &[])), Code::SelfCall);
    assert_eq!(code(call_by(&mut world, 2, "a", &["worker"])), Code::Cycle);
    assert_eq!(code(call_by(&mut world, 3, "a", &["worker", "b"])), Code::Cycle);
    assert_eq!(code(call_by(&mut world, 4, "a", &["b", "c", "d"])), Code::DepthExceeded);
    assert!(call_by(&mut world, 5, "a", &["b", "c"]).is_ok());
    let context = "x".repeat(crate::limits::TEXT + 1);
    let huge = Command::Call { call: id(6), caller: caller("a", &[]), context, noted: false };
    assert_eq!(world.refused(huge), Code::TooLarge);
}

#[test]
fn a_call_that_was_refused_is_written_down_and_not_kept_in_memory() {
    let mut world = World::new(1);
    let run = world.manual();
    let (call, target, before) = (id(7), name("other"), world.agent.entity.clone());
    let reason = "queue_full: the queue is full".to_owned();
    world.must(Command::NoteRefusedCall { call, instance: run.clone(), target, reason: reason.clone() });
    assert!(world.agent.entity == before && world.agent.restored() == before);
    let body = world.agent.body(&format!("call/{call}")).unwrap();
    assert_eq!((&body["status"], &body["errorMessage"]), (&json!("error"), &json!(reason)));
    assert_eq!((&body["callerInstanceId"], &body["targetAgent"]), (&json!(run), &json!("other")));
    assert_eq!((&body["depth"], body.get("targetInstanceId")), (&json!(1), None));
    let stranger = InstanceId("worker-0000000f".to_owned());
    let noted = Command::NoteRefusedCall { call, instance: stranger, target: name("other"), reason };
    assert_eq!(world.refused(noted), Code::NotFound);
}

#[test]
fn refusals_by_the_target() {
    let mut world = World::undefined();
    assert_eq!(world.call(1).unwrap_err().code, Code::NotFound);
    let definition = Definition { enabled: false, ..Definition::default() };
    world.must(Command::Define { definition, group: name("default") });
    assert_eq!(world.call(1).unwrap_err().code, Code::Disabled);
    let definition = Definition { scale: 0, ..Definition::default() };
    world.must(Command::Define { definition, group: name("default") });
    assert_eq!(world.call(1).unwrap_err().code, Code::Disabled);
}

#[test]
fn only_the_calling_instance_sees_its_call() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    let stranger = InstanceId("lead-0000000b".to_owned());
    let foreign = world.run(Command::CheckCall { call: id(1), instance: stranger.clone() }).unwrap_err();
    let unknown = world.run(Command::CheckCall { call: id(9), instance: stranger.clone() }).unwrap_err();
    assert_eq!(
        foreign.message.replace(&id(1).to_string(), ""),
        unknown.message.replace(&id(9).to_string(), "")
    );
    assert_eq!(world.refused(Command::CancelCall { call: id(1), instance: stranger }), Code::NotFound);
}

#[test]
fn a_repeated_call_is_one_call() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    world.call(1).unwrap();
    assert_eq!(world.agent.entity.calls.len(), 1);
    let other = Command::Call { call: id(1), caller: caller("x", &[]), context: String::new(), noted: false };
    assert_eq!(world.refused(other), Code::KeyReused);
}

#[test]
fn cancelling_takes_a_call_out_of_the_queue_or_stops_its_run() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    world.call(2).unwrap();
    let instance = caller("lead", &[]).instance;
    world.must(Command::CancelCall { call: id(2), instance: instance.clone() });
    assert!(world.agent.entity.queue.is_empty());
    world.must(Command::CancelCall { call: id(1), instance });
    assert!(world.agent.entity.instances.is_empty());
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("the caller cancelled the call".to_owned())));
}

#[test]
fn who_serves_a_call_by_waiting_has_its_callers_for_as_long_as_it_serves() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 9, agent_filter(None));
    let made = caller("lead", &["boss"]);
    let call = Command::Call { call: id(1), caller: made, context: "go on".to_owned(), noted: true };
    world.must(call);
    let callers = |world: &mut World| {
        let Reply::Instance(shown) = world.must(Command::Inspect { instance: run.clone() }) else { panic!() };
        shown.chain.iter().map(|(agent, _)| agent.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(callers(&mut world), ["boss", "lead"]);
    world.must(Command::CancelCall { call: id(1), instance: caller("lead", &[]).instance });
    assert_eq!(callers(&mut world), [""; 0]);
}

#[test]
fn callers_side_by_side_are_not_on_top_of_each_other() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    for (number, agent) in [(1, "a"), (2, "b"), (3, "c")] {
        world.wait(&hand, number, agent_filter(None));
        call_by(&mut world, number, agent, &["boss"]).unwrap();
        assert!(world.outcome(&hand, number).is_some());
    }
    let Reply::Instance(shown) = world.must(Command::Inspect { instance: hand.clone() }) else { panic!() };
    assert_eq!((shown.chain.len(), shown.depth()), (4, 2));
    let (call, target, reason) = (id(7), name("other"), "queue_full".to_owned());
    world.must(Command::NoteRefusedCall { call, instance: hand, target, reason });
    assert_eq!(world.agent.body(&format!("call/{call}")).unwrap()["depth"], 3);

    // What it calls is one deeper, and so on, until it is too deep.
    let mut other = World::new(1);
    let made = Caller { chain: shown.chain.clone(), depth: shown.depth, ..caller("d", &[]) };
    let made_by = |caller| Command::Call { call: id(8), caller, context: String::new(), noted: false };
    other.must(made_by(made));
    assert_eq!(other.agent.body(&format!("call/{}", id(8))).unwrap()["depth"], 3);
    let run = other.agent.entity.instances.values().next().unwrap().clone();
    assert_eq!((run.chain.len(), run.depth()), (5, 3));
    assert_eq!(other.agent.body(&format!("instance/{}", run.id)).unwrap()["depth"], 3);
    let deeper = Caller { chain: run.chain.clone(), depth: run.depth, ..caller("e", &[]) };
    assert_eq!(World::new(1).refused(made_by(deeper)), Code::DepthExceeded);
}

#[test]
fn the_end_of_the_caller_fails_its_calls_and_leaves_the_work() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    world.call(2).unwrap();
    let instance = caller("lead", &[]).instance;
    world.must(Command::CallerEnded { instance, cancel: false });
    assert_eq!(world.call_status(1).0, CallStatus::Error);
    assert_eq!(world.call_status(2).0, CallStatus::Error);
    assert_eq!(world.agent.entity.instances.len(), 2, "one runs, one waits for its slot");
    for _ in 0..2 {
        let run =
            world.agent.entity.instances.values().find(|run| run.state == State::Running).unwrap().id.clone();
        world.must(Command::ReturnValue { instance: run.clone(), value: "done".into() });
        world.exit(&run, 0);
        assert_eq!(world.end_of(&run).0, "completed");
    }
    assert!(world.agent.entity.instances.is_empty());
    assert_eq!(world.call_status(2), (CallStatus::Error, Some("the caller has ended".to_owned())));
}

#[test]
fn an_agent_whose_children_end_with_it_says_so() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    world.call(2).unwrap();
    let instance = caller("lead", &[]).instance;
    world.must(Command::CallerEnded { instance, cancel: true });
    assert!(world.agent.entity.instances.is_empty() && world.agent.entity.queue.is_empty());
}

#[test]
fn a_caller_tells_those_it_called_of_its_end() {
    let mut world = World::new(1);
    let run = world.manual();
    world.must(Command::NoteCallee { instance: run.clone(), target: name("other") });
    world.exit(&run, 0);
    let told =
        |world: &World| world.sent_to(Kind::Agent).iter().filter(|name| *name == "caller_ended").count();
    assert_eq!(told(&world), 1);
    world.must(Command::NoteCallee { instance: run, target: name("other") });
    assert_eq!(told(&world), 2, "it ended before the call was noted");
    let hand_made = InstanceId("token-1".to_owned());
    world.must(Command::NoteCallee { instance: hand_made, target: name("other") });
    assert_eq!(told(&world), 2);
}

#[test]
fn the_children_of_an_agent_that_is_removed_end_by_what_it_said_of_them() {
    let (cancel_children, grace_ms) = (true, 30_000);
    let definition = Definition { cancel_children, grace_ms, ..Definition::default() };
    let mut world = World::without_runner(definition);
    world.register(1);
    let run = world.manual();
    world.must(Command::NoteCallee { instance: run.clone(), target: name("other") });
    world.prompt_runner = false;
    world.must(Command::Undefine);
    let Some(RunnerCommand::Stop { grace_ms: first, .. }) = world.told.last().cloned() else { panic!() };
    world.must(Command::RunnerHolds { runner: "r1".to_owned(), held: vec![(run.clone(), None)] });
    let Some(RunnerCommand::Stop { grace_ms: again, .. }) = world.told.last().cloned() else { panic!() };
    assert_eq!((first, again, world.told.len()), (grace_ms, grace_ms, 3));
    world.agent.restart();
    world.exit(&run, 143);
    let ended = world.sent.iter().find(|(_, command)| command_name(command) == "caller_ended");
    let (agent, told) = ended.unwrap();
    assert_eq!(*agent, EntityKey::agent(&name("s"), &name("other")));
    assert_eq!(told["caller_ended"], json!({ "instance": run, "cancel": true }));
}

#[test]
fn a_caller_that_has_noted_whom_it_calls_is_told_only_if_it_may_have_ended_since() {
    let mut world = World::new(1);
    let mut told = |number: u128, instance: &str, noted: bool| {
        let caller = Caller { instance: InstanceId(instance.to_owned()), ..caller("lead", &[]) };
        let before = world.sent_to(Kind::Agent).len();
        world.must(Command::Call { call: id(number), caller, context: String::new(), noted });
        world.sent_to(Kind::Agent).split_off(before)
    };
    assert_eq!(told(1, "token-1", false), ["note_callee"]);
    assert!(told(2, "token-1", true).is_empty());
    assert_eq!(told(3, "lead-0000000a", true), ["note_callee"], "its runner may have reported its end");
}

/// The digest of a request is taken of its JSON, and a repeat may come to a newer build, or find the caller told or
/// with other callers of its own.
#[test]
fn a_call_is_the_same_request_whether_the_caller_is_noted_and_whomever_it_serves() {
    let call = |noted, chain: &[&str]| Command::Call {
        call: id(1),
        caller: caller("lead", chain),
        context: "do it".to_owned(),
        noted,
    };
    let new = serde_json::to_value(call(false, &[])).unwrap();
    for later in [call(false, &[]), call(true, &[]), call(false, &["boss"]), call(true, &["boss", "owner"])] {
        assert_eq!(serde_json::to_value(Agent::asked(&later).unwrap()).unwrap(), new);
    }
    assert_eq!(new["call"].as_object().unwrap().keys().collect::<Vec<_>>(), ["call", "caller", "context"]);
}

#[test]
fn a_call_expires_but_not_while_its_run_waits() {
    let mut world = World::without_runner(Definition { timeout_ms: 86_400_000, ..Definition::default() });
    world.register(1);
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    let filter = agent_filter(Some("nobody"));
    let timeout_ms = Some(4 * 3_600_000);
    let begin = Command::BeginWait {
        instance: run.clone(),
        wait: id(1),
        filter,
        timeout_ms,
        broadcast: false,
        look_back: false,
        asked: Uuid::nil(),
    };
    world.must(begin);
    world.advance(4 * 3600 - 1);
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    world.advance(1);
    assert_eq!(world.state(&run), State::Running);
    world.advance(2 * 3600 - 1);
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    world.advance(1);
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("call timed out".to_owned())));
}

#[test]
fn a_call_that_ends_a_long_wait_expires_as_soon_as_any_other() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    let wait = |number| Command::BeginWait {
        instance: hand.clone(),
        wait: id(number),
        filter: agent_filter(None),
        timeout_ms: Some(30 * 86_400_000),
        broadcast: false,
        look_back: false,
        asked: id(number),
    };
    world.must(wait(1));
    world.call(1).unwrap();
    assert!(world.outcome(&hand, 1).is_some());
    world.advance(3600);
    world.must(wait(2));
    world.advance(29 * 86_400);
    world.call(2).unwrap();
    assert!(world.outcome(&hand, 2).is_some());
    world.advance(3599);
    assert_eq!(world.call_status(1).0, CallStatus::Running, "what it waited during the call does not count");
    world.advance(1);
    let timed_out = (CallStatus::Error, Some("call timed out".to_owned()));
    assert_eq!((world.call_status(1), world.call_status(2).0), (timed_out.clone(), CallStatus::Running));
    world.advance(3600);
    assert_eq!(world.call_status(2), timed_out);
}

#[test]
fn a_call_has_its_whole_time_from_when_the_run_that_it_wakes_goes_on() {
    let mut world = World::without_runner(Definition { timeout_ms: 86_400_000, ..Definition::default() });
    world.register(1);
    let sleeper = world.manual();
    world.wait(&sleeper, 1, agent_filter(None));
    let works = world.manual();
    world.advance(1000);
    world.call(1).unwrap();
    world.advance(3 * 3600);
    assert_eq!((world.state(&sleeper), world.call_status(1).0), (State::Resuming, CallStatus::Running));
    world.exit(&works, 0);
    world.advance(2 * 3600 - 1);
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    world.advance(1);
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("call timed out".to_owned())));
}

#[test]
fn a_call_resumes_the_longest_waiting_instance_that_matches() {
    let mut world = World::new(3);
    let (first, second, third) = (world.manual(), world.manual(), world.manual());
    world.wait(&first, 1, agent_filter(Some("nobody")));
    world.wait(&second, 2, agent_filter(Some("lead")));
    world.advance(1);
    world.wait(&third, 3, agent_filter(None));
    world.call(1).unwrap();
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    assert_eq!((world.state(&first), world.state(&third)), (State::Frozen, State::Frozen));
    let outcome = world.outcome(&second, 2).unwrap();
    assert_eq!(outcome["triggered"]["payload"]["sourceAgent"], "lead");
    assert_eq!(outcome["triggered"]["payload"]["context"], "do it");
    world.must(Command::ReturnValue { instance: second.clone(), value: "done".into() });
    world.exit(&second, 0);
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("done".to_owned())));
}

#[test]
fn a_broadcast_wait_hears_a_call_that_another_serves() {
    let mut world = World::new(2);
    let (server, listener) = (world.manual(), world.manual());
    world.wait(&server, 1, agent_filter(None));
    world.advance(1);
    let filter = agent_filter(None);
    let begin = Command::BeginWait {
        instance: listener.clone(),
        wait: id(2),
        filter,
        timeout_ms: None,
        broadcast: true,
        look_back: false,
        asked: Uuid::nil(),
    };
    world.must(begin);
    world.call(1).unwrap();
    assert!(world.outcome(&server, 1).is_some() && world.outcome(&listener, 2).is_some());
    assert_eq!(world.agent.entity.calls.get(&id(1)).unwrap().callee, Some(server));
}

#[test]
fn a_hand_made_instance_serves_calls_by_waiting() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    world.call(1).unwrap();
    assert_eq!(world.call_status(1).0, CallStatus::Pending);
    let queued = format!("instance/{}", world.agent.entity.queue.keys().next().unwrap());
    assert!(world.agent.head(&queued).is_some());
    let Reply::Wait(view) = world.wait(&hand, 1, agent_filter(None)) else { panic!() };
    assert!(view.outcome.is_some(), "the queued call is handed over at once");
    assert_eq!(world.agent.head(&queued), None, "that run never was");
    assert!(world.sent_to(Kind::Lockspace).is_empty(), "nobody gets ready for a wait that is over");
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    world.must(Command::ReturnValue { instance: hand.clone(), value: "yes".into() });
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("yes".to_owned())));
    world.wait(&hand, 2, agent_filter(None));
    assert_eq!(world.state(&hand), State::Waiting, "never frozen");
    let wait = |number| world.agent.head(&format!("wait/{}", id(number)));
    assert!(wait(1).is_none() && wait(2).is_some(), "of waits the one that goes on is kept");
    world.call(2).unwrap();
    assert!(world.outcome(&hand, 2).is_some());
    world.call(3).unwrap();
    world.must(Command::Complete { instance: hand });
    assert_eq!(world.call_status(2), (CallStatus::Completed, None), "an earlier value is not its answer");
    let unserved = "no instance is left to serve the call".to_owned();
    assert_eq!(world.call_status(3), (CallStatus::Error, Some(unserved)));
    assert!(world.told.is_empty());
}
