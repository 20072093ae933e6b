//! What is known of the methods of Slack's Web API: how arguments are sent, and how often they may be called.

/// Which of the app's tokens a method wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// `xoxb-…`: speaks as the bot.
    Bot,
    /// `xapp-…`: opens connections.
    App,
}

/// How arguments travel. Methods that read take forms alone; those that write take JSON, in which texts need no
/// escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Urlencoded,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) form: Form,
    pub(super) token: Token,
    /// Calls in a minute that Slack promises to take.
    pub(super) per_minute: u32,
    /// Whether a call that may have arrived can be sent again.
    pub(super) repeatable: bool,
}

/// Tiers 2, 3 and 4 of Slack's limits, and the one message a second that a channel takes.
const TIER_2: u32 = 20;
const TIER_3: u32 = 50;
const TIER_4: u32 = 100;
const POSTS: u32 = 60;

const fn reads(name: &'static str, per_minute: u32) -> Method {
    Method { name, form: Form::Urlencoded, token: Token::Bot, per_minute, repeatable: true }
}

const fn writes(name: &'static str, per_minute: u32) -> Method {
    Method { name, form: Form::Json, token: Token::Bot, per_minute, repeatable: false }
}

pub(super) const AUTH_TEST: Method = reads("auth.test", TIER_4);
pub(super) const HISTORY: Method = reads("conversations.history", TIER_3);
pub(super) const REPLIES: Method = reads("conversations.replies", TIER_3);
pub(super) const LIST: Method = reads("conversations.list", TIER_2);
pub(super) const USER: Method = reads("users.info", TIER_4);
pub(super) const FILE: Method = reads("files.info", TIER_4);
/// It makes a place that nobody sees before it is completed, so a second one does no harm.
pub(super) const UPLOAD_URL: Method = reads("files.getUploadURLExternal", TIER_4);
pub(super) const UPLOAD_DONE: Method = writes("files.completeUploadExternal", TIER_4);
pub(super) const POST: Method = writes("chat.postMessage", POSTS);
/// The same text twice leaves the message as it is.
pub(super) const UPDATE: Method = Method { repeatable: true, ..writes("chat.update", TIER_3) };
/// A connection that nobody opens is forgotten.
pub(super) const CONNECT: Method = Method { token: Token::App, ..reads("apps.connections.open", TIER_3) };
