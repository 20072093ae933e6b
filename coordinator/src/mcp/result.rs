//! Shapes what a tool has to say.
//!
//! Some clients that get `structuredContent` show the model that alone, others never show it, and on `isError` some
//! show the text alone: so both carry every fact. The text of a success is one sentence, and its JSON a text behind
//! that.

use serde_json::{Map, Value, json};
use skein_shared::transport::Outcome;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::catalogue::Toolset;
use super::client::{Ability, Questions};
use super::content::Content;
use super::job::Job;

/// What a tool answers, as a rule a success: a sentence that says what happened and what to do next, and the facts.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub text: String,
    pub json: Map<String, Value>,
    /// Set where it says no all the same.
    pub code: Option<Code>,
    pub then: Then,
}

impl Answer {
    /// # Panics
    /// Never for an object; anything else is put under `value`.
    pub fn new(text: impl Into<String>, json: Value) -> Self {
        let json = match json {
            Value::Object(fields) => fields,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        Self { text: text.into(), json, code: None, then: Then::Nothing }
    }

    /// An answer in place of which the client follows the work, or is asked.
    #[must_use]
    pub fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }

    /// An answer whose text is its JSON, for programs and for lists.
    pub fn plain(json: Value) -> Self {
        Self::new(json.to_string(), json)
    }
}

/// What goes over the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub text: String,
    /// Null for a tool whose text is all there is.
    pub json: Value,
    pub is_error: bool,
    /// For the audit line.
    pub code: Option<Code>,
    /// What comes behind the text.
    pub more: Vec<Content>,
    pub then: Then,
}

/// What happens after a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Then {
    #[default]
    Nothing,
    /// Nothing was done yet: the tool has to know something first.
    Asks(Box<Questions>),
    /// The work goes on, and the result is found there.
    Goes(Box<Job>),
    /// The tool cannot serve a client without this.
    Takes(Ability),
}

impl Reply {
    /// Adds what was said to the agent about its tasks: as texts, and in the JSON for those clients that show nothing
    /// else.
    #[must_use]
    pub fn steered(mut self, words: Vec<Value>) -> Self {
        for word in &words {
            let text = |field: &str| word[field].as_str().unwrap_or_default();
            let from = word["from"].as_str().unwrap_or("the operator");
            let note = format!("Message from {from} about task {}: {}", text("taskId"), text("content"));
            self.more.push(Content::Text(note));
        }
        if let (Value::Object(json), false) = (&mut self.json, words.is_empty()) {
            json.insert("steering".to_owned(), Value::Array(words));
        }
        self
    }

    /// Gives an outcome the manners of its toolset.
    pub fn shape(toolset: Toolset, agent: Uuid, outcome: Result<Answer, Refusal>) -> Self {
        match outcome {
            Ok(answer) => Self::success(toolset, agent, answer),
            Err(refusal) if toolset == Toolset::Swarm && !is_fault(refusal.code) => {
                Self::unsuccessful(agent, &refusal)
            }
            Err(refusal) => Self::error(&refusal),
        }
    }

    /// A success with these words and facts.
    pub fn new(text: impl Into<String>, json: Value) -> Self {
        let (more, then) = (Vec::new(), Then::Nothing);
        Self { text: text.into(), json, is_error: false, code: None, more, then }
    }

    /// An error that the model sees: everything in the text, and the same as JSON.
    pub fn error(refusal: &Refusal) -> Self {
        let json = refusal_json(refusal);
        Self { is_error: true, code: Some(refusal.code), ..Self::new(json.to_string(), json) }
    }

    fn success(toolset: Toolset, agent: Uuid, answer: Answer) -> Self {
        let Answer { text, mut json, code, then } = answer;
        if toolset == Toolset::Swarm {
            json.entry("yourAgentId").or_insert_with(|| json!(agent));
        }
        Self { code, then, ..Self::new(text, Value::Object(json)) }
    }

    /// Agent Swarm answers a refusal with a normal result whose `success` is false. `code` is added, and
    /// `detail` with the facts that the refusal has.
    fn unsuccessful(agent: Uuid, refusal: &Refusal) -> Self {
        let mut json = Map::from_iter([
            ("success".to_owned(), json!(false)),
            ("message".to_owned(), json!(refusal.message)),
            ("code".to_owned(), json!(refusal.code)),
            ("yourAgentId".to_owned(), json!(agent)),
        ]);
        if let Some(millis) = refusal.retry_after_ms {
            json.insert("retry_after_ms".to_owned(), json!(millis));
        }
        // Apart from the rest: a fact named `task` must not stand where the schema has a task.
        if !refusal.detail.is_null() {
            json.insert("detail".to_owned(), refusal.detail.clone());
        }
        Self { code: Some(refusal.code), ..Self::new(refusal.message.clone(), Value::Object(json)) }
    }

    /// Why it says no, for those who have asked in another way than by calling a tool.
    pub fn refusal(&self) -> Option<Refusal> {
        let said = ["message", "reason"].into_iter().find_map(|field| self.json[field].as_str());
        let refusal = Refusal::new(self.code?, said.unwrap_or(&self.text));
        Some(Refusal { retry_after_ms: self.json["retry_after_ms"].as_u64(), ..refusal })
    }

    /// What a transport tool says, as it says it.
    pub fn of_tool(outcome: Outcome) -> Self {
        let Outcome { text, failed, image } = outcome;
        let image = image.map(|image| Content::Image { data: image.data, mime_type: image.mime_type });
        Self { is_error: failed, more: image.into_iter().collect(), ..Self::new(text, Value::Null) }
    }
}

/// A number with its noun, for sentences: `1 task`, `2 tasks`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A refusal as programs read it.
pub fn refusal_json(refusal: &Refusal) -> Value {
    let mut json = json!({ "code": refusal.code, "message": refusal.message });
    if let Some(millis) = refusal.retry_after_ms {
        json["retry_after_ms"] = json!(millis);
    }
    if !refusal.detail.is_null() {
        json["detail"] = refusal.detail.clone();
    }
    json
}

/// Not an answer of the swarm but a failure of the service: an error in every toolset.
pub fn is_fault(code: Code) -> bool {
    code.is_passing() || matches!(code, Code::RateLimited | Code::Internal | Code::Unauthenticated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_no_answer_of_the_swarm() {
        for code in [Code::NotOwner, Code::Unavailable, Code::Overloaded, Code::Unknown] {
            let reply = Reply::shape(Toolset::Swarm, Uuid::nil(), Err(Refusal::new(code, "try again")));
            assert!(reply.is_error && code.http() >= 500, "{code:?}");
        }
    }

    #[test]
    fn refusals_keep_the_manners_of_their_toolset() {
        let refusal =
            Refusal::new(Code::NoCapacity, "you have 1 of 1 tasks; finish one").with(json!({"max": 1}));
        let swarm = Reply::shape(Toolset::Swarm, Uuid::nil(), Err(refusal.clone()));
        assert!(!swarm.is_error);
        assert_eq!(swarm.json["success"], false);
        assert_eq!(swarm.json["code"], "no_capacity");
        assert_eq!(swarm.json["detail"]["max"], 1);
        assert_eq!(swarm.text, refusal.message);

        let skein = Reply::shape(Toolset::Skein, Uuid::nil(), Err(refusal));
        assert!(skein.is_error);
        assert_eq!(serde_json::from_str::<Value>(&skein.text).unwrap(), skein.json);
    }

    #[test]
    fn a_fault_is_an_error_everywhere() {
        let fault = Refusal::new(Code::Overloaded, "too much").retry_after(250);
        for toolset in Toolset::ALL {
            let reply = Reply::shape(toolset, Uuid::nil(), Err(fault.clone()));
            assert!(reply.is_error);
            assert_eq!(reply.json["retry_after_ms"], 250);
        }
    }
}
