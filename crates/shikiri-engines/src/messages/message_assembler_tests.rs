use super::*;

fn take(
    assembler: &mut MessageAssembler,
    event: &Value,
) -> Result<Option<ModelStreamUpdate>, ModelApiError> {
    assembler.take(event.to_string().as_bytes())
}

fn start() -> Value {
    let usage = json!({ "input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 3 });
    let message = json!({ "id": "msg_1", "model": "m", "usage": usage, "content": [] });
    json!({ "type": "message_start", "message": message })
}

fn block(index: usize, block: &Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: usize, delta: &Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn stop(index: usize) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn text() -> Value {
    json!({ "type": "text", "text": "" })
}

fn piece(text: &str) -> Value {
    json!({ "type": "text_delta", "text": text })
}

fn end() -> [Value; 2] {
    let delta = json!({ "stop_reason": "end_turn" });
    let usage = json!({ "output_tokens": 9 });
    let last = json!({ "type": "message_delta", "delta": delta, "usage": usage });
    [last, json!({ "type": "message_stop" })]
}

#[test]
fn thoughts_keep_their_signatures_and_calls_their_input() {
    let mut assembler = MessageAssembler::default();
    let thinking = json!({ "type": "thinking", "thinking": "", "signature": "" });
    let call = json!({ "type": "tool_use", "id": "t", "name": "f", "input": {} });
    let partial = |json: &str| json!({ "type": "input_json_delta", "partial_json": json });
    let events = [
        start(),
        json!({ "type": "ping" }),
        block(0, &thinking),
        delta(0, &json!({ "type": "thinking_delta", "thinking": "h" })),
        delta(0, &json!({ "type": "thinking_delta", "thinking": "m" })),
        delta(0, &json!({ "type": "signature_delta", "signature": "s==" })),
        stop(0),
        block(1, &text()),
        delta(1, &piece("木")),
        delta(1, &json!({ "type": "citations_delta", "citation": {} })),
        stop(1),
        block(2, &call),
        delta(2, &partial("{\"a\":")),
        delta(2, &partial("[1]}")),
        stop(2),
        block(3, &json!({ "type": "redacted_thinking", "data": "x" })),
        stop(3),
    ];
    let mut news = Vec::new();
    for event in events.iter().chain(&end()) {
        news.extend(take(&mut assembler, event).unwrap());
    }
    let usage = |output_tokens| TokenUsage {
        input_tokens: 7,
        cache_read_tokens: 3,
        output_tokens,
        ..TokenUsage::default()
    };
    let (id, model) = ("msg_1".to_owned(), "m".to_owned());
    let whole = AssembledMessage {
        id: id.clone(),
        model: model.clone(),
        content: vec![
            json!({ "type": "thinking", "thinking": "hm", "signature": "s==" }),
            json!({ "type": "text", "text": "木" }),
            json!({ "type": "tool_use", "id": "t", "name": "f", "input": { "a": [1] } }),
            json!({ "type": "redacted_thinking", "data": "x" }),
        ],
        stop_reason: Some("end_turn".to_owned()),
        usage: usage(9),
    };
    let expected = [
        ModelStreamUpdate::Started { id, model, usage: usage(1) },
        ModelStreamUpdate::Thought("hm".to_owned()),
        ModelStreamUpdate::Text("木".to_owned()),
        ModelStreamUpdate::Done(whole),
    ];
    assert_eq!(news, expected);
}

#[test]
fn a_stream_that_makes_no_sense_is_refused() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
    let [delta_end, message_end] = end();
    let table: Vec<Vec<Value>> = vec![
        vec![json!({ "type": "message_stop" })],
        vec![block(0, &text())],
        vec![start(), start()],
        vec![start(), block(1, &text())],
        vec![start(), block(0, &text()), block(1, &text())],
        vec![start(), delta(0, &piece("x"))],
        vec![start(), block(0, &text()), delta(1, &piece("x"))],
        vec![start(), block(0, &text()), stop(0), delta(0, &piece("x"))],
        vec![start(), stop(0)],
        vec![start(), block(0, &text()), delta_end, message_end.clone()],
        vec![start(), block(0, &call("")), stop(0), message_end.clone()],
        vec![start(), block(0, &call("t")), stop(0), block(1, &call("t")), stop(1), message_end],
        vec![
            start(),
            block(0, &call("t")),
            delta(0, &json!({ "type": "input_json_delta", "partial_json": "{\"a" })),
            stop(0),
            json!({ "type": "message_stop" }),
        ],
        vec![json!({ "type": 7 })],
        vec![json!("x")],
        vec![json!({ "type": "message_start" })],
    ];
    for events in table {
        let mut assembler = MessageAssembler::default();
        let (last, before) = events.split_last().unwrap();
        for event in before {
            take(&mut assembler, event).unwrap();
        }
        let failed = take(&mut assembler, last).unwrap_err();
        assert!(matches!(failed, ModelApiError::Unreadable(_)), "{events:?}: {failed:?}");
    }
    assert!(matches!(
        MessageAssembler::default().take(b"{\"type\":"),
        Err(ModelApiError::Unreadable(_))
    ));
}

#[test]
fn an_error_in_the_middle_is_told_in_its_own_words() {
    let mut assembler = MessageAssembler::default();
    take(&mut assembler, &start()).unwrap();
    let error = json!({ "type": "overloaded_error", "message": "busy" });
    let failed = take(&mut assembler, &json!({ "type": "error", "error": error })).unwrap_err();
    let (kind, message) = ("overloaded_error".to_owned(), "busy".to_owned());
    assert_eq!(failed, ModelApiError::BrokenOff { kind, message });
    assert!(failed.is_retryable());
    assert_eq!(assembler.usage().input_tokens, 7, "what was told was spent");
}
