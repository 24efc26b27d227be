//! How calls prove who makes them. The secrets are headers of the server record; where a document
//! wants a key in the query or in a cookie, the header of that name is sent there instead.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::schema::Parts;

/// Keys that are not sent as headers, by the name under which they are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) to_query: BTreeSet<String>,
    pub(crate) to_cookie: BTreeSet<String>,
}

/// A scheme of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) id: String,
    /// The header, query parameter or cookie.
    pub(crate) name: String,
    pub(crate) place: Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Header,
    Query,
    Cookie,
}

pub(crate) fn schemes(parts: Parts<'_>) -> Vec<Scheme> {
    let all = parts.root.pointer("/components/securitySchemes").and_then(Value::as_object);
    let read = |(id, scheme): (&String, &Value)| {
        let scheme = parts.resolve(scheme, "securitySchemes").unwrap_or(scheme);
        let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, place) = match (text("type"), text("in")) {
            ("apiKey", "query") => (text("name"), Sent::Query),
            ("apiKey", "cookie") => (text("name"), Sent::Cookie),
            ("apiKey", _) => (text("name"), Sent::Header),
            // By certificates: nothing that is said.
            ("mutualTLS", _) => return None,
            _ => ("Authorization", Sent::Header),
        };
        Some(Scheme { id: id.clone(), name: name.to_owned(), place })
    };
    all.into_iter().flatten().filter_map(read).filter(|scheme| !scheme.name.is_empty()).collect()
}

/// The schemes that a call may need: an operation's own, else the document's.
pub(crate) fn of_operation<'s>(
    schemes: &'s [Scheme],
    operation: &Value,
    root: &Value,
) -> Vec<&'s Scheme> {
    let wanted = operation.get("security").or_else(|| root.get("security"));
    let alternatives = wanted.and_then(Value::as_array).into_iter().flatten();
    let ids: BTreeSet<&String> =
        alternatives.filter_map(Value::as_object).flat_map(|all| all.keys()).collect();
    schemes.iter().filter(|scheme| ids.contains(&scheme.id)).collect()
}
