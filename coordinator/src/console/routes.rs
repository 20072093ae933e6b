//! Which address leads where.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde_json::json;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use url::form_urlencoded::byte_serialize;

use super::door::{self, Visitor};
use super::fields::Fields;
use super::page;
use super::sections::{self, Look, Section};
use super::{Console, actions, live};
use crate::auth::{Principal, Right, policy};

/// Nothing of another origin, nothing in the page itself that runs, nobody who frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn router(console: Console) -> Router {
    Router::new()
        .route("/", get(front))
        .route("/login", get(door::form).post(door::enter))
        .route("/logout", post(door::leave))
        .route("/assets/{file}", get(page::asset))
        .route("/console/{swarm}", get(overview))
        .route("/console/{swarm}/", get(overview))
        .route("/console/{swarm}/{section}", get(section))
        .route("/console/{swarm}/{section}/{subject}", get(subject).post(action))
        .layer(tower::util::MapResponseLayer::new(guarded))
        .with_state(console)
}

/// What every answer says to the browser.
fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn front(State(console): State<Console>, headers: HeaderMap) -> Response {
    match console.visitor(&headers).await {
        Ok(visitor) => Redirect::to(&format!("/console/{}", visitor.who.swarm)).into_response(),
        Err(refusal) => console.turned_away(&refusal, "/login"),
    }
}

async fn overview(
    State(console): State<Console>,
    Path(swarm): Path<String>,
    uri: Uri,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    let address = (swarm, String::new(), None);
    show(console, address, uri, query, headers).await
}

async fn section(
    State(console): State<Console>,
    Path((swarm, section)): Path<(String, String)>,
    uri: Uri,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    show(console, (swarm, section, None), uri, query, headers).await
}

async fn subject(
    State(console): State<Console>,
    Path((swarm, section, subject)): Path<(String, String, String)>,
    uri: Uri,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    show(console, (swarm, section, Some(subject)), uri, query, headers).await
}

/// A page, or to whoever asks for events the stream that keeps it up to date.
async fn show(
    console: Console,
    (swarm, section, subject): (String, String, Option<String>),
    uri: Uri,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let visitor = match console.visitor(&headers).await {
        Ok(visitor) => visitor,
        Err(refusal) => return console.turned_away(&refusal, &to_login(&uri)),
    };
    let visitor = match console.in_swarm(visitor, &swarm).await {
        Ok(visitor) => visitor,
        Err(refusal) => return console.refused(&refusal),
    };
    let Some(section) = sections::find(&section, subject.is_some()) else {
        let problem = "there is no such page; the menu lists them";
        return console.refused(&Refusal::new(Code::NotFound, problem));
    };
    let look = Look { subject, query: Fields::read(query.unwrap_or_default().as_bytes()) };
    let wants_events = headers.get(header::ACCEPT).is_some_and(|accepted| {
        accepted.to_str().is_ok_and(|accepted| accepted.starts_with("text/event-stream"))
    });
    if wants_events {
        return live::stream(console, visitor, section, look);
    }
    whole(&console, &visitor, section, &look, &headers).await
}

async fn whole(
    console: &Console,
    visitor: &Visitor,
    section: &'static Section,
    look: &Look,
    headers: &HeaderMap,
) -> Response {
    let mut shown = match console.gather(visitor, section, look).await {
        Ok(shown) => shown,
        Err(refusal) => return console.refused(&refusal),
    };
    shown["layout"] = json!("layout.html");
    shown["sections"] = sections::menu();
    shown["swarms"] = json!(console.swarms(&visitor.who).await);
    let said = console.said(headers);
    shown["said"] = json!(said.as_ref().map(|(done, text)| json!({ "done": done, "text": text })));
    let mut response = console.pages.answer(StatusCode::OK, section.template, &shown);
    if said.is_some() {
        response.headers_mut().append(header::SET_COOKIE, console.hush());
    }
    response
}

/// An action, after which the page is shown that it was asked for on.
async fn action(
    State(console): State<Console>,
    Path((swarm, section, name)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let visitor = match console.visitor(&headers).await {
        Ok(visitor) => visitor,
        Err(refusal) => return console.turned_away(&refusal, "/login"),
    };
    let fields = match Fields::sent(body).await {
        Ok(fields) => fields,
        Err(refusal) => return console.refused(&refusal),
    };
    let allowed = match section.as_str() {
        "do" => door::genuine(&headers, &visitor, &fields),
        _ => Err(Refusal::new(Code::NotFound, "there is no such action")),
    };
    if let Err(refusal) = allowed {
        return console.refused(&refusal);
    }
    let visitor = match console.in_swarm(visitor, &swarm).await {
        Ok(visitor) => visitor,
        Err(refusal) => return console.refused(&refusal),
    };
    let said = actions::run(&console, &visitor.who, &name, &fields).await;
    let back = door::inside(fields.get("back").unwrap_or_default());
    let mut response = Redirect::to(back).into_response();
    response.headers_mut().insert(header::SET_COOKIE, console.say(&said));
    response
}

/// The login, which leads back to where somebody wanted to go.
fn to_login(uri: &Uri) -> String {
    let next: String =
        byte_serialize(uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes()).collect();
    format!("/login?next={next}")
}

impl Console {
    /// The visitor as of a swarm: operators look at any that is there, all others at their own.
    async fn in_swarm(&self, visitor: Visitor, swarm: &str) -> Result<Visitor, Refusal> {
        let swarm = Name::parse(swarm)?;
        if swarm == visitor.who.swarm {
            return Ok(visitor);
        }
        policy::require(&visitor.who, Right::Administer)?;
        if !self.service.entities().has_swarm(&swarm).await? {
            let problem = format!("there is no swarm `{swarm}`; make it with `skein swarm create {swarm}`");
            return Err(Refusal::new(Code::NotFound, problem));
        }
        Ok(visitor.in_swarm(swarm))
    }

    /// The swarms that the visitor may go to.
    async fn swarms(&self, who: &Principal) -> Vec<Name> {
        let mut swarms = match policy::require(who, Right::Administer) {
            Ok(()) => self.service.entities().swarms().await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        swarms.truncate(SWARMS);
        if !swarms.contains(&who.swarm) {
            swarms.push(who.swarm.clone());
        }
        swarms
    }

    /// Whose session does not hold has to log in; when nobody can say whether it does, it is worth another try.
    fn turned_away(&self, refusal: &Refusal, login: &str) -> Response {
        match refusal.code {
            Code::Unauthenticated => Redirect::to(login).into_response(),
            _ => self.refused(refusal),
        }
    }

    /// A page that says why there is none.
    pub(super) fn refused(&self, refusal: &Refusal) -> Response {
        let status = StatusCode::from_u16(refusal.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let page = json!({ "title": "Not shown", "problem": refusal.message, "code": refusal.code });
        let mut response = self.pages.answer(status, "refused.html", &page);
        if let Some(millis) = refusal.retry_after_ms {
            response.headers_mut().insert(header::RETRY_AFTER, millis.div_ceil(1000).max(1).into());
        }
        response
    }
}

/// Swarms in the menu.
const SWARMS: usize = 100;
