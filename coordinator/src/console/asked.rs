//! What a request names in its query or its form.

use std::collections::BTreeMap;

use skein_shared::id::parse_uuid;
use skein_shared::{Code, Refusal};
use url::form_urlencoded::{Serializer, parse};
use uuid::Uuid;

/// Fields that are read of one request.
const MOST: usize = 32;

/// Names and values; of a name that comes twice the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    pub(super) fn read(text: &[u8]) -> Self {
        Self(parse(text).take(MOST).map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
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
