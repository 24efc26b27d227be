//! As much of the Messages API as the engine needs. The model's name says how it answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::child::{self, Process};
use crate::machine::monotonic_ns;

/// Calls a tool in each of its rounds, and is done: all of a reply at once.
pub(super) const BUSY: &str = "busy";
/// Writes pieces that tell when they were written, about as fast as a model does.
pub(super) const TIMED: &str = "timed";
/// Writes for some seconds.
pub(super) const SLOW: &str = "slow";
pub(super) const ROUNDS: usize = 20;
const PIECES: usize = 50;

/// The API as the benchmark sees it.
pub(super) struct Api {
    _process: Process,
    pub(super) address: SocketAddr,
}

impl Api {
    pub(super) fn start() -> Result<Self> {
        let mut process = Process::role(["engines-api"])?;
        let address = process.hear_word("listening")?.parse().context("an address")?;
        Ok(Self { _process: process, address })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        child::tell(&format!("listening {}", listener.local_addr()?))?;
        let router = Router::new().fallback(answer);
        tokio::spawn(async move {
            let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
                let _ = stream.set_nodelay(true);
            });
            axum::serve(listener, router).await
        });
        child::command().await.map(drop)
    })
}

async fn answer(body: Bytes) -> Response {
    // It is looked for and not parsed: the API's own time should be none.
    let has = |text: &str| memchr::memmem::find(&body, text.as_bytes()).is_some();
    let pause = match () {
        () if has("\"model\":\"timed\"") => Duration::from_millis(10),
        () if has("\"model\":\"slow\"") => Duration::from_millis(100),
        () => {
            // Since the user said something: earlier turns had their calls, too.
            let asked = memchr::memmem::rfind(&body, b"\"text\":\"go\"").unwrap_or(0);
            let calls = memchr::memmem::find_iter(&body[asked..], b"\"tool_use\"").count();
            return at_once(calls).into_response();
        }
    };
    let events = stream::iter(0..PIECES + 4).then(move |number| async move {
        tokio::time::sleep(pause).await;
        let piece = || format!("at {};", monotonic_ns());
        let event = match number {
            0 => start(),
            1 => json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "" } }),
            number if number < PIECES + 2 => json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "text_delta", "text": piece() } }),
            number if number == PIECES + 2 => {
                return Ok(Bytes::from(frames(&[
                    json!({ "type": "content_block_stop", "index": 0 }),
                ])));
            }
            _ => return Ok(Bytes::from(frames(&end("end_turn")))),
        };
        Ok::<_, Infallible>(Bytes::from(frames(&[event])))
    });
    Body::from_stream(events).into_response()
}

fn at_once(calls: usize) -> String {
    let (block, delta, reason) = match calls {
        ROUNDS.. => {
            let block = json!({ "type": "text", "text": "" });
            (block, json!({ "type": "text_delta", "text": "done" }), "end_turn")
        }
        _ => {
            let id = format!("toolu_{}", monotonic_ns());
            let block = json!({ "type": "tool_use", "id": id, "name": "none", "input": {} });
            (block, json!({ "type": "input_json_delta", "partial_json": "{}" }), "tool_use")
        }
    };
    let [last, stop] = end(reason);
    frames(&[
        start(),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        last,
        stop,
    ])
}

fn start() -> Value {
    let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
    let id = format!("msg_{}", monotonic_ns());
    json!({ "type": "message_start", "message": { "id": id, "model": "m", "usage": usage } })
}

fn end(reason: &str) -> [Value; 2] {
    let usage = json!({ "output_tokens": 10 });
    let delta = json!({ "stop_reason": reason });
    let last = json!({ "type": "message_delta", "delta": delta, "usage": usage });
    [last, json!({ "type": "message_stop" })]
}

fn frames(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}
