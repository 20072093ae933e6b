//! Slack: events, slash commands and what people click on.

use serde_json::{Value, json};
use skein_shared::{Refusal, json};
use url::form_urlencoded;

use super::{Answer, Notice, Reading, Sender, outdated, unsigned};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::{Delivery, invalid};
use crate::ingress::signature::hex_hmac;

const SIGNATURE: &str = "x-slack-signature";
const TIME: &str = "x-slack-request-timestamp";

/// The event of a slash command.
pub(in crate::ingress) const COMMAND: &str = "slash_command";

/// Where an event names whose it is: of what was edited or removed, and of files, not where others do.
const PEOPLE: [&str; 4] = ["/user", "/message/user", "/previous_message/user", "/user_id"];

pub(super) struct Slack;

impl Sender for Slack {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        let parts = [b"v0:", delivery.header(TIME).as_bytes(), b":", delivery.body];
        let signed = delivery.header(SIGNATURE).strip_prefix("v0=");
        if !signed.is_some_and(|signature| hex_hmac(secret, &parts, signature)) {
            return Err(unsigned(SIGNATURE));
        }
        if delivery.is_recent(TIME) { Ok(()) } else { Err(outdated(TIME)) }
    }

    /// Now and then Slack looks at the certificate behind the address of a command.
    fn knocks(&self, delivery: &Delivery<'_>) -> bool {
        delivery.has_field("ssl_check", "1")
    }

    fn kept(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        if !text.contains("token") || text.trim_start().starts_with(['{', '[']) {
            return hushed(&text);
        }
        // Whatever its content type says: a form, whose `payload` may be JSON.
        let fields = form_urlencoded::parse(text.as_bytes()).filter(|(name, _)| name != "token");
        let fields = fields.map(|(name, value)| (name, hushed(&value)));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        if let Some(fields) = delivery.fields()? {
            return command(without_token(fields));
        }
        document(without_token(delivery.json()?))
    }
}

/// What comes over a connection is what comes by request, in an envelope that says of which form it is.
///
/// # Errors
/// `invalid_argument` for a body that is not of its form.
pub(in crate::ingress) fn from_socket(kind: &str, payload: Value) -> Result<Reading, Refusal> {
    let payload = without_token(payload);
    json::bounded(payload.to_string().as_bytes())
        .map_err(|excess| invalid(format!("the payload is not read: {excess}")))?;
    match kind {
        "slash_commands" => command(payload),
        "events_api" | "interactive" => document(payload),
        _ => Ok(Reading::Ignored("Slack has nothing to tell with it that Skein knows of")),
    }
}

fn document(body: Value) -> Result<Reading, Refusal> {
    let kind = text(&body, "/type").map(str::to_owned);
    match kind.as_deref() {
        Some("url_verification") => {
            Ok(Reading::Challenge(json!({"challenge": text(&body, "/challenge").unwrap_or_default()})))
        }
        Some("event_callback") => event(body),
        Some("app_rate_limited") => Ok(Reading::Ignored("Slack held events back: there were too many")),
        Some(kind) => Ok(interaction(kind, body)),
        None => Err(invalid("the body has no `type`, as Slack's requests have".to_owned())),
    }
}

/// `token` is a secret of former days, by which requests were believed before they were signed.
fn without_token(mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.shift_remove("token");
    }
    body
}

/// The same for JSON that may not be whole: each text that is called `token` is empty.
fn hushed(json: &str) -> String {
    const NAME: &str = "\"token\"";
    let (mut kept, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.find(NAME) {
        let (before, after) = rest.split_at(at + NAME.len());
        kept.push_str(before);
        let value =
            after.trim_start().strip_prefix(':').and_then(|value| value.trim_start().strip_prefix('"'));
        rest = match value {
            Some(value) => {
                kept.push_str(":\"\"");
                behind(value)
            }
            None => after,
        };
    }
    kept + rest
}

/// What follows the end of a text of JSON; nothing if that is cut off.
fn behind(text: &str) -> &str {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

/// A repeat has its event's id again, whatever `x-slack-retry-num` counts.
fn event(body: Value) -> Result<Reading, Refusal> {
    let event = &body["event"];
    let Some(kind) = text(event, "/type").map(str::to_owned) else {
        return Err(invalid("the event has no `type`".to_owned()));
    };
    let item = &event["item"];
    let channel = text(event, "/channel").or_else(|| text(item, "/channel"));
    let person = PEOPLE.into_iter().find_map(|pointer| text(event, pointer));
    let mut context = place(text(&body, "/team_id"), channel, person);
    context.set("action", text(event, "/subtype"));
    context.set("body", text(event, "/text"));
    context.set("title", text(event, "/reaction"));
    context.set(
        "thread",
        text(event, "/thread_ts").or_else(|| text(event, "/ts")).or_else(|| text(item, "/ts")),
    );
    if let Some(channel) = channel.filter(|_| matches!(kind.as_str(), "message" | "app_mention")) {
        context.set("comment", Some(&format!("channel:{channel}")));
    }
    let id = text(&body, "/event_id").unwrap_or_default().to_owned();
    Ok(Notice::of(&id, &kind, context, body))
}

/// An answer is shown to whoever typed the command, so there is none unless it was a question.
fn command(fields: Value) -> Result<Reading, Refusal> {
    let Some(name) = text(&fields, "/command") else {
        return Err(invalid("the form is neither a slash command nor has it a field `payload`".to_owned()));
    };
    let channel = text(&fields, "/channel_id");
    let mut context = place(text(&fields, "/team_id"), channel, text(&fields, "/user_id"));
    context.set("action", Some(name));
    context.set("title", Some(name));
    context.set("body", text(&fields, "/text"));
    context.set("comment", channel.map(|channel| format!("channel:{channel}")).as_deref());
    let delivery = text(&fields, "/trigger_id").unwrap_or_default().to_owned();
    Ok(quiet(delivery, COMMAND, context, fields))
}

/// A click, a shortcut, or a form that was filled in.
fn interaction(kind: &str, body: Value) -> Reading {
    let channel = text(&body, "/channel/id").or_else(|| text(&body, "/container/channel_id"));
    let mut context = place(text(&body, "/team/id"), channel, text(&body, "/user/id"));
    let actions = ["/actions/0/action_id", "/callback_id", "/view/callback_id"];
    let action = actions.into_iter().find_map(|pointer| text(&body, pointer));
    context.set("action", action);
    context.set("title", action);
    let values = ["/actions/0/value", "/actions/0/selected_option/value", "/message/text"];
    context.set("body", values.into_iter().find_map(|pointer| text(&body, pointer)));
    context.set("thread", text(&body, "/message/thread_ts").or_else(|| text(&body, "/message/ts")));
    context.set("comment", channel.map(|channel| format!("channel:{channel}")).as_deref());
    let delivery = text(&body, "/trigger_id").unwrap_or_default().to_owned();
    quiet(delivery, kind, context, body)
}

fn place(team: Option<&str>, channel: Option<&str>, person: Option<&str>) -> Context {
    let mut context = Context::default();
    context.set("repo", team);
    context.set("channel", channel);
    context.set("author", person);
    context.set("sender", person);
    context
}

fn quiet(delivery: String, event: &str, context: Context, payload: Value) -> Reading {
    let event = event.to_owned();
    Reading::Event(Box::new(Notice { delivery, event, context, payload, answer: Answer::Nothing }))
}
