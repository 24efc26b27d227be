use std::time::Duration;

use axum::body::to_bytes;
use axum::http::StatusCode;

use super::*;

async fn shown(problem: impl Into<ProblemResponse>) -> String {
    let response = problem.into().into_response();
    let mut lines = vec![response.status().to_string()];
    for name in ["content-type", "www-authenticate", "retry-after"] {
        let value = response.headers().get(name);
        lines.extend(value.map(|value| format!("{name}: {}", value.to_str().unwrap())));
    }
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    lines.push(String::from_utf8(body.to_vec()).unwrap());
    lines.join("\n")
}

#[tokio::test]
async fn every_failure_has_its_status_and_code() {
    let mut table = Vec::new();
    for error in [
        AppError::not_found("tenant", "a"),
        AppError::not_found("run", "run_1"),
        AppError::not_found("key", "key_1"),
        AppError::not_found("open question", "q_1"),
        AppError::not_found("stream", "run/run_1"),
        AppError::Exists { kind: "tenant", id: "a".to_owned() },
        AppError::invalid("name", "must have 1 to 200 characters"),
        AppError::NotNow("the run has ended (completed)".to_owned()),
        AppError::Unavailable("disk /secret/path is full".to_owned()),
        AppError::Broken("password=hunter2".to_owned()),
    ] {
        table.push(shown(error).await);
    }
    table.push(shown(ProblemResponse::unauthorized()).await);
    let limit = Duration::from_millis(1_001);
    let (quota, tenant) = ("stored_bytes", "a".to_owned());
    table.push(shown(AppError::Quota { quota, used: 7, limit: 5, tenant }).await);
    table.push(shown(AppError::Limit { detail: "too many".to_owned(), retry_after: limit }).await);
    insta::assert_snapshot!(without_ids(&table.join("\n\n")));
}

/// Each failure has an id of its own, of 16 digits.
fn without_ids(text: &str) -> String {
    let mut parts = text.split("err_");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| format!("{shown}err_…{}", &part[16..]))
}

#[tokio::test]
async fn only_an_execution_is_named_as_one() {
    for (holder, wanted) in [
        ("exe_01ja", r#""execution_id":"exe_01ja""#),
        ("a change", r#""code":"CONVERSATION_LOCKED""#),
        ("exe_ something", r#""code":"CONVERSATION_LOCKED""#),
        ("run_01ja", r#""code":"CONVERSATION_LOCKED""#),
    ] {
        let (conversation, execution) = ("cnv_1".to_owned(), holder.to_owned());
        let retry_after = Duration::from_secs(1);
        let text = shown(AppError::Locked { conversation, execution, retry_after }).await;
        assert!(text.contains(wanted), "{text}");
        assert_eq!(text.contains("execution_id"), wanted.contains("execution_id"), "{text}");
    }
}

#[tokio::test]
async fn a_long_id_is_not_thrown_back() {
    assert!(
        shown(ProblemResponse::id_not_found("tenant", &"x".repeat(10_000))).await.len() < 1_000
    );
}

#[tokio::test]
async fn a_panic_tells_the_caller_nothing() {
    let response = on_panic(Box::new("secret".to_owned()));
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    assert!(!String::from_utf8_lossy(&body).contains("secret"));
}
