//! MCP servers of a tenant: made, changed, removed, tried.

use serde_json::{Value, json};
use shikiri_testkit::{Cli, TestApp};

use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_made_changed_and_removed() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let (client, servers) = (&tenant.client, tenant.path("/mcp-servers"));
    let new = json!({
        "name": "git_hub", "type": "http", "url": "https://mcp.example.com/mcp?a=1",
        "headers_template": { "Authorization": "Bearer ${github}", "X-名": "y" },
    });
    client.post(&servers, &new).await.problem(400);
    let mut new = new;
    new["headers_template"] = json!({ "Authorization": "Bearer ${github}" });
    let made = client.post(&servers, &new).await;
    let mut shown = made.expect(201);
    let path = format!("{servers}/{}", shown["id"].as_str().unwrap());
    assert_eq!(made.header("location"), Some(path.as_str()));
    assert_eq!(client.get(&path).await.expect(200), shown);
    for field in ["id", "created_at", "updated_at"] {
        assert!(shown[field].take().is_string(), "{field}");
    }
    let mut whole = new.clone();
    let rest = json!({ "id": null, "created_at": null, "updated_at": null, "allowed_tools": null, "allow_private": false, "status": "active" });
    whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    assert_eq!(shown, whole);
    assert!(
        client.post(&servers, &new).await.problem(409)["detail"]
            .as_str()
            .unwrap()
            .contains("git_hub")
    );

    let change = json!({ "type": "sse", "allowed_tools": ["検索"], "status": "inactive", "headers_template": {} });
    let changed = client.patch(&path, &change).await.expect(200);
    for (field, value) in change.as_object().unwrap() {
        assert_eq!(&changed[field], value, "{field}");
    }
    assert_eq!(changed["url"], new["url"], "what was left out stays");
    let all = client.patch(&path, &json!({ "allowed_tools": null })).await.expect(200);
    assert_eq!(all["allowed_tools"], Value::Null);

    let second = json!({ "name": "second", "type": "http", "url": "http://b.example" });
    client.post(&servers, &second).await.expect(201);
    client.patch(&path, &json!({ "name": "second" })).await.problem(409);
    client.patch(&path, &json!({ "name": "git_hub" })).await.expect(200);
    client.delete(&path).await.expect(204);
    for answer in [
        client.get(&path).await,
        client.delete(&path).await,
        client.get(&format!("{servers}/%00")).await,
    ] {
        assert_eq!(answer.problem(404)["code"], "NOT_FOUND");
    }
    let left = client.get(&servers).await.expect(200);
    assert_eq!(
        (left["items"].as_array().unwrap().len(), &left["items"][0]["name"]),
        (1, &json!("second"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_servers_are_refused_by_field() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let http = |url: &str| json!({ "name": "s", "type": "http", "url": url });
    let header = |name: &str, value: &str| json!({ "name": "s", "type": "http", "url": "http://a.example", "headers_template": { name: value } });
    let stdio = |command: Value| json!({ "name": "s", "type": "stdio", "command": command });
    let cases = [
        (json!({ "type": "http", "url": "http://a" }), "body"),
        (json!({ "name": "s", "url": "http://a" }), "body"),
        (json!({ "name": "a b", "type": "http", "url": "http://a" }), "name"),
        (json!({ "name": "x".repeat(65), "type": "http", "url": "http://a" }), "name"),
        (json!({ "name": "s", "type": "http" }), "url"),
        (http("ftp://a.example/"), "url"),
        (http("file:///etc/passwd"), "url"),
        (http("/mcp"), "url"),
        (http("http://"), "url"),
        (http("http://me:secret@a.example/"), "url"),
        (http("http://a.example/ b"), "url"),
        (http(&format!("http://a.example/{}", "x".repeat(2_000))), "url"),
        (json!({ "name": "s", "type": "http", "url": "http://a", "command": "x" }), "command"),
        (json!({ "name": "s", "type": "http", "url": "http://a", "spec": {} }), "spec"),
        (header("a b", "x"), "headers_template"),
        (header("", "x"), "headers_template"),
        (header("Host", "x"), "headers_template"),
        (header("content-LENGTH", "1"), "headers_template"),
        (header("Transfer-Encoding", "chunked"), "headers_template"),
        (header("Mcp-Session-Id", "x"), "headers_template"),
        (header("X-A", "a\r\nHost: b"), "headers_template"),
        (
            json!({ "name": "s", "type": "http", "url": "http://a", "headers_template": { "X-A": "1", "x-a": "2" } }),
            "headers_template",
        ),
        (
            json!({ "name": "s", "type": "http", "url": "http://a", "allowed_tools": [""] }),
            "allowed_tools",
        ),
        (json!({ "name": "s", "type": "grpc", "url": "http://a" }), "type"),
        (json!({ "name": "s", "type": "http", "url": "http://a", "secret": 1 }), "secret"),
        (stdio(json!([])), "command"),
        (stdio(json!("  ")), "command"),
        (stdio(json!(["a", "b\u{0}"])), "command"),
        (stdio(json!("sh -c 'x y'")), "command"),
        (json!({ "name": "s", "type": "stdio", "url": "http://a" }), "url"),
        (
            json!({ "name": "s", "type": "stdio", "command": "x", "headers_template": { "A": "b" } }),
            "headers_template",
        ),
    ];
    for (body, field) in cases {
        let problem = app.client().post(&tenant.path("/mcp-servers"), &body).await.problem(400);
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    assert_eq!(
        tenant.client.get(&tenant.path("/mcp-servers")).await.expect(200)["items"],
        json!([])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_on_the_servers_machine_are_the_admins_to_start() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let (client, admin, servers) = (&tenant.client, app.client(), tenant.path("/mcp-servers"));
    let new = json!({ "name": "prog", "type": "stdio", "command": "uvx  some-server --flag" });
    assert_eq!(client.post(&servers, &new).await.problem(403)["code"], "FORBIDDEN");
    let made = admin.post(&servers, &new).await.expect(201);
    assert_eq!(made["command"], json!(["uvx", "some-server", "--flag"]));
    let path = format!("{servers}/{}", made["id"].as_str().unwrap());
    client.get(&path).await.expect(200);
    for change in [
        json!({ "command": ["rm"] }),
        json!({ "status": "inactive" }),
        json!({ "type": "http", "url": "http://a" }),
    ] {
        client.patch(&path, &change).await.problem(403);
    }
    let plain = json!({ "name": "plain", "type": "http", "url": "http://a.example" });
    let plain = client.post(&servers, &plain).await.expect(201);
    let plain = format!("{servers}/{}", plain["id"].as_str().unwrap());
    client.patch(&plain, &json!({ "type": "stdio", "command": ["rm"] })).await.problem(403);
    assert_eq!(client.get(&plain).await.expect(200)["type"], "http");
    assert_eq!(
        admin.patch(&path, &json!({ "command": ["b", "c d"] })).await.expect(200)["command"],
        json!(["b", "c d"])
    );
    client.delete(&path).await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_the_admins_to_open() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("user").await;
    let (client, admin, servers) = (&tenant.client, app.client(), tenant.path("/mcp-servers"));
    let new = |name: &str, open: bool| {
        json!({
            "name": name, "type": "http", "url": "http://127.0.0.1:9/", "allow_private": open,
        })
    };
    let refused = client.post(&servers, &new("mine", true)).await.problem(403);
    assert_eq!(refused["code"], "FORBIDDEN");
    assert!(refused["detail"].as_str().unwrap().contains("admin key"), "{refused}");
    let id = |server: Value| format!("{servers}/{}", server["id"].as_str().unwrap());
    let closed = id(client.post(&servers, &new("mine", false)).await.expect(201));
    client.patch(&closed, &json!({ "allow_private": true })).await.problem(403);
    let report = client.post(&format!("{closed}/check"), &json!({})).await.expect(200);
    assert!(report["detail"].as_str().unwrap().contains("private address"), "{report}");
    client.patch(&closed, &json!({ "url": "http://127.0.0.1:10/" })).await.expect(200);

    // What the admin opened stays open, and stays where it is.
    let open = id(admin.post(&servers, &new("theirs", true)).await.expect(201));
    for change in [
        json!({ "url": "http://127.0.0.1:10/" }),
        json!({ "type": "sse" }),
        json!({ "type": "sse", "url": "http://10.0.0.1/", "allow_private": true }),
    ] {
        client.patch(&open, &change).await.problem(403);
    }
    let shown = client.get(&open).await.expect(200);
    assert_eq!((&shown["type"], &shown["url"]), (&json!("http"), &json!("http://127.0.0.1:9/")));
    let change = json!({ "headers_template": { "X-A": "b" }, "allow_private": true });
    client.patch(&open, &change).await.expect(200);
    // A hidden value does not move with it.
    let mut moved = json!({ "url": "http://127.0.0.1:10/", "allow_private": false });
    client.patch(&open, &moved).await.problem(400);
    moved["headers_template"] = json!({});
    client.patch(&open, &moved).await.expect(200);
    client.patch(&open, &json!({ "allow_private": true })).await.problem(403);
    admin.patch(&open, &json!({ "allow_private": true })).await.expect(200);
}

#[test]
fn servers_live_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("github", "a-secret");
    let create = [
        "servers",
        "create",
        "hub",
        "--type",
        "http",
        "--url",
        "http://127.0.0.1:9/mcp",
        "--header",
        "Authorization: Bearer ${github}",
        "--allowed-tool",
        "a",
        "--allow-private",
        "--json",
    ];
    let made = cli.run(&create).done().json();
    assert_eq!(made["headers_template"], json!({ "Authorization": "Bearer ${github}" }));
    let id = made["id"].as_str().unwrap();
    cli.run(&create[..6]).refused(2, &["url"]);
    cli.run(&create).refused(3, &["hub"]);
    cli.run(&["servers", "set", id, "--header", "no colon"]).refused(2, &["Name: value"]);
    let set = cli
        .run(&["servers", "set", id, "--allowed-tool", "", "--header", "", "--json"])
        .done()
        .json();
    assert_eq!((&set["allowed_tools"], &set["headers_template"]), (&Value::Null, &json!({})));
    let stdio =
        ["servers", "create", "prog", "--type", "stdio", "--json", "--", "sh", "-c", "exit 0"];
    assert_eq!(cli.run(&stdio).done().json()["command"], json!(["sh", "-c", "exit 0"]));
    let list = cli.run(&["servers", "list"]).done().stdout;
    assert!(list.contains("http://127.0.0.1:9/mcp") && list.contains("sh -c exit 0"), "{list}");
    assert!(cli.run(&["servers", "show", id]).done().stdout.contains("private addresses  true"));
    cli.run(&["servers", "set", id, "--allow-private", "false"]).done();
    assert!(cli.run(&["servers", "show", id]).done().stdout.contains("private addresses  false"));

    cli.run(&["servers", "check", id]).refused(5, &["allow_private"]);
    cli.run(&["servers", "set", id, "--allow-private", "true", "--header", "A: ${github}"]).done();
    cli.run(&["servers", "check", id]).refused(2, &["github"]);
    let check = cli.run(&["servers", "check", id, "--token", "github"]);
    check.refused(5, &["cannot be reached"]);
    assert!(!check.stderr.contains("a-secret"));
    // A server is meant by its name too.
    assert_eq!(cli.run(&["servers", "show", "prog", "--json"]).done().json()["name"], "prog");
    cli.run(&["servers", "set", "prog", "--status", "inactive"]).done();
    cli.run(&["servers", "remove", "prog"]).done();
    cli.run(&["servers", "show", "prog"]).refused(4, &["prog", "shikiri servers list"]);
    cli.run(&["servers", "remove", id]).done();
    cli.run(&["servers", "show", id]).refused(4, &[id, "shikiri servers list"]);
}
