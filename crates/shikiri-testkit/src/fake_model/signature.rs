//! Checks a request's signature as AWS does (Signature Version 4), by its published rules.

use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};

use super::request::ModelRequest;

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Debug)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
}

impl Keys {
    pub(super) fn verify(&self, request: &ModelRequest, body: &[u8]) -> Result<(), String> {
        let given = request.header("authorization").ok_or("there is no signature")?;
        let given = given.strip_prefix("AWS4-HMAC-SHA256 ").ok_or("of another kind")?;
        let part = |name: &str| {
            let parts = given.split(',').map(str::trim);
            parts.filter_map(|part| part.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
        };
        let credential = part("Credential").ok_or("no credential")?;
        let (id, scope) = credential.split_once('/').ok_or("no scope")?;
        if id != self.id {
            return Err("the key is unknown".to_owned());
        }
        let signed = part("SignedHeaders").ok_or("no signed headers")?;
        for needed in ["host", "x-amz-date"] {
            if !signed.split(';').any(|name| name == needed) {
                return Err(format!("{needed} is not signed"));
            }
        }
        let date = request.header("x-amz-date").ok_or("no date")?;
        let expected = self.signature(request, body, signed, scope, date)?;
        match part("Signature") == Some(expected.as_str()) {
            true => Ok(()),
            false => Err("the signature does not match".to_owned()),
        }
    }

    fn signature(
        &self,
        request: &ModelRequest,
        body: &[u8],
        signed: &str,
        scope: &str,
        date: &str,
    ) -> Result<String, String> {
        let mut headers = String::new();
        for name in signed.split(';') {
            let value = request.header(name).ok_or(format!("{name} is missing"))?;
            headers += &format!("{name}:{}\n", value.trim());
        }
        let path: Vec<_> = request.path.split('/').map(encoded).collect();
        let canonical = format!(
            "{}\n{}\n\n{headers}\n{signed}\n{}",
            request.method,
            path.join("/"),
            hex::encode(Sha256::digest(body))
        );
        let text = format!(
            "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
            hex::encode(Sha256::digest(canonical.as_bytes()))
        );
        let start = format!("AWS4{}", self.secret).into_bytes();
        let key = scope.split('/').fold(start, |key, part| hmac(&key, part));
        Ok(hex::encode(hmac(&key, &text)))
    }
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn encoded(part: &str) -> String {
    utf8_percent_encode(part, RESERVED).to_string()
}
