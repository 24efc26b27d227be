//! Servers that only a proxy reaches, with certificates of a private CA: tried, used by a turn, and
//! used by the host, whichever era and transport they speak.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shikiri_testkit::Cli;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::super::tool_servers::{Docs, Eras, PETSTORE, Pets};
use super::*;

const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/executions/tls/ca.pem");

/// Hosts under `outside.test`, which no name server knows, behind an HTTP proxy.
struct Outside {
    docs: BTreeMap<&'static str, Docs>,
    pets: Pets,
    proxy: String,
    /// What the proxy was asked to connect to.
    connected: Arc<Mutex<Vec<String>>>,
}

impl Outside {
    async fn start() -> Self {
        let pets = Pets::default();
        let docs = BTreeMap::from([
            ("older", Docs::speaking(Eras::Older)),
            ("newer", Docs::speaking(Eras::Newer)),
            ("both", Docs::speaking(Eras::Both)),
            ("stream", Docs::speaking(Eras::Older)),
        ]);
        let mut ports = BTreeMap::from([("pets".to_owned(), port(&pets.start().await))]);
        for (name, docs) in &docs {
            ports.insert((*name).to_owned(), port(&docs.start().await));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let connected = Arc::default();
        tokio::spawn(serve_proxy(listener, acceptor(), ports, Arc::clone(&connected)));
        Self { docs, pets, proxy, connected }
    }

    /// What a program needs to reach them.
    fn environment(&self) -> [(&'static str, &str); 2] {
        [("HTTPS_PROXY", &self.proxy), ("SSL_CERT_FILE", CA)]
    }

    fn was_reached(&self, name: &str) -> bool {
        let target = format!("{name}.outside.test:443");
        self.connected.lock().unwrap().contains(&target)
    }
}

fn port(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

fn acceptor() -> TlsAcceptor {
    let certificate = include_bytes!("../tls/server.pem");
    let certificate = CertificateDer::from_pem_slice(certificate).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Answers CONNECT, and is each of the hosts itself.
async fn serve_proxy(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ports: BTreeMap<String, u16>,
    connected: Arc<Mutex<Vec<String>>>,
) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (acceptor, ports) = (acceptor.clone(), ports.clone());
        let connected = Arc::clone(&connected);
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                head.push(byte);
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            assert!(head.starts_with("CONNECT "), "{head}");
            connected.lock().unwrap().push(target.clone());
            let name = target.split('.').next().unwrap_or_default();
            let Some(port) = ports.get(name) else { return };
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let Ok(mut outside) = acceptor.accept(stream).await else { return };
            let mut inside = TcpStream::connect(("127.0.0.1", *port)).await.unwrap();
            let _ = copy_bidirectional(&mut outside, &mut inside).await;
        });
    }
}

/// Each server, its record, and how a check of it begins.
fn records() -> Vec<(&'static str, Value, &'static str)> {
    let mcp = |name: &str, kind: &str, path: &str| {
        let url = format!("https://{name}.outside.test/{path}");
        json!({ "name": name, "type": kind, "url": url })
    };
    let pets = json!({ "name": "pets", "type": "openapi", "spec": PETSTORE,
        "url": "https://pets.outside.test/api/v3" });
    vec![
        ("older", mcp("older", "http", "mcp"), "answers, with MCP 2025-11-25"),
        ("newer", mcp("newer", "http", "mcp"), "answers, with MCP 2026-07-28"),
        ("both", mcp("both", "http", "mcp"), "answers, with MCP 2026-07-28"),
        ("stream", mcp("stream", "sse", "sse"), "answers, with MCP 2024-11-05"),
        ("pets", pets, "answers with 200 OK"),
    ]
}

async fn start(outside: &Outside) -> World {
    let world = World::start_with(TestEngine::Anthropic, &outside.environment()).await;
    let path = world.talk.tenant.path("/mcp-servers");
    for (_, record, _) in records() {
        world.app.client().post(&path, &record).await.expect(201);
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_behind_a_proxy_with_a_private_ca_pass_their_checks() {
    let outside = Outside::start().await;
    let world = start(&outside).await;
    let path = world.talk.tenant.path("/mcp-servers");
    let listed = world.talk.tenant.client.get(&path).await.expect(200);
    for (name, _, detail) in records() {
        let server = listed["items"].as_array().unwrap().iter().find(|it| it["name"] == name);
        let check = format!("{path}/{}/check", server.unwrap()["id"].as_str().unwrap());
        let report = world.talk.tenant.client.post(&check, &json!({})).await.expect(200);
        assert_eq!(report["reachable"], true, "{name}: {report}");
        assert!(report["detail"].as_str().unwrap().starts_with(detail), "{name}: {report}");
        assert!(outside.was_reached(name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_uses_servers_behind_a_proxy_with_a_private_ca() {
    let outside = Outside::start().await;
    let world = start(&outside).await;
    let read = |name: &str| Reply::call(&format!("mcp__{name}__read"), json!({ "page": name }));
    let mut replies: Vec<_> = outside.docs.keys().map(|name| read(name)).collect();
    replies.push(Reply::call("mcp__pets__getPetById", json!({ "petId": 7 })));
    replies.push(Reply::text("読んだ。"));
    world.model.script("外を読め", replies);
    let text = world.talk.post(&body("外を読め", json!({})), &[]).await.text();
    assert_eq!(terminal(&events(&text)).data["result"], "読んだ。", "{text}");
    for (name, docs) in &outside.docs {
        assert_eq!(docs.calls(), [("read".to_owned(), json!({ "page": name }))], "{text}");
    }
    assert_eq!(outside.pets.asked().len(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_uses_servers_behind_a_proxy_with_a_private_ca() {
    let outside = Outside::start().await;
    let folder = tempfile::tempdir().unwrap();
    let servers = records().into_iter().filter(|(_, record, _)| record["type"] != "openapi");
    let servers = servers.map(|(name, record, _)| {
        (name.to_owned(), json!({ "type": record["type"], "url": record["url"] }))
    });
    let servers = Value::Object(servers.collect());
    let file = json!({ "mcpServers": servers }).to_string();
    std::fs::write(folder.path().join(".mcp.json"), file).unwrap();
    let mut cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
    for (name, value) in outside.environment() {
        cli = cli.env(name, value);
    }
    for (name, docs) in outside.docs.clone() {
        let cli = cli.clone();
        let called = tokio::task::spawn_blocking(move || {
            let page = format!("page={name}");
            cli.run(&["host", "call", name, "read", "--arg", &page, "--yes"]).done()
        });
        let said = called.await.unwrap().stdout;
        assert!(said.contains(&format!("{name:?} by none")), "{name}: {said}");
        assert_eq!(docs.calls(), [("read".to_owned(), json!({ "page": name }))]);
    }
}
