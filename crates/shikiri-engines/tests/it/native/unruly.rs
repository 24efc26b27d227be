//! APIs that behave badly: what they send is refused in clear words, and within bounds.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;

use super::*;

/// An API that answers every request alike. Gives its address.
async fn api(answer: impl Fn(usize) -> Response + Clone + Send + Sync + 'static) -> String {
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let serve = move || {
        let (answer, count) = (answer.clone(), Arc::clone(&count));
        async move { answer(count.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) }
    };
    let router = Router::new().fallback(serve);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn run(which: TestEngine, url: &str) -> Outcome {
    let world = World::new(which).await;
    let mut order = world.order("go");
    for name in ["ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL"] {
        order.env.insert(name.into(), url.to_owned());
    }
    order.env.insert("CLAUDE_CODE_MAX_RETRIES".into(), "1".into());
    world.run(order).await
}

const START: &str = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"x\",\
\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n";

#[tokio::test]
async fn a_stream_that_is_no_stream_is_refused_in_clear_words() {
    let bodies: [&'static str; 4] = [
        "data: {\"type\": \n\n",
        "data: <html>502</html>\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
    ];
    for body in bodies {
        let url = api(move |_| body.into_response()).await;
        let ended = run(TestEngine::Anthropic, &url).await;
        assert!(ended.error().contains("not a message"), "{body}: {}", ended.error());
    }
    for body in [&b"HTTP/1.1 is not a frame at all"[..], &[0; 64]] {
        let url = api(move |_| body.into_response()).await;
        let ended = run(TestEngine::Bedrock, &url).await;
        assert!(ended.error().contains("not a message"), "{}", ended.error());
    }
    // Nothing but an end is as good as a broken connection: it is tried again, once.
    for which in [TestEngine::Anthropic, TestEngine::Bedrock] {
        let url = api(|_| "".into_response()).await;
        let ended = run(which, &url).await;
        assert!(ended.error().contains("ended early"), "{}", ended.error());
        assert_eq!(ended.notes("api_retry"), 1);
    }
}

/// The same bytes for ever.
fn endless(first: &'static str, again: Bytes) -> Response {
    let start = stream::once(async move { Ok::<_, std::convert::Infallible>(Bytes::from(first)) });
    let rest = stream::repeat_with(move || Ok(again.clone()));
    Body::from_stream(futures_util::StreamExt::chain(start, rest)).into_response()
}

#[tokio::test]
async fn a_server_that_streams_for_ever_is_left() {
    // One line that does not end, and pings that do.
    for again in ["x".repeat(64 * 1024), "data: {\"type\":\"ping\"}\n\n".repeat(4_000)] {
        let again = Bytes::from(again);
        let url = api(move |_| endless(START, again.clone())).await;
        let ended = run(TestEngine::Anthropic, &url).await;
        assert!(ended.error().contains("more than"), "{}", ended.error());
        assert_eq!(ended.bill()[&None].input_tokens, 5, "what was told is billed");
    }
    let url = api(|_| endless("", Bytes::from(vec![0xFF; 64 * 1024]))).await;
    let ended = run(TestEngine::Bedrock, &url).await;
    assert!(ended.error().contains("not a message"), "{}", ended.error());
    // A refusal without an end.
    let url = api(|_| {
        let mut refused = endless("", Bytes::from("x".repeat(64 * 1024)));
        *refused.status_mut() = StatusCode::BAD_REQUEST;
        refused
    })
    .await;
    let ended = run(TestEngine::Anthropic, &url).await;
    assert!(ended.error().contains("400"), "{}", ended.error());
}

#[tokio::test]
async fn an_api_says_when_to_come_back_and_is_given_up_if_that_is_long() {
    let refused = |seconds: &'static str| {
        let body = "{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"later\"}}";
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", seconds)], body).into_response()
    };
    let whole = format!(
        "{START}data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\
         \"usage\":{{\"output_tokens\":3}}}}\n\ndata: {{\"type\":\"message_stop\"}}\n\n"
    );
    let url = api(move |n| if n == 0 { refused("1") } else { whole.clone().into_response() }).await;
    let begun = std::time::Instant::now();
    let ended = run(TestEngine::Anthropic, &url).await;
    assert_eq!(ended.result(), "");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(ended.bill()[&None].output_tokens, 3);

    let url = api(move |_| refused("3600")).await;
    let begun = std::time::Instant::now();
    let ended = run(TestEngine::Anthropic, &url).await;
    assert!(ended.error().contains("429"), "{}", ended.error());
    assert!(begun.elapsed() < Duration::from_secs(5));
}
