use serde_json::json;

use super::*;
use crate::entity::{Changes, DocumentChange, Effect};
use crate::id::Kind;
use crate::json::merge;
use crate::profiles::{Edit, Source};

#[test]
fn a_member_shows_the_agent_shape() {
    let swarm = Swarm::new();
    let body = swarm.member(LEAD);
    for field in ["id", "name", "isLead", "status", "capabilities", "maxTasks", "emptyPollCount"] {
        assert!(body.contains_key(field), "{field}");
    }
    let profile = swarm.0.body(&format!("profile/{LEAD}")).unwrap();
    for text in ["claudeMd", "soulMd", "identityMd"].map(|field| &profile[field]) {
        assert!(text.as_str().is_some_and(|text| !text.is_empty()));
    }
    for field in ["createdAt", "lastUpdatedAt", "lastActivityAt"] {
        assert!(body[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    assert_eq!((&body["status"], &body["maxTasks"]), (&Value::from("idle"), &Value::from(1)));
    assert!(!body.contains_key("role"));
}

/// What a store keeps of changes is written again with each that follows.
#[test]
fn joining_makes_documents_and_changes_none() {
    let swarm = Swarm::new();
    let joined = swarm.0.events.iter().find(|event| matches!(event, Event::Joined { .. })).unwrap();
    let mut changes = Changes::default();
    Swarm::empty().0.entity.apply(joined, &mut changes);
    let made = |change: &DocumentChange| matches!(change, DocumentChange::Put { new: true, .. });
    assert_eq!(changes.documents.len(), 2);
    assert!(changes.documents.iter().all(made), "{changes:?}");
}

#[test]
fn joining_keeps_ids_names_and_the_lead_unique() {
    let mut swarm = Swarm::new();
    assert!(matches!(
        swarm.run(Command::Join(join(ANN, "ann", false))).unwrap(),
        Reply::Joined { existing: true, .. }
    ));
    assert_eq!(swarm.refused(Command::Join(join(ANN, "anna", false))), Code::AlreadyExists);
    let new = Uuid::from_u128(9);
    assert_eq!(swarm.refused(Command::Join(join(new, "bob", false))), Code::AlreadyExists);
    assert_eq!(swarm.refused(Command::Join(join(new, "eve", true))), Code::LeadExists);
    assert_eq!(swarm.refused(Command::Join(join(new, " ", false))), Code::InvalidArgument);
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    swarm.run(Command::Join(join(new, "eve", true))).unwrap();
    assert_eq!(swarm.0.entity.lead(), Some(new));
}

#[test]
fn whoever_comes_to_lead_gets_what_its_predecessor_left_and_hears_of_questions_once() {
    let mut swarm = Swarm::empty();
    let told = |swarm: &Swarm| (swarm.sent(Kind::Inboxes), swarm.sent(Kind::Questions));
    let inherit = |lead: Uuid| json!({ "inherit": { "lead": lead } });
    let tell = |lead: Uuid| json!({ "tell_lead": { "lead": lead } });
    swarm.run(Command::Join(join(BOB, "bob", false))).unwrap();
    assert!(swarm.0.effects.is_empty(), "a worker gets nothing");
    swarm.run(Command::Join(join(LEAD, "lead", true))).unwrap();
    assert_eq!(told(&swarm), (vec![inherit(LEAD)], vec![tell(LEAD)]));
    swarm.run(Command::Join(join(LEAD, "lead", true))).unwrap();
    assert_eq!(told(&swarm), (vec![inherit(LEAD); 2], vec![tell(LEAD)]), "it led already");
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    swarm.0.effects.clear();
    swarm.run(Command::Join(join(BOB, "bob", true))).unwrap();
    assert_eq!(told(&swarm), (vec![inherit(BOB)], vec![tell(BOB)]));
}

#[test]
fn a_worker_takes_the_leads_place_while_it_is_free() {
    let mut swarm = Swarm::new();
    let leads = || Command::Join(join(ANN, "ann", true));
    swarm.assigned(ANN);
    assert_eq!(swarm.refused(leads()), Code::LeadExists);
    assert_eq!(swarm.member(ANN)["isLead"], false);
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let joined = swarm.run(leads()).unwrap();
    assert!(matches!(joined, Reply::Joined { existing: true, member } if member.lead));
    assert_eq!((swarm.member(ANN)["isLead"].as_bool(), swarm.0.entity.lead()), (Some(true), Some(ANN)));
    assert_eq!(swarm.0.restored(), swarm.0.entity);
    let events = swarm.0.events.len();
    for lead in [true, false] {
        let again = swarm.run(Command::Join(join(ANN, "ann", lead))).unwrap();
        assert!(matches!(again, Reply::Joined { existing: true, member } if member.lead));
    }
    assert_eq!(swarm.0.events.len(), events, "it led already");
    assert_eq!(swarm.refused(Command::Join(join(BOB, "bob", true))), Code::LeadExists);
}

/// A command with what its host looks up for it.
fn informed(swarm: &Swarm, mut command: Command) -> Command {
    let document = Pool::consults(&command).unwrap();
    Pool::consulted(&mut command, &Json::of(swarm.0.body(&document).unwrap()));
    assert_eq!(Pool::consults(&command), None);
    command
}

#[test]
fn the_texts_of_who_takes_the_leads_place_say_that_it_leads() {
    let mut swarm = Swarm::new();
    let was = swarm.0.body(&format!("profile/{ANN}")).unwrap().clone();
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let plain = Command::Join(join(ANN, "ann", true));
    let command = informed(&swarm, plain.clone());
    assert_eq!(Pool::asked(&command), Some(plain), "it is the same request with other texts");
    swarm.run(command).unwrap();
    let profile = swarm.0.body(&format!("profile/{ANN}")).unwrap();
    let mut other = Swarm::empty();
    other.run(Command::Join(join(ANN, "ann", true))).unwrap();
    assert_eq!(profile, other.0.body(&format!("profile/{ANN}")).unwrap(), "as if it had joined so");
    let sent = swarm.sent(Kind::Profiles);
    let kept = &sent[0]["changed"];
    assert_eq!((&kept["source"], &kept["by"]), (&json!("system"), &Value::Null));
    for field in ["claudeMd", "identityMd"] {
        assert_eq!(kept["texts"][field], json!({"text": profile[field], "before": was[field]}));
    }
    assert_eq!(swarm.0.restored(), swarm.0.entity);
}

#[test]
fn what_a_member_wrote_itself_stays_when_it_comes_to_lead() {
    let mut swarm = Swarm::new();
    let (claude_md, role) = (Some("Test whatever is built.".to_owned()), Some("tester".to_owned()));
    let identity_md = Some("# Ann\n\n- Position: worker\n- Role: tester\n".to_owned());
    swarm.run(describe(Profile { claude_md, identity_md, role, ..Profile::default() })).unwrap();
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let command = informed(&swarm, Command::Join(join(ANN, "ann", true)));
    swarm.run(command).unwrap();
    let profile = swarm.0.body(&format!("profile/{ANN}")).unwrap();
    assert_eq!(profile["claudeMd"], "Test whatever is built.");
    assert_eq!(profile["identityMd"], "# Ann\n\n- Position: lead\n- Role: tester\n");
    assert_eq!(swarm.member(ANN)["role"], "tester");
}

#[test]
fn leaving_gives_everything_back() {
    let mut swarm = Swarm::new();
    let started = swarm.assigned(ANN);
    swarm.poll(ANN);
    let queued = swarm.assigned(ANN);
    let offered = swarm.task(Target::Offer { agent: Some(ANN) });
    swarm.run(Command::Leave { agent: ANN }).unwrap();
    for document in ["member", "profile"] {
        assert!(swarm.0.body(&format!("{document}/{ANN}")).is_none(), "{document}");
    }
    for task in [started, queued, offered] {
        assert_eq!(swarm.status(task), Status::Unassigned);
        let body = swarm.body(task);
        assert!(!body.contains_key("agentId") && !body.contains_key("offeredTo"));
    }
    assert_eq!(swarm.refused(poll(ANN, false)), Code::NotJoined);
    assert_eq!(swarm.refused(Command::Leave { agent: ANN }), Code::NotJoined);
    swarm.run(Command::Join(join(ANN, "ann", false))).unwrap();
    assert_eq!(swarm.member(ANN)["status"], "idle");
}

/// A store that is told of both at once changes the document that was there before.
#[test]
fn who_joins_again_has_none_of_its_old_texts() {
    let mut swarm = Swarm::new();
    let (setup_script, tools_md) = (Some("true".to_owned()), Some("use them well".to_owned()));
    swarm.run(describe(Profile { setup_script, tools_md, ..Profile::default() })).unwrap();
    let mut profile = swarm.0.body(&format!("profile/{ANN}")).unwrap().clone();
    let own = ["setupScript", "toolsMd"];
    assert!(own.iter().all(|field| profile.contains_key(*field)), "{profile:?}");
    let is_joined = |event: &&Event| matches!(event, Event::Joined { join, .. } if join.agent == ANN);
    let mut changes = Changes::default();
    Swarm::empty().0.entity.apply(swarm.0.events.iter().find(is_joined).unwrap(), &mut changes);
    for change in changes.documents {
        if let DocumentChange::Put { key, body: Some(body), .. } = change
            && key.starts_with("profile/")
        {
            merge(&mut profile, body.value());
        }
    }
    assert!(own.iter().all(|field| !profile.contains_key(*field)), "{profile:?}");
    assert!(profile.contains_key("claudeMd"));
}

#[test]
fn going_offline_withdraws_offers_and_a_ping_wakes() {
    let mut swarm = Swarm::new();
    let offered = swarm.task(Target::Offer { agent: Some(ANN) });
    swarm.run(Command::Offline { agent: ANN }).unwrap();
    assert_eq!(swarm.status(offered), Status::Unassigned);
    assert_eq!(swarm.member(ANN)["status"], "offline");
    swarm.run(Command::Ping { agent: ANN, managed: false }).unwrap();
    assert_eq!(swarm.member(ANN)["status"], "idle");
    let events = swarm.0.events.len();
    swarm.run(Command::Ping { agent: ANN, managed: false }).unwrap();
    assert_eq!(swarm.0.events.len(), events, "a ping that changes nothing is no event");
}

#[test]
fn whoever_gets_work_is_back_at_it_and_who_asks_in_vain_is_not_yet() {
    let mut swarm = Swarm::new();
    let next =
        || Command::ClaimNext { agent: ANN, instance: instance(ANN), managed: false, tags: Vec::new() };
    swarm.run(poll(ANN, true)).unwrap();
    let pooled = swarm.task(Target::Pool);
    for asks in [claim(ANN, pooled), next(), poll(ANN, false)] {
        swarm.run(Command::Offline { agent: ANN }).unwrap();
        assert_eq!(swarm.member(ANN)["status"], "offline");
        swarm.run(asks).unwrap();
        assert_eq!(swarm.member(ANN)["status"], "busy");
    }
    assert_eq!(swarm.member(ANN)["emptyPollCount"], 0, "it counts anew");
    swarm.finish(pooled, ANN, completed("")).unwrap();
    swarm.run(Command::Offline { agent: ANN }).unwrap();
    let events = swarm.0.events.len();
    for asks in [next(), poll(ANN, false)] {
        swarm.run(asks).unwrap();
        assert_eq!(swarm.0.events.len(), events, "with an event the answer would be kept");
    }
    swarm.run(poll(ANN, true)).unwrap();
    assert_eq!(swarm.member(ANN)["status"], "offline");
}

#[test]
fn a_lowered_capacity_spares_what_runs() {
    let mut swarm = Swarm::new();
    swarm.run(Command::SetCapacity { agent: ANN, max_tasks: 2 }).unwrap();
    let tasks = [swarm.task(Target::Pool), swarm.task(Target::Pool), swarm.task(Target::Pool)];
    swarm.run(claim(ANN, tasks[0])).unwrap();
    swarm.run(claim(ANN, tasks[1])).unwrap();
    swarm.run(Command::SetCapacity { agent: ANN, max_tasks: 1 }).unwrap();
    assert_eq!(swarm.0.entity.member(ANN).unwrap().ceiling, 2);
    swarm.finish(tasks[0], ANN, completed("")).unwrap();
    assert_eq!(swarm.0.entity.member(ANN).unwrap().ceiling, 1);
    assert_eq!(swarm.refused(claim(ANN, tasks[2])), Code::NoCapacity);
    for bad in [0, 21] {
        let command = Command::SetCapacity { agent: ANN, max_tasks: bad };
        assert_eq!(swarm.refused(command), Code::InvalidArgument);
    }
}

#[test]
fn what_members_say_of_themselves_is_bounded() {
    fn long(length: usize) -> String {
        "ö".repeat(length)
    }
    let mut swarm = Swarm::new();
    let spoil: [fn(&mut Join, usize); 4] = [
        |join, more| join.name = long(200 + more),
        |join, more| join.description = Some(long(4000 + more)),
        |join, more| join.capabilities = vec![long(100 + more)],
        |join, more| join.capabilities = vec![long(1); 100 + more],
    ];
    for (number, spoil) in (0x100..).zip(spoil) {
        let mut joins = join(Uuid::from_u128(number), &format!("eve-{number}"), false);
        spoil(&mut joins, 1);
        assert_eq!(swarm.refused(Command::Join(joins.clone())), Code::TooLarge);
        let Join { name, description, capabilities, .. } = joins.clone();
        let (name, capabilities) = (Some(name), Some(capabilities));
        let profile = Profile { name, description, capabilities, ..Profile::default() };
        assert_eq!(swarm.refused(describe(profile)), Code::TooLarge);
        spoil(&mut joins, 0);
        swarm.run(Command::Join(joins)).unwrap();
    }
}

fn describe(profile: Profile) -> Command {
    Command::Describe { agent: ANN, profile, before: Box::default(), edit: None }
}

#[test]
fn new_texts_of_a_profile_are_kept_as_versions() {
    let mut swarm = Swarm::new();
    let named = Profile { name: Some("anna".to_owned()), ..Profile::default() };
    swarm.run(describe(named)).unwrap();
    assert!(swarm.0.effects.is_empty(), "a name has no versions");
    let texts = |text: &str| Profile { soul_md: Some(text.to_owned()), ..Profile::default() };
    let before = Box::new(Profile { claude_md: Some("other".to_owned()), ..texts("calm") });
    let profile = texts("brave");
    swarm.run(Command::Describe { agent: ANN, profile, before: before.clone(), edit: None }).unwrap();
    let [Effect::Entity { key, command }] = swarm.0.effects.as_slice() else {
        panic!("{:?}", swarm.0.effects)
    };
    assert_eq!(key.kind, Kind::Profiles);
    let changed = &command.value()["changed"];
    assert_eq!(changed["texts"], json!({"soulMd": {"text": "brave", "before": "calm"}}));
    assert_eq!((&changed["agent"], &changed["by"]), (&json!(ANN), &json!(ANN)));

    // Who else changes them, and why, goes along.
    let coached = |reason: &str| {
        let edit = Edit { source: Source::LeadCoaching, by: Some(BOB), reason: Some(reason.to_owned()) };
        let (profile, edit) = (texts("bold"), Some(Box::new(edit)));
        Command::Describe { agent: ANN, profile, before: before.clone(), edit }
    };
    assert_eq!(swarm.refused(coached(&"x".repeat(1001))), Code::TooLarge);
    swarm.run(coached("it hid")).unwrap();
    let [_, Effect::Entity { command, .. }] = swarm.0.effects.as_slice() else {
        panic!("{:?}", swarm.0.effects)
    };
    let changed = &command.value()["changed"];
    let told = [&changed["source"], &changed["by"], &changed["reason"]];
    assert_eq!(told, [&json!("lead_coaching"), &json!(BOB), &json!("it hid")]);
}

#[test]
fn a_profile_changes_what_is_given() {
    let mut swarm = Swarm::new();
    let role = Profile { role: Some("tester".to_owned()), ..Profile::default() };
    swarm.run(describe(role)).unwrap();
    let name = Profile { name: Some("anna".to_owned()), ..Profile::default() };
    swarm.run(describe(name)).unwrap();
    let body = swarm.member(ANN);
    assert_eq!((&body["role"], &body["name"]), (&Value::from("tester"), &Value::from("anna")));
    let taken = Profile { name: Some("bob".to_owned()), ..Profile::default() };
    assert_eq!(swarm.refused(describe(taken)), Code::AlreadyExists);
    let nothing = Profile::default();
    assert_eq!(swarm.refused(describe(nothing)), Code::InvalidArgument);
    swarm.run(Command::Join(join(Uuid::from_u128(9), "ann", false))).unwrap();
}
