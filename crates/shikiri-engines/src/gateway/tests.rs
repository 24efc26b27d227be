//! The gateway between a raw client and a raw upstream: bytes are compared, not meanings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use shikiri_executions::execution::{NoTools, ResolvedServer, ResumeState, TurnRequest};
use shikiri_model::execution::PriceList;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::server::McpServerTransport;
use shikiri_model::tenant::EgressPolicy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::egress_rules::{EgressRefusal, EgressRoute, HostResolver};
use super::*;

fn order(env: &[(&str, &str)]) -> TurnRequest {
    TurnRequest {
        prompt: String::new(),
        system_prompt: String::new(),
        model: Model { engine: EngineKind::ClaudeCode, ..Model::offline() },
        subagent_model: None,
        aliases: BTreeMap::new(),
        resume: None,
        servers: Vec::new(),
        skills: Vec::new(),
        tools: Arc::new(NoTools),
        folder: PathBuf::new(),
        home: PathBuf::new(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        secrets: Vec::new(),
        limits: ExecutionLimits::default(),
        prices: PriceList::default(),
        memory: ResumeState::default(),
        egress: EgressPolicy::default(),
        loopback_ports: Vec::new(),
    }
}

struct World {
    _gateway: RunGateway,
    order: TurnRequest,
    port: u16,
}

impl World {
    async fn open(env: &[(&str, &str)]) -> Self {
        Self::observed(env, Arc::new(NoObserver)).await
    }

    async fn observed(env: &[(&str, &str)], observer: Arc<dyn ModelApiObserver>) -> Self {
        let opened = RunGateway::open(
            order(env),
            &HttpClients::default(),
            &AwsCredentialSources::default(),
            observer,
            None,
        )
        .await;
        let (gateway, order) = opened.unwrap();
        let port = *order.loopback_ports.last().unwrap();
        Self { _gateway: gateway, order, port }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    fn token(&self) -> &str {
        let env = &self.order.env;
        env.get("ANTHROPIC_API_KEY").or(env.get("AWS_BEARER_TOKEN_BEDROCK")).unwrap()
    }

    /// Sends a request and gives all of the answer.
    async fn send(&self, head: &str, body: &[u8]) -> String {
        let mut stream = self.connect().await;
        let head = head.replace("TOKEN", self.token()).replace('\n', "\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// An upstream for one connection: gives the head and the body that it was sent, and answers with
/// pieces as the test hands them in.
struct FakeUpstream {
    url: String,
    heard: mpsc::Receiver<(String, Vec<u8>)>,
    answers: mpsc::Sender<Vec<u8>>,
    closed: mpsc::Receiver<()>,
}

impl FakeUpstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (hear, heard) = mpsc::channel(4);
        let (answers, mut answer) = mpsc::channel::<Vec<u8>>(16);
        let (close, closed) = mpsc::channel(1);
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
            let (head, body) = loop {
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "{}", String::from_utf8_lossy(&bytes));
                bytes.extend_from_slice(&buffer[..read]);
                let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                    continue;
                };
                let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |length| length.parse().unwrap());
                if bytes.len() >= end + 4 + length {
                    break (head, bytes[end + 4..].to_vec());
                }
            };
            hear.send((head, body)).await.unwrap();
            loop {
                tokio::select! {
                    piece = answer.recv() => match piece {
                        Some(piece) => stream.write_all(&piece).await.unwrap(),
                        None => return,
                    },
                    read = stream.read(&mut buffer) => {
                        if read.unwrap_or(0) == 0 {
                            let _ = close.send(()).await;
                            return;
                        }
                    }
                }
            }
        });
        Self { url, heard, answers, closed }
    }
}

const ASK: &str = "POST /anthropic/v1/messages?beta=true HTTP/1.1\nHost: gateway\n\
                   x-api-key: TOKEN\nAuthorization: Bearer other\nanthropic-beta: a,b\n\
                   X-Odd: \u{e9}\nConnection: close, x-hop\nx-hop: 1\nProxy-Connection: x\n";

#[tokio::test]
async fn a_request_passes_byte_for_byte_with_the_operators_credential() {
    let mut upstream = FakeUpstream::start().await;
    let world = World::open(&[
        ("ANTHROPIC_BASE_URL", &format!("{}/base/", upstream.url)),
        ("ANTHROPIC_API_KEY", "sk-operator"),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-Team: 7\nbroken\nX-Proof: two words"),
    ])
    .await;
    // Larger than any buffer, and no text.
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let head = format!("{ASK}Content-Length: {}\n\n", body.len());
    let answer = b"HTTP/1.1 529 Overloaded\r\nx-request-id: r1\r\nretry-after: 3\r\n\
                   content-type: application/json\r\ncontent-length: 19\r\n\r\n{\"type\":\"\xff\xfe error\"}";
    let (said, heard) = tokio::join!(world.send(&head, &body), async {
        let heard = upstream.heard.recv().await.unwrap();
        upstream.answers.send(answer.to_vec()).await.unwrap();
        heard
    });
    assert!(heard.1 == body, "the body is another");
    let mut lines: Vec<&str> = heard.0.lines().collect();
    assert_eq!(lines.remove(0), "POST /base/v1/messages?beta=true HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", upstream.url.strip_prefix("http://").unwrap());
    let length = format!("content-length: {}", body.len());
    assert_eq!(
        lines,
        [
            "accept: */*",
            "anthropic-beta: a,b",
            length.as_str(),
            host.as_str(),
            "x-api-key: sk-operator",
            "x-odd: \u{e9}",
            "x-proof: two words",
            "x-team: 7",
        ]
    );
    assert!(said.starts_with("HTTP/1.1 529 "), "{said}");
    for kept in ["x-request-id: r1", "retry-after: 3", "content-length: 19"] {
        assert!(said.contains(kept), "{said}");
    }
    assert!(said.ends_with("{\"type\":\"\u{fffd}\u{fffd} error\"}"), "{said}");
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl ModelApiObserver for Notes {
    fn request(&self, call: ModelCallId, head: &http::request::Parts) {
        let has_credential = head.headers.contains_key("x-api-key");
        let note = format!("{call} {} {} {has_credential}", head.method, head.uri);
        self.0.lock().unwrap().push(note);
    }

    fn request_bytes(&self, call: ModelCallId, bytes: &bytes::Bytes) {
        self.0.lock().unwrap().push(format!("{call} > {}", bytes.len()));
    }

    fn response(&self, call: ModelCallId, head: &http::response::Parts) {
        self.0.lock().unwrap().push(format!("{call} {}", head.status.as_u16()));
    }

    fn response_bytes(&self, call: ModelCallId, bytes: &bytes::Bytes) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.lock().unwrap().push(format!("{call} < {text}"));
    }
}

#[tokio::test]
async fn pieces_of_a_stream_arrive_as_they_are_sent_and_are_observed() {
    let mut upstream = FakeUpstream::start().await;
    let notes = Arc::new(Notes::default());
    let env = [("ANTHROPIC_BASE_URL", upstream.url.as_str()), ("ANTHROPIC_AUTH_TOKEN", "t-1")];
    let world = World::observed(&env, Arc::clone(&notes) as _).await;
    let mut stream = world.connect().await;
    let head = format!("{ASK}Content-Length: 2\n\n").replace("TOKEN", world.token());
    stream.write_all(format!("{}{{}}", head.replace('\n', "\r\n")).as_bytes()).await.unwrap();
    let (head, _) = upstream.heard.recv().await.unwrap();
    assert!(head.contains("authorization: Bearer t-1") && !head.contains("x-api-key"), "{head}");
    let start = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                 content-type: text/event-stream\r\n\r\n6\r\nfirst\n\r\n";
    upstream.answers.send(start.into()).await.unwrap();
    // The first piece is there before the second one is sent.
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    while !seen.contains("first") {
        let read = stream.read(&mut buffer).await.unwrap();
        seen.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    upstream.answers.send(b"7\r\nsecond\n\r\n0\r\n\r\n".to_vec()).await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("second"), "{rest}");
    let told = notes.0.lock().unwrap().clone();
    let wanted = [
        "0 POST /anthropic/v1/messages?beta=true false",
        "0 > 2",
        "0 200",
        "0 < first\n",
        "0 < second\n",
    ];
    assert_eq!(told, wanted);
}

#[tokio::test]
async fn a_request_that_its_sender_gives_up_is_given_up_upstream() {
    let mut upstream = FakeUpstream::start().await;
    let env = [("ANTHROPIC_BASE_URL", upstream.url.as_str()), ("ANTHROPIC_API_KEY", "sk")];
    let world = World::open(&env).await;
    let mut stream = world.connect().await;
    let head = format!("{ASK}Content-Length: 0\n\n").replace("TOKEN", world.token());
    stream.write_all(head.replace('\n', "\r\n").as_bytes()).await.unwrap();
    upstream.heard.recv().await.unwrap();
    drop(stream);
    let closed = tokio::time::timeout(Duration::from_secs(10), upstream.closed.recv()).await;
    assert!(closed.is_ok(), "the upstream still waits");
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_apis_form_and_without_the_upstreams_address() {
    let none = World::open(&[]).await;
    let said = none.send(&format!("{ASK}Content-Length: 0\n\n"), b"").await;
    // Not 401, after which Claude Code would ask again for minutes.
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("set ANTHROPIC_API_KEY"), "{said}");
    assert!(said.contains("`shikiri run --my-login`"), "{said}");
    let env = [("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/secret"), ("ANTHROPIC_API_KEY", "sk")];
    let closed = World::open(&env).await;
    let said = closed.send(&format!("{ASK}Content-Length: 0\n\n"), b"").await;
    assert!(said.starts_with("HTTP/1.1 502 ") && said.contains("\"api_error\""), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let wrong = ASK.replace("TOKEN", "another");
    let said = closed.send(&format!("{wrong}Content-Length: 0\n\n"), b"").await;
    assert!(said.starts_with("HTTP/1.1 401 "), "{said}");
}

/// For a name that is not known.
const NO_ADDRESS: &str = "";

/// Names that point somewhere else each time.
struct FakeResolver(Mutex<Vec<&'static str>>);

#[async_trait]
impl HostResolver for FakeResolver {
    async fn lookup(&self, _: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let next = self.0.lock().unwrap().remove(0);
        if next == NO_ADDRESS {
            return Err(std::io::Error::other("no such name"));
        }
        Ok(next.split(' ').map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect())
    }
}

async fn judged(policy: EgressPolicy, addresses: &'static str) -> Result<String, String> {
    let order = TurnRequest { egress: policy, ..order(&[]) };
    let rules = EgressRules::new(&order);
    let rules = rules.with_resolver(Arc::new(FakeResolver(Mutex::new(vec![addresses]))));
    let uri = Uri::from_static("https://name.example:444");
    match rules.authorize_connection("name.example", 444, &uri).await {
        Ok(EgressRoute::Direct(found)) => Ok(format!("{found:?}")),
        Ok(EgressRoute::OperatorProxy(_)) => Ok("proxy".to_owned()),
        Err(refusal) => Err(refusal.to_string()),
    }
}

#[tokio::test]
async fn every_address_of_a_name_is_judged_and_the_judged_ones_are_used() {
    use EgressPolicy::{None, Open, Public};
    assert_eq!(judged(Public, "93.184.216.34").await.unwrap(), "[93.184.216.34:444]");
    for policy in [None, Public, Open] {
        for own in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "0.0.0.0"] {
            judged(policy, own).await.unwrap_err();
        }
        // One good address does not make up for a bad one.
        judged(policy, "93.184.216.34 127.0.0.1").await.unwrap_err();
    }
    judged(Open, "10.1.2.3").await.unwrap();
    let refused = judged(Public, "10.1.2.3").await.unwrap_err();
    for part in ["name.example:444", "`public`", "--egress open"] {
        assert!(refused.contains(part), "{refused}");
    }
    // Where an internal name leads, and whether there is one, is not told.
    for inside in ["127.0.0.1", "169.254.169.254", NO_ADDRESS] {
        assert_eq!(judged(Public, inside).await.unwrap_err(), refused, "{inside}");
    }
    let refused = judged(None, "93.184.216.34").await.unwrap_err();
    assert!(refused.contains("`none`"), "{refused}");
}

#[tokio::test]
async fn a_server_of_the_run_is_allowed_by_host_and_port_alone() {
    let server = |url: &str, allow_private| ResolvedServer {
        id: None,
        name: "s".to_owned(),
        transport: McpServerTransport::Http { url: url.to_owned() },
        headers: BTreeMap::new(),
        allowed_tools: None,
        allow_private,
        is_own: false,
    };
    let servers = vec![
        server("http://Inside.Example:8080/mcp", true),
        server("https://outside.example/mcp", false),
    ];
    let order = TurnRequest { egress: EgressPolicy::None, servers, ..order(&[]) };
    let judge = async |host: &str, port, address| {
        let resolver = FakeResolver(Mutex::new(vec![address]));
        let rules = EgressRules::new(&order).with_resolver(Arc::new(resolver));
        let uri: Uri = format!("http://{host}:{port}/").parse().unwrap();
        rules.authorize_connection(host, port, &uri).await.map(drop)
    };
    assert_eq!(judge("inside.example", 8080, "10.0.0.1").await, Ok(()));
    assert_eq!(judge("INSIDE.example.", 8080, "127.0.0.1").await, Ok(()));
    assert!(matches!(
        judge("inside.example", 8081, "10.0.0.1").await,
        Err(EgressRefusal::NoEgress { .. })
    ));
    assert_eq!(judge("outside.example", 443, "93.184.216.34").await, Ok(()));
    // Its name may point elsewhere by now.
    assert!(judge("outside.example", 443, "10.0.0.1").await.is_err());
}

#[tokio::test]
async fn connections_go_through_the_operators_proxy_where_there_is_one() {
    let mut proxy = FakeUpstream::start().await;
    let url = proxy.url.replace("http://", "http://user:pass@");
    let world = World::open(&[("HTTPS_PROXY", &url), ("ANTHROPIC_API_KEY", "sk")]).await;
    let basic = {
        use base64::Engine as _;
        let pair = format!("run:{}", world.token());
        base64::engine::general_purpose::STANDARD.encode(pair)
    };
    let head = format!(
        "CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n\
         Proxy-Authorization: Basic {basic}\r\n\r\n"
    );
    let mut stream = world.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let (heard, _) = proxy.heard.recv().await.unwrap();
    assert!(heard.starts_with("CONNECT 93.184.216.34:443 HTTP/1.1"), "{heard}");
    assert!(heard.contains("proxy-authorization: Basic dXNlcjpwYXNz"), "{heard}");
    assert!(!heard.contains(&basic), "{heard}");
    proxy.answers.send(b"HTTP/1.1 200 OK\r\n\r\nthrough".to_vec()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    while !seen.ends_with("through") {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{seen}");
}

#[test]
fn credentials_stay_out_of_a_runs_environment_and_plain_variables_pass() {
    let given = order(&[
        ("ANTHROPIC_API_KEY", "sk-operator"),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-Team: staging\nAuthorization: Bearer proof-1234"),
        ("ANTHROPIC_BASE_URL", "http://u:hunter22@upstream"),
        ("ANTHROPIC_MODEL", "m"),
        ("AWS_PROFILE", "default"),
        ("AWS_REGION", "r"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
        ("https_proxy", "http://p:corporate@proxy:1"),
        ("COPY", "is sk-operator here"),
        ("MAX_THINKING_TOKENS", "9"),
        ("LICENCE", "0123456789"),
    ]);
    let model = Model { secret_env: vec!["LICENCE".to_owned()], ..given.model };
    let seen = RunEnvironment::of(&given.env, &model);
    let names: Vec<_> = seen.visible.keys().map(String::as_str).collect();
    assert_eq!(names, ["ANTHROPIC_MODEL", "AWS_REGION", "MAX_THINKING_TOKENS"]);
    let mut withheld = seen.withheld;
    withheld.sort();
    let wanted =
        ["0123456789", "Bearer proof-1234", "corporate", "hunter22", "proof-1234", "sk-operator"];
    assert_eq!(withheld, wanted);
}

#[tokio::test]
async fn a_run_on_bedrock_is_signed_for_with_credentials_that_were_fetched() {
    let home = tempfile::tempdir().unwrap();
    let keys = r#"{"Version":1,"AccessKeyId":"ASIAFETCHED","SecretAccessKey":"fetched-secret","SessionToken":"fetched-token"}"#;
    let config = home.path().join("config");
    std::fs::write(home.path().join("keys"), keys).unwrap();
    let program = format!("cat {}", home.path().join("keys").display());
    std::fs::write(&config, format!("[default]\ncredential_process = {program}\n")).unwrap();
    let mut upstream = FakeUpstream::start().await;
    let world = World::open(&[
        ("CLAUDE_CODE_USE_BEDROCK", "1"),
        ("ANTHROPIC_BEDROCK_BASE_URL", &upstream.url),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_CONFIG_FILE", config.to_str().unwrap()),
    ])
    .await;
    assert!(world._gateway.upstream().secrets().is_empty(), "nothing is fetched before it is used");
    let ask = "POST /bedrock/model/m/invoke HTTP/1.1\nHost: gateway\n\
               Authorization: Bearer TOKEN\nConnection: close\nContent-Length: 2\n\n";
    let (said, heard) = tokio::join!(world.send(ask, b"{}"), async {
        let heard = upstream.heard.recv().await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        upstream.answers.send(answer.to_vec()).await.unwrap();
        heard.0
    });
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    assert!(heard.contains("authorization: AWS4-HMAC-SHA256 Credential=ASIAFETCHED/"), "{heard}");
    assert!(heard.contains("x-amz-security-token: fetched-token"), "{heard}");
    // The run knows nothing of it, and readers are not told.
    let seen = format!("{:?}", world.order.env);
    assert!(!seen.contains("fetched") && !seen.contains("config"), "{seen}");
    let mut redactor = crate::redact::SecretRedactor::new(&world.order);
    redactor.add_secrets(world._gateway.upstream().secrets());
    let told = redactor.text("a fetched-token and a fetched-secret");
    assert_eq!(told, "a [REDACTED] and a [REDACTED]");
}
