//! The client against a model API on the loopback: what it sends, and what it makes of answers.

mod aws;
mod server;
mod streams;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_executions::execution::TitleRequest;
use shikiri_model::execution::TokenUsage;
use shikiri_model::key::SecretToken;
use shikiri_model::models::{EngineKind, Model};

use self::server::{Reply, Server};
use super::aws_signature::{AwsKeys, SignatureInput};
use super::{
    AwsCredentialSources, MessagesClient, MessagesRequest, MessagesResponse, ModelApiError,
    ModelInputMessage, ModelMessageRole, ModelProvider, generate_title,
};

const LIMIT: Duration = Duration::from_secs(20);
/// In every secret.
const CANARY: &str = "kanariya-7f3a";

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn model(engine: EngineKind) -> Model {
    Model { engine, ..Model::offline() }
}

async fn provider(
    engine: EngineKind,
    env: &BTreeMap<String, String>,
) -> Result<ModelProvider, ModelApiError> {
    let provider =
        ModelProvider::from_env(&model(engine), env, &AwsCredentialSources::default()).await?;
    provider.ensure_credentials().await?;
    Ok(provider)
}

fn request() -> MessagesRequest {
    MessagesRequest {
        model: "claude-haiku-4-5".to_owned(),
        max_tokens: 7,
        system: Some("Be short.".to_owned()),
        messages: vec![ModelInputMessage {
            role: ModelMessageRole::User,
            content: "こんにちは".to_owned(),
        }],
    }
}

fn answer() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5-20251001",
        "content": [{ "type": "text", "text": "挨拶" }], "stop_reason": "end_turn",
        "usage": { "input_tokens": 11, "output_tokens": 3 },
    })
}

fn good() -> Reply {
    Reply::Whole("200 OK\r\nContent-Type: application/json", answer().to_string())
}

async fn sent(
    engine: EngineKind,
    pairs: &[(&str, &str)],
) -> Result<MessagesResponse, ModelApiError> {
    sent_within(LIMIT, engine, pairs).await
}

async fn sent_within(
    limit: Duration,
    engine: EngineKind,
    pairs: &[(&str, &str)],
) -> Result<MessagesResponse, ModelApiError> {
    let env = env(pairs);
    let client = MessagesClient::new(provider(engine, &env).await?, &env)?;
    let printed = format!("{client:?}");
    assert!(!printed.contains(CANARY), "{printed}");
    client.send(&request(), limit).await
}

#[tokio::test]
async fn anthropic_gets_the_message_and_the_key() {
    let server = Server::start(vec![good()]).await;
    let gateway = format!("{}/gateway/", server.base);
    let key = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &gateway)];
    let response = sent(EngineKind::ClaudeCode, &key).await.unwrap();
    assert_eq!(response.text(), "挨拶");
    assert_eq!(response.usage.input_tokens, 11);
    let arrived = server.one();
    assert_eq!(arrived.line, "POST /gateway/v1/messages");
    assert_eq!(arrived.header("x-api-key"), CANARY);
    assert_eq!(arrived.header("anthropic-version"), "2023-06-01");
    assert_eq!(arrived.header("content-type"), "application/json");
    assert_eq!(arrived.maybe("authorization"), None);
    assert_eq!(
        arrived.json(),
        json!({
            "model": "claude-haiku-4-5", "max_tokens": 7, "system": "Be short.",
            "messages": [{ "role": "user", "content": "こんにちは" }],
        })
    );
}

#[tokio::test]
async fn a_token_goes_before_a_key_and_an_empty_one_is_none() {
    let server = Server::start(vec![good()]).await;
    for token in [CANARY, ""] {
        let both = [
            ("ANTHROPIC_API_KEY", "key"),
            ("ANTHROPIC_AUTH_TOKEN", token),
            ("ANTHROPIC_BASE_URL", &server.base),
        ];
        sent(EngineKind::Anthropic, &both).await.unwrap();
    }
    let [with, without] = &server.arrived()[..] else { panic!("{:?}", server.arrived()) };
    assert_eq!(with.header("authorization"), format!("Bearer {CANARY}"));
    assert_eq!((with.maybe("x-api-key"), without.header("x-api-key")), (None, "key"));
    assert_eq!(without.maybe("authorization"), None);
}

#[tokio::test]
async fn bedrock_gets_a_signature_over_what_arrives() {
    let server = Server::start(vec![good()]).await;
    let secret = format!("secret/{CANARY}");
    let token = format!("token/{CANARY}");
    let pairs = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", &secret),
        ("AWS_SESSION_TOKEN", &token),
        ("AWS_REGION", "eu-central-1"),
        ("ANTHROPIC_BEDROCK_BASE_URL", &server.base),
        ("CLAUDE_CODE_USE_BEDROCK", "1"),
    ];
    let env = env(&pairs);
    let provider = provider(EngineKind::ClaudeCode, &env).await.unwrap();
    let name = "us.anthropic.claude-haiku-4-5-20251001-v1:0";
    let request = MessagesRequest { model: name.to_owned(), ..request() };
    MessagesClient::new(provider, &env).unwrap().send(&request, LIMIT).await.unwrap();

    let arrived = server.one();
    let path = "/model/us.anthropic.claude-haiku-4-5-20251001-v1%3A0/invoke";
    assert_eq!(arrived.line, format!("POST {path}"));
    let body = arrived.json();
    assert_eq!(body["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!((&body["max_tokens"], body.get("model")), (&json!(7), None));
    // Signed again from what came over the wire; the signing itself is held to AWS's examples.
    let names = ["content-type", "host", "x-amz-date", "x-amz-security-token"];
    let headers = names.map(|name| (name, arrived.header(name)));
    assert_eq!(headers[1].1, server.base.trim_start_matches("http://"));
    let keys = AwsKeys {
        id: "AKIDEXAMPLE".to_owned(),
        secret: SecretToken::from_caller(&secret),
        session_token: Some(SecretToken::from_caller(&token)),
    };
    let date = arrived.header("x-amz-date");
    let (day, time) = date.trim_end_matches('Z').split_once('T').unwrap();
    let at = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &day[..4],
        &day[4..6],
        &day[6..],
        &time[..2],
        &time[2..4],
        &time[4..]
    );
    let again = SignatureInput {
        method: "POST",
        path,
        query: "",
        headers: &headers,
        body: &arrived.body,
        region: "eu-central-1",
        service: "bedrock",
        at: at.parse().unwrap(),
    };
    assert_eq!(arrived.header("authorization"), again.authorization(&keys));
}

#[tokio::test]
async fn bedrock_takes_a_bearer_token_and_the_models_region() {
    let server = Server::start(vec![good()]).await;
    let pairs = [
        ("AWS_BEARER_TOKEN_BEDROCK", CANARY),
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "unused"),
        ("ANTHROPIC_BEDROCK_BASE_URL", &server.base),
    ];
    sent(EngineKind::Bedrock, &pairs).await.unwrap();
    assert_eq!(server.one().header("authorization"), format!("Bearer {CANARY}"));

    let host = async |region: Option<&str>, pairs: &[(&str, &str)]| {
        let model = Model { region: region.map(str::to_owned), ..model(EngineKind::Bedrock) };
        let mut env = env(pairs);
        env.insert("AWS_BEARER_TOKEN_BEDROCK".to_owned(), CANARY.to_owned());
        match ModelProvider::from_env(&model, &env, &AwsCredentialSources::default()).await.unwrap()
        {
            ModelProvider::Bedrock { base_url, .. } => base_url.host_str().unwrap().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    let region = [("AWS_REGION", "ap-northeast-1")];
    assert_eq!(host(Some("eu-west-1"), &region).await, "bedrock-runtime.eu-west-1.amazonaws.com");
    assert_eq!(host(None, &region).await, "bedrock-runtime.ap-northeast-1.amazonaws.com");
    assert_eq!(host(None, &[]).await, "bedrock-runtime.us-west-2.amazonaws.com");
}

#[tokio::test]
async fn what_is_missing_or_wrong_in_the_environment_is_named() {
    let key = ("ANTHROPIC_API_KEY", CANARY);
    let no_role = ("AWS_EC2_METADATA_DISABLED", "true");
    let broken = format!("{CANARY}\n{CANARY}");
    let with_password = format!("https://user:{CANARY}@example.com");
    let cases = [
        (EngineKind::ClaudeCode, Vec::<(&str, &str)>::new(), "ANTHROPIC_API_KEY"),
        (EngineKind::Bedrock, vec![key, no_role], "AWS_ACCESS_KEY_ID"),
        (EngineKind::Bedrock, vec![("AWS_ACCESS_KEY_ID", "a"), no_role], "AWS_SECRET_ACCESS_KEY"),
        (EngineKind::Anthropic, vec![key, ("ANTHROPIC_BASE_URL", "file:///x")], "BASE_URL"),
        (EngineKind::Anthropic, vec![key, ("ANTHROPIC_BASE_URL", &with_password)], "BASE_URL"),
        (EngineKind::Anthropic, vec![key, ("https_proxy", "http://[")], "HTTPS_PROXY"),
        (EngineKind::Anthropic, vec![("ANTHROPIC_API_KEY", &broken)], "cannot be sent"),
    ];
    for (engine, pairs, word) in cases {
        let failure = sent(engine, &pairs).await.unwrap_err();
        let text = failure.to_string();
        assert!(
            matches!(failure, ModelApiError::NotConfigured(_)) && text.contains(word),
            "{text}"
        );
        assert!(!text.contains(CANARY), "{text}");
    }
}

fn refused(status: u16, kind: &str, message: &str, retry_after: Option<u64>) -> ModelApiError {
    ModelApiError::Refused {
        status,
        kind: kind.to_owned(),
        message: message.to_owned(),
        retry_after: retry_after.map(Duration::from_secs),
    }
}

#[tokio::test]
async fn refusals_keep_status_kind_and_message_and_lose_secrets() {
    let error = |kind: &str, message: &str| {
        json!({ "type": "error", "error": { "type": kind, "message": message } }).to_string()
    };
    let aws = "400 Bad Request\r\nx-amzn-ErrorType: ValidationException:http://internal/";
    let cases = [
        (
            Reply::Whole(
                "401 Unauthorized",
                error("authentication_error", &format!("bad {CANARY}\n")),
            ),
            refused(401, "authentication_error", "bad [hidden]", None),
        ),
        (
            Reply::Whole(aws, json!({ "message": "no such model" }).to_string()),
            refused(400, "ValidationException", "no such model", None),
        ),
        (
            Reply::Whole("404 Not Found", "<html>nginx</html>".to_owned()),
            refused(404, "error", "Not Found", None),
        ),
        (
            Reply::Whole("302 Found\r\nLocation: http://127.0.0.1:1/", String::new()),
            refused(302, "error", "Found", None),
        ),
    ];
    for (reply, expected) in cases {
        let server = Server::start(vec![reply]).await;
        let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
        assert_eq!(sent(EngineKind::Anthropic, &pairs).await, Err(expected));
        server.one();
    }
}

#[tokio::test]
async fn a_passing_trouble_is_tried_once_more() {
    let trouble = |head| Reply::Whole(head, String::new());
    for head in ["429 Too Many Requests", "500 Oops", "503 Busy", "529 Overloaded"] {
        let server = Server::start(vec![trouble(head), good()]).await;
        let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
        sent(EngineKind::Anthropic, &pairs).await.unwrap();
        assert_eq!(server.arrived().len(), 2, "{head}");
    }
    let server = Server::start(vec![trouble("529 Overloaded")]).await;
    let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
    let failure = sent(EngineKind::Anthropic, &pairs).await.unwrap_err();
    assert_eq!(failure, refused(529, "error", "no reason given", None));
    assert_eq!(server.arrived().len(), 2);
}

#[tokio::test]
async fn the_time_to_wait_is_the_servers_and_one_beyond_the_limit_is_not_waited_for() {
    let busy = |head| Reply::Whole(head, String::new());
    let server = Server::start(vec![busy("429 Slow\r\nRetry-After: 1"), good()]).await;
    let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
    let start = Instant::now();
    sent(EngineKind::Anthropic, &pairs).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());

    let server = Server::start(vec![busy("429 Slow\r\nRetry-After: 60")]).await;
    let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
    let start = Instant::now();
    let failure = sent(EngineKind::Anthropic, &pairs).await.unwrap_err();
    assert_eq!(failure, refused(429, "error", "Too Many Requests", Some(60)));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    server.one();
}

#[tokio::test]
async fn answers_that_are_slow_too_large_or_no_message_are_failures() {
    let at_half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"content\":";
    let large = format!("{{\"content\":[],\"model\":\"{}\"}}", "x".repeat(10 * 1024 * 1024));
    let cases = [
        (Reply::Stuck(""), ModelApiError::TimedOut),
        (Reply::Stuck(at_half), ModelApiError::TimedOut),
        (Reply::Whole("200 OK", large), ModelApiError::TooLarge(10 * 1024 * 1024)),
        (
            Reply::Whole("200 OK", format!("{{\"said\": \"{CANARY}\"}}")),
            ModelApiError::Unreadable("line 1, column 25".to_owned()),
        ),
        (
            Reply::Whole("200 OK", String::new()),
            ModelApiError::Unreadable("line 1, column 0".to_owned()),
        ),
    ];
    let each = cases.map(async |(reply, expected)| {
        // Enough for ten mebibytes on a busy machine; what is stuck takes all of it.
        let limit =
            if expected == ModelApiError::TimedOut { Duration::from_secs(3) } else { LIMIT };
        let server = Server::start(vec![reply]).await;
        let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
        assert_eq!(sent_within(limit, EngineKind::Anthropic, &pairs).await, Err(expected));
        server.one();
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", base.as_str())];
    let failure = sent(EngineKind::Anthropic, &pairs).await.unwrap_err();
    assert!(matches!(failure, ModelApiError::Unreachable(_)), "{failure:?}");
}

#[tokio::test]
async fn proxies_are_those_of_the_environment_given() {
    let proxy = Server::start(vec![good()]).await;
    let key = ("ANTHROPIC_API_KEY", CANARY);
    let base = ("ANTHROPIC_BASE_URL", "http://model.invalid");
    let by = ("http_proxy", proxy.base.as_str());
    sent(EngineKind::Anthropic, &[key, base, by]).await.unwrap();
    assert_eq!(proxy.one().line, "POST http://model.invalid/v1/messages");
    let except = ("NO_PROXY", "model.invalid");
    let failure = sent(EngineKind::Anthropic, &[key, base, by, except]).await.unwrap_err();
    assert!(matches!(failure, ModelApiError::Unreachable(_)), "{failure:?}");
    proxy.one();
}

fn title_order(pairs: &[(&str, &str)]) -> TitleRequest {
    TitleRequest {
        model: model(EngineKind::ClaudeCode),
        light_model: "claude-haiku-4-5".to_owned(),
        input: "長".repeat(1_000),
        answer: "短".repeat(1_000),
        env: env(pairs),
    }
}

#[tokio::test]
async fn a_title_is_made_of_the_beginnings_and_has_at_most_fifty_characters() {
    let mut said = answer();
    said["content"][0]["text"] = json!(format!(" 「題\n名{}」", "あ".repeat(80)));
    let server = Server::start(vec![Reply::Whole("200 OK", said.to_string())]).await;
    let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
    let titled =
        generate_title(&title_order(&pairs), &AwsCredentialSources::default()).await.unwrap();
    assert_eq!(titled.text, format!("題 名{}", "あ".repeat(47)));
    assert_eq!(titled.model, "claude-haiku-4-5-20251001");
    assert_eq!(
        titled.usage,
        TokenUsage { input_tokens: 11, output_tokens: 3, ..TokenUsage::default() }
    );
    let asked = server.one().json();
    let shown = asked["messages"][0]["content"].as_str().unwrap().to_owned();
    assert_eq!((shown.matches('長').count(), shown.matches('短').count()), (200, 300));
    assert_eq!(asked["model"], "claude-haiku-4-5");
    assert!(asked["max_tokens"].as_u64().unwrap() <= 200, "{asked}");
}

#[tokio::test]
async fn a_title_without_a_word_is_empty_and_was_paid_for() {
    let mut said = answer();
    said["content"][0]["text"] = json!(" \"\" ");
    let server = Server::start(vec![Reply::Whole("200 OK", said.to_string())]).await;
    let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
    let titled =
        generate_title(&title_order(&pairs), &AwsCredentialSources::default()).await.unwrap();
    assert_eq!((titled.text.as_str(), titled.usage.input_tokens), ("", 11));
}

#[tokio::test]
async fn a_title_that_fails_tells_no_secret() {
    let error = json!({ "error": { "type": "e", "message": format!("key {CANARY}") } }).to_string();
    let server = Server::start(vec![Reply::Whole("403 Forbidden", error)]).await;
    let pairs = [("ANTHROPIC_API_KEY", CANARY), ("ANTHROPIC_BASE_URL", &server.base)];
    let error = generate_title(&title_order(&pairs), &AwsCredentialSources::default())
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(error, "the model API answered 403 e: key [hidden]");
}
