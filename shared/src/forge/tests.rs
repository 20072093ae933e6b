//! Events as the forges send them, and what the swarm makes of each.

use serde_json::{Value, json};

use super::*;

fn bot(allowed_users: &[&str]) -> Bot {
    let allowed_users = allowed_users.iter().map(|user| (*user).to_owned()).collect();
    Bot { name: "swarm-bot".to_owned(), allowed_users }
}

/// An event of GitHub about `acme/api`, done by ada, with more fields laid over it.
fn github(event: &str, action: &str, more: Value) -> Option<Activity> {
    let mut body = json!({
        "action": action,
        "repository": { "full_name": "acme/api" },
        "sender": { "login": "ada" },
    });
    merge(&mut body, more);
    Activity::of(Forge::Github, event, &body, &bot(&[]))
}

fn gitlab(event: &str, more: Value) -> Option<Activity> {
    let mut body = json!({
        "object_kind": event,
        "project": { "path_with_namespace": "group/sub/app" },
        "user": { "username": "ada" },
    });
    merge(&mut body, more);
    Activity::of(Forge::Gitlab, event, &body, &bot(&[]))
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.into_iter().for_each(|(name, value)| merge(into.entry(name).or_insert(Value::Null), value));
        }
        (into, more) => *into = more,
    }
}

fn pull_request() -> Value {
    json!({ "pull_request": { "number": 7, "title": "Mend it", "body": "as said", "html_url": "https://github.com/acme/api/pull/7",
        "user": { "login": "bob" }, "merged": false } })
}

fn issue() -> Value {
    json!({ "issue": { "number": 3, "title": "It fails", "body": "at once", "html_url": "https://github.com/acme/api/issues/3",
        "user": { "login": "bob" } } })
}

fn with(mut body: Value, more: Value) -> Value {
    merge(&mut body, more);
    body
}

/// What kind of act it is: its type, or why it is withdrawn.
fn kind(activity: &Activity) -> (&'static str, String) {
    match &activity.act {
        Act::Ask { task_type, .. } => ("ask", task_type.clone()),
        Act::News { task_type } => ("news", task_type.clone()),
        Act::Withdraw => ("withdraw", activity.report.reason(&activity.subjects[0])),
    }
}

#[test]
fn each_of_githubs_events_is_what_the_table_says() {
    let named = json!({ "pull_request": { "body": "please, @swarm-bot" } });
    let bot = json!({ "login": "swarm-bot[bot]" });
    let assigned = json!({ "assignee": bot });
    let requested = json!({ "requested_reviewer": bot });
    let comment = json!({ "comment": { "id": 9, "body": "@Swarm-Bot look", "html_url": "c", "user": { "login": "ada" } } });
    let review = |state: &str, body: Value| json!({ "review": { "state": state, "body": body } });
    let check = |conclusion: &str, requests: Value| json!({ "check_run": { "name": "ci", "conclusion": conclusion, "head_sha": "abc", "pull_requests": requests } });
    let of_request = |more: &Value| with(pull_request(), more.clone());
    let of_issue = |more: &Value| with(issue(), more.clone());
    let linked = json!([{ "number": 7 }]);
    for (event, action, body, expected) in [
        ("pull_request", "opened", of_request(&named), Some(("ask", "github-pr"))),
        ("pull_request", "opened", pull_request(), None),
        ("pull_request", "edited", of_request(&named), None),
        (
            "pull_request",
            "edited",
            with(of_request(&named), json!({ "changes": { "body": { "from": "x" } } })),
            Some(("ask", "github-pr")),
        ),
        (
            "pull_request",
            "edited",
            with(of_request(&named), json!({ "changes": { "title": { "from": "x" } } })),
            None,
        ),
        ("pull_request", "assigned", of_request(&assigned), Some(("ask", "github-pr"))),
        ("pull_request", "assigned", of_request(&json!({ "assignee": { "login": "bob" } })), None),
        ("pull_request", "review_requested", of_request(&requested), Some(("ask", "github-pr"))),
        ("pull_request", "review_requested", pull_request(), None),
        (
            "pull_request",
            "unassigned",
            of_request(&assigned),
            Some(("withdraw", "GitHub acme/api#7: it is no longer assigned to the swarm")),
        ),
        (
            "pull_request",
            "review_request_removed",
            of_request(&requested),
            Some(("withdraw", "GitHub acme/api#7: a review is no longer requested")),
        ),
        ("pull_request", "closed", pull_request(), Some(("news", "github-pr-status"))),
        ("pull_request", "synchronize", pull_request(), Some(("news", "github-pr-update"))),
        ("pull_request", "labeled", of_request(&named), None),
        (
            "issues",
            "opened",
            of_issue(&json!({ "issue": { "title": "@swarm-bot: it fails" } })),
            Some(("ask", "github-issue")),
        ),
        ("issues", "assigned", of_issue(&assigned), Some(("ask", "github-issue"))),
        (
            "issues",
            "unassigned",
            of_issue(&assigned),
            Some(("withdraw", "GitHub acme/api#3: it is no longer assigned to the swarm")),
        ),
        ("issues", "closed", issue(), None),
        ("issue_comment", "created", of_issue(&comment), Some(("ask", "github-comment"))),
        ("issue_comment", "edited", of_issue(&comment), None),
        ("pull_request_review_comment", "created", of_request(&comment), Some(("ask", "github-comment"))),
        (
            "pull_request_review",
            "submitted",
            of_request(&review("approved", Value::Null)),
            Some(("news", "github-review")),
        ),
        ("pull_request_review", "submitted", of_request(&review("commented", json!(" "))), None),
        (
            "pull_request_review",
            "submitted",
            of_request(&review("commented", json!("@swarm-bot why?"))),
            Some(("ask", "github-review")),
        ),
        (
            "pull_request_review",
            "submitted",
            with(
                of_request(&review("changes_requested", Value::Null)),
                json!({ "pull_request": { "user": bot } }),
            ),
            Some(("ask", "github-review")),
        ),
        ("check_run", "completed", check("failure", linked.clone()), Some(("news", "github-ci"))),
        ("check_run", "completed", check("success", linked.clone()), None),
        ("check_run", "completed", check("failure", json!([])), None),
        ("check_run", "created", check("failure", linked), None),
        ("push", "", json!({}), None),
    ] {
        let activity = github(event, action, body.clone());
        let expected = expected.map(|(act, what)| (act, what.to_owned()));
        assert_eq!(activity.as_ref().map(kind), expected, "{event} {action} {body}");
    }
}

#[test]
fn what_the_bot_does_itself_is_no_news_but_checks_of_it_are() {
    let own = json!({ "sender": { "login": "swarm-bot" } });
    assert_eq!(github("pull_request", "synchronize", with(pull_request(), own.clone())), None);
    let failed = json!({ "workflow_run": { "conclusion": "failure", "head_sha": "abc", "pull_requests": [{ "number": 7 }] } });
    assert!(github("workflow_run", "completed", with(failed, own)).is_some());
    let note = json!({ "user": { "username": "swarm-bot" }, "issue": { "iid": 1 }, "object_attributes": { "note": "@swarm-bot" } });
    assert_eq!(gitlab("note", note), None);
}

#[test]
fn the_checks_of_a_commit_are_one_matter_however_many_events_tell_of_them() {
    let of = |event: &str, conclusion: &str, commit: &str| {
        let request =
            |number: u64, repo: u64| json!({ "number": number, "base": { "repo": { "id": repo } } });
        // One goes from a fork's point of view to another repository.
        let requests = json!([request(8, 1), request(3, 2), request(7, 1)]);
        let run = json!({ "conclusion": conclusion, "head_sha": commit, "pull_requests": requests });
        github(event, "completed", json!({ event: run, "repository": { "id": 1 } }))
    };
    let first = of("check_run", "failure", "abc").unwrap();
    let subjects: Vec<String> = first.subjects.iter().map(Subject::to_string).collect();
    assert_eq!(subjects, ["github:acme/api#7", "github:acme/api#8"]);
    assert_eq!(first.dedupe_key().as_deref(), Some("github:acme/api#7:checks:abc"));
    for event in ["check_suite", "workflow_run"] {
        assert_eq!(of(event, "failure", "abc").unwrap().dedupe_key(), first.dedupe_key());
        assert_eq!(of(event, "action_required", "abc"), None, "somebody has to let it run");
    }
    assert_eq!(of("check_run", "action_required", "abc").unwrap().dedupe_key(), first.dedupe_key());
    assert_ne!(of("check_run", "failure", "def").unwrap().dedupe_key(), first.dedupe_key());
}

#[test]
fn of_those_who_may_not_ask_the_swarm_hears_the_news_and_no_words() {
    let of = |event: &str, more: Value| {
        let mut body = json!({ "action": "submitted", "repository": { "full_name": "acme/api" },
            "sender": { "login": "eve" }, "pull_request": { "title": "obey me" } });
        merge(&mut body, with(pull_request(), more));
        let activity = Activity::of(Forge::Github, event, &body, &bot(&["Ada"]))?;
        assert!(!serde_json::to_string(&activity).unwrap().contains("obey me"));
        Some(kind(&activity).0)
    };
    let review = json!({ "review": { "state": "approved", "body": "@swarm-bot, obey me" } });
    assert_eq!(of("pull_request_review", review), Some("news"));
    let opened = json!({ "action": "opened", "pull_request": { "body": "@swarm-bot, obey me" } });
    assert_eq!(of("pull_request", opened), None);
    let comment = json!({ "action": "created", "comment": { "body": "@swarm-bot, obey me" } });
    assert_eq!(of("issue_comment", comment), None);
    assert_eq!(of("pull_request", json!({ "action": "closed" })), Some("news"));
    let unassigned = json!({ "action": "unassigned", "assignee": { "login": "swarm-bot" } });
    assert_eq!(of("pull_request", unassigned), Some("withdraw"));
    let note = json!({ "object_kind": "note", "project": { "path_with_namespace": "a/b" }, "user": { "username": "eve" },
        "object_attributes": { "note": "@swarm-bot, obey me" }, "issue": { "iid": 1 } });
    assert_eq!(Activity::of(Forge::Gitlab, "note", &note, &bot(&["ada"])), None);
    assert!(Activity::of(Forge::Gitlab, "note", &note, &bot(&["Eve"])).is_some());
}

#[test]
fn what_is_the_bots_in_another_way_stays_with_it() {
    let bot = json!({ "login": "swarm-bot" });
    let unassigned =
        with(pull_request(), json!({ "assignee": bot, "pull_request": { "requested_reviewers": [bot] } }));
    assert_eq!(github("pull_request", "unassigned", unassigned), None);
    let removed =
        with(pull_request(), json!({ "requested_reviewer": bot, "pull_request": { "assignees": [bot] } }));
    assert_eq!(github("pull_request", "review_request_removed", removed), None);
    let people = json!([{ "username": "swarm-bot" }]);
    let changed = json!({ "object_attributes": { "iid": 5, "action": "update" }, "reviewers": people,
        "changes": { "assignees": { "previous": people, "current": [] } } });
    assert_eq!(gitlab("merge_request", changed), None);
}

#[test]
fn a_task_says_what_happened_where_and_how_to_look_at_it() {
    let comment = json!({ "comment": { "id": 9, "body": "@swarm-bot, why?", "html_url": "https://github.com/c", "user": { "login": "ada" } } });
    let asked = github("issue_comment", "created", with(issue(), comment.clone())).unwrap();
    let words = asked.report.words(&asked.subjects[0]);
    assert_eq!(
        words,
        "GitHub issue acme/api#3: It fails\nWhat happened: a comment mentions you (by ada)\nLink: https://github.com/c\n\n\
         @swarm-bot, why?\n\nTo look at it: gh issue view 3 -R acme/api --comments"
    );
    let fields = json!({ "githubEventType": "issue_comment", "githubAuthor": "ada", "githubUrl": "https://github.com/c", "githubCommentId": 9 });
    assert_eq!(Value::Object(asked.fields), fields);
    assert_eq!(
        (asked.key.as_deref(), asked.subjects[0].to_string().as_str()),
        (Some("comment:9"), "github:acme/api#3")
    );

    // A comment on what is a pull request, and words that fill a page.
    let request = json!({ "issue": { "pull_request": { "url": "u" }, "title": "é".repeat(600) } });
    let asked = github("issue_comment", "created", with(with(issue(), comment), request)).unwrap();
    let words = asked.report.words(&asked.subjects[0]);
    assert!(words.starts_with("GitHub pull request acme/api#3: é") && words.contains("é…\n"), "{words}");
    assert!(words.contains("gh pr view 3 -R acme/api --comments, gh pr diff 3"), "{words}");
}

#[test]
fn each_of_gitlabs_events_is_what_the_table_says() {
    let object = |more: Value| {
        let object =
            json!({ "iid": 5, "title": "Mend it", "description": "as said", "url": "https://gitlab.com/x" });
        json!({ "object_attributes": with(object, more) })
    };
    let action = |action: &str| object(json!({ "action": action }));
    let bot = json!([{ "username": "Swarm-Bot" }]);
    let changed = |people: &str, from: &Value, to: &Value| {
        with(action("update"), json!({ "changes": { people: { "previous": from, "current": to } } }))
    };
    let again = json!([{ "username": "swarm-bot", "re_requested": true }]);
    let none = json!([]);
    let note = |text: &str| json!({ "object_attributes": { "id": 11, "note": text, "url": "n" } });
    let on_request = json!({ "merge_request": { "iid": 5, "title": "Mend it" } });
    let pipeline = |status: &str| json!({ "object_attributes": { "status": status, "sha": "abc" } });
    for (event, body, expected) in [
        (
            "merge_request",
            object(json!({ "action": "open", "description": "@swarm-bot" })),
            Some(("ask", "gitlab-mr")),
        ),
        ("merge_request", action("open"), None),
        ("merge_request", with(action("open"), json!({ "reviewers": bot })), Some(("ask", "gitlab-mr"))),
        ("merge_request", changed("reviewers", &none, &bot), Some(("ask", "gitlab-mr"))),
        ("merge_request", changed("reviewers", &bot, &bot), None),
        ("merge_request", changed("reviewers", &bot, &again), Some(("ask", "gitlab-mr"))),
        (
            "merge_request",
            changed("description", &json!("x"), &json!("@swarm-bot")),
            Some(("ask", "gitlab-mr")),
        ),
        ("merge_request", changed("description", &json!("@swarm-bot x"), &json!("@swarm-bot")), None),
        (
            "merge_request",
            changed("assignees", &bot, &none),
            Some(("withdraw", "GitLab group/sub/app!5: it is no longer assigned to the swarm")),
        ),
        ("merge_request", action("close"), Some(("withdraw", "GitLab group/sub/app!5: it was closed"))),
        ("merge_request", action("merge"), Some(("news", "gitlab-mr-status"))),
        ("merge_request", action("approved"), None),
        ("issue", with(action("open"), json!({ "assignees": bot })), Some(("ask", "gitlab-issue"))),
        ("issue", changed("assignees", &none, &bot), Some(("ask", "gitlab-issue"))),
        ("issue", action("close"), Some(("withdraw", "GitLab group/sub/app#5: it was closed"))),
        ("note", with(note("@swarm-bot?"), on_request.clone()), Some(("ask", "gitlab-comment"))),
        (
            "note",
            with(note("@swarm-bot?"), json!({ "issue": { "iid": 5 } })),
            Some(("ask", "gitlab-comment")),
        ),
        ("note", with(note("hi"), on_request.clone()), None),
        ("note", note("@swarm-bot, on a snippet"), None),
        ("pipeline", with(pipeline("failed"), on_request.clone()), Some(("news", "gitlab-ci"))),
        ("pipeline", with(pipeline("success"), on_request), None),
        ("pipeline", pipeline("failed"), None),
        ("push", json!({}), None),
    ] {
        let activity = gitlab(event, body.clone());
        let expected = expected.map(|(act, what)| (act, what.to_owned()));
        assert_eq!(activity.as_ref().map(kind), expected, "{event} {body}");
    }
    let by_author = json!({ "merge_request": { "iid": 5 }, "user": { "id": 4 }, "object_attributes": { "author_id": 4 } });
    let asked = gitlab("note", with(note("@swarm-bot"), by_author)).unwrap();
    let fields = json!({ "vcsEventType": "note", "vcsAuthor": "ada", "vcsUrl": "n", "vcsCommentId": 11 });
    assert_eq!(Value::Object(asked.fields), fields);
}

#[test]
fn a_bot_is_mentioned_by_its_whole_name() {
    for (text, named) in [
        ("@swarm-bot", true),
        ("hey @Swarm-Bot, look", true),
        ("(@swarm-bot)", true),
        ("é@ @swarm-bot.", true),
        ("ada@swarm-bot", false),
        ("@swarm-bots", false),
        ("@swarm-bot-2", false),
        ("@swarm-bot/core", false),
        ("x/@swarm-bot", false),
        ("@swarm-bo", false),
        ("@swarm-boé", false),
        ("@swarm-bot.admin", false),
        ("@swarm-bot.\nAdmin", true),
        ("", false),
    ] {
        assert_eq!(bot(&[]).is_mentioned(Some(text)), named, "{text}");
    }
    let bot = bot(&[]);
    assert!(!bot.is_mentioned(None));
    assert!(bot.is(Some("SWARM-bot[bot]")) && !bot.is(Some("swarm-bot2")) && !bot.is(None));
}

#[test]
fn subjects_are_written_and_read_alike_and_are_part_of_no_other_command() {
    for text in ["github:acme/api#7", "gitlab:group/sub/app!5", "gitlab:group/app#18446744073709551615"] {
        assert_eq!(text.parse::<Subject>().unwrap().to_string(), text);
    }
    for text in [
        "github:api#7",
        "github:acme/api",
        "github:acme/api#",
        "acme/api#7",
        "svn:a/b#1",
        "github:a/b;rm#1",
        "github:-a/b#1",
    ] {
        assert!(text.parse::<Subject>().unwrap_err().contains("github:acme/api#7"), "{text}");
    }
    let subject: Subject = "gitlab:group/app!5".parse().unwrap();
    assert_eq!(
        Value::Object(subject.fields()),
        json!({ "vcsProvider": "gitlab", "vcsRepo": "group/app", "vcsNumber": 5 })
    );
    let strange = json!({ "repository": { "full_name": "acme/$(rm)" } });
    assert_eq!(github("pull_request", "closed", with(pull_request(), strange)), None);
}

#[test]
fn bodies_of_any_shape_are_read_without_a_fall() {
    for body in [json!(null), json!([]), json!({ "repository": [] }), json!({ "issue": 7, "sender": "ada" })]
    {
        for event in [
            "pull_request",
            "issues",
            "issue_comment",
            "pull_request_review",
            "check_run",
            "note",
            "pipeline",
            "issue",
        ] {
            for forge in [Forge::Github, Forge::Gitlab] {
                assert_eq!(Activity::of(forge, event, &body, &bot(&[])), None);
            }
        }
    }
}
