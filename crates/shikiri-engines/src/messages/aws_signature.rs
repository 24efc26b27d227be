//! AWS Signature Version 4, as far as calls to Bedrock need it: one body, signed as a whole.
//!
//! Our own: two hash functions that are linked anyway, and AWS's published examples to check them
//! by. AWS's crate for it is linked, too (`aws` needs it), but has HTTP types and settings of its own
//! for what are a hundred lines here.

use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode,
};
use sha2::{Digest as _, Sha256};
use shikiri_model::key::SecretToken;
use shikiri_model::time::Timestamp;

/// Everything but letters, digits and `-._~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The keys of one AWS identity.
#[derive(Clone, Debug)]
pub(super) struct AwsKeys {
    pub(super) id: String,
    pub(super) secret: SecretToken,
    /// Of an identity that is assumed for a while.
    pub(super) session_token: Option<SecretToken>,
}

/// What is signed.
pub(super) struct SignatureInput<'a> {
    pub(super) method: &'a str,
    /// As it is sent.
    pub(super) path: &'a str,
    /// As `canonical_query` makes it.
    pub(super) query: &'a str,
    /// In lower case, sorted by name; `host` and `x-amz-date` among them.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) at: Timestamp,
}

impl SignatureInput<'_> {
    /// The value of the header `authorization`.
    pub(super) fn authorization(&self, keys: &AwsKeys) -> String {
        let scope = self.scope();
        let signed = self.signed_headers();
        let text = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            stamp(self.at),
            hex::encode(Sha256::digest(self.canonical().as_bytes()))
        );
        let signature = hex::encode(hmac(&self.signing_key(keys), &text));
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
        let body = hex::encode(Sha256::digest(self.body));
        let (method, query, signed) = (self.method, self.query, self.signed_headers());
        format!("{method}\n{path}\n{query}\n{headers}\n{signed}\n{body}")
    }

    fn signed_headers(&self) -> String {
        self.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }

    fn scope(&self) -> String {
        format!("{}/{}/{}/aws4_request", day(self.at), self.region, self.service)
    }

    fn signing_key(&self, keys: &AwsKeys) -> [u8; 32] {
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
    utf8_percent_encode(part, RESERVED).to_string()
}

/// A query in the form that is signed: each part escaped once, sorted.
pub(super) fn canonical_query(query: &str) -> String {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let mut pairs: Vec<(String, String)> = parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (encoded_once(name), encoded_once(value))
        })
        .collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// What may be escaped already, escaped.
fn encoded_once(part: &str) -> String {
    let decoded: Vec<u8> = percent_decode_str(part).collect();
    percent_encode(&decoded, RESERVED).to_string()
}

fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    // A key of any length is taken: there is nothing to fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
#[path = "aws_signature_tests.rs"]
mod tests;
