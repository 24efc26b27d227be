//! Who can drive a browser that was started: the processes of its user, and no program that an agent
//! runs.

use serde_json::json;
use shikiri_testkit::{Client, listening_ports, processes_of_folder, script};

use super::super::{answer, ask, call, connection, process};
use super::Home;

/// In the place of Claude Code: it looks for a browser to drive, on every way that there is. What it
/// reached is its answer.
const BROWSER_HUNTER: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo '2.1.325 (Claude Code)'; exit; fi
hunt() {
  for port in $(awk '$4 == "0A" { split($2, a, ":"); print a[2] }' /proc/net/tcp /proc/net/tcp6); do
    exec 9<>"/dev/tcp/127.0.0.1/$((16#$port))" || continue
    printf 'GET /json/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&9
    timeout 2 cat <&9 | grep -q webSocketDebuggerUrl && echo -n "port:$((16#$port)) "
    exec 9>&-
  done
  cat DATA/browser/local/devtools.token && echo -n 'token '
  python3 - DATA/browser/local/devtools.sock <<'END'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(3)
s.connect(sys.argv[1])
s.send(b'{"id":1,"method":"Browser.getVersion"}\0' * 2)
print('socket:' + s.recv(100).decode().replace('"', ' ') if s.recv(1) else '')
END
}
while read -r line; do
  case "$line" in
  *initialize*)
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
    ;;
  *)
    found=$(hunt 2>/dev/null | tr -d '\n"')
    echo '{"type":"system","subtype":"init","session_id":"s","model":"m"}'
    echo '{"type":"result","is_error":false,"num_turns":1,"session_id":"s","result":"reached: '$found'."}'
    ;;
  esac
done
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_started_chrome_listens_on_no_tcp_port() {
    let Some(home) = Home::start().await else { return };
    let mut agent = tokio::task::block_in_place(|| process(&home.cli(), "x"));
    tokio::task::block_in_place(|| ask(&mut agent, "Begin"));
    let browser = home.folder.path().join(".shikiri/browser/local");
    let processes = processes_of_folder(&browser);
    assert!(processes.len() > 2, "a keeper and a Chrome: {processes:?}");
    let ports = listening_ports(&processes);
    for port in &ports {
        let told = Client::new(&format!("http://127.0.0.1:{port}")).get("/json/version").await;
        eprintln!("port {port} answers {}: {}", told.status, told.text());
    }
    assert!(ports.is_empty(), "they listen on {ports:?}");
    assert!(!browser.join("profile/DevToolsActivePort").exists());
}

/// The browser is that of another tenant, the run one of a server that serves both.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_cannot_drive_the_browser_of_another_tenant() {
    let Some(home) = Home::start().await else { return };
    let claude = home.folder.path().join("claude");
    let data = home.folder.path().join(".shikiri");
    script(&claude, &BROWSER_HUNTER.replace("DATA", data.to_str().unwrap()));
    let app = home.server().env("SHIKIRI_CLAUDE_BIN", claude.display()).start().await;
    let mcp = connection(&app, "x").await;
    answer(&mcp.result("tools/call", call("ask_chatgpt_web", "Begin")).await);
    assert!(data.join("browser/local/profile").exists());

    let model = json!({ "id": "hunter", "engine": "claude-code" });
    app.client().post("/v1/models", &model).await.expect(201);
    let tenant = app.tenant("stranger").await;
    let path = "/v1/tenants/stranger";
    app.client().patch(path, &json!({ "model_id": "hunter" })).await.expect(200);
    let made = tenant.client.post(&tenant.path("/conversations"), &json!({})).await.expect(201);
    let path = tenant.path(&format!("/conversations/{}/executions", made["id"].as_str().unwrap()));
    let turn = json!({ "user_input": "Hunt", "executor": { "user_id": "x" } });
    let told = tenant.client.post(&path, &turn).await.text();
    assert!(told.contains("reached: ."), "{told}");
}
