//! The scheduler tools of Action Llama. A refused operation is a normal result whose text says so, with
//! leading words that agents' instructions may key on; its facts stand beside it as JSON.

mod calls;
mod locks;
mod own;
mod transport;
mod waits;

use serde_json::{Value, json};
use skein_shared::Refusal;

use crate::mcp::catalogue::{Outcome, Tool};
use crate::mcp::result::{Answer, is_fault};

pub fn tools() -> Vec<Tool> {
    [locks::tools(), calls::tools(), own::tools(), waits::tools(), transport::tools()]
        .into_iter()
        .flatten()
        .collect()
}

/// A success: `ok` and the facts.
fn granted(text: impl Into<String>, facts: Value) -> Answer {
    let mut json = json!({ "ok": true });
    if let (Value::Object(all), Value::Object(facts)) = (&mut json, facts) {
        all.extend(facts.into_iter().filter(|(_, value)| !value.is_null()));
    }
    Answer::new(text, json)
}

/// A refusal under its leading words. A failure of the service stays an error.
fn refused(lead: &str, refusal: Refusal) -> Outcome {
    if is_fault(refusal.code) {
        return Err(refusal);
    }
    let mut json = json!({ "ok": false, "reason": refusal.message, "code": refusal.code });
    if let (Value::Object(all), Value::Object(facts)) = (&mut json, refusal.detail.clone()) {
        for (name, value) in facts {
            all.entry(name).or_insert(value);
        }
    }
    if let Some(millis) = refusal.retry_after_ms {
        json["retry_after_ms"] = json!(millis);
    }
    Ok(Answer { code: Some(refusal.code), ..Answer::new(format!("{lead} {}", refusal.message), json) })
}
