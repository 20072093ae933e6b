//! What the service `Admin` says of agents and does to them.

use std::num::NonZeroU32;

use serde_json::{Value, json};
use skein_proto::v1;
use skein_shared::id::{InstanceId, Name, parse_uuid};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal};
use tonic::Request;
use uuid::Uuid;

use super::admin::Admin;
use crate::auth::Principal;
use crate::service::agents::Steer;

/// The order that says how many runs of an agent may be under way at a time.
const SCALE: &str = "scale";

impl Admin {
    pub(super) async fn show_agents(&self, request: Request<v1::AgentRequest>) -> Result<Value, Refusal> {
        let v1::AgentRequest { swarm, agent } = request.get_ref();
        let who = self.of_swarm(&request, swarm).await?;
        if agent.is_empty() {
            return Ok(json!({ "agents": self.service.agents(&who).await? }));
        }
        self.service.agent(&who, &Name::parse(agent)?).await
    }

    pub(super) async fn steer_agent(
        &self,
        request: Request<v1::SteerAgentRequest>,
    ) -> Result<Value, Refusal> {
        let v1::SteerAgentRequest { swarm, agent, order, scale } = request.get_ref();
        let who = self.changes_swarm(&request, swarm).await?;
        if order == SCALE {
            return self.scale_agent(&who, agent, *scale).await;
        }
        let wanted: Steer = order.parse()?;
        if !agent.is_empty() {
            let more = self.service.steer(&who, Uuid::now_v7(), &Name::parse(agent)?, wanted).await?;
            let mut done = json!({ "agent": agent, "order": order });
            if let (Some(done), Value::Object(more)) = (done.as_object_mut(), more) {
                done.extend(more);
            }
            return Ok(done);
        }
        if !matches!(wanted, Steer::Pause | Steer::Resume) {
            let problem = format!("agent: name the one to {order}; only pause and resume are for all");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let told = self.service.pause_swarm(&who, Uuid::now_v7(), wanted == Steer::Pause).await?;
        Ok(json!({ "swarm": who.swarm, "order": order, "agents": told }))
    }

    async fn scale_agent(&self, who: &Principal, agent: &str, scale: Option<u32>) -> Result<Value, Refusal> {
        let invalid = |problem: &str| Refusal::new(Code::InvalidArgument, problem);
        if agent.is_empty() {
            return Err(invalid("agent: name the one to scale; `skein swarm scale` limits all together"));
        }
        let none = || invalid("scale: 0 is none; disable the agent to let none of it run");
        let scale = scale.map(|scale| NonZeroU32::new(scale).ok_or_else(none)).transpose()?;
        let agent = Name::parse(agent)?;
        self.service.scale_agent(who, Uuid::now_v7(), &agent, scale).await?;
        let shown = self.service.agent(who, &agent).await?;
        Ok(json!({ "agent": agent, "scale": shown["scale"], "scaleOverride": shown["scaleOverride"] }))
    }

    pub(super) async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Value, Refusal> {
        let v1::RemoveMemberRequest { swarm, member } = request.get_ref();
        let who = self.changes_own_swarm(&request, swarm).await?;
        let which = match Uuid::try_parse(member) {
            Ok(id) => Which::Id(id),
            Err(_) => Which::Name(member.clone()),
        };
        self.service.remove_member(&who, Uuid::now_v7(), &which).await
    }

    pub(super) async fn show_dead_letter(
        &self,
        request: Request<v1::DeadLetterRequest>,
    ) -> Result<Value, Refusal> {
        let v1::DeadLetterRequest { swarm, letter } = request.get_ref();
        let who = self.of_swarm(&request, swarm).await?;
        self.service.dead_letter(&who, parse_uuid("letter", letter)?).await
    }

    pub(super) async fn replay_dead_letter(
        &self,
        request: Request<v1::DeadLetterRequest>,
    ) -> Result<Value, Refusal> {
        let v1::DeadLetterRequest { swarm, letter } = request.get_ref();
        let who = self.changes_swarm(&request, swarm).await?;
        self.service.replay(&who, Uuid::now_v7(), parse_uuid("letter", letter)?).await
    }

    pub(super) async fn run_agent(&self, request: Request<v1::RunAgentRequest>) -> Result<Value, Refusal> {
        let v1::RunAgentRequest { swarm, agent, prompt } = request.get_ref();
        let who = self.changes_swarm(&request, swarm).await?;
        let prompt = (!prompt.is_empty()).then_some(prompt.as_str());
        let instance = self.service.run_agent(&who, Uuid::now_v7(), &Name::parse(agent)?, prompt).await?;
        Ok(json!({"agent": agent, "instance": instance}))
    }

    pub(super) async fn kill_instance(
        &self,
        request: Request<v1::KillInstanceRequest>,
    ) -> Result<Value, Refusal> {
        let v1::KillInstanceRequest { swarm, instance, reason } = request.get_ref();
        let who = self.changes_swarm(&request, swarm).await?;
        let agent = self.service.agent_of(&who.swarm, instance).await?;
        let reason = if reason.is_empty() { "killed by the operator" } else { reason };
        let instance = InstanceId(instance.clone());
        self.service.kill(&who, Uuid::now_v7(), &agent, instance.clone(), reason.to_owned()).await?;
        Ok(json!({"agent": agent, "instance": instance, "reason": reason}))
    }
}
