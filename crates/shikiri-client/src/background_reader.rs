//! Reads messages that are not answers to one request: a program's output, the stream of the 2024
//! SSE transport, and the stream for a server's own messages in the older era.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::process::ChildStdout;
use tokio::sync::watch;

use crate::error::ClientError;
use crate::message_router::MessageRouter;
use crate::rpc_messages::{self, METHOD_NOT_FOUND, ServerMessage};
use crate::transport::http::{HttpTransport, RequestHeaders};
use crate::transport::older_sse::OlderSseTransport;
use crate::transport::sse::SseEventStream;
use crate::transport::stdio::{BoundedLines, StdioTransport};

/// The number of lines that may be no messages. With more, the program is not a server.
const MAX_GARBAGE: usize = 1_000;
/// Pauses between two attempts to open the stream again.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reads a program's output until the program ends.
pub(crate) async fn read_program_output(
    link: Arc<StdioTransport>,
    mut lines: BoundedLines<BufReader<ChildStdout>>,
    router: Arc<MessageRouter>,
) {
    let mut garbage = 0;
    let mut ended = std::pin::pin!(link.wait_for_exit());
    let why = loop {
        let line = tokio::select! {
            biased;
            line = lines.next() => line,
            // A remaining child process may keep the output open, but will not send messages.
            () = &mut ended => Ok(None),
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => break ClientError::Unreachable(link.exit_reason().await),
            Err(error) => break error,
        };
        let Some(message) = serde_json::from_slice(&line).ok().and_then(ServerMessage::parse)
        else {
            garbage += 1;
            if garbage > MAX_GARBAGE {
                break ClientError::Garbled("it prints what is no message".to_owned());
            }
            continue;
        };
        let refusal = refusal(&message);
        if !router.dispatch(message).await
            && let Some(refusal) = refusal
        {
            let _ = link.send(&refusal).await;
        }
    };
    router.close(&why);
}

/// Reads the server's own stream while the connection exists. A server without such a stream
/// answers with an error. `opened` is set once the stream is open, and dropped if it will not open.
pub(crate) async fn read_server_stream(
    link: Arc<HttpTransport>,
    extra: RequestHeaders,
    router: Arc<MessageRouter>,
    opened: watch::Sender<bool>,
) {
    let mut last: Option<String> = None;
    let mut pause = PAUSE;
    loop {
        let mut wish = None;
        match link.listen(&extra, last.as_deref()).await {
            Ok(mut events) => {
                opened.send_replace(true);
                while let Ok(Some(event)) = events.next().await {
                    pause = PAUSE;
                    wish = event.retry_ms.map(Duration::from_millis).or(wish);
                    last = event.id.or(last);
                    let message = serde_json::from_str(&event.data).ok();
                    let Some(message) = message.and_then(ServerMessage::parse) else { continue };
                    let refusal = refusal(&message);
                    if !router.dispatch(message).await
                        && let Some(refusal) = refusal
                    {
                        let _ = link.post(&refusal, &extra).await;
                    }
                }
            }
            Err(error) if error.is_transient() => {}
            // 405 by the protocol, or the session is gone, which the next request will report.
            Err(_) => return,
        }
        tokio::time::sleep(wish.unwrap_or(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Reads the stream with all answers of the older transport, until it ends.
pub(crate) async fn read_older_stream(
    link: Arc<OlderSseTransport>,
    mut events: SseEventStream,
    router: Arc<MessageRouter>,
) {
    let why = loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => break "its stream ended".to_owned(),
            Err(error) => break error.to_string(),
        };
        let message = serde_json::from_str(&event.data).ok();
        let Some(message) = message.and_then(ServerMessage::parse) else { continue };
        let refusal = refusal(&message);
        if !router.dispatch(message).await
            && let Some(refusal) = refusal
        {
            let _ = link.send(&refusal).await;
        }
    };
    // Requests that were sent may have been executed.
    router.close(&ClientError::Cut(why));
}

/// The answer to a server's request that belongs to no call.
fn refusal(message: &ServerMessage) -> Option<serde_json::Value> {
    let ServerMessage::Request { id, method, .. } = message else { return None };
    let outcome = match method.as_str() {
        "ping" => Ok(serde_json::json!({})),
        _ => Err((METHOD_NOT_FOUND, "nobody is here to answer".to_owned())),
    };
    Some(rpc_messages::answer(id, outcome))
}
