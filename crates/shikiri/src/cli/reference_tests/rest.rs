//! `docs/reference/rest.md`, from the OpenAPI document.

use std::collections::BTreeMap;

use serde_json::Value;
use shikiri_testkit::{check_reference_page, table_cell};

const HEAD: &str = "\
# REST

<!-- Made by `cargo xtask reference` from the OpenAPI document. -->

Every operation of the server, by subject. A running server shows them with their fields at `/docs`;
`shikiri openapi` prints the document. Requests carry `Authorization: Bearer KEY`, except where it says *open*.
Failures are `application/problem+json` with a code: see [errors](errors.md). Streams send [events](events.md).

Bodies are JSON in snake_case, at most 4 MiB, and unknown fields are refused. Times are RFC 3339 in UTC with
milliseconds. Lists are `{\"items\": […], \"next_cursor\": …}`, with `?limit=` and `?cursor=`.
";
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

#[test]
fn the_reference_has_every_operation() {
    let document: Value = serde_json::from_str(&shikiri_web::openapi_json()).unwrap();
    let mut subjects: BTreeMap<String, String> = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                let tag = operation["tags"][0].as_str().unwrap_or("other").to_owned();
                subjects.entry(tag).or_default().push_str(&row(method, path, operation));
            }
        }
    }
    let mut page = HEAD.to_owned();
    for (subject, rows) in subjects {
        page.push_str(&format!(
            "\n## {subject}\n\n| method and path | does | answers |\n|---|---|---|\n"
        ));
        page.push_str(&rows);
    }
    check_reference_page("rest.md", &page);
}

fn row(method: &str, path: &str, operation: &Value) -> String {
    let summary = table_cell(operation["summary"].as_str().unwrap_or_default());
    let statuses: Vec<_> = operation["responses"].as_object().unwrap().keys().cloned().collect();
    let is_open = operation.get("security").is_none_or(|rules| rules == &Value::Array(Vec::new()));
    let open = if is_open { " *open*" } else { "" };
    let query = operation["parameters"].as_array().into_iter().flatten();
    let query: Vec<_> = query
        .filter(|parameter| parameter["in"] == "query")
        .filter_map(|parameter| parameter["name"].as_str())
        .map(|name| format!("`{name}`"))
        .collect();
    let query =
        if query.is_empty() { query.join("") } else { format!(". Query: {}", query.join(", ")) };
    let method = method.to_uppercase();
    format!("| `{method} {path}`{open} | {summary}{query} | {} |\n", statuses.join(" "))
}
