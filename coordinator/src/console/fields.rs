//! What a request names in its query or its form.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use http_body_util::{BodyExt, Limited};
use skein_shared::id::parse_uuid;
use skein_shared::{Code, Refusal};
use tokio::time::timeout;
use url::form_urlencoded::{Serializer, parse};
use uuid::Uuid;

/// Fields that are read of one request.
const MOST: usize = 32;
/// Most of a form, bytes, and how long it may take to arrive. Whoever logs in is nobody yet.
const FORM: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// Names and values; of a name that comes twice the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    pub(super) fn read(text: &[u8]) -> Self {
        Self(parse(text).take(MOST).map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The fields of a form.
    ///
    /// # Errors
    /// `wait_timeout` for one that takes too long, `too_large` for one that is too long.
    pub(super) async fn sent(body: Body) -> Result<Self, Refusal> {
        let form = timeout(PATIENCE, Limited::new(body, FORM).collect()).await.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            let problem = format!("the form took longer than {seconds} seconds to arrive; send it again");
            Refusal::new(Code::WaitTimeout, problem)
        })?;
        let form = form.map_err(|_| {
            let problem = format!("the form is cut off or longer than {FORM} bytes; send less");
            Refusal::new(Code::TooLarge, problem)
        })?;
        Ok(Self::read(&form.to_bytes()))
    }

    /// What was given, if it is more than nothing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// What has to be given.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub(super) fn need(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name)
            .ok_or_else(|| Refusal::new(Code::InvalidArgument, format!("{name}: it is missing; name one")))
    }

    /// An id, if one is given.
    ///
    /// # Errors
    /// `invalid_argument` for something else.
    pub(super) fn id(&self, name: &str) -> Result<Option<Uuid>, Refusal> {
        self.get(name).map(|text| parse_uuid(name, text)).transpose()
    }

    /// The same as a query, with another value of one name.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let others = self.0.iter().filter(|(known, value)| *known != name && !value.is_empty());
        let mut query = Serializer::new(String::from("?"));
        query.extend_pairs(others);
        if !value.is_empty() {
            query.append_pair(name, value);
        }
        query.finish()
    }
}
