//! Server-sent events out of a response's bytes.

use bytes::{Buf as _, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::MAX_MESSAGE;
use crate::error::ClientError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: String,
    pub(crate) retry_ms: Option<u64>,
}

pub(crate) struct Events {
    bytes: BoxStream<'static, Result<bytes::Bytes, reqwest::Error>>,
    buffer: BytesMut,
    /// How much of the buffer holds no line break.
    searched: usize,
    event: Event,
    is_first: bool,
}

impl Events {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self {
            bytes: response.bytes_stream().boxed(),
            buffer: BytesMut::new(),
            searched: 0,
            event: Event::default(),
            is_first: true,
        }
    }

    /// The next event that has data or an id; None at the end. May be dropped while it waits:
    /// what has come in is kept.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            while let Some(line) = self.line()? {
                if !line.is_empty() {
                    self.field(&line);
                    continue;
                }
                let event = std::mem::take(&mut self.event);
                if event.id.is_some() || event.retry_ms.is_some() || !event.data.is_empty() {
                    return Ok(Some(event));
                }
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(error)) => return Err(ClientError::Cut(plain(&error))),
                None => return Ok(None),
            }
        }
    }

    /// A whole line, without its end.
    fn line(&mut self) -> Result<Option<String>, ClientError> {
        let Some(at) = self.buffer[self.searched..].iter().position(|b| matches!(b, b'\n' | b'\r'))
        else {
            self.searched = self.buffer.len();
            if self.buffer.len() + self.event.data.len() > MAX_MESSAGE {
                return Err(ClientError::Garbled("an event of more than 16 MiB".to_owned()));
            }
            return Ok(None);
        };
        let end = self.searched + at;
        // A line may end with both; the second one is not known before it has come.
        if self.buffer[end] == b'\r' && end + 1 == self.buffer.len() {
            self.searched = end;
            return Ok(None);
        }
        let both = self.buffer[end] == b'\r' && self.buffer[end + 1] == b'\n';
        let line = self.buffer.split_to(end);
        self.buffer.advance(if both { 2 } else { 1 });
        self.searched = 0;
        let text = String::from_utf8_lossy(&line).into_owned();
        let text = match std::mem::take(&mut self.is_first) {
            true => text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text),
            false => text,
        };
        Ok(Some(text))
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.event.name = value.to_owned(),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry_ms = value.parse().ok(),
            _ => {}
        }
    }
}

/// What went wrong, without the address, which may hold a secret.
pub(crate) fn plain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    if error.is_timeout() { "it took too long".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(parts: &[&str]) -> Vec<Event> {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok(bytes::Bytes::from((*part).to_owned()))).collect();
        let mut events = Events {
            bytes: futures_util::stream::iter(parts).boxed(),
            buffer: BytesMut::new(),
            searched: 0,
            event: Event::default(),
            is_first: true,
        };
        let mut read = Vec::new();
        while let Some(event) = events.next().await.unwrap() {
            read.push(event);
        }
        read
    }

    #[tokio::test]
    async fn events_come_out_whole_however_the_bytes_are_cut() {
        let text = "\u{feff}: hello\nid: a\nretry: 5\ndata:\n\nevent: message\r\nid: b\r\ndata: {\"鍵\":\r\ndata: 1}\r\n\r\n:ping\n\ndata: c\r\rdata: torn";
        let whole = read(&[text]).await;
        let shown: Vec<_> =
            whole.iter().map(|it| (it.id.as_deref(), it.data.as_str(), it.retry_ms)).collect();
        assert_eq!(
            shown,
            [(Some("a"), "", Some(5)), (Some("b"), "{\"鍵\":\n1}", None), (None, "c", None)]
        );
        let ends: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
        for at in ends {
            assert_eq!(read(&[&text[..at], &text[at..]]).await, whole, "cut at {at}");
        }
    }

    #[tokio::test]
    async fn an_event_without_end_is_given_up() {
        let endless = vec!["x"; 1]
            .into_iter()
            .chain(std::iter::repeat_n("", 0))
            .map(|part| Ok(bytes::Bytes::from(part)))
            .chain(
                std::iter::repeat_with(|| Ok(bytes::Bytes::from(vec![b'x'; 1024 * 1024]))).take(20),
            );
        let mut events = Events {
            bytes: futures_util::stream::iter(endless.collect::<Vec<_>>()).boxed(),
            buffer: BytesMut::new(),
            searched: 0,
            event: Event::default(),
            is_first: true,
        };
        assert!(matches!(events.next().await, Err(ClientError::Garbled(_))));
    }
}
