use super::*;

fn code(body: &str) -> (Value, i32) {
    let unreadable = parse(body.as_bytes()).unwrap_err();
    (unreadable.id, unreadable.fault.code)
}

#[test]
fn each_kind_of_message_is_told_apart() {
    let request = parse(r#"{"jsonrpc":"2.0","id":"あ","method":"ping"}"#.as_bytes()).unwrap();
    let ClientMessage::Request(request) = request else { panic!("{request:?}") };
    assert_eq!((request.id, request.method.as_str()), (json!("あ"), "ping"));
    let parsed = parse(br#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#);
    assert!(matches!(parsed, Ok(ClientMessage::Notification { .. })));
    let answer = parse(br#"{"jsonrpc":"2.0","id":"q_1","result":{"action":"accept"}}"#).unwrap();
    assert_eq!(
        answer,
        ClientMessage::Response { id: json!("q_1"), outcome: Ok(json!({ "action": "accept" })) }
    );
    let error = parse(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#).unwrap();
    assert!(matches!(error, ClientMessage::Response { outcome: Err(_), .. }));
}

#[test]
fn what_is_no_message_is_refused_with_the_codes_of_the_specification() {
    for (body, expected) in [
        ("", (Value::Null, -32700)),
        ("{", (Value::Null, -32700)),
        ("[]", (Value::Null, -32600)),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, (Value::Null, -32600)),
        ("7", (Value::Null, -32600)),
        (r#"{"id":1,"method":"ping"}"#, (json!(1), -32600)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, (json!(1), -32600)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, (Value::Null, -32600)),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, (Value::Null, -32600)),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, (Value::Null, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, (json!(1), -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, (json!(1), -32602)),
        (r#"{"jsonrpc":"2.0","id":1}"#, (json!(1), -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":1}"#, (json!(1), -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}"#, (Value::Null, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#, (json!(1), -32600)),
    ] {
        assert_eq!(code(body), expected, "{body}");
    }
}

#[test]
fn answers_are_written_under_the_id_of_their_request() {
    let good = reply(&json!(7), &Ok(json!({ "text": "日本" })));
    assert_eq!(
        serde_json::from_str::<Value>(&good).unwrap(),
        json!({ "jsonrpc": "2.0", "id": 7, "result": { "text": "日本" } })
    );
    let bad = reply(&json!("a"), &Err(RpcError::method("nope")));
    let bad: Value = serde_json::from_str(&bad).unwrap();
    assert_eq!((&bad["id"], &bad["error"]["code"]), (&json!("a"), &json!(-32601)));
    let without_id: Value =
        serde_json::from_str(&reply(&Value::Null, &Err(RpcError::parse("?")))).unwrap();
    assert_eq!(without_id.get("id"), None, "the schema allows no null");
}

#[test]
fn a_name_that_only_looks_alike_is_another_name() {
    // U+017F is an s to those who compare without regard to case.
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{"name":"a"},"paramſ":{"name":"b"}}"#;
    let Ok(ClientMessage::Request(request)) = parse(body.as_bytes()) else { panic!("{body}") };
    assert!(request.params.is_empty(), "{request:?}");
}
