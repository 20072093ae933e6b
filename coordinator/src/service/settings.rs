//! Settings of the swarm, its agents and its repositories. Secrets are sealed here before an entity sees them, and
//! opened here for those who may read them.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use skein_shared::caller::Caller;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::settings::{
    Command, Exchange, Held, Place, Reply, Scope, Sealed, Set, Setting, Settings, Wanted, fits,
};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::entity::Request;

/// Secrets that are sealed anew in one commit.
const PAGE: usize = 100;

/// What is said of the secrets that a node keeps by itself.
const KEPT: &str = "kept by the coordinator, which changes it by itself";

/// What is to be kept, and where.
#[derive(Clone)]
pub struct Wish {
    pub place: Place,
    pub value: String,
    pub secret: bool,
    pub description: Option<String>,
}

/// Which settings are wanted.
#[derive(Clone, Debug)]
pub enum Look {
    /// As they stand.
    Raw(Wanted),
    /// What applies to an agent in a repository.
    Resolved { agent: Option<Uuid>, repo: Option<Uuid>, key: Option<String> },
}

/// Settings as the caller may see them.
#[derive(Clone, Debug)]
pub struct Shown {
    pub settings: Vec<Value>,
    /// Secrets that the caller asked for and may not read.
    pub withheld: usize,
    /// Secrets that no key opens. Each says why.
    pub unreadable: usize,
}

/// How the secrets of a swarm stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resealed {
    pub exchanged: usize,
    /// No key opens them, so they stay as they are.
    pub unreadable: usize,
}

impl Service {
    /// Makes a setting, or changes the one in its place. Says whether it is new.
    ///
    /// # Errors
    /// `forbidden` for a place that is not the caller's; `invalid_argument` and `too_large` for what cannot be kept;
    /// `wrong_state` for a secret without a key.
    pub async fn set_setting(
        &self,
        who: &Principal,
        request: Uuid,
        wish: Wish,
    ) -> Result<(Value, bool), Refusal> {
        policy::require_arranging(who)?;
        let Wish { place, value, secret, description } = wish;
        fits(&value)?;
        let value = match secret {
            true => Held::Sealed(self.vault.seal(request, &bound(&who.swarm, &place), &value)?),
            false => Held::Plain(value),
        };
        let set = Set { by: self.caller(who).await?, place, value, description };
        let set = Command::Set(Box::new(set));
        match self.change::<Settings>(&who.entity(Kind::Settings), request, set).await? {
            Reply::Set { setting, new } => Ok((setting, new)),
            _ => Err(unexpected("the settings")),
        }
    }

    /// Deletes a setting, and says which it was.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for one that is not the caller's.
    pub async fn delete_setting(&self, who: &Principal, request: Uuid, id: Uuid) -> Result<Place, Refusal> {
        policy::require_arranging(who)?;
        let delete = Command::Delete { by: self.caller(who).await?, id };
        match self.change::<Settings>(&who.entity(Kind::Settings), request, delete).await? {
            Reply::Deleted(place) => Ok(place),
            _ => Err(unexpected("the settings")),
        }
    }

    /// Settings, by key. Secrets are masked unless the caller asks for them and may read them: the lead all, an agent
    /// its own.
    ///
    /// # Errors
    /// When the settings cannot be asked.
    pub async fn settings(&self, who: &Principal, look: Look, secrets: bool) -> Result<Shown, Refusal> {
        policy::require(who, Right::Read)?;
        let command = match look {
            Look::Raw(wanted) => Command::List(wanted),
            Look::Resolved { agent, repo, key } => Command::Resolve { agent, repo, key },
        };
        let found = self.settings_of(&who.swarm, command).await?;
        let leads = secrets && self.caller(who).await?.lead;
        let works = policy::may(who, Right::Work);
        let may = |scope: Scope| leads || (works && scope == Scope::Agent(who.agent));
        let mut shown = Shown { settings: Vec::with_capacity(found.len()), withheld: 0, unreadable: 0 };
        for setting in found {
            let mut view = setting.masked();
            if let (Held::Sealed(sealed), true) = (&setting.value, secrets) {
                match may(setting.place.scope).then(|| self.opened(&who.swarm, &setting, sealed)) {
                    None => shown.withheld += 1,
                    Some(Ok(text)) => view["value"] = text,
                    Some(Err(problem)) => {
                        shown.unreadable += 1;
                        view["problem"] = json!(problem);
                    }
                }
            }
            shown.settings.push(view);
        }
        Ok(shown)
    }

    /// How many secrets of all swarms each key has sealed, by its id.
    ///
    /// # Errors
    /// When a swarm's settings cannot be asked.
    pub async fn sealed_by(&self) -> Result<BTreeMap<String, usize>, Refusal> {
        let mut counts = BTreeMap::new();
        for swarm in self.entities().swarms().await? {
            for setting in self.settings_of(&swarm, Command::List(Wanted::default())).await? {
                if let Held::Sealed(sealed) = setting.value {
                    *counts.entry(sealed.key).or_default() += 1;
                }
            }
        }
        Ok(counts)
    }

    /// Seals the secrets of all swarms with the first key, each that another one has sealed.
    ///
    /// # Errors
    /// When there is no key, or a swarm's settings cannot be changed. What was done stays done.
    pub async fn reseal(&self) -> Result<Resealed, Refusal> {
        let (keys, _) = self.vault.keys()?;
        let mut all = Resealed::default();
        for swarm in self.entities().swarms().await? {
            let key = EntityKey::of(Kind::Settings, &swarm);
            let mut exchanges = Vec::new();
            for setting in self.settings_of(&swarm, Command::List(Wanted::default())).await? {
                let Held::Sealed(before) = &setting.value else { continue };
                if keys.first() == Some(&before.key) {
                    continue;
                }
                let bound = bound(&swarm, &setting.place);
                let Ok(text) = self.vault.unseal(&bound, before) else {
                    all.unreadable += 1;
                    continue;
                };
                let after = self.vault.seal(Uuid::now_v7(), &bound, text.expose_secret())?;
                exchanges.push(Exchange { id: setting.id, before: before.clone(), after });
            }
            for page in exchanges.chunks(PAGE) {
                let reseal = Command::Reseal(page.to_vec());
                let request = Request { keep_reply: false, ..Request::once(Uuid::now_v7()) };
                match self.entities().ask::<Settings>(&key, request, reseal).await? {
                    Reply::Resealed(exchanged) => all.exchanged += exchanged,
                    _ => return Err(unexpected("the settings")),
                }
            }
        }
        Ok(all)
    }

    /// The keys with how many secrets each has sealed.
    ///
    /// # Errors
    /// Those of [`Self::sealed_by`].
    pub async fn secret_keys(&self) -> Result<Vec<Value>, Refusal> {
        let (keys, next) = self.vault.keys()?;
        let mut counts = self.sealed_by().await?;
        let mut rows = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            let state = if place == 0 { "seals" } else { "opens" };
            rows.push(json!({ "key": key, "state": state, "secrets": counts.remove(key).unwrap_or(0) }));
        }
        if let Some(key) = next {
            let secrets = counts.remove(&key).unwrap_or(0);
            rows.push(json!({ "key": key, "state": "waits", "secrets": secrets }));
        }
        let missing = |(key, secrets)| json!({ "key": key, "state": "missing", "secrets": secrets });
        rows.extend(counts.into_iter().map(missing));
        Ok(rows)
    }

    /// Adds a key that opens from now on, for the other coordinators to be given before it seals.
    ///
    /// # Errors
    /// `wrong_state` when one waits already, or the keys are the environment's.
    pub fn add_secret_key(&self) -> Result<Value, Refusal> {
        Ok(json!({ "key": self.vault.add()?, "state": "waits" }))
    }

    /// Seals all secrets with a new key: the one that waits, else one that is made; coordinators that share a store
    /// have to be given it before. Keys of the environment are changed there, so only the sealing is done.
    ///
    /// # Errors
    /// `wrong_state` when the other coordinators could not open what the new key seals; those of [`Self::reseal`].
    pub async fn rotate_secrets(&self) -> Result<Value, Refusal> {
        if !self.vault.is_given() {
            let (_, next) = self.vault.keys()?;
            if next.is_none() && self.entities().cluster().is_some() {
                return Err(Refusal::new(
                    Code::WrongState,
                    "the other coordinators need the new key first: run `skein secrets add`, copy secrets.json into the data folder of each, and rotate then",
                ));
            }
            if next.is_none() {
                self.vault.add()?;
            }
            self.vault.advance()?;
        }
        let (keys, _) = self.vault.keys()?;
        let Resealed { exchanged, unreadable } = self.reseal().await?;
        Ok(json!({ "key": keys.first(), "sealedAnew": exchanged, "unreadable": unreadable }))
    }

    /// Forgets the keys that seal nothing any more, after a last look that they do not.
    ///
    /// # Errors
    /// `wrong_state` while a secret needs one of them, and when somebody rotates meanwhile; those of [`Self::reseal`].
    pub async fn drop_old_keys(&self) -> Result<Value, Refusal> {
        let (keys, _) = self.vault.keys()?;
        self.reseal().await?;
        let counts = self.sealed_by().await?;
        if let Some(needed) = keys.iter().skip(1).find(|key| counts.contains_key(*key)) {
            return Err(Refusal::new(
                Code::WrongState,
                format!(
                    "the key {needed} still seals secrets, which changed meanwhile or cannot be read; set those anew and drop it then"
                ),
            ));
        }
        Ok(json!({ "dropped": self.vault.forget_old(&keys)? }))
    }

    /// A secret that the node itself keeps for a swarm, if it is there.
    ///
    /// # Errors
    /// When the settings cannot be asked, or no key opens it.
    pub async fn kept_secret(&self, swarm: &Name, key: &str) -> Result<Option<SecretString>, Refusal> {
        let place = Place { key: key.to_owned(), scope: Scope::Global };
        let all = self.settings_of(swarm, Command::List(Wanted::default())).await?;
        let Some(setting) = all.into_iter().find(|setting| setting.place == place) else { return Ok(None) };
        match setting.value {
            Held::Plain(text) => Ok(Some(SecretString::from(text))),
            Held::Sealed(sealed) => {
                let text = self.vault.unseal(&bound(swarm, &place), &sealed);
                text.map(Some).map_err(|problem| {
                    Refusal::new(Code::WrongState, format!("the secret `{key}` cannot be opened: {problem}"))
                })
            }
        }
    }

    /// Keeps a secret for a swarm, in place of the one that there was.
    ///
    /// # Errors
    /// `wrong_state` without a key that seals it.
    pub async fn keep_secret(&self, swarm: &Name, key: &str, value: &SecretString) -> Result<(), Refusal> {
        let place = Place { key: key.to_owned(), scope: Scope::Global };
        let request = Uuid::now_v7();
        let sealed = self.vault.seal(request, &bound(swarm, &place), value.expose_secret())?;
        let by = Caller { agent: None, lead: true };
        let set = Set { by, place, value: Held::Sealed(sealed), description: Some(KEPT.to_owned()) };
        let settings = EntityKey::of(Kind::Settings, swarm);
        self.change::<Settings>(&settings, request, Command::Set(Box::new(set))).await.map(|_| ())
    }

    fn opened(&self, swarm: &Name, setting: &Setting, sealed: &Sealed) -> Result<Value, String> {
        let text = self.vault.unseal(&bound(swarm, &setting.place), sealed)?;
        Ok(json!(text.expose_secret()))
    }

    async fn settings_of(&self, swarm: &Name, command: Command) -> Result<Vec<Setting>, Refusal> {
        match self.ask::<Settings>(&EntityKey::of(Kind::Settings, swarm), command).await? {
            Reply::Settings(settings) => Ok(settings),
            _ => Err(unexpected("the settings")),
        }
    }
}

/// Where a secret belongs: whoever puts it elsewhere in the store gets nothing from it.
fn bound(swarm: &Name, place: &Place) -> Vec<u8> {
    json!([swarm, place.scope, place.key]).to_string().into_bytes()
}
