use serde_json::json;
use shikiri_model::known_secrets::KnownSecrets;
use shikiri_model::models::ActiveStatus;
use shikiri_testkit::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::conversations::ConversationPatch;
use crate::execution::ToolContent;
use crate::test_support::executions_in;

/// An API that answers a number of requests and records them.
pub(super) struct Pets {
    pub(super) url: String,
    pub(super) asked: mpsc::UnboundedReceiver<String>,
}

pub(super) async fn petstore(answers: usize) -> Pets {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for _ in 0..answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = vec![0; 64 * 1024];
            let read = stream.read(&mut text).await.unwrap();
            let _ = tell.send(String::from_utf8_lossy(&text[..read]).into_owned());
            let body = r#"{"name":"ポチ"}"#;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(head.as_bytes()).await;
        }
        let _open = listener;
        std::future::pending::<()>().await;
    });
    Pets { url, asked }
}

pub(super) fn api_server(url: &str) -> ResolvedServer {
    let spec = include_str!("../../../shikiri-openapi/tests/documents/petstore-3.0.yaml");
    ResolvedServer {
        id: None,
        name: "pets".to_owned(),
        transport: McpServerTransport::Openapi {
            spec: spec.to_owned(),
            url: Some(format!("{url}/api/v3")),
        },
        headers: BTreeMap::from([("Authorization".to_owned(), "Bearer canary".to_owned())]),
        allowed_tools: None,
        allow_private: true,
        is_own: false,
    }
}

/// A program that is an MCP server. `cases` are shell `case` branches for its messages. It writes
/// to `$log`, which the test reads.
fn program(log: &Path, cases: &str) -> ResolvedServer {
    let script = format!(
        r#"log={log}
        say() {{ printf '{{"jsonrpc":"2.0","id":"%s",%s}}\n' "$id" "$1"; }}
        while IFS= read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
            case "$line" in
            *'"method":"initialize"'*) say '"result":{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"p","version":"1"}}}}' ;;
            *'"method":"tools/list"'*) say '"result":{{"tools":[{{"name":"work.er","description":"働く","inputSchema":{{"type":"object","properties":{{"a b":{{}}}}}},"annotations":{{"readOnlyHint":true}}}},{{"name":"other","inputSchema":{{"type":"object"}}}}]}}' ;;
            {cases}
            *'"id"'*) say '"error":{{"code":-32601,"message":"no"}}' ;;
            esac
        done"#,
        log = log.display()
    );
    ResolvedServer {
        id: None,
        name: "prog".to_owned(),
        transport: McpServerTransport::Stdio {
            command: vec!["sh".to_owned(), "-c".to_owned(), script],
        },
        headers: BTreeMap::new(),
        allowed_tools: None,
        allow_private: false,
        is_own: false,
    }
}

/// A conversation for which tools are connected.
pub(super) struct World {
    folder: tempfile::TempDir,
    executions: Executions,
    tenant: TenantId,
    conversation: ConversationId,
}

impl World {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let executions = executions_in(folder.path()).await;
        let tenant = TenantId::local();
        let made =
            executions.create_conversation(&tenant, ConversationPatch::default()).await.unwrap();
        Self { folder, executions, tenant, conversation: made.value.id }
    }

    pub(super) async fn open_loopback_server(
        &self,
        servers: Vec<ResolvedServer>,
    ) -> (Vec<ResolvedServer>, Option<LoopbackMcpServer>, SkippedServers) {
        let secrets = KnownSecrets::new(["token-4711".to_owned(), "quo\"ted".to_owned()]);
        let mut check = DefinitionCheck::new(&self.executions, &self.tenant);
        LoopbackMcpServer::open(servers, &secrets, &mut check).await
    }

    async fn gather(
        &self,
        servers: &[ResolvedServer],
        skills: &[Skill],
        has_workspace: bool,
    ) -> (TurnTools, SkippedServers) {
        let sources = ToolSources {
            executions: &self.executions,
            tenant: &self.tenant,
            conversation: &self.conversation,
            has_workspace,
            servers,
            skills,
            folder: self.folder.path(),
            limit: Duration::from_secs(30),
        };
        let mut check = DefinitionCheck::new(&self.executions, &self.tenant);
        TurnTools::connect_all(&sources, &mut check).await
    }
}

fn names(tools: &TurnTools) -> Vec<&str> {
    tools.tools().iter().map(|tool| tool.name.as_str()).collect()
}

fn answer_text(answer: &ToolCallResult) -> String {
    let texts = answer.content.iter().map(|piece| match piece {
        ToolContent::Text(text) => text.clone(),
        ToolContent::Image { media_type, .. } => media_type.clone(),
    });
    texts.collect()
}

#[tokio::test]
async fn a_turn_has_the_tools_of_its_servers_its_files_and_its_skills() {
    let world = World::start().await;
    let mut pets = petstore(2).await;
    let mut api = api_server(&pets.url);
    api.allowed_tools = Some(vec!["getPetById".to_owned()]);
    // The same API once more, as an MCP server over HTTP.
    let other = ResolvedServer { name: "http".to_owned(), ..api_server(&pets.url) };
    let (mut behind, _loopback_server, _) = world.open_loopback_server(vec![other]).await;
    let mut http = behind.remove(0);
    http.allowed_tools = Some(vec!["mcp__http__getPetById".to_owned()]);
    let log = world.folder.path().join("log");
    let work = r#"*'"method":"tools/call"'*) printf '%s\n' "$line" >> $log; say '"result":{"content":[{"type":"text","text":"働いた"}]}' ;;"#;
    let dead = ResolvedServer {
        name: "dead".to_owned(),
        transport: McpServerTransport::Http { url: "http://127.0.0.1:1/mcp".to_owned() },
        ..api_server(&pets.url)
    };
    let private =
        ResolvedServer { name: "private".to_owned(), allow_private: false, ..dead.clone() };
    let old = ResolvedServer {
        name: "old".to_owned(),
        transport: McpServerTransport::Sse { url: "http://127.0.0.1:1/sse".to_owned() },
        ..dead.clone()
    };
    let skill = Skill {
        name: "tea".to_owned(),
        tenant: TenantId::local(),
        description: "茶".to_owned(),
        content: "Boil.".to_owned(),
        files: BTreeMap::new(),
        status: ActiveStatus::Active,
    };
    let servers = [api, http, program(&log, work), dead, private, old];
    let (tools, left_out) = world.gather(&servers, &[skill], true).await;
    let expected = [
        "Read",
        "Write",
        "Edit",
        "List",
        "Search",
        "Skill",
        "mcp__pets__getPetById",
        "mcp__http__getPetById",
        "mcp__prog__work_er",
        "mcp__prog__other",
    ];
    assert_eq!(names(&tools), expected);
    let why: Vec<_> = left_out.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(why, ["dead", "private", "old"], "{left_out:?}");
    assert!(
        left_out[1].1.contains("allow_private") && left_out[2].1.contains("cannot be reached"),
        "{left_out:?}"
    );
    let repeatable: Vec<_> =
        tools.tools().iter().filter(|tool| !tool.is_repeatable).map(|tool| &tool.name).collect();
    assert_eq!(repeatable, ["Edit", "mcp__prog__other"]);

    let call = async |name: &str, input: Value| {
        let answer = tools.call(name, &input).await;
        (answer.is_error, answer_text(&answer))
    };
    let pet = (false, "{\"name\":\"ポチ\"}".to_owned());
    assert_eq!(call("mcp__pets__getPetById", json!({ "petId": 7 })).await, pet);
    assert_eq!(call("mcp__http__getPetById", json!({ "petId": 8 })).await, pet);
    assert!(pets.asked.recv().await.unwrap().starts_with("GET /api/v3/pet/7 "));
    assert!(pets.asked.recv().await.unwrap().starts_with("GET /api/v3/pet/8 "));
    let worked = call("mcp__prog__work_er", json!({ "a_b": 1 })).await;
    assert_eq!(worked, (false, "働いた".to_owned()));
    let sent = std::fs::read_to_string(&log).unwrap();
    assert!(sent.contains(r#""arguments":{"a b":1}"#), "{sent}");
    assert_eq!(call("Skill", json!({ "name": "tea" })).await, (false, "Boil.".to_owned()));
    call("Write", json!({ "path": "a", "content": "値" })).await;
    assert_eq!(call("Read", json!({ "path": "a" })).await, (false, "値".to_owned()));
    for (name, input) in [
        ("Bash", json!({})),
        ("mcp__pets__addPet", json!({})),
        ("Read", json!([])),
        ("mcp__pets__getPetById", json!({ "petId": "../x" })),
        ("mcp__http__getPetById", json!({})),
    ] {
        assert!(call(name, input.clone()).await.0, "{name} {input}");
    }
    // Without servers, workspace and skills there are no tools.
    let (bare, _) = world.gather(&[], &[], false).await;
    assert_eq!(names(&bare), Vec::<&str>::new());
}

#[tokio::test]
async fn an_abandoned_tool_call_is_cancelled_at_its_server() {
    let world = World::start().await;
    let log = world.folder.path().join("log");
    let silent = r#"*'"method":"tools/call"'*) echo called >> $log ;;
        *'"method":"notifications/cancelled"'*) echo cancelled >> $log ;;"#;
    let (tools, left_out) = world.gather(&[program(&log, silent)], &[], false).await;
    assert_eq!(left_out, []);
    let seen = async |word: &str| {
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        until(word, async || read().contains(word)).await;
    };
    let input = json!({});
    tokio::select! {
        _ = tools.call("mcp__prog__other", &input) => panic!("it was answered"),
        () = seen("called") => {}
    }
    seen("cancelled").await;
}

#[tokio::test]
async fn a_tool_server_that_asks_is_told_that_no_user_can_answer() {
    let world = World::start().await;
    let log = world.folder.path().join("log");
    let asking = r#"*'"method":"tools/call"'*) call=$id; printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"%s","progress":1}}\n' "$id"
            printf '{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"名は?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}}\n' ;;
        *'"id":"q1"'*) printf '%s\n' "$line" >> $log; id=$call; say '"result":{"content":[],"isError":true}' ;;"#;
    let (tools, _) = world.gather(&[program(&log, asking)], &[], false).await;
    let answer = tools.call("mcp__prog__other", &json!({})).await;
    assert!(answer.is_error, "{answer:?}");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("error") && said.contains("-32601"), "{said}");
}

#[tokio::test]
async fn a_program_that_ends_is_told_and_what_may_be_repeated_is() {
    let world = World::start().await;
    let log = world.folder.path().join("log");
    // The first call of all ends the program; the next one is answered.
    let dying = r#"*'"method":"tools/call"'*) if [ -e $log ]; then say '"result":{"content":[{"type":"text","text":"again"}]}'; else echo x > $log; exit 1; fi ;;"#;
    let (tools, _) = world.gather(&[program(&log, dying)], &[], false).await;
    let answer = tools.call("mcp__prog__work_er", &json!({})).await;
    assert_eq!((answer.is_error, answer_text(&answer)), (false, "again".to_owned()));
    std::fs::remove_file(&log).unwrap();
    let answer = tools.call("mcp__prog__other", &json!({})).await;
    assert!(answer.is_error && answer_text(&answer).contains("not known"), "{answer:?}");
}
