//! Tool results, within bounds: a model's context is small, and its user pays for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use shikiri_model::invisible_chars::without_tags_and_direction;

use crate::execution::{ToolCallResult, ToolContent};
use crate::servers::openapi_client::OpenApiReply;

/// Bound on all texts of one answer together, in bytes.
pub(super) const MAX_TEXT: usize = 100 * 1024;
/// Bound on one image in base64, as in the Messages API.
const MAX_IMAGE: usize = 5 * 1024 * 1024;
const MAX_IMAGES: usize = 10;
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Cuts a text that is too long, with a note.
pub(super) fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}\n[cut: the first {end} of {} bytes]", &text[..end], text.len())
}

/// Converts an MCP result.
pub(super) fn from_mcp_result(result: &Map<String, Value>) -> ToolCallResult {
    let is_error = result.get("isError") == Some(&Value::Bool(true));
    let listed = result.get("content").and_then(Value::as_array);
    let mut content: Vec<ToolContent> = listed.into_iter().flatten().map(piece).collect();
    if content.is_empty() {
        let structured = result.get("structuredContent");
        content.push(ToolContent::Text(structured.map(Value::to_string).unwrap_or_default()));
    }
    bounded(ToolCallResult { content, is_error })
}

fn piece(part: &Value) -> ToolContent {
    let text = |key: &str| part.get(key).and_then(Value::as_str).unwrap_or_default();
    let resource = &part["resource"];
    match text("type") {
        "text" => ToolContent::Text(text("text").to_owned()),
        "image" => image(text("mimeType"), text("data").to_owned()),
        "resource" => match resource["text"].as_str() {
            Some(said) => ToolContent::Text(said.to_owned()),
            None => {
                let uri = resource["uri"].as_str().unwrap_or_default();
                ToolContent::Text(format!("[a resource that is no text: {uri}]"))
            }
        },
        "resource_link" => ToolContent::Text(
            format!("[a resource: {} {}]", text("name"), text("uri")).replace("  ", " "),
        ),
        other => ToolContent::Text(format!("[content of type {other:?}, which cannot be shown]")),
    }
}

fn image(media_type: &str, data: String) -> ToolContent {
    if !IMAGES.contains(&media_type) {
        return ToolContent::Text(format!(
            "[an image of type {media_type:?}, which cannot be shown]"
        ));
    }
    if data.len() > MAX_IMAGE {
        return ToolContent::Text(format!(
            "[an image of {} bytes, which is too large]",
            data.len()
        ));
    }
    ToolContent::Image { media_type: media_type.to_owned(), data }
}

/// Converts an API's reply: its content, and whether it failed.
pub(super) fn from_api_reply(reply: OpenApiReply) -> ToolCallResult {
    let OpenApiReply { status, content_type, body } = reply;
    let is_error = !status.is_success();
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let shown = match String::from_utf8(body.to_vec()) {
        _ if kind.starts_with("image/") => image(&kind, STANDARD.encode(&body)),
        Ok(text) if text.trim().is_empty() => {
            ToolContent::Text(format!("[{status}, without a text]"))
        }
        Ok(text) => ToolContent::Text(text),
        Err(_) => {
            ToolContent::Text(format!("[{} bytes of {kind:?}, which is no text]", body.len()))
        }
    };
    let mut content = Vec::new();
    if is_error {
        content.push(ToolContent::Text(format!("The API answered with status {status}.")));
    }
    content.push(shown);
    bounded(ToolCallResult { content, is_error })
}

/// Removes characters that only a model would read from an external server's answer.
pub(super) fn strip_invisible_text(mut answer: ToolCallResult) -> ToolCallResult {
    for piece in &mut answer.content {
        if let ToolContent::Text(text) = piece {
            *text = without_tags_and_direction(text);
        }
    }
    answer
}

/// Cuts an answer to the bounds, with a note.
fn bounded(mut answer: ToolCallResult) -> ToolCallResult {
    let (mut left, mut images, mut gone) = (MAX_TEXT, 0, 0);
    answer.content.retain_mut(|piece| match piece {
        ToolContent::Text(_) if left == 0 => {
            gone += 1;
            false
        }
        ToolContent::Text(text) => {
            let size = text.len();
            *text = cut(std::mem::take(text), left);
            left = left.saturating_sub(size);
            true
        }
        ToolContent::Image { .. } => {
            images += 1;
            gone += usize::from(images > MAX_IMAGES);
            images <= MAX_IMAGES
        }
    });
    if gone > 0 {
        answer.content.push(ToolContent::Text(format!("[cut: {gone} more parts are left out]")));
    }
    answer
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use serde_json::json;

    use super::*;

    fn result(result: &Value) -> ToolCallResult {
        from_mcp_result(result.as_object().unwrap())
    }

    #[test]
    fn each_kind_of_content_is_shown_or_named() {
        let answer = result(&json!({ "isError": true, "content": [
            { "type": "text", "text": "値" },
            { "type": "image", "mimeType": "image/png", "data": "AA==" },
            { "type": "image", "mimeType": "image/svg+xml", "data": "AA==" },
            { "type": "resource", "resource": { "uri": "a:b", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "a:c", "blob": "AA==" } },
            { "type": "resource_link", "uri": "a:d", "name": "n" },
            { "type": "audio", "data": "AA==" },
        ] }));
        let text = |text: &str| ToolContent::Text(text.to_owned());
        let expected = vec![
            text("値"),
            ToolContent::Image { media_type: "image/png".to_owned(), data: "AA==".to_owned() },
            text("[an image of type \"image/svg+xml\", which cannot be shown]"),
            text("inside"),
            text("[a resource that is no text: a:c]"),
            text("[a resource: n a:d]"),
            text("[content of type \"audio\", which cannot be shown]"),
        ];
        assert_eq!(answer, ToolCallResult { content: expected, is_error: true });
        let structured = result(&json!({ "structuredContent": { "a": 1 }, "content": [] }));
        assert_eq!(structured, ToolCallResult::text("{\"a\":1}"));
        assert_eq!(result(&json!({})), ToolCallResult::text(""));
    }

    #[test]
    fn invisible_tags_and_direction_marks_do_not_reach_a_model_and_all_other_text_does() {
        let text = "家族 👨‍👩‍👧 葛\u{e0100} \u{e0069}\u{e0067}\u{202e}ok\n{\"a\": 1}";
        for answer in [ToolCallResult::text(text), ToolCallResult::error(text)] {
            let is_error = answer.is_error;
            let content = vec![ToolContent::Text("家族 👨‍👩‍👧 葛\u{e0100} ok\n{\"a\": 1}".to_owned())];
            assert_eq!(strip_invisible_text(answer), ToolCallResult { content, is_error });
        }
    }

    #[test]
    fn what_is_too_long_is_cut_with_a_note() {
        let long = "値".repeat(MAX_TEXT);
        let part = json!({ "type": "text", "text": long });
        let answer = result(&json!({ "content": [part, part] }));
        let [ToolContent::Text(first), ToolContent::Text(note)] = answer.content.as_slice() else {
            panic!("{}", answer.content.len())
        };
        assert!(first.len() < MAX_TEXT + 100, "{}", first.len());
        assert!(first.ends_with(&format!("[cut: the first 102399 of {} bytes]", 3 * MAX_TEXT)));
        assert_eq!(note, "[cut: 1 more parts are left out]");
        let picture = json!({ "type": "image", "mimeType": "image/png", "data": "AA==" });
        let answer = result(&json!({ "content": vec![picture; 12] }));
        assert_eq!(answer.content.len(), 11);
    }

    #[test]
    fn an_api_answers_with_text_or_with_what_it_is() {
        let reply = |status: u16, content_type: &str, body: &[u8]| {
            let status = StatusCode::from_u16(status).unwrap();
            from_api_reply(OpenApiReply {
                status,
                content_type: content_type.to_owned(),
                body: body.to_vec().into(),
            })
        };
        assert_eq!(reply(200, "application/json", b"{}"), ToolCallResult::text("{}"));
        assert_eq!(reply(204, "", b""), ToolCallResult::text("[204 No Content, without a text]"));
        let binary = reply(200, "application/zip", b"\xff\xfe");
        assert_eq!(
            binary,
            ToolCallResult::text("[2 bytes of \"application/zip\", which is no text]")
        );
        let refused = reply(404, "text/plain", b"no pet");
        assert!(refused.is_error && refused.content.len() == 2, "{refused:?}");
        let image = reply(200, "image/png; x=y", b"\x89PNG");
        assert!(matches!(image.content[0], ToolContent::Image { .. }), "{image:?}");
    }
}
