//! What a client sends: a form, and who it is.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Limited};
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use tokio::time::timeout;
use url::form_urlencoded;

use super::refusal::No;
use crate::auth::Rights;

/// A form has a token or two.
const LARGEST: usize = 64 * 1024;
/// How long it may take to arrive. Nobody knows who sends it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parameters of a request. Empty ones count as left out (RFC 6749 3.2).
pub(super) struct Form {
    parameters: BTreeMap<String, String>,
    /// A client's id and secret, if it shows them.
    client: Option<(String, String)>,
}

impl Form {
    pub(super) async fn read(request: Request) -> Result<Self, No> {
        let (parts, body) = request.into_parts();
        let form = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !form.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
            return Err(No::invalid_request("send a form: application/x-www-form-urlencoded"));
        }
        let body = timeout(PATIENCE, Limited::new(body, LARGEST).collect()).await.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            No::invalid_request(format!("the form took longer than {seconds} seconds; send it faster"))
        })?;
        let body = body.map_err(|_| No::invalid_request("the form is cut off or too long"))?.to_bytes();
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(&body) {
            if value.is_empty() {
                continue;
            }
            if parameters.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(No::invalid_request("a parameter stands there twice"));
            }
        }
        let mut form = Self { parameters, client: basic(&parts.headers)? };
        let posted = form.parameters.remove("client_secret");
        match (&form.client, posted) {
            (Some(_), Some(_)) => {
                return Err(No::invalid_request("show the client's secret in one way only"));
            }
            (None, Some(secret)) => {
                form.client = Some((form.needed("client_id")?.to_owned(), secret));
            }
            _ => {}
        }
        Ok(form)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    pub(super) fn needed(&self, name: &'static str) -> Result<&str, No> {
        self.get(name).ok_or_else(|| No::invalid_request(format!("the parameter {name} is missing")))
    }

    /// A parameter that is read as something.
    pub(super) fn parsed<T: std::str::FromStr<Err = Refusal>>(&self, name: &str) -> Result<Option<T>, No> {
        Ok(self.get(name).map(str::parse).transpose()?)
    }

    /// The rights that are asked for.
    pub(super) fn scope(&self) -> Result<Option<Rights>, No> {
        let scope = self.get("scope").map(str::parse).transpose();
        scope.map_err(|refusal| No::new("invalid_scope", refusal))
    }

    /// The client's swarm and name, and its secret. `NAME` alone is one of the usual swarm.
    pub(super) fn client(&self) -> Result<(Name, Name, &str), No> {
        let nobody = || {
            No::new("invalid_client", Refusal::new(Code::Unauthenticated, "show the client's id and secret"))
        };
        let (id, secret) = self.client.as_ref().ok_or_else(nobody)?;
        let (swarm, name) = id.split_once('/').unwrap_or(("default", id));
        match (Name::parse(swarm), Name::parse(name)) {
            (Ok(swarm), Ok(name)) => Ok((swarm, name, secret)),
            _ => Err(nobody()),
        }
    }
}

/// The client by `Authorization: Basic`, both parts form-encoded (RFC 6749 2.3.1).
fn basic(headers: &HeaderMap) -> Result<Option<(String, String)>, No> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let unreadable =
        || No::invalid_request("Authorization: Basic holds the client's id and secret, in base64");
    let value = value.to_str().map_err(|_| unreadable())?;
    let Some((scheme, rest)) = value.split_once(' ') else { return Err(unreadable()) };
    if !scheme.eq_ignore_ascii_case("basic") {
        return Ok(None);
    }
    let pair = STANDARD.decode(rest.trim()).map_err(|_| unreadable())?;
    let pair = String::from_utf8(pair).map_err(|_| unreadable())?;
    let (id, secret) = pair.split_once(':').ok_or_else(unreadable)?;
    let plain = |text: &str| {
        form_urlencoded::parse(text.as_bytes())
            .next()
            .map(|(plain, _)| plain.into_owned())
            .unwrap_or_default()
    };
    Ok(Some((plain(id), plain(secret))))
}
