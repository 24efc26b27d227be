use axum::http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use super::*;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Form {
    name: String,
    size: u32,
    inner: JsonObject<Inner>,
    any: Value,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Inner {
    flag: bool,
}

async fn send(kind: Option<&'static str>, body: impl Into<Body>) -> Result<Form, ProblemResponse> {
    let mut request = Request::new(body.into());
    if let Some(kind) = kind {
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    Json::from_request(request, &()).await.map(|Json(form)| form)
}

#[tokio::test]
async fn a_good_body_is_read_and_an_absent_one_is_empty() {
    let form = send(Some("application/json; charset=utf-8"), r#"{"name":"a","size":3}"#).await;
    assert_eq!(form, Ok(Form { name: "a".to_owned(), size: 3, ..Form::default() }));
    assert_eq!(send(Some("application/merge-patch+json"), "{}").await, Ok(Form::default()));
    assert_eq!(send(None, "").await, Ok(Form::default()));
}

#[tokio::test]
async fn a_value_in_the_wrong_place_is_not_repeated() {
    for (body, wanted) in [
        (r#"{"size":"秘密"}"#, "size: invalid type: string, expected u32"),
        (r#"{"size":"\", expected 秘密"}"#, "size: invalid type: string, expected u32"),
        (r#"{"name":1234567}"#, "name: invalid type: integer, expected a string"),
        (r#"{"size":-1234567}"#, "size: invalid value: integer, expected u32"),
        (r#"{"inner":"秘密"}"#, "inner: invalid type: string, expected an object"),
        (r#"{"name":["秘密"]}"#, "name: invalid type: sequence, expected a string"),
    ] {
        let text = format!("{:?}", send(Some("application/json"), body).await.unwrap_err());
        assert!(text.contains(wanted), "{body}: {text}");
        assert!(!text.contains("秘密") && !text.contains("1234567"), "{body}: {text}");
    }
}

#[tokio::test]
async fn a_list_is_no_object() {
    for (body, wanted) in [
        (r#"["a",3,{"flag":true},null]"#, "body: invalid type: sequence, expected an object"),
        (" []", "body: invalid type: sequence, expected an object"),
        ("null", "body: invalid type: null, expected an object"),
        (r#""a""#, "body: invalid type: string, expected an object"),
        (r#"{"inner":[true]}"#, "inner: invalid type: sequence, expected an object"),
    ] {
        let problem = send(Some("application/json"), body).await.unwrap_err();
        assert_eq!(problem.code, Code::InvalidRequest, "{body}");
        assert!(format!("{problem:?}").contains(wanted), "{body}: {problem:?}");
    }
    let form = send(Some("application/json"), r#"{"inner":{"flag":true},"any":[1]}"#).await;
    assert!(form.unwrap().inner.0.flag);
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    for (body, wanted) in [
        (r#"{"nam":"a"}"#, "unknown field `nam`"),
        (r#"{"inner":{"flg":true}}"#, "unknown field `flg`"),
        (r#"{"size":"3"}"#, "size: invalid type: string"),
        (r#"{"size":-1}"#, "size: invalid value"),
        (r#"{"inner":{"flag":1}}"#, "inner.flag: invalid type"),
        (r#"{"name":"a","name":"b"}"#, "duplicate field `name`"),
        (r#"{"name":"a""#, "body: EOF"),
        (r#"{"name":"a"} x"#, "body: trailing characters"),
        ("[]x", ""),
        ("", "EOF"),
        ("\u{0}", "expected value"),
        (r#"{"name":"\ud800"}"#, ""),
    ] {
        let problem = send(Some("application/json"), body).await.unwrap_err();
        assert_eq!(problem.code, Code::InvalidRequest, "{body}");
        let text = format!("{problem:?}");
        assert!(text.contains(wanted), "{body}: {text}");
    }
    let problem = send(Some("application/json"), r#"{"inner":{"flg":true}}"#).await.unwrap_err();
    assert!(format!("{problem:?}").contains(r#"field: Some("inner.flg")"#), "{problem:?}");
}

#[tokio::test]
async fn other_kinds_of_content_are_refused() {
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("")] {
        let problem = send(kind, "{}").await.unwrap_err();
        assert_eq!(problem.code, Code::UnsupportedMediaType, "{kind:?}");
    }
}

#[tokio::test]
async fn size_is_bounded() {
    let of = |bytes: usize| format!(r#"{{"name":"{}"}}"#, "x".repeat(bytes - 11));
    assert!(send(Some("application/json"), of(MAX_BODY)).await.is_ok());
    for bytes in [MAX_BODY + 1, MAX_SKIPPED + 1] {
        let problem = send(Some("application/json"), of(bytes)).await.unwrap_err();
        assert_eq!(problem.code, Code::PayloadTooLarge);
    }
    // The same without a known length.
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let pieces = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone()));
    let problem = send(Some("application/json"), Body::from_stream(pieces)).await.unwrap_err();
    assert_eq!(problem.code, Code::PayloadTooLarge);
}

#[tokio::test]
async fn depth_is_bounded() {
    let of = |depth: usize| format!(r#"{{"any":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert!(send(Some("application/json"), of(63)).await.is_ok());
    for depth in [64, 200, 1_000_000] {
        let problem = send(Some("application/json"), of(depth)).await.unwrap_err();
        assert!(format!("{problem:?}").contains("64 deep"), "{depth}");
    }
    let text = format!(r#"{{"name":"{}\"[[["}}"#, "[{".repeat(100));
    assert!(send(Some("application/json"), text).await.is_ok());
}

#[tokio::test]
async fn a_body_that_stops_coming_is_given_up() {
    let ms = Duration::from_millis;
    let silence = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let patience = BodyTimeouts { pause: ms(20), total: ms(60_000) };
    let problem = read(Body::from_stream(silence), false, patience, None).await.unwrap_err();
    assert_eq!(problem.code, Code::RequestTimeout);

    let drip = futures_util::stream::unfold((), move |()| async move {
        tokio::time::sleep(ms(5)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
    });
    let patience = BodyTimeouts { pause: ms(60_000), total: ms(50) };
    let problem = read(Body::from_stream(drip), false, patience, None).await.unwrap_err();
    assert_eq!(problem.code, Code::RequestTimeout);
}
