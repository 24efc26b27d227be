//! The description of the API is part of the contract: a change must be meant.

#[test]
fn the_document_is_as_it_was() {
    insta::assert_snapshot!("openapi", shikiri_web::openapi_json());
}

#[test]
fn every_operation_behind_a_key_says_so() {
    let document: serde_json::Value = serde_json::from_str(&shikiri_web::openapi_json()).unwrap();
    for (method, path) in shikiri_web::operations() {
        let operation = &document["paths"][&path][method.to_lowercase()];
        let needs_key = path.starts_with("/v1") || path.starts_with("/hooks");
        assert_eq!(operation["security"].is_array(), needs_key, "{method} {path}");
        assert!(operation["summary"].is_string(), "{method} {path}");
        let answers = operation["responses"].as_object().unwrap();
        assert_eq!(answers.contains_key("401"), needs_key, "{method} {path}");
        for (status, answer) in answers {
            let named = answer["$ref"].as_str().and_then(|name| name.strip_prefix('#'));
            let answer = named.map_or(Some(answer), |place| document.pointer(place)).unwrap();
            assert!(answer["description"].is_string(), "{method} {path} {status}");
            assert!(status.parse::<u16>().is_ok(), "{method} {path} answers with {status}");
        }
    }
}
