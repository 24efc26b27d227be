use std::collections::BTreeMap;

use super::*;

/// The samples of an operation by their labels.
fn samples(method: &str, path: &str) -> BTreeMap<String, String> {
    let document: Value = serde_json::from_str(crate::openapi::document()).unwrap();
    let listed =
        document["paths"][path][method.to_lowercase()]["x-codeSamples"].as_array().cloned();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let samples = listed.unwrap_or_default();
    samples.iter().map(|sample| (text(&sample["label"]), text(&sample["source"]))).collect()
}

#[test]
fn every_operation_has_its_samples_and_they_ask_this_machine_alone() {
    for (method, path) in crate::operations() {
        let samples = samples(&method, &path);
        assert_eq!(
            samples.keys().collect::<Vec<_>>(),
            ["Python", "TypeScript", "curl"],
            "{method} {path}"
        );
        for source in samples.values() {
            let address = source.split("http://127.0.0.1:7420/").nth(1).expect("this machine");
            let address = address.split(['"', ' ', '\n']).next().unwrap();
            assert!(!address.contains('{'), "{address} has a parameter without a value");
            let needs_key = path.starts_with("/v1") || path.starts_with("/hooks");
            assert_eq!(source.contains("SHIKIRI_KEY"), needs_key, "{source}");
        }
        // Quoted for a shell: a body holds no quote of this kind.
        assert_eq!(samples["curl"].matches('\'').count() % 2, 0, "{}", samples["curl"]);
    }
}

#[test]
fn a_change_is_written_as_a_person_writes_it() {
    let samples = samples("POST", "/v1/tenants/{t}/runs");
    assert_eq!(
        samples["curl"],
        r#"curl http://127.0.0.1:7420/v1/tenants/local/runs \
  -H "Authorization: Bearer $SHIKIRI_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"agent": "long_running_agent", "input": {"steps": 3}}'"#
    );
    assert_eq!(
        samples["Python"],
        r#"import json
import os
import urllib.request

request = urllib.request.Request(
    "http://127.0.0.1:7420/v1/tenants/local/runs",
    method="POST",
    headers={"Authorization": f"Bearer {os.environ['SHIKIRI_KEY']}", "Content-Type": "application/json"},
    data=json.dumps({"agent": "long_running_agent", "input": {"steps": 3}}).encode(),
)
with urllib.request.urlopen(request) as response:
    print(json.load(response))
"#
    );
    assert_eq!(
        samples["TypeScript"],
        r#"const response = await fetch("http://127.0.0.1:7420/v1/tenants/local/runs", {
  method: "POST",
  headers: { Authorization: `Bearer ${process.env.SHIKIRI_KEY}`, "Content-Type": "application/json" },
  body: JSON.stringify({"agent": "long_running_agent", "input": {"steps": 3}}),
});
if (!response.ok) throw new Error(await response.text());
console.log(await response.json());
"#
    );
}

#[test]
fn streams_and_files_are_read_as_such() {
    let stream = samples("GET", "/v1/tenants/{t}/runs/{r}/events");
    assert!(
        stream["curl"]
            .starts_with("curl -N http://127.0.0.1:7420/v1/tenants/local/runs/RUN_ID/events")
    );
    assert!(stream["Python"].contains("for line in response:"), "{}", stream["Python"]);
    assert!(stream["TypeScript"].contains("for await (const piece of text)"));
    let file = "/v1/tenants/{t}/conversations/{c}/files/{path}";
    let put = samples("PUT", file);
    assert!(put["curl"].contains("-X PUT") && put["curl"].ends_with("--data-binary @notes.md"));
    assert!(put["TypeScript"].starts_with("import { readFile } from \"node:fs/promises\";\n"));
    assert!(samples("GET", file)["curl"].ends_with("-o notes.md"));
    let removed = samples("DELETE", file);
    assert!(removed["Python"].ends_with("print(response.status)\n"), "{}", removed["Python"]);
    assert!(!samples("GET", "/healthz")["curl"].contains("-H"));
}

#[test]
fn the_words_of_a_language_are_used() {
    let value = json!({ "a": [null, true, false, 1], "b": "é\"\n" });
    assert_eq!(literal(&value, &JSON_WORDS), r#"{"a": [null, true, false, 1], "b": "é\"\n"}"#);
    assert_eq!(literal(&value, &PYTHON_WORDS), r#"{"a": [None, True, False, 1], "b": "é\"\n"}"#);
}
