//! The event with which a server of the older SSE transport names where messages are posted.

use std::ops::Range;

/// An endpoint event, and where it stands in what was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndpointEvent {
    pub(super) address: String,
    pub(super) event: Range<usize>,
}

/// The first complete event that names an endpoint.
pub(super) fn find_endpoint_event(read: &[u8]) -> Option<EndpointEvent> {
    let mut start = 0;
    while let Some(length) = event_length(&read[start..]) {
        let event = start..start + length;
        if let Some(address) = address(&read[event.clone()]) {
            return Some(EndpointEvent { address, event });
        }
        start += length;
    }
    None
}

/// The bytes of the first event, with the empty line that ends it.
fn event_length(read: &[u8]) -> Option<usize> {
    let mut is_empty = true;
    for (place, byte) in read.iter().enumerate() {
        match byte {
            b'\n' if is_empty => return Some(place + 1),
            b'\n' => is_empty = true,
            b'\r' => {}
            _ => is_empty = false,
        }
    }
    None
}

fn address(event: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(event).ok()?;
    let field = |name: &str| {
        let of = |line: &str| {
            line.strip_prefix(name)?.strip_prefix(':').map(str::trim).map(str::to_owned)
        };
        text.lines().find_map(of)
    };
    let address = field("data").filter(|address| !address.is_empty())?;
    (field("event").as_deref() == Some("endpoint")).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_found_once_its_event_is_whole() {
        let stream =
            ": hello\n\nevent: endpoint\r\ndata: /messages?session=1\r\n\r\ndata: more\n\n";
        for cut in 0..stream.len() {
            let found = find_endpoint_event(&stream.as_bytes()[..cut]);
            let whole = stream.find("data: more").unwrap();
            assert_eq!(found.is_some(), cut >= whole, "{cut}");
            if let Some(found) = found {
                assert_eq!(found.address, "/messages?session=1");
                assert_eq!(
                    &stream[found.event],
                    "event: endpoint\r\ndata: /messages?session=1\r\n\r\n"
                );
            }
        }
        assert_eq!(find_endpoint_event(b"event: endpoint\ndata:\n\nevent: x\ndata: /a\n\n"), None);
    }
}
