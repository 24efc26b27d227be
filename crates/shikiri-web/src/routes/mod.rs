//! One file per resource: its JSON and its handlers.

pub(crate) mod audit;
pub(crate) mod conversations;
pub(crate) mod delegations;
pub(crate) mod dialogues;
pub(crate) mod docs;
mod execution_answer;
pub(crate) mod executions;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod hooks;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod models;
pub(crate) mod projects;
pub(crate) mod run_events;
pub(crate) mod runs;
pub(crate) mod servers;
pub(crate) mod skills;
pub(crate) mod tasks;
pub(crate) mod team_agents;
pub(crate) mod team_messages;
pub(crate) mod tenants;
pub(crate) mod usage;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// 201 with the created item and its location.
fn created(location: &str, body: &impl Serialize) -> Response {
    let mut response = (StatusCode::CREATED, axum::Json(body)).into_response();
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
