//! The runs of agents, what they write, and the calls between them.

use serde_json::{Value, json};
use skein_shared::ask::LogQuery;
use skein_shared::{Code, Refusal};

use super::super::live::LINES;
use super::super::{Console, tree};
use super::{Look, PAGE, rows, rows_behind};
use crate::auth::Principal;
use crate::service::views::{Rows, Wanted};

/// Calls that are put into trees.
const CALLS: usize = 200;

pub(super) async fn list(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let agent = look.query.get("agent").map(|agent| ("agent", agent));
    let (found, pager) = rows(&console.service, who, "runs", agent, look).await?;
    Ok(json!({
        "runs": found.rows, "pager": pager, "agent": look.query.get("agent"), "rebuilding": found.rebuilding,
    }))
}

pub(super) async fn one(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let (service, id) = (&console.service, look.subject());
    let list = |view, field| {
        // One more tells whether there are more.
        service.rows(who, Wanted { view, only: Some((field, id)), after: "", limit: Some(PAGE + 1) })
    };
    let (run, made, served) = tokio::try_join!(
        list("runs", "instance"),
        list("calls", "callerInstanceId"),
        list("calls", "targetInstanceId"),
    )?;
    let run = run.rows.into_iter().next().ok_or_else(|| {
        Refusal::new(
            Code::NotFound,
            format!("there is no run `{id}` in this swarm; the page of runs lists them"),
        )
    })?;
    let log = match look.query.get("still") {
        // The stream sends what is written by itself.
        Some(_) => Value::Null,
        None => log(console, &run).await,
    };
    let is_cut = |calls: &Rows| !calls.next.is_empty();
    let more_calls = is_cut(&made) || is_cut(&served);
    let latest = |calls: Rows| calls.rows.into_iter().take(PAGE).collect::<Vec<_>>();
    Ok(json!({
        "title": id, "run": run, "made": latest(made), "served": latest(served), "more_calls": more_calls,
        "most": PAGE, "log": log,
    }))
}

/// The last lines of a run, or why there are none.
async fn log(console: &Console, run: &Value) -> Value {
    let Some(runner) = run["runner"].as_str() else { return json!({ "problem": "It is on no runner yet." }) };
    let instance = skein_shared::id::InstanceId(run["instance"].as_str().unwrap_or_default().to_owned());
    let query = LogQuery { lines: LINES, ..LogQuery::default() };
    match console.service.log(&instance, runner, query).await {
        Ok(part) => json!({ "lines": part.lines, "over": part.over }),
        Err(refusal) => json!({ "problem": refusal.message }),
    }
}

pub(super) async fn calls(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let wanted = Wanted { view: "calls", limit: Some(CALLS), ..Wanted::default() };
    let (found, pager) = rows_behind(&console.service, who, wanted, look, "after").await?;
    Ok(json!({ "calls": tree::grow(found.rows), "pager": pager, "rebuilding": found.rebuilding }))
}
