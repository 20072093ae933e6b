//! Whether a client of the older revisions may begin a session. What it says of itself stays in memory, and the session
//! with it until it has been idle for a while, so both have a bound.

use std::borrow::Cow;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde::Deserialize;
use skein_shared::{Code, Refusal};

/// Most sessions that are awake. One falls asleep after an idle while, and wakes with its next request.
const AWAKE: usize = 20_000;
/// What a client may say of itself, bytes. Clients say some hundred.
const SAID: usize = 16 * 1024;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
}

/// # Errors
/// `too_large` for a client that says too much, `overloaded` while too many are awake.
pub(super) async fn admit(
    sessions: &LocalSessionManager,
    session: Option<&str>,
    body: &[u8],
) -> Result<(), Refusal> {
    let begins =
        serde_json::from_slice::<Message<'_>>(body).is_ok_and(|message| message.method == "initialize");
    if begins && body.len() > SAID {
        let problem =
            format!("initialize has more than {SAID} bytes; name the client and its capabilities alone");
        return Err(Refusal::new(Code::TooLarge, problem));
    }
    let awake = sessions.sessions.read().await;
    let wakes = session.is_some_and(|session| !awake.contains_key(session));
    if begins || wakes { has_room(awake.len()) } else { Ok(()) }
}

fn has_room(awake: usize) -> Result<(), Refusal> {
    if awake < AWAKE {
        return Ok(());
    }
    let problem = format!(
        "{awake} sessions are open, the most there may be; end those that you do not use, or try later"
    );
    Err(Refusal::new(Code::Overloaded, problem).retry_after(10_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_an_end() {
        assert!(has_room(AWAKE - 1).is_ok());
        let refusal = has_room(AWAKE).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::Overloaded, Some(10_000)));
    }

    #[tokio::test]
    async fn a_client_that_says_too_much_of_itself_begins_no_session() {
        let sessions = LocalSessionManager::default();
        let body = |method: &str, more: usize| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":"{}"}}"#, "x".repeat(more))
        };
        assert!(admit(&sessions, None, body("initialize", 1000).as_bytes()).await.is_ok());
        let refusal = admit(&sessions, None, body("initialize", SAID).as_bytes()).await.unwrap_err();
        assert_eq!(refusal.code, Code::TooLarge);
        assert!(admit(&sessions, None, body("tools/call", SAID).as_bytes()).await.is_ok());
        assert!(admit(&sessions, None, b"[").await.is_ok(), "left to whoever judges it");
    }
}
