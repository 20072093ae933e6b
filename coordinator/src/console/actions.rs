//! What operators do: each the same service call as that of the command or the tool.

use skein_shared::Code;
use skein_shared::Refusal;
use skein_shared::id::{InstanceId, Name, parse_uuid};
use skein_shared::which::Which;
use uuid::Uuid;

use super::Console;
use super::door::may_act;
use super::fields::Fields;
use crate::auth::Principal;
use crate::service::agents::Steer;
use crate::service::questions::Word;
use crate::service::schedules::Made;
use crate::service::tasks::Action;

/// Does it, and says what was done.
///
/// # Errors
/// What the service refuses; `forbidden` unless the caller administers, whatever it is.
pub(super) async fn run(
    console: &Console,
    who: &Principal,
    name: &str,
    fields: &Fields,
) -> Result<String, Refusal> {
    may_act(who)?;
    let (service, request) = (&console.service, Uuid::now_v7());
    let agent = || Name::parse(fields.need("agent")?);
    let id = |name: &str| parse_uuid(name, fields.need(name)?);
    match name {
        "cancel-task" => {
            let reason = Some(fields.get("reason").unwrap_or("cancelled in the console").to_owned());
            service.act(who, request, id("task")?, Action::Cancel { reason }).await?;
            Ok("The task is cancelled.".to_owned())
        }
        "answer-question" => {
            // Browsers end the lines of a form in their own way.
            let word = Word::Answer(fields.need("answer")?.replace("\r\n", "\n"));
            service.answer_question(who, request, id("question")?, word).await?;
            Ok("The question is answered.".to_owned())
        }
        "decline-question" => {
            service.answer_question(who, request, id("question")?, Word::Decline(None)).await?;
            Ok("The agent hears that nobody answers.".to_owned())
        }
        "steer-agent" => {
            let (agent, order) = (agent()?, fields.need("order")?);
            let steer = order.parse::<Steer>()?;
            service.steer(who, request, &agent, steer).await?;
            // It is done; if nobody can say just now what stands against it all the same, nothing is said of that.
            let shown = service.agent(who, &agent).await.unwrap_or_default();
            let held = steer.still_held(&shown, "you resume them all").map(|held| format!("; {held}"));
            Ok(format!("{agent}: {order}d{}.", held.unwrap_or_default()))
        }
        "steer-swarm" => {
            let pause = match fields.need("order")? {
                "pause" => true,
                "resume" => false,
                other => {
                    let problem =
                        format!("order: a swarm can be told `pause` or `resume`, and not `{other}`");
                    return Err(Refusal::new(Code::InvalidArgument, problem));
                }
            };
            let told = service.pause_swarm(who, request, pause).await?;
            Ok(match pause {
                true => format!("{told} agents are paused: they take work and start none."),
                false => format!("{told} agents go on."),
            })
        }
        "run-agent" => {
            let instance = service.run_agent(who, request, &agent()?, fields.get("prompt")).await?;
            Ok(format!("{instance} is queued."))
        }
        "kill-runs" => {
            let agent = agent()?;
            let killed = service.kill_runs(who, request, &agent).await?;
            Ok(format!("{killed} runs of {agent} are being ended."))
        }
        "kill-run" => {
            let instance = fields.need("instance")?;
            let agent = service.agent_of(&who.swarm, instance).await?;
            let reason = "killed by the operator".to_owned();
            service.kill(who, request, &agent, InstanceId(instance.to_owned()), reason).await?;
            Ok(format!("{instance} is being ended."))
        }
        "run-schedule" => {
            let which = Which::Id(id("schedule")?);
            Ok(match service.run_schedule(who, request, which).await?.1 {
                Made::Task(task) => format!("The schedule has made task {task}."),
                Made::Run(agent) => format!("The agent {agent} is asked for a run."),
            })
        }
        "release-lock" => {
            let key = fields.need("key")?;
            service.force_release(who, request, key.to_owned()).await?;
            Ok(format!("{key} is free."))
        }
        "replay-letter" => {
            let replayed = service.replay(who, request, id("letter")?).await?;
            Ok(format!("It is queued as {}.", replayed["instance"].as_str().unwrap_or("a run")))
        }
        "replay-webhook" => {
            let replayed = service.replay_webhook(who, request, id("receipt")?).await?;
            Ok(format!("The event was handed on once more; {} took it.", replayed["matched"]))
        }
        "drain-node" => {
            let node = fields.need("node")?;
            service.drain(who, node).await?;
            Ok(format!("{node} gives its shards to the others."))
        }
        other => Err(Refusal::new(Code::NotFound, format!("there is no action `{other}`"))),
    }
}
