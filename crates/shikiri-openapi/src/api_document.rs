//! A whole document: which API it is, where it is, and its operations.

use serde_json::Value;

use crate::base_url::{self, ApiLocation, BaseUrl};
use crate::document_reader::read;
use crate::error::ApiDocumentError;
use crate::operation::{ApiOperation, OperationBuilder, OperationError};
use crate::schema_converter::{RefResolver, short};
use crate::security_schemes;
use crate::tool_names::UniqueNames;

const MAX_OPERATIONS: usize = 1_000;
const MAX_REMARKS: usize = 50;
/// Methods that are offered. TRACE would show a caller its own secrets.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// What a document offers.
#[derive(Clone, Debug)]
pub struct ApiDocument {
    pub title: String,
    pub version: String,
    /// Of the specification: `3.0.3`.
    pub openapi: String,
    pub base: BaseUrl,
    pub operations: Vec<ApiOperation>,
    /// What of it cannot be called, and why.
    pub remarks: Vec<String>,
}

/// Reads a document, JSON or YAML, and makes a tool of each operation.
pub fn parse_document(text: &str, place: ApiLocation<'_>) -> Result<ApiDocument, ApiDocumentError> {
    let root = read(text)?;
    let openapi = version(&root)?;
    let parts = RefResolver { root: &root, is_old: openapi.starts_with("3.0") };
    let base = base_url::document_base_url(&root, place)?;
    let schemes = security_schemes::schemes(parts);
    let mut making = OperationBuilder {
        parts,
        place,
        base: &base,
        schemes: &schemes,
        names: UniqueNames::default(),
    };
    let (mut operations, mut remarks) = (Vec::new(), Vec::new());
    // 3.1 allows a document without paths: one that has only parts, or webhooks.
    let paths = root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten().filter(|(path, _)| path.starts_with('/')) {
        let item = parts.resolve(item, &format!("paths/{path}"))?;
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            match making.operation(path, item, method, operation) {
                Ok(operation) => operations.push(operation),
                Err(OperationError::Wrong(error)) => return Err(error),
                Err(OperationError::LeftOut(why)) => {
                    remarks.push(format!("{} {path} is left out: {why}", method.to_uppercase()));
                }
            }
            if operations.len() > MAX_OPERATIONS {
                return Err(ApiDocumentError::wrong(
                    "paths",
                    "there are more than 1,000 operations",
                ));
            }
        }
    }
    if operations.is_empty() {
        let why = remarks.first().map_or("the document has none", String::as_str);
        return Err(ApiDocumentError::wrong("paths", format!("no operation can be called: {why}")));
    }
    remarks.truncate(MAX_REMARKS);
    let about = |key: &str| short(root["info"][key].as_str().unwrap_or_default(), 200);
    let (title, version) = (about("title"), about("version"));
    drop(making);
    Ok(ApiDocument { title, version, openapi, base, operations, remarks })
}

fn version(root: &Value) -> Result<String, ApiDocumentError> {
    if root.get("swagger").is_some() {
        let reason = "the document is of version 2.0: convert it to 3.0 or 3.1 first";
        return Err(ApiDocumentError::wrong("swagger", reason));
    }
    match root.get("openapi") {
        Some(Value::String(version))
            if version.starts_with("3.0") || version.starts_with("3.1") =>
        {
            Ok(version.clone())
        }
        Some(other) => {
            let shown = short(&other.to_string(), 50);
            Err(ApiDocumentError::wrong("openapi", format!("{shown} is neither 3.0 nor 3.1")))
        }
        None => Err(ApiDocumentError::wrong("openapi", "is missing: this is no OpenAPI document")),
    }
}

impl ApiDocument {
    /// Headers, query keys and cookies that some operations need and that no header of the server
    /// record gives.
    pub fn missing_keys<'a>(&self, headers: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
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
