//! AWS's event stream: each event in a frame of lengths, headers and checksums.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::message_stream::MAX_EVENT;
use super::model_api_error::ModelApiError;

/// Length, length of the headers, and the checksum of both.
const PRELUDE: usize = 12;
/// The checksum of all before it.
const TRAILER: usize = 4;
/// The kind of a header's value that is a text.
const TEXT: u8 = 7;

/// Assembles frames from pieces of any size.
#[derive(Debug, Default)]
pub(super) struct AwsFrameDecoder {
    buffer: Vec<u8>,
    start: usize,
}

#[derive(Deserialize)]
struct AwsChunkPayload {
    bytes: String,
}

#[derive(Default, Deserialize)]
struct AwsExceptionPayload {
    #[serde(default, alias = "Message")]
    message: String,
}

impl AwsFrameDecoder {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next event; None until more has come.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, ModelApiError> {
        loop {
            let rest = &self.buffer[self.start..];
            let Some(total) = frame_length(rest)? else { return Ok(None) };
            let event = decode_frame(&rest[..total])?;
            self.start += total;
            if event.is_some() {
                return Ok(event);
            }
        }
    }
}

/// The length of the frame at the start, if all of it is there.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, ModelApiError> {
    if bytes.len() < PRELUDE {
        return Ok(None);
    }
    if number(bytes, 8) != Some(checksum(&bytes[..8])) {
        return Err(malformed("the checksum of a frame's lengths is wrong"));
    }
    let lengths = number(bytes, 0).zip(number(bytes, 4));
    let (total, headers) = lengths.map_or((0, 0), |(t, h)| (t as usize, h as usize));
    if total > MAX_EVENT {
        return Err(ModelApiError::TooLarge(MAX_EVENT));
    }
    if total < PRELUDE + TRAILER + headers {
        return Err(malformed("a frame is shorter than its parts"));
    }
    Ok((bytes.len() >= total).then_some(total))
}

/// What is in a frame; None if it is of a kind that says nothing to us.
fn decode_frame(frame: &[u8]) -> Result<Option<Vec<u8>>, ModelApiError> {
    let end = frame.len() - TRAILER;
    if number(frame, end) != Some(checksum(&frame[..end])) {
        return Err(malformed("the checksum of a frame is wrong"));
    }
    let headers = number(frame, 4).map_or(0, |length| length as usize);
    let (headers, payload) = frame[PRELUDE..end].split_at(headers);
    let headers = texts(headers)?;
    let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    match header(":message-type") {
        Some("event") if header(":event-type") == Some("chunk") => {
            let payload: AwsChunkPayload =
                serde_json::from_slice(payload).map_err(|_| malformed("a frame holds no event"))?;
            let bytes = STANDARD.decode(payload.bytes);
            bytes.map(Some).map_err(|_| malformed("a frame's event is not in base64"))
        }
        Some("event") | None => Ok(None),
        // An exception, or an error.
        Some(_) => {
            let kind = header(":exception-type").or_else(|| header(":error-code"));
            let said =
                serde_json::from_slice::<AwsExceptionPayload>(payload).unwrap_or_default().message;
            let message = if said.is_empty() { header(":error-message") } else { Some(&*said) };
            Err(ModelApiError::BrokenOff {
                kind: kind.unwrap_or("exception").to_owned(),
                message: message.unwrap_or("no reason given").to_owned(),
            })
        }
    }
}

/// Headers whose values are texts, which all are that matter.
fn texts(mut bytes: &[u8]) -> Result<Vec<(&str, &str)>, ModelApiError> {
    let cut = || malformed("a frame's headers are cut off");
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let name = usize::from(bytes[0]);
        let (name, rest) = bytes[1..].split_at_checked(name).ok_or_else(cut)?;
        let (kind, rest) = rest.split_first().ok_or_else(cut)?;
        let (value, rest) = match kind {
            0 | 1 => (None, rest),
            2 => (None, rest.get(1..).ok_or_else(cut)?),
            3 => (None, rest.get(2..).ok_or_else(cut)?),
            4 => (None, rest.get(4..).ok_or_else(cut)?),
            5 | 8 => (None, rest.get(8..).ok_or_else(cut)?),
            9 => (None, rest.get(16..).ok_or_else(cut)?),
            6 | 7 => {
                let (length, rest) = rest.split_at_checked(2).ok_or_else(cut)?;
                let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                let (value, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
                (Some(value).filter(|_| *kind == TEXT), rest)
            }
            _ => return Err(malformed("a frame's header is of an unknown kind")),
        };
        if let (Ok(name), Some(Ok(value))) =
            (std::str::from_utf8(name), value.map(std::str::from_utf8))
        {
            found.push((name, value));
        }
        bytes = rest;
    }
    Ok(found)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
}

fn malformed(what: &str) -> ModelApiError {
    ModelApiError::Unreadable(what.to_owned())
}

/// CRC-32, as in zip files.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (sum >> 8) ^ TABLE[usize::from((sum ^ u32::from(*byte)).to_le_bytes()[0])]
    })
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut sum, mut bit) = (at as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
    }
    table
}

#[cfg(test)]
#[path = "aws_event_stream_tests.rs"]
mod tests;
