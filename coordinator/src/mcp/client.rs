//! The client behind a call: what it can do, what it is asked, and what it has answered.
//!
//! A tool that needs a word from the client's side answers with questions. How they get there is the server's
//! matter: a client of the stateless revision gets them as the answer and calls again with what came of them;
//! in a session they are asked while the call is under way. Either way the tool runs again, with the answers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// What a client may be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// Shows a form to the person in front of it.
    Elicitation,
    /// Asks its model.
    Sampling,
    /// Names the folders that it works in.
    Roots,
    /// Follows a task that goes on after the answer.
    Tasks,
}

/// The client, as a tool sees it.
#[derive(Clone, Debug, Default)]
pub struct Client {
    pub abilities: BTreeSet<Ability>,
    /// What came of the questions of the last round, by their keys.
    pub answers: BTreeMap<String, Value>,
    /// What the tool put down in the last round; null in the first.
    pub state: Value,
}

impl Client {
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }

    /// The same client after nobody has answered what it was asked: as one that cannot ask, and at the beginning.
    #[must_use]
    pub fn unheeded(mut self, questions: &Questions) -> Self {
        for question in questions.asked.values() {
            self.abilities.remove(&question.takes);
        }
        Self { abilities: self.abilities, ..Self::default() }
    }

    /// What a person wrote into a form; `None` while nobody has answered it.
    pub fn form(&self, key: &str) -> Option<Form> {
        let answer = self.answers.get(key)?.as_object()?;
        match answer.get("action")?.as_str()? {
            "accept" => Some(Form::Accepted(answer.get("content")?.as_object()?.clone())),
            "decline" => Some(Form::Declined),
            "cancel" => Some(Form::Cancelled),
            _ => None,
        }
    }
}

/// What came of a form.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    Accepted(Map<String, Value>),
    /// The person will not say.
    Declined,
    /// The person closed it.
    Cancelled,
}

/// One thing that a client is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub takes: Ability,
    /// As the protocol has them.
    pub params: Value,
}

impl Question {
    /// A form for a person. Its schema is flat, as the protocol demands.
    pub fn form(message: impl Into<String>, schema: Value) -> Self {
        let params = json!({ "mode": "form", "message": message.into(), "requestedSchema": schema });
        Self { takes: Ability::Elicitation, params }
    }

    /// The protocol's name for it.
    pub fn method(&self) -> &'static str {
        match self.takes {
            Ability::Elicitation => "elicitation/create",
            Ability::Sampling => "sampling/createMessage",
            Ability::Roots => "roots/list",
            Ability::Tasks => "tasks/get",
        }
    }
}

/// What a tool wants to know before it can go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Questions {
    pub asked: BTreeMap<String, Question>,
    /// Given back with the answers. The client carries it and cannot change it, and it ends after some minutes.
    pub state: Value,
}

impl Questions {
    pub fn one(key: &str, question: Question) -> Self {
        Self { asked: BTreeMap::from([(key.to_owned(), question)]), state: Value::Null }
    }

    #[must_use]
    pub fn and(mut self, key: &str, question: Question) -> Self {
        self.asked.insert(key.to_owned(), question);
        self
    }

    #[must_use]
    pub fn keeping(mut self, state: Value) -> Self {
        self.state = state;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_is_one() {
        let answered = |answer: Value| Client {
            answers: BTreeMap::from([("name".to_owned(), answer)]),
            ..Client::default()
        };
        let accepted = answered(json!({ "action": "accept", "content": { "name": "Ann" } }));
        assert!(matches!(accepted.form("name"), Some(Form::Accepted(form)) if form["name"] == "Ann"));
        assert_eq!(answered(json!({ "action": "decline" })).form("name"), Some(Form::Declined));
        for odd in
            [json!(12345), json!(null), json!({}), json!({ "action": "accept" }), json!({ "action": 1 })]
        {
            assert_eq!(answered(odd).form("name"), None);
        }
        assert_eq!(accepted.form("other"), None);
    }
}
