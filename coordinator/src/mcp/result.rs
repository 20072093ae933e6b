//! Shapes what a tool has to say.
//!
//! Clients that get `structuredContent` show the model that alone, and on `isError` some show the text alone:
//! so both carry every fact, save that the text of a success is one sentence.

use serde_json::{Map, Value, json};
use skein_shared::transport::{Image, Outcome};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::catalogue::Toolset;

/// A success: a sentence that says what happened and what to do next, and the facts.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub text: String,
    pub json: Map<String, Value>,
}

impl Answer {
    /// # Panics
    /// Never for an object; anything else is put under `value`.
    pub fn new(text: impl Into<String>, json: Value) -> Self {
        let json = match json {
            Value::Object(fields) => fields,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        Self { text: text.into(), json }
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
    pub image: Option<Image>,
    /// What else the agent has to know, which has nothing to do with the call.
    pub notes: Vec<String>,
}

impl Reply {
    /// Adds what was said to the agent about its tasks: as texts, and in the JSON for those clients that show nothing
    /// else.
    #[must_use]
    pub fn steered(mut self, words: Vec<Value>) -> Self {
        for word in &words {
            let text = |field: &str| word[field].as_str().unwrap_or_default();
            let from = word["from"].as_str().unwrap_or("the operator");
            self.notes.push(format!(
                "Message from {from} about task {}: {}",
                text("taskId"),
                text("content")
            ));
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

    /// An error that the model sees: everything in the text, and the same as JSON.
    pub fn error(refusal: &Refusal) -> Self {
        let json = refusal_json(refusal);
        Self {
            text: json.to_string(),
            json,
            is_error: true,
            code: Some(refusal.code),
            image: None,
            notes: Vec::new(),
        }
    }

    fn success(toolset: Toolset, agent: Uuid, answer: Answer) -> Self {
        let Answer { text, mut json } = answer;
        if toolset == Toolset::Swarm {
            json.entry("yourAgentId").or_insert_with(|| json!(agent));
        }
        Self { text, json: Value::Object(json), is_error: false, code: None, image: None, notes: Vec::new() }
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
        Self {
            text: refusal.message.clone(),
            json: Value::Object(json),
            is_error: false,
            code: Some(refusal.code),
            image: None,
            notes: Vec::new(),
        }
    }

    /// What a transport tool says, as it says it.
    pub fn of_tool(outcome: Outcome) -> Self {
        let Outcome { text, failed, image } = outcome;
        Self { text, json: Value::Null, is_error: failed, code: None, image, notes: Vec::new() }
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
    matches!(
        code,
        Code::Overloaded
            | Code::RateLimited
            | Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::Unauthenticated
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
