//! A tool's result as lines for people.

use serde_json::{Map, Value};
use shikiri_model::host::{HostCall, sanitize_line, sanitize_text};

/// The longest structured content that is shown, in characters.
const SHOWN: usize = 2_000;

/// Texts are shown as they are; pictures, sounds and links are described.
pub(crate) fn result_lines(call: &HostCall) -> Vec<String> {
    let empty = Map::new();
    let result = call.result.as_ref().unwrap_or(&empty);
    let content = result.get("content").and_then(Value::as_array);
    let parts = content.map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = parts.iter().map(part).collect();
    // A server with structured content repeats it as text for other clients.
    let has_text = parts.iter().any(|part| part["type"] == "text");
    if let Some(structured) = result.get("structuredContent").filter(|_| !has_text) {
        lines.push(brief(structured));
    }
    lines
}

fn part(part: &Value) -> String {
    let text = |key: &str| part[key].as_str().map(sanitize_line).unwrap_or_default();
    match part["type"].as_str().unwrap_or_default() {
        "text" => sanitize_text(part["text"].as_str().unwrap_or_default()),
        "resource_link" => {
            let name = if text("title").is_empty() { text("name") } else { text("title") };
            format!("→ {name} {}", text("uri")).replace("→  ", "→ ")
        }
        kind @ ("image" | "audio") => {
            let data = part["data"].as_str().unwrap_or_default();
            format!("({kind} {}, {}: see --json)", text("mimeType"), size(bytes_of(data)))
        }
        "resource" => resource(&part["resource"]),
        other => format!("({} content: see --json)", sanitize_line(other)),
    }
}

fn resource(resource: &Value) -> String {
    let uri = resource["uri"].as_str().map(sanitize_line).unwrap_or_default();
    match (resource["text"].as_str(), resource["blob"].as_str()) {
        (Some(text), _) => format!("{uri}:\n{}", sanitize_text(text)),
        (None, Some(blob)) => format!("({uri}, {}: see --json)", size(bytes_of(blob))),
        (None, None) => format!("({uri})"),
    }
}

fn brief(structured: &Value) -> String {
    let text = serde_json::to_string_pretty(structured).unwrap_or_default();
    let text = sanitize_text(&text);
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}… (see --json)", &text[..at]),
        None => text,
    }
}

/// The number of bytes in base64 text.
fn bytes_of(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    (base64.len() * 3 / 4).saturating_sub(padding)
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_content_is_told_and_none_steers_the_terminal() {
        for (content, told) in [
            (json!({ "type": "text", "text": "a\u{1b}[2Jb" }), "ab"),
            (json!({ "type": "resource_link", "name": "n", "uri": "run://1\u{7}" }), "→ n run://1"),
            (json!({ "type": "resource_link", "uri": "run://1" }), "→ run://1"),
            (
                json!({ "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" }),
                "(image image/png, 5 bytes: see --json)",
            ),
            (json!({ "type": "resource", "resource": { "uri": "u", "text": "t" } }), "u:\nt"),
            (json!({ "type": "\u{9b}2Jx" }), "(x content: see --json)"),
        ] {
            assert_eq!(part(&content), told, "{content}");
        }
        assert_eq!(size(12_345), "12.3 kB");
    }
}
