//! AWS Signature Version 4, as far as calls to Bedrock need it: one body, no query.
//!
//! Our own, because AWS's crate for it brings twenty others and its own HTTP types; this is two
//! hash functions that are linked anyway, and AWS's published examples to check them by.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use shikiri_model::key::Secret;
use shikiri_model::time::Timestamp;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The keys of one AWS identity.
#[derive(Clone, Debug)]
pub struct Keys {
    pub id: String,
    pub secret: Secret,
    /// Of an identity that is assumed for a while.
    pub session_token: Option<Secret>,
}

/// What is signed.
pub(super) struct Unsigned<'a> {
    pub(super) method: &'a str,
    /// As it is sent.
    pub(super) path: &'a str,
    /// In lower case, sorted by name; `host` and `x-amz-date` among them.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) at: Timestamp,
}

impl Unsigned<'_> {
    /// The value of the header `authorization`.
    pub(super) fn authorization(&self, keys: &Keys) -> String {
        let scope = self.scope();
        let signed = self.signed_headers();
        let text = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            stamp(self.at),
            hex(&Sha256::digest(self.canonical().as_bytes()))
        );
        let signature = hex(&hmac(&self.signing_key(keys), &text));
        let id = &keys.id;
        format!(
            "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
    }

    fn canonical(&self) -> String {
        // Every part of a path is encoded once more than it is sent, except for S3.
        let path = self.path.split('/').map(encoded).collect::<Vec<_>>().join("/");
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let body = hex(&Sha256::digest(self.body));
        format!("{}\n{path}\n\n{headers}\n{}\n{body}", self.method, self.signed_headers())
    }

    fn signed_headers(&self) -> String {
        self.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }

    fn scope(&self) -> String {
        format!("{}/{}/{}/aws4_request", day(self.at), self.region, self.service)
    }

    fn signing_key(&self, keys: &Keys) -> [u8; 32] {
        let secret = format!("AWS4{}", keys.secret.reveal());
        let day = hmac(secret.as_bytes(), &day(self.at));
        hmac(&hmac(&hmac(&day, self.region), self.service), "aws4_request")
    }
}

/// The value of the header `x-amz-date`: `20150830T123600Z`.
pub(super) fn stamp(at: Timestamp) -> String {
    // 2015-08-30T12:36:00.000Z without its marks and its milliseconds.
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    seconds.chars().filter(|c| !matches!(c, '-' | ':')).chain(['Z']).collect()
}

fn day(at: Timestamp) -> String {
    stamp(at).chars().take(8).collect()
}

/// A part of a path, with everything escaped that has a meaning anywhere.
pub(super) fn encoded(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let each = part.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}

fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    // A key of any length is taken: there is nothing to fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "sign_tests.rs"]
mod tests;
