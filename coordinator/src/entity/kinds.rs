//! The type of each kind's entities.

/// Runs `$body` with `$entity` standing for the entity type of `$kind`.
#[macro_export]
macro_rules! by_kind {
    ($kind:expr, $entity:ident => $body:expr) => {
        match $kind {
            skein_shared::id::Kind::Pool => {
                type $entity = skein_shared::pool::Pool;
                $body
            }
            skein_shared::id::Kind::Lockspace => {
                type $entity = skein_shared::lockspace::Lockspace;
                $body
            }
            skein_shared::id::Kind::Triggers => {
                type $entity = skein_shared::triggers::Triggers;
                $body
            }
            skein_shared::id::Kind::Agent => {
                type $entity = skein_shared::agent::Agent;
                $body
            }
            skein_shared::id::Kind::Fleet => {
                type $entity = skein_shared::fleet::Fleet;
                $body
            }
            skein_shared::id::Kind::Schedules => {
                type $entity = skein_shared::schedules::Schedules;
                $body
            }
            skein_shared::id::Kind::Epics => {
                type $entity = skein_shared::epics::Epics;
                $body
            }
            skein_shared::id::Kind::Inboxes => {
                type $entity = skein_shared::inboxes::Inboxes;
                $body
            }
            skein_shared::id::Kind::Channels => {
                type $entity = skein_shared::channels::Channels;
                $body
            }
            skein_shared::id::Kind::Memory => {
                type $entity = skein_shared::memory::Memory;
                $body
            }
            skein_shared::id::Kind::Blobs => {
                type $entity = skein_shared::blobs::Blobs;
                $body
            }
            skein_shared::id::Kind::Services => {
                type $entity = skein_shared::services::Services;
                $body
            }
            skein_shared::id::Kind::Mail => {
                type $entity = skein_shared::mail::Mail;
                $body
            }
            skein_shared::id::Kind::Questions => {
                type $entity = skein_shared::questions::Questions;
                $body
            }
            skein_shared::id::Kind::Costs => {
                type $entity = skein_shared::costs::Costs;
                $body
            }
            skein_shared::id::Kind::Settings => {
                type $entity = skein_shared::settings::Settings;
                $body
            }
            skein_shared::id::Kind::Access => {
                type $entity = skein_shared::access::Access;
                $body
            }
            skein_shared::id::Kind::Profiles => {
                type $entity = skein_shared::profiles::Profiles;
                $body
            }
        }
    };
}
