use axum::http::HeaderValue;
use serde_json::json;

use super::*;
use crate::catalogue::object;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn request(params: Value) -> RpcRequest {
    RpcRequest { id: json!(1), method: "tools/call".to_owned(), params: object(params) }
}

fn call(pairs: &[(&str, &str)], params: Value, schema: Value) -> Result<(), i32> {
    check(&headers(pairs), &request(params), Some(&object(schema))).map_err(|fault| fault.code)
}

#[test]
fn method_and_name_must_be_what_the_body_says() {
    let body = json!({ "name": "旅" });
    let good = "=?base64?5peF?=";
    assert_eq!(
        call(&[("mcp-method", "tools/call"), ("mcp-name", good)], body.clone(), json!({})),
        Ok(())
    );
    for bad in [
        &[("mcp-name", good)][..],
        &[("mcp-method", "tools/list"), ("mcp-name", good)],
        &[("mcp-method", "tools/call")],
        &[("mcp-method", "tools/call"), ("mcp-name", "other")],
        &[("mcp-method", "tools/call"), ("mcp-name", "=?base64?!!?=")],
        &[("mcp-method", "tools/call"), ("mcp-name", good), ("mcp-name", good)],
    ] {
        assert_eq!(call(bad, body.clone(), json!({})), Err(-32020), "{bad:?}");
    }
}

#[test]
fn marked_arguments_must_stand_in_their_headers() {
    let schema = json!({ "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "deep": { "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
        "plain": { "type": "string" },
    }});
    let base = [("mcp-method", "tools/call"), ("mcp-name", "a")];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    let body = json!({ "name": "a", "arguments": {
        "region": "eu", "deep": { "n": 7 }, "plain": "x"
    }});
    let check = |pairs: &[(&str, &str)]| call(pairs, body.clone(), schema.clone());
    assert_eq!(check(&with(&[("mcp-param-region", "eu"), ("mcp-param-n", "7")])), Ok(()));
    assert_eq!(check(&with(&[("mcp-param-region", "eu")])), Err(-32020));
    assert_eq!(check(&with(&[("mcp-param-region", "us"), ("mcp-param-n", "7")])), Err(-32020));
    let empty = json!({ "name": "a", "arguments": { "region": null } });
    assert_eq!(call(&base, empty.clone(), schema.clone()), Ok(()));
    assert_eq!(call(&with(&[("mcp-param-region", "eu")]), empty, schema.clone()), Err(-32020));
}

#[test]
fn what_a_client_takes_is_read_as_http_means_it() {
    let both = ["application/json", "text/event-stream"];
    for good in ["application/json, text/event-stream", "*/*", "text/*;q=0.5, Application/JSON"] {
        assert!(accepts(&headers(&[("accept", good)]), &both).is_ok(), "{good}");
    }
    assert!(accepts(&HeaderMap::new(), &both).is_ok());
    for bad in ["application/json", "text/html"] {
        assert!(accepts(&headers(&[("accept", bad)]), &both).is_err(), "{bad}");
    }
    assert!(is_json(&headers(&[("content-type", "application/json; charset=utf-8")])).is_ok());
    assert!(is_json(&headers(&[("content-type", "text/plain")])).is_err());
    assert!(is_json(&HeaderMap::new()).is_err());
}
