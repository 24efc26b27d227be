//! Messages that are read as they arrive.

use super::*;
use crate::messages::{ModelMessageStream, ModelStreamUpdate, StreamingRequest};

const START: &str = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"x\",\
                     \"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n";

async fn opened(url: &str) -> Result<ModelMessageStream, ModelApiError> {
    let env = env(&[("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", url)]);
    let provider = provider(EngineKind::Anthropic, &env).await?;
    let client = MessagesClient::new(provider, &env)?;
    let messages = [json!({ "role": "user", "content": [{ "type": "text", "text": "木" }] })];
    let asked = client.prepare(&StreamingRequest {
        model: "m",
        max_tokens: 9,
        system: "",
        tools: &[],
        messages: &messages,
        thinking: None,
        agent: Some("toolu_1"),
    })?;
    client.stream(asked).await
}

#[tokio::test]
async fn a_stream_is_asked_for_as_such_and_read_to_its_end() {
    let rest = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\
                \"usage\":{\"output_tokens\":3}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    let whole = Reply::Whole("200 OK\r\nContent-Type: text/event-stream", format!("{START}{rest}"));
    let server = Server::start(vec![whole]).await;
    let mut stream = opened(&server.base).await.unwrap();
    assert!(matches!(stream.next().await, Ok(ModelStreamUpdate::Started { .. })));
    let Ok(ModelStreamUpdate::Done(message)) = stream.next().await else { panic!("no end") };
    assert_eq!(
        (message.usage.output_tokens, message.stop_reason.as_deref()),
        (3, Some("end_turn"))
    );
    let arrived = server.arrived();
    assert_eq!(arrived[0].header("accept"), "text/event-stream");
    assert_eq!(arrived[0].header("x-shikiri-agent-id"), "toolu_1");
    assert_eq!(arrived[0].json()["stream"], true);
}

#[tokio::test]
async fn a_stream_that_says_nothing_is_left_in_time() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let stuck: &'static str = Box::leak(format!("{HEAD}{START}data: {{\"typ").into_boxed_str());
    let server = Server::start(vec![Reply::Stuck(stuck)]).await;
    let patience = Duration::from_millis(200);
    let mut stream = opened(&server.base).await.unwrap().with_idle_timeout(patience);
    assert!(matches!(stream.next().await, Ok(ModelStreamUpdate::Started { .. })));
    let begun = Instant::now();
    assert_eq!(stream.next().await, Err(ModelApiError::TimedOut));
    assert!(begun.elapsed() >= patience && begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    assert_eq!(stream.usage().input_tokens, 5);
}

#[tokio::test]
async fn a_complaint_in_a_stream_tells_no_secret() {
    let body = format!(
        "{START}data: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\
         \"message\":\"sent\\n{CANARY}\"}}}}\n\n"
    );
    let server = Server::start(vec![Reply::Whole("200 OK", body)]).await;
    let mut stream = opened(&server.base).await.unwrap();
    stream.next().await.unwrap();
    let failed = stream.next().await.unwrap_err();
    let (kind, message) = ("api_error".to_owned(), "sent [hidden]".to_owned());
    assert_eq!(failed, ModelApiError::BrokenOff { kind, message });
}
