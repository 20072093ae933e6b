//! Which of GitLab's events concern the swarm.

use serde_json::{Value, json};

use super::activity::{Act, Activity};
use super::bot::Bot;
use super::report::{self, Noun, Report};
use super::subject::{Forge, Item, Subject};

pub(super) fn read(event: &str, body: &Value, bot: &Bot) -> Option<Activity> {
    let seen = Seen { event, body, bot, object: &body["object_attributes"] };
    // Pipelines run for what the bot has pushed, and in its name.
    if event == "pipeline" {
        return seen.pipeline();
    }
    if bot.is(seen.by()) {
        return None;
    }
    match event {
        "merge_request" => seen.item(Item::Request),
        "issue" | "work_item" => seen.item(Item::Issue),
        "note" => seen.note(),
        _ => None,
    }
}

struct Seen<'a> {
    event: &'a str,
    body: &'a Value,
    bot: &'a Bot,
    object: &'a Value,
}

impl<'a> Seen<'a> {
    fn by(&self) -> Option<&'a str> {
        self.body["user"]["username"].as_str()
    }

    /// Issues and merge requests themselves.
    fn item(&self, item: Item) -> Option<Activity> {
        let subject = self.numbered(item, &self.object["iid"])?;
        let task_type = if item == Item::Request { "gitlab-mr" } else { "gitlab-issue" };
        match self.object["action"].as_str().unwrap_or_default() {
            "open" => self.ask(subject, item, task_type, self.opened_for()?),
            "update" => match (self.changed_for(), self.taken_away()) {
                (Some(what), _) => self.ask(subject, item, task_type, what),
                (None, Some(why)) => Some(self.withdraw(subject, item, why)),
                (None, None) => None,
            },
            "close" => Some(self.withdraw(subject, item, "it was closed")),
            "merge" => {
                let act = Act::News { task_type: "gitlab-mr-status".to_owned() };
                let report = self.report(item, self.object, "it was merged", None);
                let key = Some("merged".to_owned());
                Some(Activity { key, ..self.activity(subject, act, report) })
            }
            _ => None,
        }
    }

    fn opened_for(&self) -> Option<&'static str> {
        let mentioned = ["title", "description"].into_iter().any(|field| self.mentions(&self.object[field]));
        if mentioned {
            return Some("it was opened, and mentions you");
        }
        if self.has_bot(&self.body["assignees"]) {
            return Some("it was opened, and assigned to you");
        }
        self.has_bot(&self.body["reviewers"]).then_some("it was opened, and your review requested")
    }

    fn changed_for(&self) -> Option<&'static str> {
        let now_mentioned = |field: &str| {
            let change = &self.body["changes"][field];
            self.mentions(&change["current"]) && !self.mentions(&change["previous"])
        };
        if self.came_to("assignees") {
            return Some("it was assigned to you");
        }
        if self.came_to("reviewers") {
            return Some("your review is requested");
        }
        let mentioned = now_mentioned("title") || now_mentioned("description");
        mentioned.then_some("it was edited, and mentions you now")
    }

    /// What is the bot's in another way stays with it.
    fn taken_away(&self) -> Option<&'static str> {
        if self.has_bot(&self.body["assignees"]) || self.has_bot(&self.body["reviewers"]) {
            return None;
        }
        let went_from = |people: &str| {
            let change = &self.body["changes"][people];
            self.has_bot(&change["previous"]) && !self.has_bot(&change["current"])
        };
        match (went_from("assignees"), went_from("reviewers")) {
            (true, _) => Some("it is no longer assigned to the swarm"),
            (false, true) => Some("a review is no longer requested"),
            (false, false) => None,
        }
    }

    fn ask(&self, subject: Subject, item: Item, task_type: &str, what: &str) -> Option<Activity> {
        if !self.bot.obeys(self.by()) {
            return None;
        }
        let report = self.report(item, self.object, what, self.object["description"].as_str());
        Some(self.activity(subject, Act::Ask { task_type: task_type.to_owned(), once: true }, report))
    }

    fn withdraw(&self, subject: Subject, item: Item, why: &str) -> Activity {
        self.activity(subject, Act::Withdraw, self.report(item, self.object, why, None))
    }

    fn note(&self) -> Option<Activity> {
        let text = self.object["note"].as_str();
        let is_new = self.object["action"].as_str().is_none_or(|action| action == "create");
        if !is_new || !self.bot.is_mentioned(text) || !self.bot.obeys(self.by()) {
            return None;
        }
        let request = &self.body["merge_request"];
        let (item, about) =
            if request.is_object() { (Item::Request, request) } else { (Item::Issue, &self.body["issue"]) };
        let subject = self.numbered(item, &about["iid"])?;
        let act = Act::Ask { task_type: "gitlab-comment".to_owned(), once: false };
        let id = self.object["id"].as_u64();
        let key = id.map(|id| format!("comment:{id}"));
        let report = self.report(item, about, "a comment mentions you", text);
        let mut activity = Activity { key, ..self.activity(subject, act, report) };
        activity.fields.extend(id.map(|id| ("vcsCommentId".to_owned(), json!(id))));
        Some(activity)
    }

    /// Pipelines of forks name a request of another project.
    fn pipeline(&self) -> Option<Activity> {
        let request = &self.body["merge_request"];
        let is_own = request["target_project_id"] == self.body["project"]["id"];
        if self.object["status"] != "failed" || !is_own {
            return None;
        }
        let subject = self.numbered(Item::Request, &request["iid"])?;
        let act = Act::News { task_type: "gitlab-ci".to_owned() };
        let key = self.object["sha"].as_str().map(|commit| format!("checks:{commit}"));
        let report = self.report(Item::Request, request, "its pipeline failed", None);
        Some(Activity { key, ..self.activity(subject, act, report) })
    }

    fn mentions(&self, text: &Value) -> bool {
        self.bot.is_mentioned(text.as_str())
    }

    fn has_bot(&self, people: &Value) -> bool {
        people.as_array().into_iter().flatten().any(|one| self.bot.is(one["username"].as_str()))
    }

    /// Whether it is the bot's from now on, or is asked of it once more.
    fn came_to(&self, people: &str) -> bool {
        let change = &self.body["changes"][people];
        let is_new = !self.has_bot(&change["previous"]);
        let mut now = change["current"].as_array().into_iter().flatten();
        now.any(|one| self.bot.is(one["username"].as_str()) && (is_new || one["re_requested"] == true))
    }

    fn numbered(&self, item: Item, number: &Value) -> Option<Subject> {
        let repo = self.body["project"]["path_with_namespace"].as_str()?;
        Subject::new(Forge::Gitlab, repo, item, number.as_u64()?)
    }

    /// A title is the words of whoever wrote the item, of whom GitLab tells the number alone.
    fn report(&self, item: Item, about: &Value, what: &str, text: Option<&str>) -> Report {
        Report {
            noun: if item == Item::Request { Noun::MergeRequest } else { Noun::Issue },
            what: what.to_owned(),
            title: about["title"].as_str().filter(|_| self.bot.obeys(self.by())).map(report::title),
            url: self.object["url"].as_str().or_else(|| about["url"].as_str()).map(str::to_owned),
            by: self.by().map(str::to_owned),
            text: text.map(report::text),
        }
    }

    fn activity(&self, subject: Subject, act: Act, report: Report) -> Activity {
        // GitLab names only who acts. That is the author when both have one number.
        let is_author =
            self.object["author_id"].is_u64() && self.object["author_id"] == self.body["user"]["id"];
        let texts = [
            ("vcsEventType", Some(self.event)),
            ("vcsAuthor", self.by().filter(|_| is_author)),
            ("vcsUrl", self.object["url"].as_str()),
        ];
        let fields =
            texts.into_iter().filter_map(|(field, text)| Some((field.to_owned(), json!(text?)))).collect();
        Activity { subjects: vec![subject], act, report, key: None, fields }
    }
}
