use super::*;

fn text(name: &str, value: &str) -> Vec<u8> {
    let mut header = vec![u8::try_from(name.len()).unwrap()];
    header.extend(name.as_bytes());
    header.push(TEXT);
    header.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
    header.extend(value.as_bytes());
    header
}

fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let headers: Vec<u8> = headers.iter().flat_map(|(name, value)| text(name, value)).collect();
    framed(&headers, payload)
}

fn framed(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
    let mut frame = Vec::new();
    frame.extend(length(PRELUDE + TRAILER + headers.len() + payload.len()));
    frame.extend(length(headers.len()));
    frame.extend(checksum(&frame).to_be_bytes());
    frame.extend(headers);
    frame.extend(payload);
    frame.extend(checksum(&frame).to_be_bytes());
    frame
}

fn chunk(event: &str) -> Vec<u8> {
    let payload = format!("{{\"bytes\":\"{}\",\"p\":\"abc\"}}", STANDARD.encode(event));
    let headers = [(":event-type", "chunk"), (":content-type", "x/y"), (":message-type", "event")];
    frame(&headers, payload.as_bytes())
}

fn all(pieces: &[&[u8]]) -> Result<Vec<String>, ModelApiError> {
    let (mut frames, mut found) = (AwsFrameDecoder::default(), Vec::new());
    for piece in pieces {
        frames.push(piece);
        while let Some(event) = frames.next()? {
            found.push(String::from_utf8(event).unwrap());
        }
    }
    Ok(found)
}

#[test]
fn the_checksum_is_the_known_one() {
    // The check value that goes with the definition of CRC-32.
    assert_eq!(checksum(b"123456789"), 0xCBF4_3926);
}

#[test]
fn however_frames_are_cut_their_events_are_the_same() {
    let other = frame(&[(":event-type", "metrics"), (":message-type", "event")], b"{}");
    let bytes = [chunk("一"), other, chunk("2")].concat();
    let whole = vec!["一".to_owned(), "2".to_owned()];
    for cut in 0..=bytes.len() {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(all(&[first, second]), Ok(whole.clone()), "{cut}");
    }
}

#[test]
fn a_bit_that_fell_over_is_noticed_wherever_it_was() {
    let good = chunk("{\"type\":\"ping\"}");
    for place in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            // A length that says that more will come waits for it in vain, unless it is checked.
            let failed = all(&[&bad]).unwrap_err();
            assert!(matches!(failed, ModelApiError::Unreadable(_)), "{place}: {failed:?}");
        }
    }
}

#[test]
fn frames_that_cannot_be_are_refused() {
    let mut huge = u32::MAX.to_be_bytes().to_vec();
    huge.extend([0; 4]);
    huge.extend(checksum(&huge).to_be_bytes());
    assert_eq!(all(&[&huge]), Err(ModelApiError::TooLarge(MAX_EVENT)));
    let mut short = 12_u32.to_be_bytes().to_vec();
    short.extend(9_u32.to_be_bytes());
    short.extend(checksum(&short).to_be_bytes());
    assert!(matches!(all(&[&short]), Err(ModelApiError::Unreadable(_))));
    for headers in [&b"\x09:e"[..], b"\x01a\x07\x00\x09x", b"\x01a\x63", b"\x01a", b"\x01a\x05\x00"]
    {
        assert!(
            matches!(all(&[&framed(headers, b"")]), Err(ModelApiError::Unreadable(_))),
            "{headers:?}"
        );
    }
    let event = [(":event-type", "chunk"), (":message-type", "event")];
    for payload in [&b"x"[..], b"{}", b"{\"bytes\":\"***\"}"] {
        assert!(matches!(all(&[&frame(&event, payload)]), Err(ModelApiError::Unreadable(_))));
    }
}

#[test]
fn an_exception_is_told_in_its_own_words() {
    let headers = [(":exception-type", "throttlingException"), (":message-type", "exception")];
    let expected = |kind: &str, message: &str| {
        Err(ModelApiError::BrokenOff { kind: kind.to_owned(), message: message.to_owned() })
    };
    let thrown = frame(&headers, b"{\"message\":\"too fast\"}");
    assert_eq!(all(&[&thrown]), expected("throttlingException", "too fast"));
    let headers = [(":error-code", "E"), (":error-message", "why"), (":message-type", "error")];
    assert_eq!(all(&[&frame(&headers, b"")]), expected("E", "why"));
}
