use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, DuplexStream};

use super::super::keeper_socket::KeeperAddress;
use super::*;

/// A Chrome that answers every command with its own parameters, and a long text if asked for one.
async fn echo_chrome(commands: DuplexStream, mut answers: DuplexStream) {
    let mut commands = CdpFrameReader::new(commands, MAX_ANSWER);
    while let Ok(Some(CdpFrame::Whole(command))) = commands.next().await {
        let command: Value = serde_json::from_slice(&command).unwrap();
        let length = command["params"]["length"].as_u64().unwrap_or(0);
        let text = "x".repeat(usize::try_from(length).unwrap());
        let result = json!({ "sessionId": "S", "params": command["params"], "text": text });
        let mut answer = json!({ "id": command["id"], "result": result }).to_string().into_bytes();
        answer.push(0);
        answers.write_all(&answer).await.unwrap();
    }
}

struct RelayWorld {
    folder: tempfile::TempDir,
    _serving: tokio::task::JoinHandle<()>,
}

impl RelayWorld {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = KeeperSocket::bind(folder.path()).unwrap();
        let (to_chrome, commands) = tokio::io::duplex(64 * 1024);
        let (answers, from_chrome) = tokio::io::duplex(64 * 1024);
        let serving = tokio::spawn(async move {
            tokio::join!(DevtoolsRelay::serve(&socket, to_chrome, from_chrome), async {
                echo_chrome(commands, answers).await;
            });
        });
        Self { folder, _serving: serving }
    }

    async fn client(&self) -> TestClient {
        let address = KeeperAddress::read(self.folder.path()).unwrap();
        TestClient { stream: address.connect().await.unwrap() }
    }
}

struct TestClient {
    stream: UnixStream,
}

impl TestClient {
    async fn send(&mut self, command: &Value) {
        let mut message = command.to_string().into_bytes();
        message.push(0);
        self.stream.write_all(&message).await.unwrap();
    }

    async fn ask(&mut self, command: &Value) -> Value {
        self.send(command).await;
        match CdpFrameReader::new(&mut self.stream, MAX_ANSWER).next().await.unwrap() {
            Some(CdpFrame::Whole(answer)) => serde_json::from_slice(&answer).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn get_targets(length: u64) -> Value {
    json!({ "id": 3, "method": "Target.getTargets", "params": { "length": length } })
}

#[tokio::test]
async fn a_client_without_the_token_is_cut_off() {
    let world = RelayWorld::start();
    let mut stream = UnixStream::connect(world.folder.path().join("devtools.sock")).await.unwrap();
    stream.write_all(b"guess\0{\"id\":1,\"method\":\"Browser.getVersion\"}\0").await.unwrap();
    let mut received = Vec::new();
    // Unread input may close the connection with an error.
    let _ = stream.read_to_end(&mut received).await;
    assert!(received.is_empty(), "{received:?}");
    assert_eq!(world.client().await.ask(&get_targets(0)).await["id"], 3);
}

#[tokio::test]
async fn refused_commands_never_reach_chrome() {
    let world = RelayWorld::start();
    let mut client = world.client().await;
    let answer = client.ask(&json!({ "id": 5, "method": "Network.getAllCookies" })).await;
    assert_eq!(answer["error"]["message"], "Network.getAllCookies is not allowed here");
    // A malformed message closes the connection.
    client.stream.write_all(b"nonsense\0").await.unwrap();
    let mut received = Vec::new();
    let _ = client.stream.read_to_end(&mut received).await;
    assert!(received.is_empty());
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off_and_others_go_on() {
    let world = RelayWorld::start();
    let mut slow = world.client().await;
    let mut other = world.client().await;
    let long = u64::try_from(MAX_ANSWER / 2).unwrap();
    for _ in 0..6 {
        slow.send(&get_targets(long)).await;
    }
    assert_eq!(other.ask(&get_targets(0)).await["id"], 3);
    let mut received = Vec::new();
    let _ = slow.stream.read_to_end(&mut received).await;
    assert!(received.len() < 6 * MAX_ANSWER / 2, "{} bytes came", received.len());
    assert_eq!(other.ask(&get_targets(0)).await["id"], 3);
}

#[tokio::test]
async fn an_oversized_answer_becomes_an_error_and_the_next_one_arrives() {
    let world = RelayWorld::start();
    let mut client = world.client().await;
    let answer = client.ask(&get_targets(u64::try_from(MAX_ANSWER).unwrap() + 1)).await;
    assert_eq!(answer["error"]["message"], "the answer is too long");
    assert_eq!(client.ask(&get_targets(10)).await["result"]["text"], "x".repeat(10));
}
