//! One key: what it is called, and how it seals.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::SecretString;
use skein_shared::settings::Sealed;
use skein_shared::{Code, Refusal};
use std::io;
use std::sync::Arc;
use uuid::Uuid;

pub(super) const BYTES: usize = 32;

/// AES-256-GCM, with nonces that follow from what is sealed. Cheap to clone.
#[derive(Clone)]
pub(super) struct Key {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    /// As it is written down.
    secret: SecretString,
    cipher: LessSafeKey,
    nonces: hmac::Key,
}

impl Key {
    pub(super) fn fresh() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| io::Error::other("the system gave no randomness for a key of secrets"))?;
        Ok(Self::of(bytes))
    }

    /// Cipher, nonces and name each follow from the secret by themselves.
    pub(super) fn of(bytes: [u8; BYTES]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let derive = |what: &str| hmac::sign(&root, what.as_bytes());
        let cipher = UnboundKey::new(&AES_256_GCM, derive("skein settings cipher").as_ref());
        let name = derive("skein settings name");
        let inner = Inner {
            id: name.as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect(),
            secret: SecretString::from(STANDARD.encode(bytes)),
            cipher: LessSafeKey::new(cipher.expect("an HMAC-SHA-256 has the length of the key")),
            nonces: hmac::Key::new(hmac::HMAC_SHA256, derive("skein settings nonces").as_ref()),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn id(&self) -> &str {
        &self.inner.id
    }

    pub(super) fn secret(&self) -> &SecretString {
        &self.inner.secret
    }

    pub(super) fn seal(&self, request: Uuid, bound: &[u8], text: &str) -> Result<Sealed, Refusal> {
        let nonce = self.nonce(request, bound, text);
        let mut sealed = text.as_bytes().to_vec();
        self.inner
            .cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(bound), &mut sealed)
            .map_err(|_| Refusal::new(Code::TooLarge, "value: it is too long to be sealed; shorten it"))?;
        let text = STANDARD.encode([&nonce[..], &sealed].concat());
        Ok(Sealed { key: self.inner.id.clone(), text })
    }

    pub(super) fn open(&self, bound: &[u8], text: &str) -> Result<SecretString, ()> {
        let mut bytes = STANDARD.decode(text).map_err(drop)?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or(())?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(drop)?;
        let plain = self.inner.cipher.open_in_place(nonce, Aad::from(bound), sealed).map_err(drop)?;
        let plain = std::str::from_utf8(plain).map_err(drop)?;
        Ok(SecretString::from(plain))
    }

    /// As good as a random one for all that is not the same request; a repeated request has the same again.
    fn nonce(&self, request: Uuid, bound: &[u8], text: &str) -> [u8; NONCE_LEN] {
        let mut of = hmac::Context::with_key(&self.inner.nonces);
        of.update(request.as_bytes());
        of.update(&(bound.len() as u64).to_be_bytes());
        of.update(bound);
        of.update(text.as_bytes());
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&of.sign().as_ref()[..NONCE_LEN]);
        nonce
    }
}
