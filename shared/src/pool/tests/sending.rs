use super::*;

fn send(by: Uuid, text: &str, target: Target) -> Create {
    Create {
        by: Some(by),
        spec: TaskSpec::new(text),
        target,
        rules: Rules::Delegation { allow_duplicate: false },
        facts: Vec::new(),
    }
}

fn command(create: &Create) -> Command {
    Command::Create(Box::new(create.clone()))
}

#[test]
fn a_task_shows_the_task_shape() {
    let mut swarm = Swarm::new();
    let mut spec = TaskSpec::new("write docs");
    spec.task_type = Some("docs".to_owned());
    spec.tags = vec!["a".to_owned()];
    spec.epic = Some(Uuid::from_u128(7));
    spec.epic_name = Some("Launch".to_owned());
    spec.context.insert("slackUserId".to_owned(), Value::from("U1"));
    let id = swarm.create(spec, Target::Pool);
    let body = swarm.body(id);
    assert_eq!(body["id"], id.to_string());
    assert_eq!(body["creatorAgentId"], LEAD.to_string());
    assert_eq!(body["tags"], serde_json::json!(["a", "epic:Launch"]));
    assert_eq!(body["status"], "unassigned");
    assert_eq!(body["source"], "mcp");
    assert_eq!(body["slackUserId"], "U1");
    assert_eq!(body["dependsOn"], serde_json::json!([]));
    assert_eq!(body["createdAt"], swarm.0.now.iso());
    assert!(!body.contains_key("agentId") && !body.contains_key("blockedBy"));
}

#[test]
fn a_task_of_an_epic_that_is_not_there_is_refused() {
    let mut swarm = Swarm::new();
    let mut create = send(LEAD, "write docs", Target::Pool);
    create.spec.epic = Some(Uuid::from_u128(7));
    assert_eq!(swarm.refused(command(&create)), Code::NotFound);
    let refused = serde_json::to_value(Pool::asked(&command(&create))).unwrap();
    create.spec.epic_name = Some("Launch".to_owned());
    let made = serde_json::to_value(Pool::asked(&command(&create))).unwrap();
    assert_eq!(made, refused, "a repeat is the same request though the epic has gone");
    created(swarm.run(command(&create)));
}

#[test]
fn targets_are_checked_in_order() {
    let mut swarm = Swarm::new();
    let assign = |agent| Target::Assign { agent: Some(agent) };
    assert_eq!(swarm.refused(command(&send(ANN, "x", assign(ANN)))), Code::InvalidArgument);
    assert_eq!(swarm.refused(command(&send(ANN, "x", assign(LEAD)))), Code::InvalidArgument);
    assert_eq!(swarm.refused(command(&send(ANN, "x", assign(Uuid::from_u128(5))))), Code::NotFound);
    assert_eq!(swarm.refused(command(&send(ANN, " ", Target::Pool))), Code::InvalidArgument);

    let first = created(swarm.run(command(&send(LEAD, "first thing", assign(ANN)))));
    created(swarm.run(command(&send(LEAD, "second, unlike", assign(ANN)))));
    assert_eq!(swarm.poll(ANN).0.unwrap().id, first);
    let third = "a third one";
    assert_eq!(swarm.refused(command(&send(LEAD, third, assign(ANN)))), Code::NoCapacity);
    let offer = created(swarm.run(command(&send(LEAD, third, Target::Offer { agent: Some(ANN) }))));
    assert_eq!(swarm.status(offer), Status::Offered);
    assert_eq!(swarm.body(offer)["offeredTo"], ANN.to_string());
    let mut delegated = send(LEAD, third, assign(ANN));
    delegated.rules = Rules::Inbox { allow_duplicate: false };
    assert_eq!(swarm.refused(command(&delegated)), Code::Duplicate);
    delegated.spec.task = "what somebody wrote".to_owned();
    let id = created(swarm.run(command(&delegated)));
    assert_eq!(swarm.status(id), Status::Pending);
    delegated.target = assign(LEAD);
    delegated.spec.task = "not for the lead".to_owned();
    assert_eq!(swarm.refused(command(&delegated)), Code::InvalidArgument);
    // Other ways in may give the lead work and do not ask for capacity.
    assert_eq!(swarm.assigned(LEAD).get_version_num(), 7);
    swarm.assigned(ANN);
}

#[test]
fn a_child_goes_to_the_agent_of_its_parent() {
    let mut swarm = Swarm::new();
    let parent = swarm.assigned(ANN);
    let mut child = send(LEAD, "go on", Target::Assign { agent: None });
    child.spec.parent = Some(parent);
    let id = created(swarm.run(command(&child)));
    assert_eq!(swarm.head(id).agent, Some(ANN));

    let gone = Uuid::from_u128(77);
    child.spec.task = "something else entirely".to_owned();
    child.spec.parent = Some(gone);
    assert_eq!(needed(swarm.run(command(&child))).0, [gone]);
    child.facts = vec![Fact { outcome: Some(Outcome::Completed), agent: Some(BOB), ..Fact::unknown(gone) }];
    let id = created(swarm.run(command(&child)));
    assert_eq!(swarm.head(id).agent, Some(BOB));

    child.spec.task = "unknown parents are kept as they are".to_owned();
    child.facts = vec![Fact::unknown(gone)];
    let id = created(swarm.run(command(&child)));
    assert_eq!(swarm.status(id), Status::Unassigned);
    assert_eq!(swarm.body(id)["parentTaskId"], gone.to_string());
}

#[test]
fn a_child_of_a_task_whose_agent_has_left_is_for_the_pool() {
    let mut swarm = Swarm::new();
    let parent = Uuid::from_u128(77);
    swarm.run(Command::Leave { agent: ANN }).unwrap();
    for (text, target) in
        [("go on", Target::Assign { agent: None }), ("or is it yours", Target::Offer { agent: None })]
    {
        let mut child = send(LEAD, text, target);
        child.spec.parent = Some(parent);
        child.facts =
            vec![Fact { outcome: Some(Outcome::Completed), agent: Some(ANN), ..Fact::unknown(parent) }];
        let id = created(swarm.run(command(&child)));
        assert_eq!((swarm.status(id), swarm.head(id).agent), (Status::Unassigned, None));
    }
}

#[test]
fn who_is_at_capacity_and_goes_on_with_its_own_task_is_told_how() {
    let mut swarm = Swarm::new();
    let parent = swarm.assigned(ANN);
    swarm.poll(ANN);
    let mut child = send(ANN, "go on", Target::Assign { agent: None });
    child.spec.parent = Some(parent);
    let refusal = swarm.run(command(&child)).unwrap_err();
    assert_eq!(refusal.code, Code::NoCapacity);
    assert!(refusal.message.ends_with("or leave parentTaskId out for the pool"), "{refusal}");
    child.spec.parent = None;
    let id = created(swarm.run(command(&child)));
    assert_eq!(swarm.status(id), Status::Unassigned);
    // Who names the agent besides is sent to the same one without the name.
    let mut both = send(LEAD, "this is another", Target::Assign { agent: Some(ANN) });
    both.spec.parent = Some(parent);
    let refusal = swarm.run(command(&both)).unwrap_err();
    assert!(refusal.message.ends_with("leave agentId and parentTaskId out for the pool"), "{refusal}");
}

#[test]
fn what_a_lead_sends_of_its_own_task_is_for_the_pool() {
    let mut swarm = Swarm::new();
    let own = swarm.assigned(LEAD);
    let by_parent = [Target::Assign { agent: None }, Target::Offer { agent: None }];
    for (text, target) in ["the first half", "what is left then"].into_iter().zip(by_parent) {
        let mut part = send(LEAD, text, target);
        part.spec.parent = Some(own);
        let part = created(swarm.run(command(&part)));
        assert_eq!(swarm.status(part), Status::Unassigned);
        assert_eq!(swarm.body(part)["parentTaskId"], own.to_string());
        let mut back = send(ANN, text, target);
        back.spec.parent = Some(own);
        assert_eq!(swarm.refused(command(&back)), Code::InvalidArgument);
    }
}

#[test]
fn duplicates_are_refused_for_ten_minutes() {
    let mut swarm = Swarm::new();
    let pool = |text: &str| command(&send(LEAD, text, Target::Pool));
    let first = created(swarm.run(pool("Fix the login bug")));
    assert_eq!(swarm.refused(pool("fix the LOGIN bug!")), Code::Duplicate);
    created(swarm.run(pool("fix the logout bug")));
    created(swarm.run(command(&send(ANN, "Fix the login bug", Target::Pool))));
    swarm.0.restart();
    assert_eq!(swarm.refused(pool("Fix the login bug")), Code::Duplicate);
    let mut again = send(LEAD, "Fix the login bug", Target::Pool);
    again.rules = Rules::Delegation { allow_duplicate: true };
    let second = created(swarm.run(command(&again)));
    for task in [first, second] {
        swarm.run(Command::Cancel { task, by: Some(LEAD), reason: None }).unwrap();
    }
    created(swarm.run(pool("Fix the login bug")));
    swarm.0.advance(std::time::Duration::from_secs(601));
    created(swarm.run(pool("Fix the login bug")));
}

#[test]
fn limits_are_kept() {
    let mut swarm = Swarm::new();
    let mut big = send(LEAD, "x", Target::Pool);
    big.spec.task = "x".repeat(crate::limits::TEXT + 1);
    assert_eq!(swarm.refused(command(&big)), Code::TooLarge);
    let spoil: [fn(&mut TaskSpec); 4] = [
        |spec| spec.priority = 101,
        |spec| spec.tags = vec!["t".to_owned(); crate::limits::TAGS + 1],
        |spec| spec.task_type = Some("t".repeat(51)),
        |spec| spec.depends_on = vec![Uuid::nil(); crate::limits::DEPENDENCIES + 1],
    ];
    for spoil in spoil {
        let mut create = send(LEAD, "x", Target::Pool);
        spoil(&mut create.spec);
        assert_eq!(swarm.refused(command(&create)), Code::InvalidArgument);
    }
}

#[test]
fn a_task_that_is_to_be_alone_is_refused_while_another_of_its_schedule_has_not_ended() {
    let mut swarm = Swarm::new();
    let [daily, hourly] = [1, 2].map(Uuid::from_u128);
    let fire = |schedule: Uuid, target: Target| {
        let spec = TaskSpec { schedule: Some(schedule), ..TaskSpec::new("sweep") };
        Command::Create(Box::new(Create { by: None, spec, target, rules: Rules::Alone, facts: Vec::new() }))
    };
    let (anybody, ann) = (Target::Pool, Target::Assign { agent: Some(ANN) });
    let first = created(swarm.run(fire(daily, anybody)));
    // Schedules do not go by capacity.
    created(swarm.run(fire(hourly, ann)));
    for _ in 0..2 {
        assert_eq!(swarm.refused(fire(daily, ann)), Code::Duplicate);
        assert_eq!(swarm.refused(fire(daily, anybody)), Code::Duplicate);
        swarm.0.restart();
    }
    swarm.run(claim(ANN, first)).unwrap();
    assert_eq!(swarm.refused(fire(daily, anybody)), Code::Duplicate);
    swarm.finish(first, ANN, completed("swept")).unwrap();
    created(swarm.run(fire(daily, anybody)));
}
