//! Which of GitHub's events concern the swarm.

use serde_json::{Map, Value, json};

use super::activity::{Act, Activity};
use super::bot::Bot;
use super::report::{self, Noun, Report};
use super::subject::{Forge, Item, Subject};
use crate::text::excerpt;

/// How much of a check's name is shown, characters.
const NAME: usize = 80;

pub(super) fn read(event: &str, body: &Value, bot: &Bot) -> Option<Activity> {
    let seen = Seen { event, body, bot };
    // Checks run for what the bot has pushed, and in its name.
    if matches!(event, "check_run" | "check_suite" | "workflow_run") {
        return seen.checks();
    }
    if bot.is(seen.sender()) {
        return None;
    }
    match event {
        "pull_request" => seen.pull_request(),
        "issues" => seen.issue(),
        "issue_comment" | "pull_request_review_comment" => seen.comment(),
        "pull_request_review" => seen.review(),
        _ => None,
    }
}

struct Seen<'a> {
    event: &'a str,
    body: &'a Value,
    bot: &'a Bot,
}

impl<'a> Seen<'a> {
    fn text(&self, pointer: &str) -> Option<&'a str> {
        self.body.pointer(pointer)?.as_str()
    }

    fn action(&self) -> &'a str {
        self.text("/action").unwrap_or_default()
    }

    fn sender(&self) -> Option<&'a str> {
        self.text("/sender/login")
    }

    /// The pull request or the issue that the event is about.
    fn item(&self) -> &'a Value {
        let request = &self.body["pull_request"];
        if request.is_object() { request } else { &self.body["issue"] }
    }

    /// Issues that are pull requests have a part that says so.
    fn noun(&self) -> Noun {
        let request = self.body["pull_request"].is_object() || self.item()["pull_request"].is_object();
        if request { Noun::PullRequest } else { Noun::Issue }
    }

    fn pull_request(&self) -> Option<Activity> {
        let subject = self.subject()?;
        let requested = self.bot.is(self.text("/requested_reviewer/login"));
        match self.action() {
            "closed" if self.item()["merged"] == true => {
                Some(self.news(subject, "github-pr-status", "it was merged", "closed"))
            }
            "closed" => {
                let what = "it was closed without being merged";
                Some(self.news(subject, "github-pr-status", what, "closed"))
            }
            "synchronize" => {
                let key = format!("commits:{}", self.text("/after").unwrap_or_default());
                Some(self.news(subject, "github-pr-update", "it has new commits", &key))
            }
            "review_requested" if requested => self.ask(subject, "github-pr", "your review is requested"),
            "review_request_removed" if requested => {
                self.withdraw(subject, "a review is no longer requested")
            }
            _ => self.asked_by_name(subject, "github-pr"),
        }
    }

    fn issue(&self) -> Option<Activity> {
        self.asked_by_name(self.subject()?, "github-issue")
    }

    /// What issues and pull requests have in common: they mention the bot, or are assigned to it.
    fn asked_by_name(&self, subject: Subject, task_type: &str) -> Option<Activity> {
        let assigned = self.bot.is(self.text("/assignee/login"));
        match self.action() {
            "opened" if self.is_mentioned(false) => {
                self.ask(subject, task_type, "it was opened, and mentions you")
            }
            "edited" if self.is_mentioned(false) && !self.is_mentioned(true) => {
                self.ask(subject, task_type, "it was edited, and mentions you now")
            }
            "assigned" if assigned => self.ask(subject, task_type, "it was assigned to you"),
            "unassigned" if assigned => self.withdraw(subject, "it is no longer assigned to the swarm"),
            _ => None,
        }
    }

    /// Whether title or text mention the bot, or did so before they were edited.
    fn is_mentioned(&self, before: bool) -> bool {
        ["title", "body"].into_iter().any(|field| {
            let old = self.body.pointer(&format!("/changes/{field}/from")).filter(|_| before);
            self.bot.is_mentioned(old.unwrap_or(&self.item()[field]).as_str())
        })
    }

    fn comment(&self) -> Option<Activity> {
        let text = self.text("/comment/body");
        if self.action() != "created" || !self.bot.is_mentioned(text) || !self.bot.obeys(self.sender()) {
            return None;
        }
        let report = self.report("a comment mentions you", text);
        let act = Act::Ask { task_type: "github-comment".to_owned(), once: false };
        let id = self.body["comment"]["id"].as_u64();
        let key = id.map(|id| format!("comment:{id}"));
        let mut activity = Activity { key, ..self.activity(self.subject()?, act, report) };
        activity.fields.extend(id.map(|id| ("githubCommentId".to_owned(), json!(id))));
        Some(activity)
    }

    /// Of requests of the bot's own every review counts, of others those that mention it and those of what it works on.
    fn review(&self) -> Option<Activity> {
        let (state, text) = (self.text("/review/state").unwrap_or_default(), self.text("/review/body"));
        let is_empty = state == "commented" && text.is_none_or(|text| text.trim().is_empty());
        if self.action() != "submitted" || is_empty {
            return None;
        }
        let (task_type, obeyed) = ("github-review".to_owned(), self.bot.obeys(self.sender()));
        let what = format!("a review was submitted: {}", state.replace('_', " "));
        let report = self.report(&what, text.filter(|_| obeyed));
        let asks = self.bot.is(self.text("/pull_request/user/login")) || self.bot.is_mentioned(text);
        let act = if asks && obeyed { Act::Ask { task_type, once: false } } else { Act::News { task_type } };
        let key = self.body["review"]["id"].as_u64().map(|id| format!("review:{id}"));
        Some(Activity { key, ..self.activity(self.subject()?, act, report) })
    }

    fn checks(&self) -> Option<Activity> {
        let run = &self.body[self.event];
        // A workflow that somebody has to let run has not failed.
        let conclusion = run["conclusion"].as_str().filter(|conclusion| match *conclusion {
            "failure" => true,
            "action_required" => self.event == "check_run",
            _ => false,
        })?;
        let mut subjects = self.requests_of(run);
        subjects.sort();
        if self.action() != "completed" || subjects.is_empty() {
            return None;
        }
        let name = run["name"].as_str().or_else(|| run["app"]["name"].as_str());
        let name = name.filter(|_| self.bot.obeys(self.sender())).unwrap_or("a check");
        let url = run["html_url"].as_str();
        let what = format!("{} ended with {}", excerpt(name, NAME), conclusion.replace('_', " "));
        let report = self.report(&what, None);
        let report = Report { noun: Noun::PullRequest, url: url.map(str::to_owned), ..report };
        let act = Act::News { task_type: "github-ci".to_owned() };
        let key = run["head_sha"].as_str().map(|commit| format!("checks:{commit}"));
        Some(Activity { subjects, act, report, key, fields: self.fields(None, url) })
    }

    /// The requests that a check is for. Those of forks into other repositories are among them, with numbers of there.
    fn requests_of(&self, run: &Value) -> Vec<Subject> {
        let own = &self.body["repository"]["id"];
        let requests = run["pull_requests"].as_array().into_iter().flatten();
        let into_own = requests.filter(|request| request["base"]["repo"]["id"] == *own);
        into_own.filter_map(|request| self.numbered(&request["number"])).collect()
    }

    fn ask(&self, subject: Subject, task_type: &str, what: &str) -> Option<Activity> {
        if !self.bot.obeys(self.sender()) {
            return None;
        }
        let report = self.report(what, self.item()["body"].as_str());
        Some(self.activity(subject, Act::Ask { task_type: task_type.to_owned(), once: true }, report))
    }

    fn news(&self, subject: Subject, task_type: &str, what: &str, key: &str) -> Activity {
        let act = Act::News { task_type: task_type.to_owned() };
        Activity { key: Some(key.to_owned()), ..self.activity(subject, act, self.report(what, None)) }
    }

    /// What is the bot's in another way stays with it.
    fn withdraw(&self, subject: Subject, why: &str) -> Option<Activity> {
        let people = ["assignees", "requested_reviewers"].map(|field| self.item()[field].as_array());
        let mut people = people.into_iter().flatten().flatten();
        if people.any(|one| self.bot.is(one["login"].as_str())) {
            return None;
        }
        Some(self.activity(subject, Act::Withdraw, self.report(why, None)))
    }

    /// A title is the words of whoever wrote the item.
    fn report(&self, what: &str, text: Option<&str>) -> Report {
        let item = self.item();
        let obeyed = self.bot.obeys(self.sender()) || self.bot.obeys(item["user"]["login"].as_str());
        Report {
            noun: self.noun(),
            what: what.to_owned(),
            title: item["title"].as_str().filter(|_| obeyed).map(report::title),
            url: self.url().map(str::to_owned),
            by: self.sender().map(str::to_owned),
            text: text.map(report::text),
        }
    }

    /// That of the comment or the review, which leads to both.
    fn url(&self) -> Option<&'a str> {
        let said = self.text("/comment/html_url").or_else(|| self.text("/review/html_url"));
        said.or_else(|| self.item()["html_url"].as_str())
    }

    fn subject(&self) -> Option<Subject> {
        self.numbered(&self.item()["number"])
    }

    fn numbered(&self, number: &Value) -> Option<Subject> {
        Subject::new(Forge::Github, self.text("/repository/full_name")?, Item::Issue, number.as_u64()?)
    }

    fn activity(&self, subject: Subject, act: Act, report: Report) -> Activity {
        let author = ["/comment/user/login", "/review/user/login"].into_iter().find_map(|at| self.text(at));
        let author = author.or_else(|| self.item()["user"]["login"].as_str());
        let fields = self.fields(author, self.url());
        Activity { subjects: vec![subject], act, report, key: None, fields }
    }

    fn fields(&self, author: Option<&str>, url: Option<&str>) -> Map<String, Value> {
        let texts = [("githubEventType", Some(self.event)), ("githubAuthor", author), ("githubUrl", url)];
        texts.into_iter().filter_map(|(field, text)| Some((field.to_owned(), json!(text?)))).collect()
    }
}
