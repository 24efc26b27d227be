//! The base address of an API. It is fixed before any call, and no call can leave it.

use serde_json::Value;
use url::Url;

use crate::error::ApiDocumentError;

/// What is known of an API's address besides its document.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiLocation<'a> {
    /// In place of what the document says.
    pub url: Option<&'a str>,
    /// Where the document comes from: its addresses may be relative to that.
    pub document: Option<&'a str>,
}

/// The part that all of an API's addresses begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(Url);

impl BaseUrl {
    fn parse(at: &str, text: &str, document: Option<&str>) -> Result<Self, ApiDocumentError> {
        let wrong = |reason: &str| Err(ApiDocumentError::wrong(at, format!("{text:?} {reason}")));
        let parsed = match document.map(Url::parse) {
            Some(Ok(document)) => document.join(text),
            _ => Url::parse(text),
        };
        let mut url = match parsed {
            Ok(url) => url,
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                return wrong("is no whole address: give the server record a `url`");
            }
            Err(error) => return wrong(&format!("is no address: {error}")),
        };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return wrong("must start with http:// or https:// and a host");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return wrong("must hold no password");
        }
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self(url))
    }

    /// With scheme and host, without a slash at its end.
    pub fn as_str(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }

    pub fn is_same_origin(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin()
    }

    /// The address of a path below it and a query, both encoded. None if that is another place.
    pub(crate) fn join_path(&self, path: &str, query: &str) -> Option<String> {
        if !path.is_empty() && !path.starts_with('/') {
            return None;
        }
        let mut meant = format!("{}{path}", self.as_str());
        // An API without any path is asked at `/`.
        if self.0.path() == "/" && path.is_empty() {
            meant.push('/');
        }
        if !query.is_empty() {
            meant.push('?');
            meant.push_str(query);
        }
        // The address must not change when it is parsed again, such as by resolving `..`.
        let read = Url::parse(&meant).ok()?;
        let is_whole = read.as_str() == meant && read.fragment().is_none();
        let is_here = read.origin() == self.0.origin() && read.query().unwrap_or("") == query;
        (is_whole && is_here).then_some(meant)
    }
}

/// Whether two addresses are of one host, port and scheme.
pub fn is_same_origin(one: &str, other: &str) -> bool {
    match (Url::parse(one), Url::parse(other)) {
        (Ok(one), Ok(other)) => one.origin() == other.origin(),
        _ => false,
    }
}

/// The address of the whole API.
pub(crate) fn document_base_url(
    document: &Value,
    place: ApiLocation<'_>,
) -> Result<BaseUrl, ApiDocumentError> {
    if let Some(url) = place.url {
        return BaseUrl::parse("url", url, None);
    }
    let Some(text) = first(document, "servers")? else {
        // By the specification, an API without servers is where its document is.
        let Some(from) = place.document else {
            let reason = "the document names no server: give the server record a `url`";
            return Err(ApiDocumentError::wrong("servers", reason));
        };
        return BaseUrl::parse("servers", "/", Some(from));
    };
    BaseUrl::parse("servers/0/url", &text, place.document)
}

/// The address of a path or an operation that names its own; None if it has none.
pub(crate) fn part_base_url(
    part: &Value,
    at: &str,
    place: ApiLocation<'_>,
) -> Result<Option<BaseUrl>, ApiDocumentError> {
    match first(part, at)? {
        Some(text) if place.url.is_none() => BaseUrl::parse(at, &text, place.document).map(Some),
        _ => Ok(None),
    }
}

/// The first server's address, its variables at their defaults.
fn first(part: &Value, at: &str) -> Result<Option<String>, ApiDocumentError> {
    let Some(server) = part.get("servers").and_then(|servers| servers.get(0)) else {
        return Ok(None);
    };
    let Some(template) = server.get("url").and_then(Value::as_str) else {
        return Err(ApiDocumentError::wrong(at, "the first server has no url"));
    };
    let mut text = template.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten()
    {
        let default = variable.get("default").and_then(Value::as_str).unwrap_or_default();
        text = text.replace(&format!("{{{name}}}"), default);
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base(document: Value, url: Option<&str>, from: Option<&str>) -> Result<String, String> {
        let found = document_base_url(&document, ApiLocation { url, document: from });
        found.map(|base| base.as_str().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_record_has_the_last_word_then_the_document_then_where_it_came_from() {
        let named =
            json!({ "servers": [{ "url": "https://api.test/v3/" }, { "url": "https://b" }] });
        let relative = json!({ "servers": [{ "url": "/v3" }] });
        let from = Some("https://docs.test/specs/pets.yaml");
        assert_eq!(base(named.clone(), Some("http://x:1/y"), from).unwrap(), "http://x:1/y");
        assert_eq!(base(named, None, from).unwrap(), "https://api.test/v3");
        assert_eq!(base(relative.clone(), None, from).unwrap(), "https://docs.test/v3");
        assert_eq!(base(json!({}), None, from).unwrap(), "https://docs.test");
        assert!(base(relative, None, None).unwrap_err().contains("give the server record a `url`"));
        assert!(base(json!({}), None, None).unwrap_err().contains("names no server"));
        let variables = json!({ "servers": [{ "url": "https://{env}.test/{v}", "variables": {
            "env": { "default": "dev" }, "v": { "default": "v1" } } }] });
        assert_eq!(base(variables, None, None).unwrap(), "https://dev.test/v1");
        for bad in
            ["ftp://a", "file:///etc/passwd", "https://u:p@a.test/", "http://", "javascript:x"]
        {
            assert!(base(json!({ "servers": [{ "url": bad }] }), None, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_that_would_be_read_as_another_is_none() {
        let base = BaseUrl::parse("", "https://api.test/v3", None).unwrap();
        assert_eq!(base.join_path("/pets/1", "a=b").unwrap(), "https://api.test/v3/pets/1?a=b");
        assert_eq!(base.join_path("", "").unwrap(), "https://api.test/v3");
        for bad in [
            "/../admin",
            "/%2e%2e/admin",
            "/a/./b",
            "@evil.test",
            ":81/x",
            "/a\\b",
            "/a b",
            "/#x",
            "/a?b",
        ] {
            assert_eq!(base.join_path(bad, ""), None, "{bad}");
        }
        let root = BaseUrl::parse("", "https://api.test", None).unwrap();
        assert_eq!(root.join_path("", "").unwrap(), "https://api.test/");
        assert_eq!(root.join_path("@evil.test/", ""), None);
        assert_eq!(root.join_path(".evil.test/", ""), None);
    }
}
