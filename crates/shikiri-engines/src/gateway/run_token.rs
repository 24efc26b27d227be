//! The token of one run. It is valid only for the run's gateway and only as long as that exists.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderMap;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use sha2::{Digest as _, Sha256};

/// The user name of the proxy's address. It is not checked.
pub(super) const PROXY_USER: &str = "run";

pub(super) struct RunToken {
    text: String,
    /// Hashes are compared, so that the time of the comparison reveals nothing about the token.
    hash: [u8; 32],
}

impl RunToken {
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut secret = [0_u8; 32];
        getrandom::fill(&mut secret)?;
        let text = hex::encode(secret);
        let hash = Sha256::digest(text.as_bytes()).into();
        Ok(Self { text, hash })
    }

    pub(super) fn reveal(&self) -> &str {
        &self.text
    }

    /// Whether a request for the model API has the token, in either of the API's headers.
    pub(super) fn opens_model_api(&self, headers: &HeaderMap) -> bool {
        let key = headers.get("x-api-key").map(http::HeaderValue::as_bytes);
        let bearer = headers.get(AUTHORIZATION).and_then(|value| after_scheme(value, "bearer"));
        [key, bearer].into_iter().flatten().any(|shown| self.is(shown))
    }

    /// Whether a request to the proxy has the token as its password.
    pub(super) fn opens_proxy(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(PROXY_AUTHORIZATION);
        let shown = shown.and_then(|value| after_scheme(value, "basic"));
        let Some(Ok(pair)) = shown.map(|shown| BASE64.decode(shown)) else { return false };
        let colon = pair.iter().position(|byte| *byte == b':');
        colon.is_some_and(|colon| self.is(&pair[colon + 1..]))
    }

    fn is(&self, shown: &[u8]) -> bool {
        <[u8; 32]>::from(Sha256::digest(shown)) == self.hash
    }
}

/// What follows the scheme of an authorization, if it is this one.
fn after_scheme<'a>(value: &'a http::HeaderValue, scheme: &str) -> Option<&'a [u8]> {
    let bytes = value.as_bytes();
    let (shown, rest) = bytes.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix(b" ")?;
    shown.eq_ignore_ascii_case(scheme.as_bytes()).then(|| rest.trim_ascii())
}
