//! Documents as tools, and calls as requests.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod library;
mod petstore;
mod refused;

use std::collections::BTreeMap;

use serde_json::Value;
use shikiri_openapi::{Api, Operation, Place, Request, translate};

const PETSTORE_30: &str = include_str!("../documents/petstore-3.0.yaml");
const PETSTORE_31: &str = include_str!("../documents/petstore-3.1.json");
const LIBRARY: &str = include_str!("../documents/library.yaml");

fn api(text: &str) -> Api {
    let document = Some("https://pets.example/docs/openapi");
    translate(text, Place { url: None, document }).unwrap()
}

fn operation<'a>(api: &'a Api, name: &str) -> &'a Operation {
    let found = api.operations.iter().find(|operation| operation.name == name);
    found.unwrap_or_else(|| panic!("no {name} among {:?}", names(api)))
}

fn names(api: &Api) -> Vec<&str> {
    api.operations.iter().map(|operation| operation.name.as_str()).collect()
}

fn request(api: &Api, name: &str, arguments: Value) -> Result<Request, String> {
    let request = operation(api, name).request(&arguments, &BTreeMap::new());
    request.map_err(|error| error.to_string())
}

/// Method and address.
fn line(request: &Request) -> String {
    format!("{} {}", request.method, request.url)
}

fn body(request: &Request) -> String {
    String::from_utf8(request.body.clone().unwrap_or_default()).unwrap()
}
