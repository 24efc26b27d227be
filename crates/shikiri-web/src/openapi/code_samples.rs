//! Samples for each operation, in curl, Python and TypeScript, as `x-codeSamples` of the OpenAPI document.
//! They are made from the document, so a new operation has its samples at once.
//!
//! Python uses its standard library and TypeScript `fetch`, so a sample runs where it is pasted.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;
use utoipa::openapi::extensions::Extensions;

use super::sample_values::{self, SAMPLE_FILE};

/// Where a server listens unless it is told otherwise.
const SERVER: &str = "http://127.0.0.1:7420";
const KEY: &str = "SHIKIRI_KEY";
const FILE_TYPE: &str = "application/octet-stream";

/// Adds the samples to every operation.
pub(super) fn add_code_samples(document: &mut OpenApi) {
    let described = serde_json::to_value(&*document).unwrap_or_default();
    for (path, item) in &mut document.paths.paths {
        let methods = [
            ("GET", &mut item.get),
            ("PUT", &mut item.put),
            ("POST", &mut item.post),
            ("PATCH", &mut item.patch),
            ("DELETE", &mut item.delete),
        ];
        for (method, operation) in methods {
            if let Some(operation) = operation {
                let request = SampleRequest::read(&described, method, path);
                let samples = Extensions::from_iter([("x-codeSamples", request.samples())]);
                operation.extensions = Some(samples);
            }
        }
    }
}

const EVENT_STREAM: &str = "text/event-stream";

enum SampleBody {
    Nothing,
    Json(Value),
    /// The bytes of `SAMPLE_FILE`.
    File,
}

enum SampleAnswer {
    Nothing,
    Json,
    Text,
    /// Server-sent events.
    Events,
    /// To be written to `SAMPLE_FILE`.
    File,
}

/// A request that a sample makes.
struct SampleRequest {
    method: &'static str,
    url: String,
    needs_key: bool,
    body: SampleBody,
    answer: SampleAnswer,
}

impl SampleRequest {
    fn read(document: &Value, method: &'static str, path: &str) -> Self {
        let operation = &document["paths"][path][method.to_lowercase()];
        Self {
            method,
            url: format!("{SERVER}{}", fill_path(path)),
            needs_key: operation["security"].is_array(),
            body: read_body(document, &operation["requestBody"]),
            answer: read_answer(&operation["responses"]),
        }
    }

    fn samples(&self) -> Value {
        json!([
            { "lang": "shell", "label": "curl", "source": self.curl() },
            { "lang": "python", "label": "Python", "source": self.python() },
            { "lang": "typescript", "label": "TypeScript", "source": self.typescript() },
        ])
    }

    fn content_type(&self) -> Option<&'static str> {
        match self.body {
            SampleBody::Nothing => None,
            SampleBody::Json(_) => Some("application/json"),
            SampleBody::File => Some(FILE_TYPE),
        }
    }

    fn curl(&self) -> String {
        let stream = if matches!(self.answer, SampleAnswer::Events) { " -N" } else { "" };
        // With a body curl sends POST, otherwise GET.
        let method = match (self.method, &self.body) {
            ("GET", _) | ("POST", SampleBody::Json(_)) => String::new(),
            (method, _) => format!(" -X {method}"),
        };
        let mut lines = vec![format!("curl{stream}{method} {}", self.url)];
        if self.needs_key {
            lines.push(format!("-H \"Authorization: Bearer ${KEY}\""));
        }
        if let Some(content_type) = self.content_type() {
            lines.push(format!("-H 'Content-Type: {content_type}'"));
        }
        match &self.body {
            SampleBody::Nothing => {}
            SampleBody::Json(value) => lines.push(format!("-d '{}'", literal(value, &JSON_WORDS))),
            SampleBody::File => lines.push(format!("--data-binary @{SAMPLE_FILE}")),
        }
        if matches!(self.answer, SampleAnswer::File) {
            lines.push(format!("-o {SAMPLE_FILE}"));
        }
        lines.join(" \\\n  ")
    }

    fn python(&self) -> String {
        let has_json =
            matches!(self.body, SampleBody::Json(_)) || matches!(self.answer, SampleAnswer::Json);
        let imports = [("json", has_json), ("os", self.needs_key), ("urllib.request", true)];
        let imports = imports.iter().filter(|(_, is_used)| *is_used);
        let imports: Vec<_> = imports.map(|(name, _)| format!("import {name}\n")).collect();
        let mut fields = vec![format!("\"{}\"", self.url)];
        if self.method != "GET" {
            fields.push(format!("method=\"{}\"", self.method));
        }
        let mut headers = Vec::new();
        if self.needs_key {
            headers.push(format!("\"Authorization\": f\"Bearer {{os.environ['{KEY}']}}\""));
        }
        headers.extend(self.content_type().map(|value| format!("\"Content-Type\": \"{value}\"")));
        if !headers.is_empty() {
            fields.push(format!("headers={{{}}}", headers.join(", ")));
        }
        match &self.body {
            SampleBody::Nothing => {}
            SampleBody::Json(value) => {
                fields.push(format!("data=json.dumps({}).encode()", literal(value, &PYTHON_WORDS)));
            }
            SampleBody::File => fields.push(format!("data=open(\"{SAMPLE_FILE}\", \"rb\").read()")),
        }
        let answer = match self.answer {
            SampleAnswer::Nothing => "    print(response.status)".to_owned(),
            SampleAnswer::Json => "    print(json.load(response))".to_owned(),
            SampleAnswer::Text => "    print(response.read().decode())".to_owned(),
            SampleAnswer::Events => {
                "    for line in response:\n        print(line.decode(), end=\"\")".to_owned()
            }
            SampleAnswer::File => {
                format!("    open(\"{SAMPLE_FILE}\", \"wb\").write(response.read())")
            }
        };
        format!(
            "{}\nrequest = urllib.request.Request(\n    {},\n)\n\
             with urllib.request.urlopen(request) as response:\n{answer}\n",
            imports.concat(),
            fields.join(",\n    "),
        )
    }

    fn typescript(&self) -> String {
        let mut fields = Vec::new();
        if self.method != "GET" {
            fields.push(format!("method: \"{}\"", self.method));
        }
        let mut headers = Vec::new();
        if self.needs_key {
            headers.push(format!("Authorization: `Bearer ${{process.env.{KEY}}}`"));
        }
        headers.extend(self.content_type().map(|value| format!("\"Content-Type\": \"{value}\"")));
        if !headers.is_empty() {
            fields.push(format!("headers: {{ {} }}", headers.join(", ")));
        }
        let mut import = String::new();
        match &self.body {
            SampleBody::Nothing => {}
            SampleBody::Json(value) => {
                fields.push(format!("body: JSON.stringify({})", literal(value, &JSON_WORDS)));
            }
            SampleBody::File => fields.push(format!("body: await readFile(\"{SAMPLE_FILE}\")")),
        }
        let answer = match self.answer {
            SampleAnswer::Nothing => "console.log(response.status);".to_owned(),
            SampleAnswer::Json => "console.log(await response.json());".to_owned(),
            SampleAnswer::Text => "console.log(await response.text());".to_owned(),
            SampleAnswer::Events => {
                "const text = response.body!.pipeThrough(new TextDecoderStream());\n\
                 for await (const piece of text) process.stdout.write(piece);"
                    .to_owned()
            }
            SampleAnswer::File => {
                format!("await writeFile(\"{SAMPLE_FILE}\", await response.bytes());")
            }
        };
        for (function, text) in [("readFile", fields.join(" ")), ("writeFile", answer.clone())] {
            if text.contains(function) {
                import = format!("import {{ {function} }} from \"node:fs/promises\";\n\n");
            }
        }
        let options = if fields.is_empty() {
            String::new()
        } else {
            format!(", {{\n  {},\n}}", fields.join(",\n  "))
        };
        format!(
            "{import}const response = await fetch(\"{}\"{options});\n\
             if (!response.ok) throw new Error(await response.text());\n{answer}\n",
            self.url
        )
    }
}

fn fill_path(path: &str) -> String {
    let parts = path.split('/').map(|part| {
        let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        name.map_or_else(|| part.to_owned(), sample_values::path_value)
    });
    parts.collect::<Vec<_>>().join("/")
}

fn read_body(document: &Value, body: &Value) -> SampleBody {
    let content = &body["content"];
    if content[FILE_TYPE].is_object() {
        return SampleBody::File;
    }
    match &content["application/json"]["schema"] {
        Value::Null => SampleBody::Nothing,
        schema => SampleBody::Json(sample_values::body(document, schema)),
    }
}

/// What the first answer of success holds.
fn read_answer(responses: &Value) -> SampleAnswer {
    let mut answers = responses.as_object().into_iter().flatten();
    let success = answers.find(|(status, _)| status.starts_with('2'));
    let content = success.and_then(|(_, answer)| answer["content"].as_object());
    // A stream is what comes if the request asks for nothing else.
    if content.is_some_and(|content| content.contains_key(EVENT_STREAM)) {
        return SampleAnswer::Events;
    }
    match content.and_then(|content| content.keys().next()).map(String::as_str) {
        None => SampleAnswer::Nothing,
        Some("application/json") => SampleAnswer::Json,
        Some(FILE_TYPE) => SampleAnswer::File,
        Some(_) => SampleAnswer::Text,
    }
}

/// The words for null, true and false.
type LiteralWords = [&'static str; 3];

const JSON_WORDS: LiteralWords = ["null", "true", "false"];
const PYTHON_WORDS: LiteralWords = ["None", "True", "False"];

/// A value on one line, as a person writes it.
fn literal(value: &Value, words: &LiteralWords) -> String {
    let inner = |value: &Value| literal(value, words);
    match value {
        Value::Null => words[0].to_owned(),
        Value::Bool(is_true) => words[if *is_true { 1 } else { 2 }].to_owned(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inner).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("\"{name}\": {}", inner(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        // Numbers, and texts with the escapes that all three languages share.
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "code_samples_tests.rs"]
mod tests;
