//! What the service `Admin` does to questions.

use serde_json::Value;
use skein_proto::v1;
use skein_shared::Refusal;
use skein_shared::id::parse_uuid;
use tonic::Request;
use uuid::Uuid;

use super::admin::Admin;
use crate::service::questions::Word;

impl Admin {
    pub(super) async fn answer_question(
        &self,
        request: Request<v1::AnswerQuestionRequest>,
    ) -> Result<Value, Refusal> {
        let v1::AnswerQuestionRequest { swarm, question, answer, reason } = request.get_ref();
        let who = self.changes_swarm(&request, swarm).await?;
        let word = match answer.as_str() {
            "" => Word::Decline(Some(reason.clone()).filter(|reason| !reason.is_empty())),
            answer => Word::Answer(answer.to_owned()),
        };
        let question = parse_uuid("question", question)?;
        self.service.answer_question(&who, Uuid::now_v7(), question, word).await
    }
}
