use std::sync::Arc;

use shikiri_executions::execution::{NoTools, ResumeState};
use shikiri_model::execution::PriceList;
use shikiri_model::models::Model;
use shikiri_model::native::ExecutionLimits;
use shikiri_model::tenant::EgressPolicy;

use super::*;

fn order() -> TurnRequest {
    TurnRequest {
        secrets: Vec::new(),
        limits: ExecutionLimits::default(),
        prices: PriceList::default(),
        memory: ResumeState::default(),
        egress: EgressPolicy::default(),
        loopback_ports: Vec::new(),
        prompt: "p".into(),
        system_prompt: String::new(),
        model: Model { model_name: "opus-x".into(), ..Model::offline() },
        subagent_model: Some("haiku-x".into()),
        aliases: BTreeMap::from([("haiku".into(), "h".into()), ("opus".into(), "o".into())]),
        resume: None,
        servers: Vec::new(),
        skills: Vec::new(),
        tools: Arc::new(NoTools),
        folder: "/work".into(),
        home: "/home".into(),
        env: BTreeMap::from([
            ("PATH".into(), "/bin".into()),
            ("HOME".into(), "/else".into()),
            ("ANTHROPIC_DEFAULT_OPUS_MODEL".into(), "given".into()),
        ]),
    }
}

fn server(name: &str, transport: McpServerTransport, header: &str) -> ResolvedServer {
    let headers = BTreeMap::from([("Authorization".to_owned(), header.to_owned())]);
    let (name, allowed_tools) = (name.into(), None);
    ResolvedServer {
        id: None,
        name,
        transport,
        headers,
        allowed_tools,
        allow_private: false,
        is_own: false,
    }
}

#[test]
fn the_command_line_is_the_sdk_s_and_values_cannot_become_options() {
    let resumed = TurnRequest { resume: Some("-p".into()), ..order() };
    let files =
        CliFilePaths { servers: Some(Path::new("/s.json")), plugin: Some(Path::new("/plugin")) };
    let line = |order: &TurnRequest, files: CliFilePaths<'_>, can_forward_subagents: bool| {
        let cli = InstalledCli { program: "/claude".into(), can_forward_subagents };
        let given = arguments(order, files, &cli);
        given.iter().map(|argument| argument.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        line(&resumed, files, false),
        "--output-format stream-json --verbose --input-format stream-json \
         --include-partial-messages --permission-prompt-tool=stdio --setting-sources= \
         --permission-mode=default --strict-mcp-config --model=opus-x --resume=-p \
         --mcp-config /s.json --plugin-dir /plugin"
    );
    let max_cost_usd = shikiri_model::execution::Cost::from_dollars(0.25);
    let limits = ExecutionLimits { max_turns: Some(3), max_cost_usd, ..Default::default() };
    let limited = line(&TurnRequest { limits, ..order() }, CliFilePaths::default(), true);
    let end = "--model=opus-x --forward-subagent-text --max-turns=3 --max-budget-usd=0.25";
    assert!(limited.ends_with(end), "{limited}");
}

#[test]
fn the_environment_is_the_orders_and_what_the_engine_needs() {
    let env = environment(&order());
    let of = |name: &str| env.get(name).and_then(|value| value.to_str());
    assert_eq!(of("PATH"), Some("/bin"));
    assert_eq!(of("HOME"), Some("/home"));
    assert_eq!(of("CLAUDE_CONFIG_DIR"), Some("/home/claude"));
    assert_eq!(of("CLAUDE_CODE_SUBAGENT_MODEL"), Some("haiku-x"));
    assert_eq!(of("ANTHROPIC_DEFAULT_HAIKU_MODEL"), Some("h"));
    assert_eq!(of("ANTHROPIC_DEFAULT_OPUS_MODEL"), Some("given"), "the order's own wins");
    assert_eq!(of("ANTHROPIC_DEFAULT_SONNET_MODEL"), None);
    assert_eq!(of("DISABLE_AUTOUPDATER"), Some("1"));
    assert!(of("USER").is_none() && of("CARGO").is_none(), "nothing is inherited");
}

#[test]
fn servers_have_the_form_of_the_cli_and_no_way_into_its_environment() {
    let http = |url: &str| McpServerTransport::Http { url: url.into() };
    let stdio = McpServerTransport::Stdio { command: vec!["npx".into(), "-y".into(), "s".into()] };
    let all = [
        server("a", http("http://a"), "Bearer x"),
        server("b", stdio, ""),
        server("c", http("http://c/${ANTHROPIC_API_KEY}"), ""),
        server("d", http("http://d"), "${ANTHROPIC_API_KEY}"),
    ];
    let (given, left_out) = servers(&all);
    assert_eq!(left_out, ["c", "d"]);
    assert_eq!(
        Value::Object(given),
        json!({
            "a": { "type": "http", "url": "http://a", "headers": { "Authorization": "Bearer x" } },
            "b": { "type": "stdio", "command": "npx", "args": ["-y", "s"] },
        })
    );
}
