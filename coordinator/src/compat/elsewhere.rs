//! What Skein has in another place: each route says so.

use http::Uri;
use skein_shared::Code;

use super::answer::Problem;

/// Whoever sends webhooks has no key, and so needs none to be told.
pub(super) async fn webhook(uri: Uri) -> Problem {
    let provider = uri.path().split('/').nth(2).unwrap_or_default().to_owned();
    let told = format!(
        "webhooks come to the ingress, which listens apart: send them to {} or /webhooks/{provider} there, with an \
         [[ingress.source]] of the provider {provider} in its configuration",
        uri.path()
    );
    Problem::of(Code::NotFound, told)
}
