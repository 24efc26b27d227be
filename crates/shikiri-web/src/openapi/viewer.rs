//! The page at `/docs` and its files. A viewer made by others shows `/openapi.json`; `viewer/README.md`
//! says where it comes from and how it is replaced, `docs/decisions/0025-api-page.md` why it is this one.

use std::sync::OnceLock;

use bytes::Bytes;

pub(crate) const PAGE: &str = include_str!("../../viewer/page.html");
pub(crate) const START_SCRIPT: &str = include_str!("../../viewer/start.js");

/// Nothing is loaded from elsewhere, and no script runs that is not a file of this server. The viewer
/// makes style elements, so inline styles are allowed.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const GZIP: &[u8] = include_bytes!("../../viewer/scalar-1.72.1.js.gz");
/// They begin with the first digits of the script's SHA-256.
const GZIP_ETAG: &str = "\"bf091006bdc3af60-gzip\"";
const PLAIN_ETAG: &str = "\"bf091006bdc3af60\"";
/// `gzip -n` writes a head of this length, without a file name, and a checksum with the length at the end.
const GZIP_HEAD: usize = 10;
const GZIP_END: usize = 8;

/// The entity tag of the script: compressed and plain are two representations.
pub(crate) fn script_etag(is_gzip: bool) -> &'static str {
    if is_gzip { GZIP_ETAG } else { PLAIN_ETAG }
}

/// The script. None if the embedded file is damaged, which a test excludes.
pub(crate) fn script(is_gzip: bool) -> Option<Bytes> {
    if is_gzip { Some(Bytes::from_static(GZIP)) } else { decompressed() }
}

/// The script as it was published, for a client that does not take gzip. Decompressed once: such
/// clients are rare, and the script is large.
fn decompressed() -> Option<Bytes> {
    static SCRIPT: OnceLock<Option<Bytes>> = OnceLock::new();
    let decompress = || {
        let deflated = GZIP.get(GZIP_HEAD..GZIP.len().checked_sub(GZIP_END)?)?;
        miniz_oxide::inflate::decompress_to_vec(deflated).ok().map(Bytes::from)
    };
    SCRIPT.get_or_init(decompress).clone()
}

/// Whether an `Accept-Encoding` header takes gzip. Without the header it is not sent: a client that
/// does not ask may not decompress.
pub(crate) fn accepts_gzip(accept_encoding: &str) -> bool {
    let quality = |name: &str| {
        let mut found = None;
        for item in accept_encoding.split(',') {
            let mut parts = item.split(';').map(str::trim);
            if parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(name)) {
                let weight = parts.find_map(|part| part.strip_prefix("q="));
                found = Some(weight.map_or(1.0, |text| text.parse().unwrap_or(0.0)));
            }
        }
        found
    };
    quality("gzip").or_else(|| quality("*")).is_some_and(|weight: f32| weight > 0.0)
}

/// Whether an `If-None-Match` header names this tag.
pub(crate) fn names_etag(if_none_match: &str, etag: &str) -> bool {
    if_none_match
        .split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_only_where_it_is_taken() {
        for taken in
            ["gzip", "gzip, deflate, br, zstd", "br;q=1.0, GZIP;q=0.5", "*", "identity, *;q=0.1"]
        {
            assert!(accepts_gzip(taken), "{taken}");
        }
        for refused in
            ["", "identity", "br", "gzip;q=0", "gzip; q=0.0, *", "*;q=0", "xgzip", "gzip;q=x"]
        {
            assert!(!accepts_gzip(refused), "{refused}");
        }
    }

    #[test]
    fn a_tag_is_known_in_a_list_and_as_a_weak_one() {
        let tag = script_etag(true);
        for known in [tag.to_owned(), format!("W/{tag}"), format!("\"a\", {tag}"), "*".to_owned()] {
            assert!(names_etag(&known, tag), "{known}");
        }
        for other in ["", "\"a\"", script_etag(false), "bf091006bdc3af60-gzip"] {
            assert!(!names_etag(other, tag), "{other}");
        }
    }
}
