//! Sessions of the console: tokens that open it and nothing else. What else they opened could make tokens that outlive
//! the session and its logout, and a cookie comes into more hands than a token.

use skein_shared::access::{Command, Of};
use skein_shared::{Code, Refusal};

use super::Access;
use crate::auth::token::LEEWAY;
use crate::auth::{Credential, Principal};

impl Access {
    /// Who has logged in with a session of the console.
    ///
    /// # Errors
    /// `unauthenticated` for one that is not good or was ended, and for a token that nobody has logged in with;
    /// `unavailable` while nobody can say which are.
    pub async fn visitor(&self, session: &str) -> Result<Principal, Refusal> {
        let credential = self.any_credential(session).await?;
        if credential.for_console { Ok(credential.who.clone()) } else { Err(no_session()) }
    }

    /// Ends a session, and none of the tokens that it came from.
    ///
    /// # Errors
    /// When the revocation cannot be written.
    pub async fn end_session(&self, session: &str) -> Result<(), Refusal> {
        let Some(credential) = self.held(session).await? else { return Ok(()) };
        let Credential { who, id, since, .. } = credential.as_ref();
        let until = credential.ends() + LEEWAY;
        let (of, by) = (Of::Token(*id), who.agent_name.to_string());
        let command = Command::Revoke { of, by, until, began: *since, holder: Some(who.agent) };
        self.end(&who.swarm, command).await.map(|_| ())
    }
}

fn no_session() -> Refusal {
    Refusal::new(Code::Unauthenticated, "this is a token and no session of the console; log in with it")
}

/// How every other door refuses a session.
pub(super) fn opens_nothing_else() -> Refusal {
    let problem =
        "this is a session of the console, which opens nothing else; use the token that you logged in with";
    Refusal::new(Code::Unauthenticated, problem)
}
