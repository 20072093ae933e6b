//! Tokens of an OpenID provider, as the settings map them to agents.

mod keys;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};
use skein_shared::Refusal;
use skein_shared::id::{InstanceId, Name};
use skein_shared::time::Timestamp;
use url::Url;
use uuid::Uuid;

use super::credential::Credential;
use super::principal::{Principal, Role};
use super::rights::Rights;
use super::token::{LEEWAY, reason, refuse};
use crate::https;
use keys::Keys;

/// Algorithms with a public key. With any other, whoever verifies could sign as well.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// An OpenID provider and whom its tokens speak for: `[[auth.issuer]]` of the settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// Its address, as its tokens name it in `iss`.
    pub issuer: String,
    /// What those for Skein name in `aud`.
    pub audience: String,
    /// Where its keys are; left out, it is asked.
    pub jwks: Option<Url>,
    /// The swarm of all of them, or of those whose claim names none.
    pub swarm: Option<Name>,
    pub swarm_claim: Option<String>,
    /// The claim with the agent's name; without it the name is made of `sub`.
    pub name_claim: Option<String>,
    /// The role of those of whom `roles` does not speak; left out, they are turned away.
    pub role: Option<Role>,
    /// The claim with roles or groups, a text or a list, and what its values mean.
    pub role_claim: Option<String>,
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
}

/// All issuers besides Skein itself. Cheap to clone.
#[derive(Clone, Default)]
pub struct Issuers {
    all: Arc<[Issuer]>,
}

struct Issuer {
    trust: Trust,
    keys: Arc<Keys>,
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|issuer| &issuer.trust.issuer)).finish()
    }
}

impl Issuers {
    /// # Errors
    /// When the system trusts nobody's certificates.
    pub fn new(trusts: Vec<Trust>) -> Result<Self, String> {
        let all = trusts.into_iter().map(|trust| {
            let address = trust.jwks.clone().map_or_else(|| Url::parse(&trust.issuer), Ok);
            let address = address.map_err(|error| format!("`{}`: {error}", trust.issuer))?;
            let client = https::client(https::trusted(&address)?);
            let keys = Arc::new(Keys::new(trust.issuer.clone(), trust.jwks.clone(), client));
            Ok(Issuer { trust, keys })
        });
        Ok(Self { all: all.collect::<Result<Vec<_>, String>>()?.into() })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|issuer| issuer.trust.issuer.as_str())
    }

    /// Says all that the token says, if it is of one of them.
    ///
    /// # Errors
    /// `unauthenticated`, with the reason; `unavailable` when its issuer's keys cannot be fetched.
    pub async fn read(&self, text: &str, now: Timestamp) -> Option<Result<Arc<Credential>, Refusal>> {
        if self.all.is_empty() {
            return None;
        }
        let named = issuer_of(text)?;
        let issuer = self.all.iter().find(|issuer| issuer.trust.issuer == named)?;
        Some(issuer.read(text, now).await)
    }
}

/// What the token says of its issuer, before anything of it is believed.
fn issuer_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        iss: String,
    }
    let claims = URL_SAFE_NO_PAD.decode(text.split('.').nth(1)?).ok()?;
    Some(serde_json::from_slice::<Named>(&claims).ok()?.iss)
}

impl Issuer {
    async fn read(&self, text: &str, now: Timestamp) -> Result<Arc<Credential>, Refusal> {
        let header = jsonwebtoken::decode_header(text).map_err(|_| refuse("the token is not a JWT"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refuse("the token is signed by an algorithm that is not taken"));
        }
        let ring = self.keys.ring(header.kid.as_deref()).await?;
        if let Some(known) = ring.verified.get(text) {
            known.in_time(now)?;
            return Ok(known);
        }
        let (algorithms, key) = ring
            .find(header.kid.as_deref())
            .ok_or_else(|| refuse("the token was signed with a key that its issuer does not show"))?;
        if !algorithms.contains(&header.alg) {
            return Err(refuse("the token is signed by an algorithm that its key is not for"));
        }
        let mut rules = Validation::new(header.alg);
        rules.set_audience(&[&self.trust.audience]);
        rules.set_issuer(&[&self.trust.issuer]);
        rules.set_required_spec_claims(&["aud", "iss", "sub", "exp"]);
        rules.validate_exp = false;
        let claims = jsonwebtoken::decode::<Map<String, Value>>(text, key, &rules)
            .map_err(|error| refuse(reason(&error)))?
            .claims;
        let credential = self.trust.credential(&claims, text)?;
        begun(&claims, now)?;
        credential.in_time(now)?;
        Ok(ring.verified.insert(text, credential))
    }
}

fn begun(claims: &Map<String, Value>, now: Timestamp) -> Result<(), Refusal> {
    let begins = claims.get("nbf").and_then(Value::as_f64).unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of this age are whole numbers")]
    if begins * 1000.0 > (now + LEEWAY).millis() as f64 {
        return Err(refuse("the token does not hold yet"));
    }
    Ok(())
}

impl Trust {
    fn credential(&self, claims: &Map<String, Value>, text: &str) -> Result<Credential, Refusal> {
        let said = |claim: &str| claims.get(claim).and_then(Value::as_str);
        let lacks = |what: &str| refuse(&format!("the token does not say {what}, as the settings want it"));
        let subject = said("sub").ok_or_else(|| lacks("whose it is"))?;
        let space = Uuid::new_v5(&Uuid::NAMESPACE_URL, self.issuer.as_bytes());
        let agent = Uuid::new_v5(&space, subject.as_bytes());
        let swarm = match (&self.swarm_claim, &self.swarm) {
            (Some(claim), usual) => match said(claim) {
                Some(name) => Name::parse(name).map_err(|_| lacks("a swarm's name"))?,
                None => usual.clone().ok_or_else(|| lacks("the swarm"))?,
            },
            (None, usual) => usual.clone().ok_or_else(|| lacks("the swarm"))?,
        };
        let agent_name = match &self.name_claim {
            Some(claim) => {
                said(claim).and_then(|name| Name::parse(name).ok()).ok_or_else(|| lacks("a name"))?
            }
            None => Name::parse(&format!("agent-{}", agent.as_simple())).map_err(|_| lacks("a name"))?,
        };
        let role = self.role_of(claims).ok_or_else(|| lacks("a role"))?;
        let scopes = said("scope").map(Rights::named_in).filter(|rights| !rights.are_none());
        let seconds = |claim: &str| claims.get(claim).and_then(Value::as_f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let moment = |seconds: f64| Timestamp((seconds.max(0.0) * 1000.0) as u64);
        let id = said("jti").unwrap_or(text);
        Ok(Credential {
            who: Principal {
                swarm,
                agent,
                agent_name,
                // Its tokens come and go; what it holds stays.
                instance: InstanceId(agent.to_string()),
                managed: false,
                role,
                rights: scopes.unwrap_or_default(),
                view: None,
            },
            id: Uuid::new_v5(&space, id.as_bytes()),
            family: None,
            first: None,
            client: None,
            renewable: None,
            family_ends: None,
            actor: None,
            for_console: false,
            issued: seconds("iat").map(moment).unwrap_or_default(),
            since: seconds("iat").map(moment).unwrap_or_default(),
            expires: seconds("exp").map(moment).ok_or_else(|| lacks("when it ends"))?,
        })
    }

    /// The widest of the roles that the claim's values stand for.
    fn role_of(&self, claims: &Map<String, Value>) -> Option<Role> {
        let said = self.role_claim.as_ref().and_then(|claim| claims.get(claim));
        let values: Vec<&str> = match said {
            Some(Value::String(one)) => one.split_ascii_whitespace().collect(),
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let meant: Vec<Role> = values.iter().filter_map(|value| self.roles.get(*value).copied()).collect();
        [Role::Operator, Role::Lead, Role::Worker, Role::Observer]
            .into_iter()
            .find(|role| meant.contains(role))
            .or(self.role)
    }
}

#[cfg(test)]
pub(crate) mod tests;
