//! What can go wrong between us and Slack, in words. No variant has a token in it, nor a URL that somebody signed.

use std::time::Duration;

use serde_json::json;
use skein_shared::{Code, Refusal};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Slack's own word for what it does not do.
    #[error("Slack refused {method}: {error}{}", needs(.needed))]
    Refused { method: &'static str, error: String, needed: Option<String> },
    /// Slack, or its limits as we know them, want the caller to wait longer than it can.
    #[error("Slack takes no more {method} for {} s", .pause.as_secs_f64().ceil())]
    Limited { method: &'static str, pause: Duration },
    /// Nothing was sent.
    #[error("Slack cannot be reached for {method}: {problem}")]
    Unreachable { method: &'static str, problem: String },
    /// It was sent, and nobody knows what became of it.
    #[error("Slack gave no answer to {method}: {problem}")]
    Unanswered { method: &'static str, problem: String },
    /// It may be there from an earlier try, and the bot may not look.
    #[error("this was sent before, and the bot cannot see whether it is there: {0}")]
    Unseen(String),
    #[error("Slack's answer to {method} cannot be read: {problem}")]
    Garbled { method: &'static str, problem: String },
    #[error("{0} is not one of Slack's hosts, so it gets no token and no file")]
    Foreign(String),
    #[error(
        "this is the address of no file; give the file's `url_private_download`, as slack-read shows it, or its id"
    )]
    NoFile,
    #[error("the file is larger than {0} bytes; split it")]
    TooLarge(u64),
    /// What was to be sent could not be had.
    #[error("{}", .0.message)]
    Given(Refusal),
    #[error("the certificates of this system cannot be read, so Slack cannot be told from others: {0}")]
    Certificates(String),
    #[error("this workspace has no app token; set `app_token` or `app_token_file` for Socket Mode")]
    NoAppToken,
}

fn needs(scope: &Option<String>) -> String {
    scope.as_ref().map(|scope| format!(" (the app needs the scope {scope})")).unwrap_or_default()
}

impl Error {
    /// What keeps us from seeing whether something is there says nothing about that.
    pub(super) fn unseen(self) -> Self {
        match self {
            Error::Refused { .. } => Error::Unseen(self.to_string()),
            problem => problem,
        }
    }

    /// Whether there is nobody of that id, as far as the app is shown people.
    pub(crate) fn is_unknown_person(&self) -> bool {
        matches!(self, Error::Refused { error, .. } if ["user_not_found", "user_not_visible"].contains(&error.as_str()))
    }

    /// Whether the same call may do better a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Error::Limited { .. }
            | Error::Unreachable { .. }
            | Error::Unanswered { .. }
            | Error::Garbled { .. } => true,
            Error::Refused { error, .. } => matches!(code(error), Code::Unavailable | Code::RateLimited),
            _ => false,
        }
    }

    /// Whether the same call does better once an operator has set another token, or given the app what it lacks.
    pub(crate) fn may_be_mended(&self) -> bool {
        matches!(
            self,
            Error::Refused { error, .. }
                if error == "missing_scope" || code(error) == Code::SlackNotConfigured
        )
    }
}

/// The code for one of Slack's words. What is not listed says that an argument is wrong, as most of them do.
fn code(error: &str) -> Code {
    match error {
        "channel_not_found" | "thread_not_found" | "message_not_found" | "user_not_found"
        | "file_not_found" | "file_deleted" | "team_not_found" => Code::NotFound,
        "not_in_channel"
        | "is_archived"
        | "missing_scope"
        | "restricted_action"
        | "no_permission"
        | "access_denied"
        | "cant_update_message"
        | "ekm_access_denied"
        | "file_uploads_disabled"
        | "method_not_supported_for_channel_type" => Code::Forbidden,
        "invalid_auth"
        | "not_authed"
        | "token_revoked"
        | "token_expired"
        | "account_inactive"
        | "not_allowed_token_type"
        | "org_login_required" => Code::SlackNotConfigured,
        "msg_too_long" | "msg_blocks_too_long" | "file_upload_size_restricted" => Code::TooLarge,
        "ratelimited" | "rate_limited" | "message_limit_exceeded" => Code::RateLimited,
        "internal_error"
        | "fatal_error"
        | "service_unavailable"
        | "request_timeout"
        | "team_added_to_org"
        | "external_channel_migrating" => Code::Unavailable,
        _ => Code::InvalidArgument,
    }
}

/// What the caller, or an operator, can do about it.
fn advice(error: &str) -> &'static str {
    match error {
        "not_in_channel" => "; invite the bot into the channel",
        "channel_not_found" => {
            "; look for its id with slack-list-channels, and invite the bot if it is private"
        }
        "missing_scope" => "; an operator adds the scope to the app and installs it anew",
        _ if code(error) == Code::SlackNotConfigured => "; an operator has to set a token that is good",
        _ => "",
    }
}

impl Error {
    /// As agents and operators are told.
    pub fn refusal(self) -> Refusal {
        let sentence = self.to_string();
        match self {
            Error::Refused { error, .. } => {
                Refusal::new(code(&error), format!("{sentence}{}", advice(&error)))
                    .with(json!({ "slack": error }))
            }
            Error::Limited { pause, .. } => {
                let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                Refusal::new(Code::RateLimited, sentence).retry_after(millis.max(1000))
            }
            Error::Unreachable { .. } => Refusal::new(Code::Unavailable, sentence).retry_after(5000),
            Error::Unanswered { .. } => Refusal::new(
                Code::Unknown,
                format!("{sentence}; read the channel before you send it again, for it may be there"),
            ),
            Error::Unseen(_) => Refusal::new(
                Code::Unknown,
                format!(
                    "{sentence}; look at the channel first, and if it is not there send it with another idempotency_key"
                ),
            ),
            Error::Garbled { .. } => Refusal::new(Code::Unavailable, sentence).retry_after(5000),
            Error::Foreign(_) | Error::NoFile => Refusal::new(Code::Forbidden, sentence),
            Error::Given(refusal) => refusal,
            Error::TooLarge(_) => Refusal::new(Code::TooLarge, sentence),
            Error::Certificates(_) | Error::NoAppToken => Refusal::new(Code::SlackNotConfigured, sentence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slacks_words_become_codes_with_advice() {
        let refused = |error: &str, needed: Option<&str>| {
            let needed = needed.map(str::to_owned);
            Error::Refused { method: "chat.postMessage", error: error.to_owned(), needed }.refusal()
        };
        for (error, code, said) in [
            ("channel_not_found", Code::NotFound, "slack-list-channels"),
            ("not_in_channel", Code::Forbidden, "invite the bot"),
            ("token_revoked", Code::SlackNotConfigured, "an operator has to set"),
            ("msg_too_long", Code::TooLarge, "msg_too_long"),
            ("fatal_error", Code::Unavailable, "fatal_error"),
            ("invalid_blocks", Code::InvalidArgument, "invalid_blocks"),
        ] {
            let refusal = refused(error, None);
            assert_eq!(refusal.code, code, "{error}");
            assert!(refusal.message.contains(said), "{}", refusal.message);
            assert_eq!(refusal.detail["slack"], error);
        }
        assert!(refused("missing_scope", Some("chat:write")).message.contains("the scope chat:write"));
    }

    #[test]
    fn what_cannot_be_read_is_asked_again_and_what_was_refused_is_not() {
        let garbled = Error::Garbled { method: "chat.update", problem: "HTTP status 404".to_owned() };
        assert!(garbled.is_passing());
        let refused =
            |error: &str| Error::Refused { method: "chat.update", error: error.to_owned(), needed: None };
        for passing in [
            "service_unavailable",
            "team_added_to_org",
            "external_channel_migrating",
            "message_limit_exceeded",
        ] {
            assert!(refused(passing).is_passing() && !refused(passing).may_be_mended(), "{passing}");
        }
        assert!(!refused("token_revoked").is_passing() && !refused("channel_not_found").is_passing());
        for mended in ["invalid_auth", "token_revoked", "account_inactive", "missing_scope"] {
            assert!(refused(mended).may_be_mended(), "{mended}");
        }
        assert!(!garbled.may_be_mended() && !refused("channel_not_found").may_be_mended());
    }

    #[test]
    fn who_has_to_wait_is_told_how_long() {
        let limited = Error::Limited { method: "users.info", pause: Duration::from_millis(30_500) };
        let refusal = limited.refusal();
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::RateLimited, Some(30_500)));
        assert!(refusal.message.contains("31 s"), "{}", refusal.message);
    }
}
