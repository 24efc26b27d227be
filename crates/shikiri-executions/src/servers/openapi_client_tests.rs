use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;

const PETSTORE: &str = include_str!("../../../shikiri-openapi/tests/documents/petstore-3.0.yaml");

/// A server that answers each request with the next of its answers, and records the requests.
struct World {
    url: String,
    asked: mpsc::UnboundedReceiver<String>,
}

impl World {
    async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut text = Vec::new();
                while !is_whole(&text) {
                    let mut part = [0; 4096];
                    let read = stream.read(&mut part).await.unwrap();
                    assert_ne!(read, 0, "the request broke off");
                    text.extend_from_slice(&part[..read]);
                }
                let _ = tell.send(String::from_utf8(text).unwrap());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
            // Accept further connections without answering them.
            let _waiting = listener.accept().await;
            std::future::pending::<()>().await;
        });
        Self { url, asked }
    }

    fn host(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    async fn asked(&mut self) -> String {
        self.asked.recv().await.unwrap()
    }
}

fn is_whole(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
    )
}

fn sent_to(place: &str) -> String {
    answer("302 Found", &format!("Location: {place}\r\n"), "")
}

fn headers() -> BTreeMap<String, String> {
    BTreeMap::from([("Authorization".to_owned(), "Bearer 鍵".to_owned())])
}

async fn open(url: &str) -> OpenApiClient {
    let base = format!("{url}/api/v3");
    OpenApiClient::open(PETSTORE, Some(&base), headers(), true).await.unwrap()
}

async fn call(api: &OpenApiClient, name: &str, input: Value) -> Result<OpenApiReply, String> {
    let operation = api.api.operations.iter().find(|operation| operation.name == name);
    api.call(operation.unwrap(), &input).await
}

/// The head's lines, sorted, and the body.
fn parts(request: &str) -> (String, Vec<String>, String) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines().map(str::to_owned);
    let first = lines.next().unwrap();
    let mut rest: Vec<_> = lines.collect();
    rest.sort();
    (first, rest, body.to_owned())
}

#[tokio::test]
async fn a_call_reaches_the_server_as_exactly_the_right_request() {
    let ok = answer("200 OK", "Content-Type: application/json\r\n", r#"{"id":7}"#);
    let mut world = World::start(vec![ok.clone(), ok]).await;
    let api = open(&world.url).await;
    let input = json!({ "name": "ポチ", "photoUrls": ["a"], "status": "sold" });
    let reply = call(&api, "addPet", input).await.unwrap();
    assert_eq!((reply.status, reply.content_type.as_str()), (StatusCode::OK, "application/json"));
    assert_eq!(reply.body, r#"{"id":7}"#);
    let (line, lines, body) = parts(&world.asked().await);
    assert_eq!(line, "POST /api/v3/pet HTTP/1.1");
    let expected = [
        format!("accept: {ACCEPTED}"),
        "authorization: Bearer 鍵".to_owned(),
        format!("content-length: {}", body.len()),
        "content-type: application/json".to_owned(),
        format!("host: {}", world.host()),
        format!("user-agent: {AGENT}"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(body, r#"{"name":"ポチ","photoUrls":["a"],"status":"sold"}"#);

    call(&api, "findPetsByTags", json!({ "tags": ["a&b", "c"] })).await.unwrap();
    let (line, lines, body) = parts(&world.asked().await);
    assert_eq!(line, "GET /api/v3/pet/findByTags?tags=a%26b&tags=c HTTP/1.1");
    let expected = [
        format!("accept: {ACCEPTED}"),
        "authorization: Bearer 鍵".to_owned(),
        format!("host: {}", world.host()),
        format!("user-agent: {AGENT}"),
    ];
    assert_eq!((lines.as_slice(), body.as_str()), (expected.as_slice(), ""));
    // Invalid arguments send no request.
    for input in [json!({}), json!({ "petId": ".." }), json!({ "petId": 1, "x": 1 })] {
        call(&api, "getPetById", input).await.unwrap_err();
    }
    assert!(world.asked.try_recv().is_err());
}

#[tokio::test]
async fn an_answer_that_sends_us_on_leads_to_no_other_host() {
    let other = World::start(vec![answer("200 OK", "", "stolen")]).await;
    let ok = answer("200 OK", "", "here");
    let mut answers = vec![sent_to("/api/v3/pet/2?x=1"), ok.clone()];
    for place in [format!("{}/x", other.url), format!("//{}/x", other.host())] {
        answers.push(sent_to(&place));
    }
    answers.push(sent_to("http://169.254.169.254/latest/meta-data"));
    answers.push(sent_to("ftp://127.0.0.1/"));
    answers.push(sent_to("/api/v3/pet"));
    let mut world = World::start(answers).await;
    let api = open(&world.url).await;
    let reply = call(&api, "getPetById", json!({ "petId": 1 })).await.unwrap();
    assert_eq!(reply.body, "here");
    assert!(world.asked().await.starts_with("GET /api/v3/pet/1 "));
    assert!(world.asked().await.starts_with("GET /api/v3/pet/2?x=1 "));
    for _ in 0..4 {
        let refused = call(&api, "getPetById", json!({ "petId": 1 })).await.unwrap_err();
        assert!(refused.contains("sends us on to") && refused.ends_with("refused"), "{refused}");
    }
    // A request that may have effects is not repeated at any address.
    let input = json!({ "name": "x", "photoUrls": [] });
    let refused = call(&api, "addPet", input).await.unwrap_err();
    assert!(refused.contains("sends us on"), "{refused}");
    let mut other = other;
    assert!(other.asked.try_recv().is_err(), "a request arrived there");
}

#[tokio::test]
async fn a_circle_of_redirects_has_an_end() {
    let world = World::start((0..10).map(|_| sent_to("/api/v3/pet/1")).collect()).await;
    let api = open(&world.url).await;
    let refused = call(&api, "getPetById", json!({ "petId": 1 })).await.unwrap_err();
    assert_eq!(refused, "it sends us on and on");
}

#[tokio::test]
async fn answers_have_a_bound_in_size_and_time() {
    let large = "x".repeat(MAX_ANSWER);
    let answers = vec![answer("200 OK", "", &large), answer("200 OK", "", &format!("{large}x"))];
    let world = World::start(answers).await;
    let mut api = open(&world.url).await;
    let whole = call(&api, "getPetById", json!({ "petId": 1 })).await.unwrap();
    assert_eq!(whole.body.len(), MAX_ANSWER);
    let refused = call(&api, "getPetById", json!({ "petId": 1 })).await.unwrap_err();
    assert_eq!(refused, "the answer has more than 10 MiB");
    assert_eq!(api.timeout, Duration::from_secs(30));
    api.timeout = Duration::from_secs(1);
    let begun = std::time::Instant::now();
    let refused = call(&api, "getPetById", json!({ "petId": 1 })).await.unwrap_err();
    assert_eq!(refused, "no answer within 1 s");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let mut world = World::start(vec![answer("200 OK", "", "inside")]).await;
    for url in [world.url.clone(), world.url.replace("127.0.0.1", "localhost")] {
        let base = format!("{url}/api/v3");
        let api = OpenApiClient::open(PETSTORE, Some(&base), headers(), false).await.unwrap();
        let refused = call(&api, "getPetById", json!({ "petId": 1 })).await.unwrap_err();
        assert!(refused.contains("allow_private"), "{refused}");
        assert!(api.probe().await.unwrap_err().contains("allow_private"));
        let elsewhere = OpenApiClient::open(&format!("{url}/spec"), None, headers(), false).await;
        assert!(elsewhere.err().unwrap().contains("allow_private"));
    }
    assert!(world.asked.try_recv().is_err(), "a request arrived");
}

#[tokio::test]
async fn a_document_is_fetched_and_what_is_wrong_with_it_is_told() {
    let wrong = "openapi: 3.0.0\npaths:\n  /a: b: c\n";
    let answers = vec![
        answer("200 OK", "", PETSTORE),
        answer("200 OK", "", PETSTORE),
        answer("200 OK", "", wrong),
        answer("404 Not Found", "", ""),
        sent_to("http://192.0.2.1/spec"),
    ];
    let mut world = World::start(answers).await;
    let at = format!("{}/docs/spec.yaml", world.url);
    let api = OpenApiClient::open(&at, None, headers(), true).await.unwrap();
    assert_eq!(api.api.base.as_str(), format!("{}/api/v3", world.url));
    // Nothing says that the document's host is also the API's.
    assert!(!world.asked().await.contains("authorization"));
    OpenApiClient::open(&at, Some(&world.url), headers(), true).await.unwrap();
    assert!(world.asked().await.contains("authorization: Bearer"));
    let mut refused = Vec::new();
    for _ in 0..3 {
        refused.push(OpenApiClient::open(&at, None, headers(), true).await.err().unwrap());
    }
    assert!(refused[0].starts_with("its document cannot be used: line 3: "), "{refused:?}");
    assert!(refused[1].ends_with("answered 404 Not Found"), "{refused:?}");
    assert!(refused[2].contains("sends us on"), "{refused:?}");
}
