//! The JSON body extractor: bounded in size, depth and time, and strict about fields.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use shikiri_tenancy::gate::BodyMemory;
use tokio::time::{Instant, timeout_at};

use crate::problem_response::{Code, ProblemResponse};

pub(crate) struct Json<T>(pub(crate) T);

/// The JSON as it was sent, for handlers that parse it themselves.
pub(crate) struct RawJson(pub(crate) Bytes);

/// Accepts a JSON object only. Serde alone would also take a list of the values.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct JsonObject<T>(pub(crate) T);

const MAX_BODY: usize = 4 * 1024 * 1024;
/// An oversized body is still read up to here, so that the sender receives our answer instead of a
/// broken connection.
const MAX_SKIPPED: usize = 4 * MAX_BODY;
const MAX_DEPTH: usize = 64;
/// Memory is reserved in steps of this size.
const BODY_STEP: usize = 64 * 1024;

/// How long a body may take to arrive.
#[derive(Clone, Copy)]
struct BodyTimeouts {
    /// Between two pieces.
    pause: Duration,
    /// The total, for a sender that drips one byte at a time.
    total: Duration,
}

/// A half-sent request is closed within 10 s.
const PATIENCE: BodyTimeouts =
    BodyTimeouts { pause: Duration::from_secs(8), total: Duration::from_secs(60) };

impl<S: Send + Sync> FromRequest<S> for RawJson {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemResponse> {
        let is_json = is_json(request.headers());
        let waits = request.headers().contains_key(header::EXPECT);
        let memory = request.extensions().get::<Arc<BodyMemory>>().cloned();
        let body = read(request.into_body(), waits, PATIENCE, memory.as_deref()).await?;
        match (is_json, body.is_empty()) {
            // Leaving the body out is like sending no field.
            (None, true) => Ok(Self(Bytes::from_static(b"{}"))),
            (Some(true), _) => check_depth(&body).map(|()| Self(body)),
            _ => {
                let detail = "send the body as JSON, with `Content-Type: application/json`";
                Err(ProblemResponse::new(Code::UnsupportedMediaType, detail))
            }
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemResponse> {
        let RawJson(body) = RawJson::from_request(request, state).await?;
        parse(&body).map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(JsonObjectVisitor(PhantomData)).map(Self)
    }
}

struct JsonObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for JsonObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// Distinguishes `null` from a missing field.
pub(crate) fn some<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// None without a Content-Type.
fn is_json(headers: &HeaderMap) -> Option<bool> {
    let text = headers.get(header::CONTENT_TYPE)?.to_str().unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let known =
        kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    Some(known)
}

async fn read(
    mut body: Body,
    sender_waits: bool,
    patience: BodyTimeouts,
    memory: Option<&BodyMemory>,
) -> Result<Bytes, ProblemResponse> {
    let announced = body.size_hint().lower();
    // The sender waits for `100 Continue` and has sent nothing yet: answer at once.
    if announced > MAX_BODY as u64 && (sender_waits || announced > MAX_SKIPPED as u64) {
        return Err(too_large());
    }
    let end = Instant::now() + patience.total;
    let (mut kept, mut seen, mut counted) = (Vec::new(), 0, 0);
    loop {
        let deadline = end.min(Instant::now() + patience.pause);
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| too_slow())?;
        let Some(frame) = frame else { break };
        let frame =
            frame.map_err(|_| ProblemResponse::new(Code::InvalidRequest, "the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= MAX_BODY {
            if let Some(memory) = memory
                && kept.len() + data.len() > counted
            {
                // Reserves in steps, because bodies come in small pieces.
                let step = data.len().max(BODY_STEP);
                memory.grow(step).await?;
                counted += step;
            }
            kept.extend_from_slice(&data);
        } else if seen > MAX_SKIPPED {
            return Err(too_large());
        } else {
            kept = Vec::new();
        }
    }
    if seen > MAX_BODY { Err(too_large()) } else { Ok(kept.into()) }
}

fn too_large() -> ProblemResponse {
    ProblemResponse::new(Code::PayloadTooLarge, "the body is over 4 MiB: send less")
}

fn too_slow() -> ProblemResponse {
    ProblemResponse::new(Code::RequestTimeout, "the body did not arrive in time: send it again")
}

fn check_depth(body: &[u8]) -> Result<(), ProblemResponse> {
    if is_deeper_than(MAX_DEPTH, body) {
        let detail = "the body is nested more than 64 deep: make it flatter";
        return Err(ProblemResponse::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ProblemResponse> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader);
    let JsonObject(value) = read.map_err(|error| {
        let path = error.path().to_string();
        let reason = redact_value(&error.into_inner().to_string());
        // The path of an unknown field ends at that field; "." is the whole body.
        match path.as_str() {
            "." | "?" => ProblemResponse::invalid("body", reason),
            field => ProblemResponse::invalid(field, reason),
        }
    })?;
    reader.end().map_err(|error| ProblemResponse::invalid("body", error))?;
    Ok(value)
}

/// The reason without the invalid value, which may be a secret in the wrong place.
fn redact_value(reason: &str) -> String {
    let kept = || {
        let start = ["invalid type: ", "invalid value: "];
        let start = start.into_iter().find(|start| reason.starts_with(start))?;
        // The value may contain these words too: the last ones are ours.
        let (found, expected) = reason[start.len()..].rsplit_once(", expected ")?;
        // In `string "…"` and `integer `5``, the type comes before the value.
        let kind = found.split(['"', '`']).next()?.trim_end();
        Some(format!("{start}{kind}, expected {expected}"))
    };
    kept().unwrap_or_else(|| reason.to_owned())
}

/// Counts brackets outside strings. Ill-formed JSON may be miscounted; it is refused anyway.
fn is_deeper_than(limit: usize, json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limit {
            return true;
        }
    }
    false
}

#[cfg(test)]
#[path = "json_extractor_tests.rs"]
mod tests;
