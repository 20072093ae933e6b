//! The login: a token is exchanged for a session, which is a token of its own that ends soon and that only the browser
//! has. Nothing but the login itself is shown without one.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::digest::{SHA256, digest};
use serde_json::json;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::Console;
use super::fields::Fields;
use crate::auth::{Principal, Right, policy};
use crate::service::access::{Handed, Narrower};

/// How long a session lasts: a working day.
pub const SESSION: Duration = Duration::from_secs(8 * 3600);
const COOKIE: &str = "skein_session";
/// What the last action said, for the page that follows it.
const SAID: &str = "skein_said";

/// Somebody who has logged in.
pub(super) struct Visitor {
    pub(super) who: Principal,
    /// What each form of this session carries, and no other site knows.
    pub(super) ticket: String,
    session: String,
}

impl Visitor {
    pub(super) fn may_act(&self) -> bool {
        may_act(&self.who).is_ok()
    }

    /// The same, looking at a swarm.
    pub(super) fn in_swarm(self, swarm: Name) -> Self {
        Self { who: Principal { swarm, ..self.who }, ..self }
    }

    /// Whether the session still holds. One of which nobody can say it just now does: the page waits for those who can.
    pub(super) async fn still(&self, console: &Console) -> bool {
        let held = console.access.visitor(&self.session).await;
        held.err().is_none_or(|refusal| refusal.code != Code::Unauthenticated)
    }
}

/// Lets pass who may do what the console offers.
///
/// # Errors
/// `forbidden` for who does not administer, and for who may only read.
pub(super) fn may_act(who: &Principal) -> Result<(), Refusal> {
    policy::require(who, Right::Administer)?;
    policy::require_writable(who)
}

impl Console {
    /// Who asks for something.
    ///
    /// # Errors
    /// `unauthenticated` without a session that holds, `rate_limited` for an agent that asks for too much at a time.
    pub(super) async fn visitor(&self, headers: &HeaderMap) -> Result<Visitor, Refusal> {
        let visitor = self.holder(headers).await?;
        self.pace.admit(&visitor.who, Instant::now())?;
        Ok(visitor)
    }

    /// Whose session it is.
    ///
    /// # Errors
    /// `unauthenticated` without a session that holds.
    async fn holder(&self, headers: &HeaderMap) -> Result<Visitor, Refusal> {
        let session = cookie(headers, &self.named(COOKIE))
            .ok_or_else(|| Refusal::new(Code::Unauthenticated, "log in with a token first"))?;
        let who = self.access.visitor(session).await?;
        Ok(Visitor { ticket: ticket(session), who, session: session.to_owned() })
    }

    fn set_cookie(&self, name: &str, value: &str, age: Duration) -> HeaderValue {
        let secure = if self.secure { "; Secure" } else { "" };
        let (name, age) = (self.named(name), age.as_secs());
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}");
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// What a cookie is called: over HTTPS by a name under which a browser takes one of this very host alone. Any other
    /// host of the same domain, such as an agent's service below this one, could else log people in as somebody else.
    fn named(&self, cookie: &str) -> String {
        if self.secure { format!("__Host-{cookie}") } else { cookie.to_owned() }
    }

    /// Has the next page say something, once.
    pub(super) fn say(&self, said: &Result<String, Refusal>) -> HeaderValue {
        let (sign, text) = match said {
            Ok(text) => ('+', text.as_str()),
            Err(refusal) => ('-', refusal.message.as_str()),
        };
        let text: String = text.chars().take(600).collect();
        let value = URL_SAFE_NO_PAD.encode(format!("{sign}{text}"));
        self.set_cookie(SAID, &value, Duration::from_secs(60))
    }

    /// Takes back what [`Self::say`] has left.
    pub(super) fn hush(&self) -> HeaderValue {
        self.set_cookie(SAID, "", Duration::ZERO)
    }

    /// What the last action said, and whether it was done.
    pub(super) fn said(&self, headers: &HeaderMap) -> Option<(bool, String)> {
        let bytes = URL_SAFE_NO_PAD.decode(cookie(headers, &self.named(SAID))?).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        // Any server of this host can set a cookie, whatever its port.
        let mut letters = text.chars();
        let sign = letters.next()?;
        Some((sign == '+', letters.as_str().to_owned()))
    }
}

/// The page with the form, where `?next=` leads to what was asked for.
pub(super) async fn form(State(console): State<Console>, RawQuery(query): RawQuery) -> Response {
    let next = Fields::read(query.unwrap_or_default().as_bytes());
    console.login(StatusCode::OK, next.get("next").unwrap_or_default(), None)
}

/// Exchanges a token for a session.
pub(super) async fn enter(State(console): State<Console>, headers: HeaderMap, body: Body) -> Response {
    let fields = match Fields::sent(body).await {
        Ok(fields) => fields,
        Err(refusal) => return console.refused(&refusal),
    };
    let next = fields.get("next").unwrap_or_default();
    match console.session(&headers, &fields).await {
        Ok(session) => {
            let mut response = Redirect::to(inside(next)).into_response();
            let cookie = console.set_cookie(COOKIE, session.issued.text(), session.lifetime);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Err(refusal) => console.login(StatusCode::FORBIDDEN, next, Some(&refusal.message)),
    }
}

pub(super) async fn leave(State(console): State<Console>, headers: HeaderMap, body: Body) -> Response {
    if let Err(refusal) = console.end_session(&headers, body).await {
        return console.refused(&refusal);
    }
    let mut response = Redirect::to("/login").into_response();
    response.headers_mut().insert(header::SET_COOKIE, console.set_cookie(COOKIE, "", Duration::ZERO));
    response
}

impl Console {
    /// A session for whoever has a token: it ends with the token, and after [`SESSION`] at the latest.
    async fn session(&self, headers: &HeaderMap, fields: &Fields) -> Result<Handed, Refusal> {
        own_site(headers)?;
        let token = fields.need("token")?;
        let who = self.access.identify(token).await?;
        policy::require(&who, Right::Read)?;
        if who.managed {
            let problem = "this is the token of a run; people log in with one of `skein token issue`";
            return Err(Refusal::new(Code::Forbidden, problem));
        }
        let session = Narrower { lifetime: Some(SESSION), for_console: true, ..Narrower::default() };
        self.access.exchange(token, session).await
    }

    /// Ends the session, if there is one that holds.
    ///
    /// # Errors
    /// `forbidden` for a form of others. While nobody can say whether the session holds, or end it, as whoever says so:
    /// a browser that forgets it then leaves it alive.
    async fn end_session(&self, headers: &HeaderMap, body: Body) -> Result<(), Refusal> {
        // However much they have asked for, they may go.
        let visitor = match self.holder(headers).await {
            Err(refusal) if refusal.code == Code::Unauthenticated => return Ok(()),
            found => found?,
        };
        genuine(headers, &visitor, &Fields::sent(body).await?)?;
        self.access.end_session(&visitor.session).await
    }

    fn login(&self, status: StatusCode, next: &str, problem: Option<&str>) -> Response {
        let page = json!({ "title": "Log in", "next": inside(next), "problem": problem });
        self.pages.answer(status, "login.html", &page)
    }
}

/// Lets a form pass that this session was given by this site.
///
/// # Errors
/// `forbidden`.
pub(super) fn genuine(headers: &HeaderMap, visitor: &Visitor, fields: &Fields) -> Result<(), Refusal> {
    own_site(headers)?;
    let given = fields.get("ticket").unwrap_or_default();
    if given.as_bytes().ct_eq(visitor.ticket.as_bytes()).into() {
        return Ok(());
    }
    Err(Refusal::new(
        Code::Forbidden,
        "this form is of another session; go back, load the page again and repeat",
    ))
}

/// Browsers say where a form comes from.
fn own_site(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let own = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => origin.split_once("://").map(|(_, host)| host) == text("host"),
        (None, None) => true,
    };
    if own { Ok(()) } else { Err(Refusal::new(Code::Forbidden, "this form comes from another site")) }
}

/// Known to whoever has the session's cookie, and to nobody else.
fn ticket(session: &str) -> String {
    let secret = format!("skein console form {session}");
    URL_SAFE_NO_PAD.encode(digest(&SHA256, secret.as_bytes()))
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find(|(known, value)| *known == name && !value.is_empty())
        .map(|(_, value)| value)
}

/// A page of the console; whatever else is named leads to the first one.
pub(super) fn inside(path: &str) -> &str {
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if path.starts_with("/console/") && is_plain && path.len() < 1000 { path } else { "/" }
}
