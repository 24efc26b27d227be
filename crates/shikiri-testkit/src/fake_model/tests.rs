use serde_json::{Value, json};

use super::*;
use crate::client::Client;
use crate::reader::read_frames;

const PATIENCE: Duration = Duration::from_secs(30);

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn asks(messages: &[Value]) -> Value {
    json!({ "model": "m", "messages": messages })
}

/// The text of a plain answer.
async fn answer(client: &Client, messages: &[Value]) -> String {
    let message = client.post("/v1/messages", &asks(messages)).await.expect(200);
    message["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_script_answers_the_words_that_were_said_last_turn_by_turn() {
    let model = FakeModel::start().await;
    model.script("rain", [Reply::text("wet"), Reply::text("wetter")]);
    model.script("sun", [Reply::text("dry")]);
    let client = Client::new(&model.url());
    let said = json!({ "role": "assistant", "content": "…" });

    assert_eq!(answer(&client, &[user("rain")]).await, "wet");
    assert_eq!(answer(&client, &[user("rain")]).await, "wet", "sent again");
    let later = [user("rain"), said.clone(), user("sun")];
    assert_eq!(answer(&client, &later).await, "dry");
    let later = [user("sun"), said.clone(), user("rain"), said, user("more")];
    assert_eq!(answer(&client, &later).await, "wetter");
    assert_eq!(answer(&client, &[user("rain and sun")]).await, "wet", "the first that was written");
    assert_eq!(model.unscripted().len(), 0);
    assert_eq!(answer(&client, &[user("snow")]).await, "Nothing is scripted for this.");
    assert_eq!(model.unscripted().len(), 1);
    assert_eq!(model.requests().len(), 6);
}

#[tokio::test]
async fn a_reply_can_be_made_for_the_request_and_for_the_agent() {
    let model = FakeModel::start().await;
    model.answer(|request| request.agent_id().map(|agent| Reply::text(&format!("I am {agent}"))));
    model.script("hi", [Reply::with(|request| Reply::text(request.model()))]);
    let client = Client::new(&model.url());
    let body = asks(&[user("hi")]);

    assert_eq!(answer(&client, &[user("hi")]).await, "m");
    let of_agent = client.request(reqwest::Method::POST, "/v1/messages").json(&body);
    let message = client.send(of_agent.header("x-claude-code-agent-id", "a1")).await.expect(200);
    assert_eq!(message["content"][0]["text"], "I am a1");
}

#[tokio::test]
async fn a_stream_says_the_same_as_the_whole_message() {
    let model = FakeModel::start().await;
    let usage = Usage { input_tokens: 7, output_tokens: 5, ..Usage::default() };
    let reply = Reply::thinking("Let me think about this.").and_text("木漏れ日 and a long text");
    let reply = reply.and_call("f", json!({ "a": [1, "二"] })).and_call("g", json!({}));
    model.script("go", [reply.usage(usage)]);
    let client = Client::new(&model.url());

    let mut whole = client.post("/v1/messages", &asks(&[user("go")])).await.expect(200);
    let mut body = asks(&[user("go")]);
    body["stream"] = true.into();
    let streamed = client.post("/v1/messages", &body).await;
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    let mut built = put_together(&streamed.text());

    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!(whole["usage"]["input_tokens"], 7);
    assert_ne!(whole["content"][2]["id"], whole["content"][3]["id"], "every call has its id");
    assert_ne!(whole["content"][2]["id"], built["content"][2]["id"], "every message has its ids");
    for message in [&mut whole, &mut built] {
        message["id"].take();
        message["content"].as_array_mut().unwrap().iter_mut().for_each(|b| _ = b["id"].take());
    }
    assert_eq!(built, whole);
}

/// The message that a client reads from a stream.
fn put_together(stream: &str) -> Value {
    let mut message = Value::Null;
    let mut json = String::new();
    for frame in read_frames(stream.as_bytes()) {
        let event = frame.json();
        let index = usize::try_from(event["index"].as_u64().unwrap_or(0)).unwrap();
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                let blocks = message["content"].as_array_mut().unwrap();
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let (_, part) =
                    event["delta"].as_object().unwrap().iter().find(|(k, _)| *k != "type").unwrap();
                let field = match event["delta"]["type"].as_str().unwrap() {
                    "input_json_delta" => {
                        json.push_str(part.as_str().unwrap());
                        continue;
                    }
                    kind => kind.strip_suffix("_delta").unwrap(),
                };
                let known = &mut message["content"][index][field];
                *known = format!("{}{}", known.as_str().unwrap(), part.as_str().unwrap()).into();
            }
            "content_block_stop" if !json.is_empty() => {
                message["content"][index]["input"] = serde_json::from_str(&json).unwrap();
                json.clear();
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    message
}

#[tokio::test]
async fn failures_come_first_and_errors_look_like_the_api() {
    let model = FakeModel::start().await;
    model.script("go", [Reply::text("at last").after_failures(2, 529, "overloaded_error")]);
    model.script("no", [Reply::error(400, "invalid_request_error")]);
    model.script("half", [Reply::text("one").and_text("two").broken_off()]);
    let client = Client::new(&model.url());

    for _ in 0..2 {
        let refused = client.post("/v1/messages", &asks(&[user("go")])).await.expect(529);
        assert_eq!(refused["error"]["type"], "overloaded_error");
    }
    assert_eq!(answer(&client, &[user("go")]).await, "at last");
    let refused = client.post("/v1/messages", &asks(&[user("no")])).await.expect(400);
    assert_eq!(
        (&refused["type"], &refused["error"]["type"]),
        (&json!("error"), &json!("invalid_request_error"))
    );

    let mut body = asks(&[user("half")]);
    body["stream"] = true.into();
    let stream = client.post("/v1/messages", &body).await.text();
    assert!(stream.contains("\"one\"") && !stream.contains("two"), "{stream}");
    assert!(
        stream.trim_end().lines().next_back().unwrap().contains("overloaded_error"),
        "{stream}"
    );
}

#[tokio::test]
async fn a_held_reply_waits_for_its_gate() {
    let model = FakeModel::start().await;
    let gate = Gate::new();
    model.script("wait", [Reply::text("open").held(&gate)]);
    let client = Client::new(&model.url());
    let asking = tokio::spawn(async move { answer(&client, &[user("wait")]).await });
    model.asked(PATIENCE, |request| request.is_message()).await;
    assert!(!asking.is_finished());
    gate.open();
    assert_eq!(asking.await.unwrap(), "open");
}

#[tokio::test]
async fn a_slow_model_takes_its_time_before_and_between_its_events() {
    let (delay, pause) = (Duration::from_millis(120), Duration::from_millis(20));
    let model = FakeModel::start().await;
    model.script("slow", [Reply::text("late").delayed(delay).paced(pause)]);
    let mut body = asks(&[user("slow")]);
    body["stream"] = true.into();
    let start = std::time::Instant::now();
    let stream = Client::new(&model.url()).post("/v1/messages", &body).await.text();
    let events = u32::try_from(stream.matches("event: ").count()).unwrap();
    assert_eq!(events, 6, "{stream}");
    assert!(start.elapsed() >= delay + pause * events, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_reply_may_stop_for_another_reason() {
    let model = FakeModel::start().await;
    model.script("long", [Reply::text("and so on").stop_reason("max_tokens")]);
    let client = Client::new(&model.url());
    let message = client.post("/v1/messages", &asks(&[user("long")])).await.expect(200);
    assert_eq!(message["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn what_else_a_client_asks_for_is_answered_and_kept() {
    let model = FakeModel::start().await;
    let client = Client::new(&model.url());
    let counted = client.post("/v1/messages/count_tokens", &asks(&[user("hi")])).await.expect(200);
    assert!(counted["input_tokens"].as_u64().unwrap() > 0);
    client.get("/v1/models").await.expect(200);
    client.get("/v1/unheard-of").await.expect(404);
    let paths: Vec<_> = model.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/v1/messages/count_tokens", "/v1/models", "/v1/unheard-of"]);
    assert!(model.messages().is_empty());
}

#[tokio::test]
async fn the_bill_is_what_was_told_and_a_stream_that_broke_off_told_one_token() {
    let model = FakeModel::start().await;
    let usage = Usage { input_tokens: 7, output_tokens: 5, ..Usage::default() };
    model.script("whole", [Reply::text("all of it").usage(usage)]);
    model.script("half", [Reply::text("some").and_text("of it").usage(usage).broken_off()]);
    model.script("no", [Reply::error(400, "invalid_request_error")]);
    let client = Client::new(&model.url());
    for (words, stream) in [("whole", false), ("whole", true), ("half", true), ("no", true)] {
        let mut body = asks(&[user(words)]);
        body["stream"] = stream.into();
        client.post("/v1/messages", &body).await;
    }
    let told = |spent: &Spent| (spent.model.clone(), spent.usage.output_tokens, spent.is_whole);
    let bill: Vec<_> = model.spent().iter().map(told).collect();
    let m = || "m".to_owned();
    assert_eq!(bill, [(m(), 5, true), (m(), 5, true), (m(), 1, false)]);
}

#[tokio::test]
async fn bedrock_names_the_model_in_the_path_and_frames_its_stream() {
    let model = FakeModel::start().await;
    model.script("go", [Reply::text("there")]);
    let client = Client::new(&model.url());
    let body = json!({ "messages": [user("go")] });
    let whole = client.post("/model/eu.opus-v1:0/invoke", &body).await.expect(200);
    assert_eq!(
        (&whole["model"], &whole["content"][0]["text"]),
        (&json!("eu.opus-v1:0"), &json!("there"))
    );
    let stream = client.post("/model/eu.opus-v1:0/invoke-with-response-stream", &body).await;
    assert_eq!(stream.header("content-type"), Some("application/vnd.amazon.eventstream"));
    assert_eq!(model.spent().len(), 2);
    assert!(model.messages().iter().all(|request| request.model() == "eu.opus-v1:0"));
}
