use proptest::prelude::*;
use serde_json::json;

use super::*;

fn refusal(text: &str) -> String {
    let place = ApiLocation { url: Some("https://a.example"), document: None };
    parse_document(text, place).map(|api| names(&api).join(" ")).unwrap_err().to_string()
}

fn document(paths: Value) -> String {
    json!({ "openapi": "3.1.0", "info": {}, "paths": paths }).to_string()
}

#[test]
fn what_is_no_api_is_refused_with_the_reason_and_the_place() {
    assert!(refusal("openapi: 3.0.0\npaths:\n  a: b: c\n").starts_with("line 3: "));
    assert!(refusal("{\"openapi\": \"3.0.0\",\n\"paths\": }").starts_with("line 2: "));
    assert!(refusal("just words").starts_with("openapi: is missing"));
    assert!(refusal("swagger: '2.0'").contains("convert it"));
    assert!(refusal("openapi: 4.0.0").contains("neither 3.0 nor 3.1"));
    assert!(refusal("openapi: 3.1.0").contains("no operation can be called"));
    let remote = json!({ "$ref": "https://evil.example/schema.json" });
    let parameter = json!({ "name": "a", "in": "query", "schema": remote });
    for paths in [
        json!({ "/a": remote }),
        json!({ "/a": { "get": { "parameters": [remote] } } }),
        json!({ "/a": { "get": { "parameters": [parameter] } } }),
        json!({ "/a": { "post": { "requestBody": remote } } }),
        json!({ "/a": { "post": { "requestBody": { "content": { "application/json": { "schema": remote } } } } } }),
        json!({ "/a": { "post": { "requestBody": { "content": { "application/json": {
            "schema": { "properties": { "x": { "items": remote } } } } } } } } }),
    ] {
        let refused = refusal(&document(paths));
        assert!(
            refused.starts_with("paths//a") && refused.contains("leads out of the document"),
            "{refused}"
        );
    }
    let many: serde_json::Map<_, _> =
        (0..1_002).map(|n| (format!("/{n}"), json!({ "get": {} }))).collect();
    assert!(refusal(&document(many.into())).contains("more than 1,000 operations"));
}

#[test]
fn paths_that_lead_away_are_no_tools() {
    for path in ["/../admin", "/a/%2e%2e/b", "/a?x=1", "/a#b", "/a/{b"] {
        let refused = refusal(&document(json!({ path: { "get": {} } })));
        assert!(refused.contains("is left out"), "{path}: {refused}");
    }
    let odd = document(json!({ "/a b/値/{x}": { "get": { "operationId": "odd" } } }));
    let place = ApiLocation { url: Some("https://a.example/v1/"), document: None };
    let api = parse_document(&odd, place).unwrap();
    let made = request(&api, "odd", json!({ "x": "1" })).unwrap();
    assert_eq!(made.url, "https://a.example/v1/a%20b/%E5%80%A4/1");
}

#[test]
fn no_path_parameter_steps_out_of_its_place() {
    let api = api(PETSTORE_30);
    for attack in [
        "..",
        ".",
        "../..",
        "../admin",
        "..%2fadmin",
        "%2e%2e",
        "%2e%2e%2fadmin",
        "..\\admin",
        "%252e%252e%252fadmin",
        "a/../../b",
        "..;/admin",
        "x\r\nHost: evil",
        "a\u{0}b",
        "",
    ] {
        let made = request(&api, "getUserByName", json!({ "username": attack }));
        assert!(made.is_err(), "{attack:?} became {}", line(&made.unwrap()));
    }
    for (harmless, encoded) in [
        ("@evil.example", "%40evil.example"),
        ("//evil.example/x", "%2F%2Fevil.example%2Fx"),
        ("?admin=1#x", "%3Fadmin%3D1%23x"),
        ("https://evil.example", "https%3A%2F%2Fevil.example"),
        ("...", "..."),
        (":8080", "%3A8080"),
    ] {
        let made = request(&api, "getUserByName", json!({ "username": harmless })).unwrap();
        assert_eq!(made.url, format!("https://pets.example/api/v3/user/{encoded}"));
    }
}

proptest! {
    /// Whatever a model says, the request stays where the document put it.
    #[test]
    fn any_argument_stays_below_the_address(text in any::<String>(), tags in any::<Vec<String>>()) {
        let api = api(PETSTORE_30);
        if let Ok(made) = request(&api, "getUserByName", json!({ "username": text })) {
            let rest = made.url.strip_prefix("https://pets.example/api/v3/user/").unwrap();
            prop_assert!(!rest.contains(['/', '?', '#', '\\', '@']), "{}", made.url);
        }
        let made = request(&api, "findPetsByTags", json!({ "tags": tags })).unwrap();
        let query = made.url.strip_prefix("https://pets.example/api/v3/pet/findByTags").unwrap();
        prop_assert_eq!(query.matches("tags=").count(), tags.len());
        prop_assert!(!query.contains('#'), "{}", query);
    }
}
