//! OpenAPI documents (3.0 and 3.1, JSON or YAML) as tools: each operation has a name, one schema for
//! all that it takes, and a request that a call of it is. Nothing here reads a file or a socket.
//!
//! A document is a stranger's word. It is bounded in size and depth, its references lead nowhere
//! but into itself, and no argument moves a request away from the path that the document names.

mod arguments;
mod base;
mod document;
mod encode;
mod error;
mod flat;
mod names;
mod operation;
mod read;
mod request;
mod schema;
mod security;
mod yaml;

pub use base::{Base, Place, is_same_origin};
pub use document::{Api, translate};
pub use error::{ArgumentError, SpecError};
pub use names::fit_key;
pub use operation::Operation;
pub use request::Request;
