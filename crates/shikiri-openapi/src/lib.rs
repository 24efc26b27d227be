//! Turns OpenAPI documents (3.0 and 3.1, JSON or YAML) into tools. Each operation gets a name and one
//! schema for all its arguments, and builds the HTTP request of a call. This crate is pure: it reads no
//! files and opens no sockets.
//!
//! Documents are untrusted. Their size and depth are limited, references must stay within the document,
//! and no argument can change the path of a request.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use shikiri_openapi::{ApiLocation, parse_document};
//!
//! let text = r#"
//! openapi: 3.0.3
//! info: { title: Pets, version: "1" }
//! servers: [{ url: "https://api.example/v1" }]
//! paths:
//!   /pets/{id}:
//!     get: { operationId: getPet, summary: Finds a pet }
//! "#;
//! let document = parse_document(text, ApiLocation::default()).unwrap();
//! let operation = &document.operations[0];
//! assert_eq!(operation.name, "getPet");
//!
//! let arguments = serde_json::json!({ "id": "a/b" });
//! let request = operation.build_request(&arguments, &BTreeMap::new()).unwrap();
//! assert_eq!((request.method, request.url.as_str()), ("GET", "https://api.example/v1/pets/a%2Fb"));
//!
//! let arguments = serde_json::json!({ "id": ".." });
//! assert!(operation.build_request(&arguments, &BTreeMap::new()).is_err());
//! ```
//!
//! To start reading: `api_document.rs`, then `operation.rs` and `api_request.rs`.

mod api_document;
mod api_request;
mod argument_check;
mod base_url;
mod body_fields;
mod document_reader;
mod error;
mod operation;
mod parameter_encoding;
mod schema_converter;
mod security_schemes;
mod tool_names;
mod yaml_loader;

pub use api_document::{ApiDocument, parse_document};
pub use api_request::ApiRequest;
pub use base_url::{ApiLocation, BaseUrl, is_same_origin};
pub use error::{ApiDocumentError, ArgumentError};
pub use operation::ApiOperation;
pub use tool_names::argument_name;
pub use yaml_loader::read as read_yaml;
