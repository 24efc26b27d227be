//! Values as parts of a URL, in the styles that OpenAPI names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

/// How a query parameter is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryStyle {
    /// `a=1&a=2`, or `a=1,2` if not exploded.
    Form,
    /// `a=1%202`
    Space,
    /// `a=1|2`
    Pipe,
    /// `a[b]=1`
    DeepObject,
    /// The whole value as JSON.
    Json,
}

/// Everything but letters, digits and `-._~`.
pub(crate) const RESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A simple value as text; lists and maps are JSON, there being no better way.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A value in a path, in the style `simple`: parts are joined by commas.
pub(crate) fn in_path(value: &Value, explode: bool) -> String {
    let parts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(|item| percent_encode(&text(item))).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, item)| {
                let between = if explode { '=' } else { ',' };
                format!("{}{between}{}", percent_encode(key), percent_encode(&text(item)))
            })
            .collect(),
        simple => vec![percent_encode(&text(simple))],
    };
    parts.join(",")
}

/// A value in a query: pairs that are encoded already.
pub(crate) fn in_query(name: &str, value: &Value, style: QueryStyle, explode: bool) -> Vec<String> {
    let pair =
        |name: &str, value: &str| format!("{}={}", percent_encode(name), percent_encode(value));
    let joined = |parts: &[String], by: &str| {
        let parts: Vec<String> = parts.iter().map(|part| percent_encode(part)).collect();
        vec![format!("{}={}", percent_encode(name), parts.join(by))]
    };
    let between = match style {
        QueryStyle::Space => "%20",
        QueryStyle::Pipe => "%7C",
        _ => ",",
    };
    match (value, style) {
        (_, QueryStyle::Json) => vec![pair(name, &value.to_string())],
        (Value::Array(items), _) if explode => {
            items.iter().map(|item| pair(name, &text(item))).collect()
        }
        (Value::Array(items), _) => joined(&items.iter().map(text).collect::<Vec<_>>(), between),
        (Value::Object(fields), QueryStyle::DeepObject) => fields
            .iter()
            .flat_map(|(key, value)| in_query(&format!("{name}[{key}]"), value, style, true))
            .collect(),
        (Value::Object(fields), _) if explode => {
            fields.iter().map(|(key, value)| pair(key, &text(value))).collect()
        }
        (Value::Object(fields), _) => {
            let parts = fields.iter().flat_map(|(key, value)| [key.clone(), text(value)]);
            joined(&parts.collect::<Vec<_>>(), between)
        }
        (simple, _) => vec![pair(name, &text(simple))],
    }
}

/// Whether a text would name another folder wherever it is decoded, once or more often.
pub(crate) fn is_path_traversal(value: &str) -> bool {
    let mut text = value.to_owned();
    for _ in 0..4 {
        let is_step = |part: &str| matches!(part, "." | "..");
        if text.split(['/', '\\', ';']).any(is_step) || text.contains(char::is_control) {
            return true;
        }
        let decoded = percent_decode(&text);
        if decoded == text {
            return false;
        }
        text = decoded;
    }
    // A value that is encoded five times is suspicious.
    true
}

pub(crate) fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_style_is_written_as_the_specification_shows_it() {
        let (list, map) = (json!(["blue", "bl ack"]), json!({ "B": 2, "R": 100 }));
        let cases = [
            (&list, QueryStyle::Form, true, "color=blue&color=bl%20ack"),
            (&list, QueryStyle::Form, false, "color=blue,bl%20ack"),
            (&list, QueryStyle::Space, false, "color=blue%20bl%20ack"),
            (&list, QueryStyle::Pipe, false, "color=blue%7Cbl%20ack"),
            (&map, QueryStyle::Form, true, "B=2&R=100"),
            (&map, QueryStyle::Form, false, "color=B,2,R,100"),
            (&map, QueryStyle::DeepObject, true, "color%5BB%5D=2&color%5BR%5D=100"),
            (&map, QueryStyle::Json, true, "color=%7B%22B%22%3A2%2C%22R%22%3A100%7D"),
        ];
        for (value, style, explode, expected) in cases {
            assert_eq!(in_query("color", value, style, explode).join("&"), expected);
        }
        assert_eq!(in_query("q&", &json!("値=1"), QueryStyle::Form, true), ["q%26=%E5%80%A4%3D1"]);
        assert_eq!(in_query("q", &json!(true), QueryStyle::Form, true), ["q=true"]);
        assert_eq!(in_path(&json!([1, "a/b"]), false), "1,a%2Fb");
        assert_eq!(in_path(&map, true), "B=2,R=100");
    }

    #[test]
    fn a_text_that_steps_aside_is_known_however_it_is_written() {
        for bad in [
            ".",
            "..",
            "../x",
            "x/..",
            "a/../b",
            "..\\x",
            "%2e%2e",
            "%2E%2e%2fx",
            "a%2f..%2fb",
            "%252e%252e",
            "..;",
            "..;/x",
            "a\nb",
            "a%00",
            "%25252525252e",
        ] {
            assert!(is_path_traversal(bad), "{bad}");
        }
        for good in ["...", "a..b", ".a", "v1.2", "50%", "100%25", "a/b", "値", "%zz", "a%20b"] {
            assert!(!is_path_traversal(good), "{good}");
        }
    }
}
