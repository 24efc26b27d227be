//! Documents as tools, and calls as requests.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod library;
mod petstore;
mod refused;

use std::collections::BTreeMap;

use serde_json::Value;
use shikiri_openapi::{ApiDocument, ApiLocation, ApiOperation, ApiRequest, parse_document};

const PETSTORE_30: &str = include_str!("../documents/petstore-3.0.yaml");
const PETSTORE_31: &str = include_str!("../documents/petstore-3.1.json");
const LIBRARY: &str = include_str!("../documents/library.yaml");

fn api(text: &str) -> ApiDocument {
    let document = Some("https://pets.example/docs/openapi");
    parse_document(text, ApiLocation { url: None, document }).unwrap()
}

fn operation<'a>(api: &'a ApiDocument, name: &str) -> &'a ApiOperation {
    let found = api.operations.iter().find(|operation| operation.name == name);
    found.unwrap_or_else(|| panic!("no {name} among {:?}", names(api)))
}

fn names(api: &ApiDocument) -> Vec<&str> {
    api.operations.iter().map(|operation| operation.name.as_str()).collect()
}

fn request(api: &ApiDocument, name: &str, arguments: Value) -> Result<ApiRequest, String> {
    let request = operation(api, name).build_request(&arguments, &BTreeMap::new());
    request.map_err(|error| error.to_string())
}

/// Method and address.
fn line(request: &ApiRequest) -> String {
    format!("{} {}", request.method, request.url)
}

fn body(request: &ApiRequest) -> String {
    String::from_utf8(request.body.clone().unwrap_or_default()).unwrap()
}
