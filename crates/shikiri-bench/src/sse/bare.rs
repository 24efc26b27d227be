//! The limit: an axum server with the settings of ours that stores nothing and emits the same
//! frames as fast as it can.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Sse;
use axum::response::sse::Event;
use axum::routing::get;
use futures_util::stream::{self, Stream, StreamExt};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::net::TcpListener;

use super::gate::Gate;
use crate::{child, payload};

#[derive(Deserialize)]
struct Wanted {
    count: u64,
}

pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let gate = Arc::new(Gate::default());
        let router = Router::new().route("/events", get(events)).with_state(Arc::clone(&gate));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        child::tell(&format!("listening {}", listener.local_addr()?))?;
        tokio::spawn(serve(listener, router));
        gate.obey().await
    })
}

async fn serve(listener: TcpListener, router: Router) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(8))
            .max_buf_size(64 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

async fn events(
    State(gate): State<Arc<Gate>>,
    Query(wanted): Query<Wanted>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let opening = stream::once(async move { gate.pass().await });
    Sse::new(opening.flat_map(move |()| stream::iter(1..=wanted.count).map(frame)))
}

fn frame(seq: u64) -> Result<Event, Infallible> {
    Ok(Event::default().id(seq.to_string()).event("log").data(payload::frame_data(seq)))
}
