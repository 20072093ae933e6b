//! A request, as far as it can be told without a look at its parameters.

use std::borrow::Cow;

use rmcp::model::RequestId;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    /// A notification has none.
    pub(super) id: Option<RequestId>,
    #[serde(borrow)]
    pub(super) method: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl<'a> Message<'a> {
    /// `None` for what is no request and no notification: whoever judges that says why.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Whether it begins a session.
    pub(super) fn begins(&self) -> bool {
        self.method == "initialize"
    }

    /// The name of the tool that it calls.
    pub(super) fn tool(&self) -> Option<Cow<'a, str>> {
        let params = self.params.filter(|_| self.method == "tools/call")?;
        serde_json::from_str::<Named<'a>>(params.get()).ok().map(|named| named.name)
    }
}
