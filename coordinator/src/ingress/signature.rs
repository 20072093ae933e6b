//! Whether a body was signed with the source's secret.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Checks `sha256=<hex>`, an HMAC-SHA256 of the body, in constant time.
pub(super) fn verify(secret: &SecretString, header: &str, body: &[u8]) -> bool {
    let Some(signature) = header.strip_prefix("sha256=").and_then(digest) else { return false };
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else { return false };
    mac.update(body);
    mac.verify_slice(&signature).is_ok()
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        let digit = |letter: u8| char::from(letter).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_of_github_verifies() {
        let secret = SecretString::from("It's a Secret to Everybody");
        let good = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(verify(&secret, good, b"Hello, World!"));
        assert!(verify(&secret, &good.to_uppercase().replace("SHA256", "sha256"), b"Hello, World!"));
        assert!(!verify(&secret, good, b"Hello, World?"));
        assert!(!verify(&SecretString::from("other"), good, b"Hello, World!"));
        assert!(!verify(&secret, good.trim_start_matches("sha256="), b"Hello, World!"));
        assert!(!verify(&secret, &good[..good.len() - 2], b"Hello, World!"));
        assert!(!verify(&secret, "sha256=é", b"Hello, World!"));
    }
}
