//! The credentials of calls. The secrets are headers of the server record. If a document requires a key
//! in the query or in a cookie, the header of that name is sent there instead.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::schema_converter::RefResolver;

/// Keys that are not sent as headers, by the name under which they are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NonHeaderKeys {
    pub(crate) to_query: BTreeSet<String>,
    pub(crate) to_cookie: BTreeSet<String>,
}

/// A scheme of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecurityScheme {
    pub(crate) id: String,
    /// The header, query parameter or cookie.
    pub(crate) name: String,
    pub(crate) place: KeyLocation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyLocation {
    Header,
    Query,
    Cookie,
}

pub(crate) fn schemes(parts: RefResolver<'_>) -> Vec<SecurityScheme> {
    let all = parts.root.pointer("/components/securitySchemes").and_then(Value::as_object);
    let read = |(id, scheme): (&String, &Value)| {
        let scheme = parts.resolve(scheme, "securitySchemes").unwrap_or(scheme);
        let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, place) = match (text("type"), text("in")) {
            ("apiKey", "query") => (text("name"), KeyLocation::Query),
            ("apiKey", "cookie") => (text("name"), KeyLocation::Cookie),
            ("apiKey", _) => (text("name"), KeyLocation::Header),
            // By certificates: nothing that is said.
            ("mutualTLS", _) => return None,
            _ => ("Authorization", KeyLocation::Header),
        };
        Some(SecurityScheme { id: id.clone(), name: name.to_owned(), place })
    };
    all.into_iter().flatten().filter_map(read).filter(|scheme| !scheme.name.is_empty()).collect()
}

/// The schemes that a call may need: an operation's own, else the document's.
pub(crate) fn operation_schemes<'s>(
    schemes: &'s [SecurityScheme],
    operation: &Value,
    root: &Value,
) -> Vec<&'s SecurityScheme> {
    let wanted = operation.get("security").or_else(|| root.get("security"));
    let alternatives = wanted.and_then(Value::as_array).into_iter().flatten();
    let ids: BTreeSet<&String> =
        alternatives.filter_map(Value::as_object).flat_map(|all| all.keys()).collect();
    schemes.iter().filter(|scheme| ids.contains(&scheme.id)).collect()
}
