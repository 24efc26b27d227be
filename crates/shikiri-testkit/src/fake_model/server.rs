//! The HTTP side: stores every request, then answers it.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::reply::{Failure, Reply};
use super::request::ModelRequest;
use super::{Shared, bedrock, wire};

pub(super) fn router(shared: Arc<Shared>) -> Router {
    // Conversations may contain whole files.
    let no_limit = DefaultBodyLimit::disable();
    Router::new().fallback(serve).layer(no_limit).with_state(shared)
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let request = ModelRequest {
        method: method.to_string(),
        path: uri.path().to_owned(),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    shared.requests.push(request.clone());
    if let Some(keys) = shared.keys.get().filter(|_| request.bedrock().is_some())
        && let Err(why) = keys.verify(&request, &body)
    {
        let refused = json!({ "message": why });
        let kind = [("x-amzn-errortype", "InvalidSignatureException")];
        return (StatusCode::FORBIDDEN, kind, refused.to_string()).into_response();
    }
    match (request.method.as_str(), request.path.as_str()) {
        _ if request.is_message() => message(shared, &request).await,
        ("POST", "/v1/messages/count_tokens") => {
            // About four bytes each.
            json_answer(StatusCode::OK, &json!({ "input_tokens": body.len() / 4 + 1 }))
        }
        ("GET", "/v1/models") => {
            json_answer(StatusCode::OK, &json!({ "data": [], "has_more": false }))
        }
        ("HEAD", _) => StatusCode::OK.into_response(),
        _ => failed(&Failure::new(404, "not_found_error")),
    }
}

async fn message(shared: Arc<Shared>, request: &ModelRequest) -> Response {
    let reply = shared.rules.lock().unwrap_or_else(PoisonError::into_inner).reply(request);
    let reply = reply.unwrap_or_else(|| {
        shared.unscripted.push(request.clone());
        Reply::text("Nothing is scripted for this.")
    });
    let reply = reply.for_request(request);
    reply.ready().await;
    let blocks = match reply.outcome() {
        Ok(blocks) => blocks,
        Err(failure) => return failed(failure),
    };
    let number = shared.answered.fetch_add(1, Ordering::SeqCst);
    let message = wire::message(&reply, blocks, request.model(), number);
    let index = shared.spent.open(request, &reply.usage);
    if request.wants_stream() {
        streamed(shared, request, &reply, &message, index)
    } else {
        shared.spent.end(index, reply.usage.output_tokens);
        json_answer(StatusCode::OK, &message)
    }
}

/// The events one by one. Spent tokens are counted when they are reported.
fn streamed(
    shared: Arc<Shared>,
    request: &ModelRequest,
    reply: &Reply,
    message: &Value,
    index: usize,
) -> Response {
    let (pace, output) = (reply.pace, reply.usage.output_tokens);
    let (kind, frame): (_, fn(&Value) -> Bytes) = match request.bedrock() {
        Some(_) => (bedrock::CONTENT_TYPE, bedrock::frame),
        None => ("text/event-stream", wire::frame),
    };
    let events = wire::events(message, reply.breaks_off);
    let frames = stream::iter(events).then(move |event| {
        let shared = Arc::clone(&shared);
        async move {
            if !pace.is_zero() {
                tokio::time::sleep(pace).await;
            }
            if event["type"] == "message_delta" {
                shared.spent.end(index, output);
            }
            Ok::<_, Infallible>(frame(&event))
        }
    });
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(frames)).into_response()
}

fn failed(failure: &Failure) -> Response {
    let status = StatusCode::from_u16(failure.status).expect("a status of HTTP");
    json_answer(status, &wire::error(failure))
}

fn json_answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
