//! Forges: who gets what people ask for at GitHub and GitLab, and what becomes of it.

use std::time::Duration;

use serde_json::json;

use super::standing::waits;
use super::*;
use crate::forge::{Act, Activity, Noun, Report, Subject};

const PULL: &str = "github:acme/api#7";

fn activity(act: Act) -> Activity {
    let fields = json!({ "githubEventType": "pull_request" }).as_object().unwrap().clone();
    Activity {
        subjects: vec![PULL.parse().unwrap()],
        act,
        report: report_of("Review it."),
        key: None,
        fields,
    }
}

/// What happened to a pull request.
pub(super) fn report_of(what: &str) -> Report {
    Report { noun: Noun::PullRequest, what: what.into(), title: None, url: None, by: None, text: None }
}

fn ask(once: bool) -> Activity {
    activity(Act::Ask { task_type: "github-pr".into(), once })
}

fn news() -> Activity {
    activity(Act::News { task_type: "github-ci".into() })
}

fn withdraw() -> Activity {
    Activity { report: report_of("no longer assigned"), ..activity(Act::Withdraw) }
}

impl Swarm {
    /// What happens at a forge makes these tasks.
    fn learns(&mut self, activity: Activity) -> Vec<Uuid> {
        self.heard(Command::Forge(Box::new(activity)))
    }

    fn learns_one(&mut self, activity: Activity) -> (Uuid, Map<String, Value>) {
        self.heard_one(Command::Forge(Box::new(activity)))
    }

    /// The lead gives a part of a task to ann.
    fn delegates(&mut self, parent: Uuid) -> Uuid {
        let spec = TaskSpec { parent: Some(parent), ..TaskSpec::new("look at it") };
        self.create(spec, Target::Assign { agent: Some(ANN) })
    }
}

#[test]
fn what_people_ask_for_is_a_task_of_the_leads() {
    let mut swarm = Swarm::new();
    let (_, body) = swarm.learns_one(ask(true));
    for (field, value) in [
        ("agentId", json!(LEAD)),
        ("status", json!("pending")),
        ("source", json!("github")),
        ("taskType", json!("github-pr")),
        ("githubRepo", json!("acme/api")),
        ("githubNumber", json!(7)),
        ("githubEventType", json!("pull_request")),
    ] {
        assert_eq!(body[field], value, "{field}");
    }
    let words = body["task"].as_str().unwrap();
    assert!(words.contains("What happened: Review it.") && words.contains("parentTaskId"), "{words}");

    let mut leaderless = Swarm::empty();
    let (_, body) = leaderless.learns_one(ask(true));
    let words = body["task"].as_str().unwrap();
    assert!(body["status"] == "unassigned" && !words.contains("parentTaskId"), "{words}");
}

#[test]
fn a_lead_that_does_as_it_is_advised_passes_the_work_on() {
    let mut swarm = Swarm::new();
    let (task, _) = swarm.learns_one(ask(true));
    let spec = TaskSpec { parent: Some(task), ..TaskSpec::new("look at it") };
    let (target, rules) = (Target::Assign { agent: None }, Rules::Delegation { allow_duplicate: false });
    let create = Create { by: Some(LEAD), spec, target, rules, facts: Vec::new() };
    let part = created(swarm.run(Command::Create(Box::new(create))));
    let body = swarm.body(part);
    assert_eq!((&body["status"], &body["githubNumber"]), (&json!("unassigned"), &json!(7)));
}

#[test]
fn what_is_asked_for_in_two_ways_is_one_task_and_each_question_one_more() {
    let mut swarm = Swarm::new();
    let (comment, _) = swarm.learns_one(ask(false));
    let (first, body) = swarm.learns_one(ask(true));
    assert_eq!(body["parentTaskId"], json!(comment), "assigned behind a comment");
    swarm.0.restart();
    assert!(swarm.learns(ask(true)).is_empty(), "opened and assigned");
    swarm.0.advance(Duration::from_secs(61));
    let part = swarm.delegates(first);
    let (_, body) = swarm.learns_one(ask(true));
    assert_eq!(body["parentTaskId"], json!(part), "asked once more, however young the part is");
}

#[test]
fn what_is_of_two_requests_is_news_of_those_that_are_worked_on() {
    let mut swarm = Swarm::new();
    let subjects: Vec<Subject> = ["github:acme/api#6", PULL, "github:acme/api#8"]
        .iter()
        .map(|subject| subject.parse().unwrap())
        .collect();
    for subject in &subjects[1..] {
        swarm.learns_one(Activity { subjects: vec![subject.clone()], ..ask(true) });
    }
    let told = swarm.learns(Activity { subjects, ..news() });
    let numbers: Vec<Value> = told.iter().map(|task| swarm.body(*task)["githubNumber"].clone()).collect();
    assert_eq!(numbers, [json!(7), json!(8)]);
    assert!(swarm.body(told[1])["task"].as_str().unwrap().contains("gh pr view 8 -R acme/api"));
}

#[test]
fn what_is_of_two_requests_gives_an_open_poll_one_task() {
    let mut swarm = Swarm::new();
    waits(&mut swarm, LEAD);
    let subjects = ["github:acme/api#6", PULL].map(|subject| subject.parse().unwrap());
    let made = swarm.learns(Activity { subjects: subjects.to_vec(), ..ask(true) });
    let statuses: Vec<Status> = made.iter().map(|task| swarm.status(*task)).collect();
    assert_eq!(statuses, [Status::InProgress, Status::Pending]);
}

#[test]
fn a_part_of_the_work_in_another_repository_is_about_nothing_here() {
    let mut swarm = Swarm::new();
    let (task, _) = swarm.learns_one(ask(true));
    let mut spec = TaskSpec { parent: Some(task), ..TaskSpec::new("look at it there") };
    spec.context.insert("githubRepo".into(), json!("acme/web"));
    let part = swarm.create(spec, Target::Assign { agent: Some(ANN) });
    let body = swarm.body(part);
    assert_eq!((&body["githubRepo"], body.get("githubNumber")), (&json!("acme/web"), None));
}

#[test]
fn news_come_while_a_task_about_it_is_open_also_one_that_was_passed_on() {
    let mut swarm = Swarm::new();
    assert!(swarm.learns(news()).is_empty(), "nobody works on it");
    let (task, _) = swarm.learns_one(ask(true));
    assert_eq!(swarm.learns_one(news()).1["parentTaskId"], json!(task));
    let part = swarm.delegates(task);
    let body = swarm.body(part);
    assert_eq!((&body["githubRepo"], &body["githubNumber"]), (&json!("acme/api"), &json!(7)));
    assert_eq!((&body["source"], body.get("githubEventType")), (&json!("mcp"), None));
    swarm.finish(task, LEAD, completed("passed on")).unwrap();
    swarm.0.restart();
    let (told, body) = swarm.learns_one(news());
    assert_eq!((&body["parentTaskId"], &body["agentId"]), (&json!(part), &json!(LEAD)));
    assert_eq!((&body["taskType"], &body["githubNumber"]), (&json!("github-ci"), &json!(7)));
    swarm.poll(ANN);
    swarm.finish(part, ANN, completed("done")).unwrap();
    assert_eq!(swarm.status(told), Status::Pending);
    assert!(swarm.learns(news()).is_empty(), "news keep nothing open");
    let mended = swarm.delegates(told);
    assert_eq!(
        swarm.learns_one(news()).1["parentTaskId"],
        json!(mended),
        "what is made of news is about it again"
    );
}

#[test]
fn a_merge_request_and_an_issue_of_the_same_number_are_two_things() {
    let mut swarm = Swarm::new();
    let of =
        |subject: &str, activity: Activity| Activity { subjects: vec![subject.parse().unwrap()], ..activity };
    let (_, body) = swarm.learns_one(of("gitlab:group/app!5", ask(true)));
    assert_eq!((&body["source"], &body["vcsRepo"]), (&json!("gitlab"), &json!("group/app")));
    assert!(swarm.learns(of("gitlab:group/app#5", news())).is_empty());
    assert_eq!(swarm.learns(of("gitlab:group/app!5", news())).len(), 1);
}

#[test]
fn what_is_the_swarms_no_longer_ends_all_tasks_about_it_and_no_others() {
    let mut swarm = Swarm::new();
    let other = swarm.assigned(BOB);
    let (task, _) = swarm.learns_one(ask(true));
    let part = swarm.delegates(task);
    let (told, _) = swarm.learns_one(news());
    swarm.poll(ANN);
    assert!(swarm.learns(withdraw()).is_empty());
    for ended in [task, part, told] {
        let body = swarm.body(ended);
        assert_eq!(
            (&body["status"], &body["failureReason"]),
            (&json!("failed"), &json!("GitHub acme/api#7: no longer assigned"))
        );
    }
    assert_eq!(swarm.status(other), Status::Pending);
    assert!(swarm.learns(withdraw()).is_empty(), "there is nothing left to end");
    let elsewhere =
        Subject::new(crate::forge::Forge::Github, "acme/api", crate::forge::Item::Issue, 8).unwrap();
    swarm.learns_one(Activity { subjects: vec![elsewhere], ..ask(true) });
}
