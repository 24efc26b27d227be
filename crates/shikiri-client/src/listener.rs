//! Reads what is not the answer to one request: a program's output, and the stream on which a
//! server of the older era speaks by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::process::ChildStdout;
use tokio::sync::watch;

use crate::error::ClientError;
use crate::link::http::{Extra, HttpLink};
use crate::link::stdio::{Lines, StdioLink};
use crate::router::Router;
use crate::wire::{self, METHOD_NOT_FOUND, Message};

/// Lines that are no messages; more of them, and it is no server at all.
const MAX_GARBAGE: usize = 1_000;
/// Between two tries to open the stream again.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Ends when the program does.
pub(crate) async fn lines(
    link: Arc<StdioLink>,
    mut lines: Lines<BufReader<ChildStdout>>,
    router: Arc<Router>,
) {
    let mut garbage = 0;
    let mut ended = std::pin::pin!(link.ended());
    let why = loop {
        let line = tokio::select! {
            biased;
            line = lines.next() => line,
            // What it left behind holds its output open: nobody will speak there any more.
            () = &mut ended => Ok(None),
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => break ClientError::Unreachable(link.last_words().await),
            Err(error) => break error,
        };
        let Some(message) = serde_json::from_slice(&line).ok().and_then(Message::parse) else {
            garbage += 1;
            if garbage > MAX_GARBAGE {
                break ClientError::Garbled("it prints what is no message".to_owned());
            }
            continue;
        };
        let refusal = refusal(&message);
        if !router.hand(message).await
            && let Some(refusal) = refusal
        {
            let _ = link.send(&refusal).await;
        }
    };
    router.close(&why);
}

/// Goes on for as long as the connection is there. A server that offers no such stream says so.
/// `opened` is told once the stream is there, and dropped when it will not come.
pub(crate) async fn stream(
    link: Arc<HttpLink>,
    extra: Extra,
    router: Arc<Router>,
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
                    let Some(message) = message.and_then(Message::parse) else { continue };
                    let refusal = refusal(&message);
                    if !router.hand(message).await
                        && let Some(refusal) = refusal
                    {
                        let _ = link.post(&refusal, &extra).await;
                    }
                }
            }
            Err(error) if error.is_passing() => {}
            // 405 by the protocol, or the session is gone, which requests will find out.
            Err(_) => return,
        }
        tokio::time::sleep(wish.unwrap_or(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What a request of the server is told when no call is there that it could belong to.
fn refusal(message: &Message) -> Option<serde_json::Value> {
    let Message::Request { id, method, .. } = message else { return None };
    let outcome = match method.as_str() {
        "ping" => Ok(serde_json::json!({})),
        _ => Err((METHOD_NOT_FOUND, "nobody is here to answer".to_owned())),
    };
    Some(wire::answer(id, outcome))
}
