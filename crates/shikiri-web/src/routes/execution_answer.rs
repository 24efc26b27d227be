//! How a request for an execution wants to be answered, by its headers `Prefer` and `Accept`.

use axum::http::{HeaderMap, HeaderName, header};
use shikiri_model::cursor::CursorError;
use shikiri_model::event::Seq;
use shikiri_model::ids::RunId;
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{Run, run_stream};
use shikiri_runtime::WatchError;

use crate::access_extractors::TenantAccess;
use crate::problem_response::{Code, ProblemResponse};
use crate::web_state::SharedWebState;

/// `Prefer` wins over `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutionAnswer {
    /// The stream of its events.
    Stream,
    /// Its record, once it has ended.
    Record,
    /// Its record at once. With `queues`, even if its conversation is busy.
    Accepted { queues: bool },
}

impl ExecutionAnswer {
    pub(super) fn wanted_by(headers: &HeaderMap) -> Self {
        let prefer = HeaderName::from_static("prefer");
        let prefers = |wanted: &str| {
            let all = items(headers, &prefer).flat_map(|item| item.split(';'));
            all.map(str::trim).any(|preference| preference.eq_ignore_ascii_case(wanted))
        };
        if prefers("respond-async") {
            return Self::Accepted { queues: prefers("queue") };
        }
        let stream = quality(headers, "text/event-stream");
        match quality(headers, "application/json") > stream {
            true => Self::Record,
            false => Self::Stream,
        }
    }

    /// For the header `Preference-Applied`.
    pub(super) fn applied(self) -> Option<&'static str> {
        match self {
            Self::Stream | Self::Record => None,
            Self::Accepted { queues: false } => Some("respond-async"),
            Self::Accepted { queues: true } => Some("respond-async, queue"),
        }
    }
}

fn items<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(','))
}

/// How much a media type is wanted that `Accept` names, in thousandths. A wildcard names none: a client
/// that takes anything gets the stream.
fn quality(headers: &HeaderMap, media_type: &str) -> u32 {
    let of = |item: &str| {
        let mut parts = item.split(';').map(str::trim);
        let is_named = parts.next()?.eq_ignore_ascii_case(media_type);
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        is_named.then(|| (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1_000.0) as u32)
    };
    items(headers, &header::ACCEPT).filter_map(of).max().unwrap_or(0)
}

/// Waits until an execution has ended, and gives its record. Occupies one of the tenant's streams
/// meanwhile.
pub(super) async fn wait_for_end(
    web: &SharedWebState,
    access: &TenantAccess,
    id: &RunId,
) -> Result<StoredDocument<Run>, ProblemResponse> {
    let stream = web.gate.open_stream(&access.caller, &access.record)?;
    let ended = async {
        let mut after: Seq = 0;
        loop {
            let watching = web.app.runtime.watch(&access.tenant, run_stream(id), after).await;
            let problem = match follow(watching.map_err(WatchError::from)).await {
                Ok(()) => return Ok(()),
                // Old events were removed meanwhile.
                Err(WatchError::Cursor(CursorError::Expired { kept_after })) => {
                    after = kept_after;
                    continue;
                }
                Err(error) => ProblemResponse::from(error),
            };
            return Err(problem);
        }
    };
    tokio::select! {
        ended = ended => ended?,
        () = stream.cancellation().cancelled() => {
            let text = format!("this server is stopping, or the key has ended; look at {id} again");
            return Err(ProblemResponse::new(Code::Unavailable, text));
        }
    }
    Ok(web.app.executions.execution(&access.tenant, id).await?)
}

/// Follows a stream to its end.
async fn follow(watch: Result<shikiri_runtime::Watch, WatchError>) -> Result<(), WatchError> {
    let mut watch = watch?;
    while watch.next().await?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_headers_choose_the_answer_and_the_stream_is_the_usual_one() {
        use ExecutionAnswer::{Accepted, Record, Stream};
        let json = "application/json";
        for (prefer, accept, wanted) in [
            (None, None, Stream),
            (None, Some("*/*"), Stream),
            (None, Some("text/event-stream"), Stream),
            (None, Some(json), Record),
            (None, Some("Application/JSON; charset=utf-8"), Record),
            (None, Some("application/json, text/plain, */*"), Record),
            (None, Some("application/json, text/event-stream"), Stream),
            (None, Some("text/event-stream;q=0.5, application/json"), Record),
            (None, Some("application/json;q=0.1, text/event-stream;q=0.9"), Stream),
            (None, Some("application/json;q=0"), Stream),
            (Some("respond-async"), Some(json), Accepted { queues: false }),
            (Some("wait=5, Respond-Async"), None, Accepted { queues: false }),
            (Some("respond-async; wait=10"), None, Accepted { queues: false }),
            (Some("respond-async, queue"), Some(json), Accepted { queues: true }),
            (Some("queue, respond-async"), None, Accepted { queues: true }),
            (Some("queue"), None, Stream),
            (Some("return=minimal"), Some(json), Record),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(prefer) = prefer {
                headers.insert("prefer", HeaderValue::from_static(prefer));
            }
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(ExecutionAnswer::wanted_by(&headers), wanted, "{prefer:?} {accept:?}");
        }
    }
}
