//! A whole document: which API it is, where it is, and its operations.

use serde_json::Value;

use crate::base::{self, Base, Place};
use crate::error::SpecError;
use crate::names::Names;
use crate::operation::{Fault, Making, Operation};
use crate::read::read;
use crate::schema::{Parts, short};
use crate::security;

const MAX_OPERATIONS: usize = 1_000;
const MAX_REMARKS: usize = 50;
/// Methods that are offered. TRACE would show a caller its own secrets.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// What a document offers.
#[derive(Clone, Debug)]
pub struct Api {
    pub title: String,
    pub version: String,
    /// Of the specification: `3.0.3`.
    pub openapi: String,
    pub base: Base,
    pub operations: Vec<Operation>,
    /// What of it cannot be called, and why.
    pub remarks: Vec<String>,
}

/// Reads a document, JSON or YAML, and makes a tool of each operation.
pub fn translate(text: &str, place: Place<'_>) -> Result<Api, SpecError> {
    let root = read(text)?;
    let openapi = version(&root)?;
    let parts = Parts { root: &root, is_old: openapi.starts_with("3.0") };
    let base = base::of_document(&root, place)?;
    let schemes = security::schemes(parts);
    let mut making =
        Making { parts, place, base: &base, schemes: &schemes, names: Names::default() };
    let (mut operations, mut remarks) = (Vec::new(), Vec::new());
    // 3.1 allows a document without paths: one that has only parts, or webhooks.
    let paths = root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten().filter(|(path, _)| path.starts_with('/')) {
        let item = parts.resolve(item, &format!("paths/{path}"))?;
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            match making.operation(path, item, method, operation) {
                Ok(operation) => operations.push(operation),
                Err(Fault::Wrong(error)) => return Err(error),
                Err(Fault::LeftOut(why)) => {
                    remarks.push(format!("{} {path} is left out: {why}", method.to_uppercase()));
                }
            }
            if operations.len() > MAX_OPERATIONS {
                return Err(SpecError::wrong("paths", "there are more than 1,000 operations"));
            }
        }
    }
    if operations.is_empty() {
        let why = remarks.first().map_or("the document has none", String::as_str);
        return Err(SpecError::wrong("paths", format!("no operation can be called: {why}")));
    }
    remarks.truncate(MAX_REMARKS);
    let about = |key: &str| short(root["info"][key].as_str().unwrap_or_default(), 200);
    let (title, version) = (about("title"), about("version"));
    drop(making);
    Ok(Api { title, version, openapi, base, operations, remarks })
}

fn version(root: &Value) -> Result<String, SpecError> {
    if root.get("swagger").is_some() {
        let reason = "the document is of version 2.0: convert it to 3.0 or 3.1 first";
        return Err(SpecError::wrong("swagger", reason));
    }
    match root.get("openapi") {
        Some(Value::String(version))
            if version.starts_with("3.0") || version.starts_with("3.1") =>
        {
            Ok(version.clone())
        }
        Some(other) => {
            let shown = short(&other.to_string(), 50);
            Err(SpecError::wrong("openapi", format!("{shown} is neither 3.0 nor 3.1")))
        }
        None => Err(SpecError::wrong("openapi", "is missing: this is no OpenAPI document")),
    }
}

impl Api {
    /// Headers, query keys and cookies that some operations need and that no header of the server
    /// record gives.
    pub fn missing<'a>(&self, headers: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
        let is_given = |name: &str| headers.clone().any(|given| given.eq_ignore_ascii_case(name));
        let wanted = self.operations.iter().filter(|operation| {
            // Schemes may be alternatives: one that is given will do.
            let keys = &operation.keys;
            !keys.is_empty() && !keys.iter().any(|(name, _)| is_given(name))
        });
        let mut names: Vec<String> = wanted
            .flat_map(|operation| operation.keys.iter().map(|(name, _)| name.clone()))
            .collect();
        names.sort();
        names.dedup();
        names
    }
}
