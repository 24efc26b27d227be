//! The host: our side as a client of other people's MCP servers.
//!
//! A call is kept while it is made: what was sent, under which session, up to where its stream was
//! read, which task or run it became. So the process that made it may die, and another takes the
//! call up where it was. What is shown comes after what is kept: nothing is shown twice.

mod bookmark;
mod call;
#[cfg(test)]
mod call_tests;
mod clean;
mod config;
mod form;
mod news;
pub mod plan;

pub use bookmark::{Bookmark, Round, TaskMark, Way};
pub use call::{CallState, HostCall};
pub use clean::{MAX_LINE, clean, clean_line};
pub use config::{OAuthSpec, Reach, ServerSpec, SpecError, fill, http, read_servers};
pub use form::{Answer, Field, FieldKind, Form, FormError};
pub use news::{LogLine, News, Outcome, Progress, Question};
