//! `/docs`: the OpenAPI document as one plain page. It has no script, so nothing is loaded and
//! nothing can be injected. All text of the document is escaped.

use serde_json::Value;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;\
padding:0 1rem;color:#1b1f24;background:#fff}code,pre{font-family:ui-monospace,monospace}\
pre{background:#f4f5f7;padding:.75rem;overflow-x:auto;border-radius:6px}\
section{border-top:1px solid #d7dbe0;padding:.5rem 0}b{display:inline-block;min-width:4.5rem}\
@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#14171a}pre{background:#20252b}\
section{border-color:#363d46}a{color:#8ab4f8}}";

/// The hash is that of `STYLE`; a test compares the two.
pub(crate) const POLICY: &str = "default-src 'self'; script-src 'none'; \
    style-src 'sha256-its2KTLFkvmJa8bcBzj2YqnpJ9yzFMLXDD2Dcfjpm5Y='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn render(document: &str) -> String {
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Shikiri API</title>\
         <style>{STYLE}</style><h1>Shikiri API</h1><p>{}. For programs: \
         <a href=\"/openapi.json\">/openapi.json</a>. Send a key as \
         <code>Authorization: Bearer KEY</code> wherever a path starts with <code>/v1</code>.</p>",
        text(&document["info"]["description"])
    );
    for (path, item) in entries(&document["paths"]) {
        for (method, operation) in entries(item) {
            page.push_str(&section(path, method, operation, &document["components"]["responses"]));
        }
    }
    page.push_str("<h2>Schemas</h2>");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let json = serde_json::to_string_pretty(schema).unwrap_or_default();
        let name = escape(name);
        page.push_str(&format!(
            "<section id=\"{name}\"><h3>{name}</h3><pre>{}</pre></section>",
            escape(&json)
        ));
    }
    page.push_str("</html>\n");
    page
}

fn section(path: &str, method: &str, operation: &Value, named: &Value) -> String {
    let mut out = format!(
        "<section><code><b>{}</b>{}</code><p>{}</p>",
        escape(&method.to_uppercase()),
        escape(path),
        text(&operation["summary"])
    );
    if operation["description"].is_string() {
        out.push_str(&format!("<p>{}</p>", text(&operation["description"])));
    }
    let schema = reference(&operation["requestBody"]);
    if let Some(name) = &schema {
        out.push_str(&format!("<p>Body: {}</p>", link(name)));
    }
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "<p><code>{}</code> ({}) {}</p>",
            text(&parameter["name"]),
            text(&parameter["in"]),
            text(&parameter["description"])
        ));
    }
    for (status, response) in entries(&operation["responses"]) {
        let name = response["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        let response = name.map_or(response, |name| &named[name]);
        let schema = reference(response).map(|name| link(&name)).unwrap_or_default();
        let description = text(&response["description"]);
        out.push_str(&format!("<p><code>{}</code> {schema} {description}</p>", escape(status)));
    }
    out.push_str("</section>");
    out
}

/// The name of a body's schema.
fn reference(body: &Value) -> Option<String> {
    let (_, media) = entries(&body["content"]).next()?;
    let reference = media["schema"]["$ref"].as_str()?;
    reference.rsplit('/').next().map(str::to_owned)
}

fn link(name: &str) -> String {
    let name = escape(name);
    format!("<a href=\"#{name}\">{name}</a>")
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for group in bytes.chunks(3) {
            let padded = [0, 1, 2].map(|i| u32::from(group.get(i).copied().unwrap_or(0)));
            let bits = (padded[0] << 16) | (padded[1] << 8) | padded[2];
            for index in 0..4 {
                let letter = LETTERS[((bits >> (18 - 6 * index)) & 63) as usize];
                out.push(if index <= group.len() { char::from(letter) } else { '=' });
            }
        }
        out
    }

    #[test]
    fn the_policy_allows_this_style_and_no_other() {
        let hash = base64(&Sha256::digest(STYLE));
        assert!(POLICY.contains(&format!("'sha256-{hash}'")), "put {hash} into POLICY");
    }

    #[test]
    fn the_page_names_every_operation_and_escapes_what_it_shows() {
        let page = render(crate::openapi::document());
        for (method, path) in crate::operations() {
            assert!(page.contains(&format!("<b>{method}</b>{path}<")), "{method} {path}");
        }
        let evil = r#"{"info":{"description":"<script>&\"'"},"paths":{"/<b>":{"get":{"summary":"</p><img>"}}}}"#;
        let page = render(evil);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("/<b>"));
    }
}
