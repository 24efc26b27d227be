use std::time::{Duration, Instant};

use shikiri_model::host::{HostTransport, ServerSpec};

use super::{ClientOptions, MODERN, ServerConnection};
use crate::error::ClientError;

/// A connection without a timeout is far quicker than this, even on a busy machine.
const QUICK: Duration = Duration::from_secs(8);

/// A program that reads messages. `cases` are shell `case` branches for them. It reports the number
/// of messages as its version.
fn program(cases: &str) -> ServerSpec {
    let script = format!(
        r#"seen=0
        say() {{ printf '{{"jsonrpc":"2.0","id":"%s",%s}}\n' "$id" "$1"; }}
        while IFS= read -r line; do
            seen=$((seen + 1))
            id=$(printf '%s' "$line" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
            initialized='"result":{{"protocolVersion":"2025-06-18","capabilities":{{}},'
            initialized="$initialized\"serverInfo\":{{\"name\":\"old\",\"version\":\"$seen\"}}}}"
            case "$line" in {cases} esac
        done"#
    );
    let reach = HostTransport::program("sh", &["-c".to_owned(), script]);
    ServerSpec { name: "program".to_owned(), reach, oauth: Default::default() }
}

async fn connect(cases: &str) -> (Result<ServerConnection, ClientError>, Duration) {
    let introduction = ClientOptions {
        name: "tests".to_owned(),
        version: "1".to_owned(),
        elicitation: false,
        sampling: false,
        authority: None,
        protocol: None,
        addresses: Vec::new(),
    };
    let start = Instant::now();
    (ServerConnection::connect(&program(cases), &introduction, "t").await, start.elapsed())
}

const INITIALIZE: &str = r#"*'"method":"initialize"'*) say "$initialized" ;;"#;
const PING: &str = r#"*'"method":"ping"'*) say '"result":{}' ;;"#;

#[tokio::test]
async fn a_program_that_refuses_what_it_does_not_know_is_met_at_once() {
    let refuses = r#"*'"id"'*) say '"error":{"code":-32601,"message":"no"}' ;;"#;
    let (server, took) = connect(&format!("{INITIALIZE} {refuses}")).await;
    let server = server.unwrap();
    assert_eq!(server.protocol(), "2025-06-18");
    // Only `server/discover` and `initialize`, unless this machine is slower than the timeout.
    let version = &server.about().version;
    assert!(version == "2" || took > Duration::from_millis(500), "{version} in {took:?}");
}

#[tokio::test]
async fn a_program_that_leaves_unknown_questions_unanswered_is_found_out_soon() {
    let (server, took) = connect(&format!("{INITIALIZE} {PING}")).await;
    let server = server.unwrap();
    assert_eq!(server.protocol(), "2025-06-18");
    // `server/discover`, `ping` and `initialize`.
    assert_eq!(server.about().version, "3");
    assert!(took < QUICK, "{took:?}");
}

/// The program is started again, without a second `server/discover`.
#[tokio::test]
async fn a_program_that_dies_of_an_unknown_question_is_met_all_the_same() {
    let dies = "*server/discover*) exit 1 ;;";
    let (server, took) = connect(&format!("{dies} {INITIALIZE}")).await;
    let server = server.unwrap();
    assert_eq!(server.protocol(), "2025-06-18");
    assert_eq!(server.about().version, "1");
    assert!(took < QUICK, "{took:?}");
}

/// A program that starts slowly is not taken for unresponsive: only its answer to a ping counts.
#[tokio::test]
async fn a_program_of_the_newer_era_may_take_its_time() {
    let knows =
        r#"*server/discover*) sleep 2; say '"result":{"supportedVersions":["2026-07-28"]}' ;;"#;
    let (server, _) = connect(&format!("{knows} {PING}")).await;
    assert_eq!(server.unwrap().protocol(), MODERN);
}

#[tokio::test]
async fn a_refusal_that_names_the_newer_era_is_asked_again_and_another_is_not() {
    let first = r#"*server/discover*) if [ $seen = 1 ]; then
        say '"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}'; else
        say '"result":{"supportedVersions":["2026-07-28"]}'; fi ;;"#;
    let (server, _) = connect(&format!("{first} {INITIALIZE}")).await;
    assert_eq!(server.unwrap().protocol(), MODERN);
    let never = r#"*server/discover*)
        say '"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}' ;;"#;
    let (server, took) = connect(&format!("{never} {INITIALIZE}")).await;
    let server = server.unwrap();
    assert_eq!(server.protocol(), "2025-06-18");
    let version = &server.about().version;
    assert!(version == "2" || took > Duration::from_millis(500), "{version} in {took:?}");
}

#[tokio::test]
async fn a_server_is_sought_where_it_was_found_whatever_its_name_points_to() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://nowhere.invalid:{}/mcp", address.port());
    let reach = HostTransport::Http { url, headers: Default::default() };
    let spec = ServerSpec { name: "s".to_owned(), reach, oauth: Default::default() };
    let introduction = ClientOptions {
        name: "tests".to_owned(),
        version: "1".to_owned(),
        elicitation: false,
        sampling: false,
        authority: None,
        protocol: None,
        addresses: vec![address],
    };
    tokio::select! {
        accepted = listener.accept() => assert!(accepted.is_ok()),
        failed = ServerConnection::connect(&spec, &introduction, "t") => {
            panic!("not found: {:?}", failed.err())
        }
    }
}
