//! Telling clients what has become different: by a stream of their own, or by the session of an older one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use rmcp::ErrorData;
use rmcp::model::{
    PromptListChangedNotification, ResourceListChangedNotification, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParam, ServerNotification, SubscriptionFilter, ToolListChangedNotification,
};
use rmcp::service::{Peer, RoleServer, SubscriptionContext};
use skein_shared::{Code, Refusal};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::attended::Attended;
use super::wire;
use crate::auth::Credential;
use crate::mcp::dispatch::Context;
use crate::mcp::offer::{List, Offer, once_it_can_be_said};
use crate::mcp::quota::Watch;
use crate::service::access::Access;

/// Documents that one client may have watched at a time.
const WATCHED: usize = 50;
/// A stream ends after this long, and its client asks for another with a token that still holds. A session for which
/// nobody has been there for as long is told nothing more.
const LISTENS: Duration = Duration::from_secs(3600);
/// Between two messages about one document: one that changes all the time is told of now and then.
const CALM: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
enum Change {
    Of(List),
    At(String),
}

/// Of what a client asks to hear, what it may.
pub(super) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    if let Some(uris) = &mut accepted.resource_subscriptions {
        uris.truncate(WATCHED);
    }
    accepted
}

/// Who is told, and by what right.
pub(super) struct Listener {
    pub(super) offer: Arc<dyn Offer>,
    pub(super) caller: Context,
    pub(super) access: Access,
    pub(super) credential: Option<Arc<Credential>>,
}

impl Listener {
    /// Whether the token that it came with was not revoked since.
    async fn may_be_told(&self) -> bool {
        self.access.still_holds(self.credential.as_deref()).await.is_ok()
    }
}

/// Tells a client of the stateless revision until it goes, its token is revoked, the node stops or the hour is over.
pub(super) async fn listen(listener: Listener, subscription: &SubscriptionContext) -> Result<(), ErrorData> {
    let Listener { offer, caller, .. } = &listener;
    let _seat =
        caller.gate.quota.listen(&caller.who, Instant::now()).map_err(|refusal| wire::refused(&refusal))?;
    // As with a wait, somebody is there for as long as the connection is.
    let _present = caller.service.present(&caller.who);
    let wanted = subscription.accepted().clone();
    let mut changes: SelectAll<BoxStream<'static, Change>> = SelectAll::new();
    changes.push(offer.relisted(caller.clone()).map(Change::Of).boxed());
    for uri in wanted.resource_subscriptions.clone().unwrap_or_default() {
        changes.push(updates(Arc::clone(offer), caller.clone(), uri, None));
    }
    let end = tokio::time::sleep(LISTENS);
    tokio::pin!(end);
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = &mut end => return Ok(()),
            () = subscription.cancelled() => return Ok(()),
        };
        // It may see nothing any more, as when its run has ended.
        let Some(change) = change else { return Ok(()) };
        if !wants(&wanted, &change) {
            continue;
        }
        if !listener.may_be_told().await {
            return Ok(());
        }
        if subscription.sink().send(notification(change)).await.is_err() {
            return Ok(());
        }
    }
}

fn wants(wanted: &SubscriptionFilter, change: &Change) -> bool {
    match change {
        Change::Of(List::Tools) => wanted.tools_list_changed == Some(true),
        Change::Of(List::Prompts) => wanted.prompts_list_changed == Some(true),
        Change::Of(List::Documents) => wanted.resources_list_changed == Some(true),
        Change::At(_) => true,
    }
}

fn notification(change: Change) -> ServerNotification {
    match change {
        Change::Of(List::Tools) => ToolListChangedNotification::default().into(),
        Change::Of(List::Prompts) => PromptListChangedNotification::default().into(),
        Change::Of(List::Documents) => ResourceListChangedNotification::default().into(),
        Change::At(uri) => {
            ResourceUpdatedNotification::new(ResourceUpdatedNotificationParam::new(uri)).into()
        }
    }
}

/// Each change of what lies at an address, until the caller may no longer see it; that it is gone is the last one.
/// Where nobody has said what was seen there, the first is told at once: the client had its acknowledgement before the
/// first look, and what has changed in between is in that.
fn updates(
    offer: Arc<dyn Offer>,
    caller: Context,
    uri: String,
    seen: Option<u64>,
) -> BoxStream<'static, Change> {
    stream::unfold(Some((offer, caller, uri, seen)), |watched| async move {
        let (offer, caller, uri, seen) = watched?;
        let now = match seen {
            Some(seen) => {
                tokio::time::sleep(CALM).await;
                once_it_can_be_said(|| offer.changed(&caller, &uri, seen)).await
            }
            None => once_it_can_be_said(|| offer.read(&caller, &uri)).await.map(|read| read.digest()),
        };
        let told = Change::At(uri.clone());
        match now {
            Ok(now) => Some((told, Some((offer, caller, uri, Some(now))))),
            // Its client would go by what it has read for ever.
            Err(refusal) if refusal.code == Code::NotFound => Some((told, None)),
            Err(_) => None,
        }
    })
    .boxed()
}

/// What tells a session of an address, and its place among all that the agent watches.
type Told = (AbortOnDropHandle<()>, Watch);

/// What the session of an older client watches. It ends with the session.
#[derive(Clone, Default)]
pub(super) struct Watched(Arc<Mutex<HashMap<String, Told>>>);

impl Watched {
    /// Begins to tell a session of an address.
    ///
    /// # Errors
    /// `not_found`; `rate_limited` when it watches too many already, or its agent does in all its sessions.
    pub(super) async fn add(
        &self,
        listener: Listener,
        uri: String,
        peer: Peer<RoleServer>,
        attended: Attended,
    ) -> Result<(), Refusal> {
        let Listener { offer, caller, .. } = &listener;
        caller.gate.quota.look(&caller.who, Instant::now())?;
        let seen = offer.read(caller, &uri).await?.digest();
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What is gone takes nobody's place.
        watched.retain(|_, (told, _)| !told.is_finished());
        if watched.len() >= WATCHED && !watched.contains_key(&uri) {
            let problem = format!("{WATCHED} resources are watched already; unsubscribe from one first");
            return Err(Refusal::new(Code::RateLimited, problem));
        }
        // What is watched anew gives its place back first.
        watched.remove(&uri);
        let place = caller.gate.quota.watch(&caller.who)?;
        let mut changes = updates(Arc::clone(offer), caller.clone(), uri.clone(), Some(seen));
        let told = async move {
            while let Some(Change::At(uri)) = changes.next().await {
                // A message is a sign of life, and without an end to them a session would not end whose client has
                // gone.
                if attended.left().is_some_and(|left| left.elapsed() >= LISTENS)
                    || !listener.may_be_told().await
                {
                    return;
                }
                if peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_err() {
                    return;
                }
            }
        };
        watched.insert(uri, (AbortOnDropHandle::new(tokio::spawn(told)), place));
        Ok(())
    }

    pub(super) fn remove(&self, uri: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
    }
}
