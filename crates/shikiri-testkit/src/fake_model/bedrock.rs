//! Bedrock's stream format: each event is a frame of lengths, headers and checksums.

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(super) const CONTENT_TYPE: &str = "application/vnd.amazon.eventstream";

/// Lengths and checksums around headers and payload.
const FRAMING: usize = 16;
/// The type of text values in headers.
const TEXT: u8 = 7;

pub(super) fn frame(event: &Value) -> Bytes {
    let inside = json!({ "bytes": STANDARD.encode(event.to_string()) }).to_string();
    let headers = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    let headers: Vec<u8> = headers.iter().flat_map(|(name, value)| header(name, value)).collect();
    let mut frame = Vec::new();
    frame.extend(length(FRAMING + headers.len() + inside.len()));
    frame.extend(length(headers.len()));
    frame.extend(checksum(&frame).to_be_bytes());
    frame.extend(headers);
    frame.extend(inside.as_bytes());
    frame.extend(checksum(&frame).to_be_bytes());
    frame.into()
}

fn header(name: &str, value: &str) -> Vec<u8> {
    let mut header = vec![u8::try_from(name.len()).expect("a short name")];
    header.extend(name.as_bytes());
    header.push(TEXT);
    header.extend(u16::try_from(value.len()).expect("a short value").to_be_bytes());
    header.extend(value.as_bytes());
    header
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("a frame's length").to_be_bytes()
}

/// CRC-32, as in zip files.
fn checksum(bytes: &[u8]) -> u32 {
    let shifted = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 };
    !bytes
        .iter()
        .fold(!0, |sum: u32, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shifted(sum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_known_one() {
        // The check value that goes with the definition of CRC-32.
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn a_frame_tells_its_own_length_and_holds_the_event() {
        let event = json!({ "type": "ping" });
        let frame = frame(&event);
        let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        assert_eq!(number(0) as usize, frame.len());
        let headers = number(4) as usize;
        let inside = &frame[12 + headers..frame.len() - 4];
        let inside: Value = serde_json::from_slice(inside).unwrap();
        let bytes = STANDARD.decode(inside["bytes"].as_str().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), event);
        assert_eq!(number(frame.len() - 4), checksum(&frame[..frame.len() - 4]));
    }
}
