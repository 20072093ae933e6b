//! What runs have written and how they ended, for operators: the same as `skein agent logs` and `skein agent history`
//! show.

use axum::extract::{Path, RawQuery, State};
use http::StatusCode;
use serde_json::json;
use skein_shared::ask::{Lines, LogQuery};
use url::form_urlencoded;

use super::answer::{Answer, Problem};
use super::control::number;
use super::door::Operator;
use super::{Gateway, granted};
use crate::auth::Principal;
use crate::service::follow::PAGE;
use crate::service::logs::Run;
use crate::service::views::Wanted;

/// Lines of an answer that names no number.
const LINES: usize = 200;

/// One run of an agent, as the list of them shows it.
pub(super) async fn run(
    State(gateway): State<Gateway>,
    Path((agent, instance)): Path<(String, String)>,
    Operator { who, .. }: Operator,
) -> Answer {
    of_agent(&gateway, &who, &agent, &instance).await?;
    let only = Some(("instance", instance.as_str()));
    let found = gateway.service.rows(&who, Wanted { view: "runs", only, ..Wanted::default() }).await?;
    match found.rows.first() {
        Some(run) => granted(json!({ "run": run })),
        None => Err(unknown(&agent, &instance)),
    }
}

/// The last lines of the latest run of an agent.
pub(super) async fn latest_log(
    State(gateway): State<Gateway>,
    Path(agent): Path<String>,
    RawQuery(query): RawQuery,
    Operator { who, .. }: Operator,
) -> Answer {
    log(&gateway, &who, &agent, &query.unwrap_or_default()).await
}

/// The last lines of a run, or with `?cursor=` of an earlier answer those that came since. `?lines=200` is how many at
/// most, `?grep=` a regular expression that each has to match.
pub(super) async fn run_log(
    State(gateway): State<Gateway>,
    Path((agent, instance)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    Operator { who, .. }: Operator,
) -> Answer {
    of_agent(&gateway, &who, &agent, &instance).await?;
    log(&gateway, &who, &instance, &query.unwrap_or_default()).await
}

async fn log(gateway: &Gateway, who: &Principal, of: &str, query: &str) -> Answer {
    let query = log_query(query)?;
    // The oldest comes first.
    let Some(run) = gateway.service.runs(who, of, None).await?.pop() else { return Err(unknown(of, of)) };
    let Run { instance, runner, state, ended } = run;
    let Some(runner) = runner else {
        return granted(json!({ "instance": instance, "state": state, "entries": [], "hasMore": !ended }));
    };
    let Lines { lines, next, over } = gateway.service.log(&instance, &runner, query).await?;
    granted(json!({
        "instance": instance,
        "state": state,
        "entries": lines,
        "cursor": next.to_string(),
        "hasMore": !over,
    }))
}

fn log_query(query: &str) -> Result<LogQuery, Problem> {
    let lines = u32::try_from(number(query, "lines", LINES)?).unwrap_or(PAGE).min(PAGE);
    let given = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let found = pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()));
        found.filter(|value| !value.is_empty())
    };
    let cursor = given("cursor").map(|cursor| cursor.parse::<u64>()).transpose();
    let after =
        cursor.map_err(|_| Problem::bad_request("cursor: this is none; give that of an earlier answer"))?;
    Ok(LogQuery { after, lines, grep: given("grep"), wait_ms: 0 })
}

/// Refuses an instance that is a run of another agent than the address says.
async fn of_agent(gateway: &Gateway, who: &Principal, agent: &str, instance: &str) -> Result<(), Problem> {
    let found = gateway.service.agent_of(&who.swarm, instance).await?;
    if found.as_str() == agent { Ok(()) } else { Err(unknown(agent, instance)) }
}

fn unknown(agent: &str, instance: &str) -> Problem {
    let text = format!(
        "there is no run `{instance}` of agent `{agent}`; `skein agent history` lists an agent's runs"
    );
    Problem::error(StatusCode::NOT_FOUND, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_a_log_is_wanted_stands_in_the_address() {
        let read = |query: &str| log_query(query).ok();
        let wanted = |after: Option<u64>, lines: u32, grep: Option<&str>| {
            Some(LogQuery { after, lines, grep: grep.map(str::to_owned), wait_ms: 0 })
        };
        assert_eq!(read(""), wanted(None, 200, None));
        assert_eq!(read("lines=5&cursor=17&grep=a%2Bb+c"), wanted(Some(17), 5, Some("a+b c")));
        assert_eq!(read("swarm=geese&lines=99999999999&grep="), wanted(None, PAGE, None));
        for wrong in ["lines=0", "lines=few", "cursor=-1", "cursor=x"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
