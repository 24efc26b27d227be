//! What a server sent in reply to one call, and whether it is what was asked for.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The result of a call and what was told on the way.
#[derive(Debug)]
pub(super) struct Answer {
    id: u64,
    texts: Vec<String>,
    is_error: bool,
    /// Progress that was told, in order.
    progress: Vec<f64>,
}

#[derive(Deserialize)]
struct Message<'a> {
    id: Option<u64>,
    method: Option<&'a str>,
    params: Option<Params>,
    result: Option<Outcome>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params {
    progress: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    #[serde(default)]
    content: Vec<Content>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct Content {
    text: Option<String>,
}

/// Reads a whole body, which is one message or a stream of them.
pub(super) fn read(body: &[u8], event_stream: bool) -> Result<Answer> {
    let mut progress = Vec::new();
    let mut result = None;
    let whole = (!event_stream).then_some(body);
    let streamed = event_stream.then(|| data_lines(body)).into_iter().flatten();
    for text in whole.into_iter().chain(streamed) {
        let message: Message<'_> = serde_json::from_slice(text)
            .with_context(|| format!("cannot read {}", String::from_utf8_lossy(text)))?;
        if let Some(error) = message.error {
            bail!("the server answered {error}");
        }
        if message.method == Some("notifications/progress") {
            progress
                .push(message.params.and_then(|params| params.progress).context("no progress")?);
        } else if let Some(outcome) = message.result {
            ensure!(result.is_none(), "two results for one call");
            result = Some((message.id.context("a result without an id")?, outcome));
        }
    }
    let (id, outcome) = result.context("no result")?;
    let texts = outcome.content.into_iter().filter_map(|content| content.text).collect();
    Ok(Answer { id, texts, is_error: outcome.is_error, progress })
}

/// The data of a stream's events; every peer writes a message on one line.
fn data_lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_prefix(b"data:"))
        .map(<[u8]>::trim_ascii)
        .filter(|data| !data.is_empty())
}

impl Answer {
    /// That it answers this call with this text, after having told of all `steps`, in order. A
    /// server may also say that it has begun, which is progress 0.
    pub(super) fn check(&self, id: u64, text: Option<&str>, steps: u64) -> Result<()> {
        ensure!(self.id == id, "an answer to call {} for call {id}", self.id);
        ensure!(!self.is_error, "the tool failed: {:?}", self.texts);
        if let Some(text) = text {
            ensure!(self.texts == [text], "{:?} instead of {text:?}", self.texts);
        }
        let told = self.progress.iter().copied().filter(|progress| *progress > 0.0);
        let expected = (1..=steps).map(|step| step as f64);
        ensure!(told.eq(expected), "not progress 1 to {steps}: {:?}", self.progress);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"id: 0\nretry: 3000\ndata:\n\nevent: message\r\ndata: \
        {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":7,\
        \"progress\":1,\"total\":2}}\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\
        \"notifications/progress\",\"params\":{\"progressToken\":7,\"progress\":2.0}}\n\ndata: \
        {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}}\n\n";

    #[test]
    fn a_stream_with_all_its_progress_passes() {
        read(STREAM, true).unwrap().check(7, Some("hi"), 2).unwrap();
    }

    #[test]
    fn another_id_text_or_count_does_not_pass() {
        let answer = read(STREAM, true).unwrap();
        assert!(answer.check(8, Some("hi"), 2).is_err());
        assert!(answer.check(7, Some("ho"), 2).is_err());
        assert!(answer.check(7, Some("hi"), 3).is_err());
        assert!(answer.check(7, Some("hi"), 1).is_err());
    }

    #[test]
    fn errors_and_missing_results_are_told() {
        let error = br#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}"#;
        assert!(read(error, false).unwrap_err().to_string().contains("-32601"));
        assert!(read(b"", true).is_err());
        let failed = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"isError":true}}"#;
        assert!(read(failed, false).unwrap().check(7, None, 0).is_err());
    }
}
