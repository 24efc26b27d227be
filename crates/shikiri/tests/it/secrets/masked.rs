//! What an answer shows of secrets: nothing.

use serde_json::json;
use shikiri_testkit::TestApp;

use crate::PROGRAM;

const SECRET: &str = "canary-of-a-header-31d7";

#[tokio::test(flavor = "multi_thread")]
async fn literal_header_values_are_masked_in_every_answer() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("owner").await;
    let body = json!({
        "name": "docs", "type": "http", "url": "https://example.com/mcp",
        "headers_template": {
            "Authorization": "Bearer ${github}",
            "X-Api-Key": SECRET,
            "X-Both": format!("{SECRET}-${{github}}"),
        },
    });
    let shown = json!({
        "Authorization": "Bearer ${github}", "X-Api-Key": "***", "X-Both": "***${github}",
    });
    let made = tenant.client.post(&tenant.path("/mcp-servers"), &body).await;
    let path = tenant.path(&format!("/mcp-servers/{}", made.json()["id"].as_str().unwrap()));
    let (one, all) =
        (tenant.client.get(&path).await, tenant.client.get(&tenant.path("/mcp-servers")).await);
    for answer in [&made, &one, &all] {
        assert!(!answer.text().contains(SECRET), "{}", answer.text());
    }
    assert_eq!(one.json()["headers_template"], shown);
    let id = one.json()["id"].as_str().unwrap().to_owned();
    for arguments in [
        vec!["servers", "show", &id, "--tenant", "owner"],
        vec!["servers", "show", &id, "--tenant", "owner", "--json"],
        vec!["servers", "list", "--tenant", "owner", "--json"],
    ] {
        let ended = app.cli().run(&arguments).done();
        assert!(!ended.stdout.contains(SECRET), "{}", ended.stdout);
    }
    assert!(!app.log().contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mask_that_is_sent_back_keeps_the_value() {
    use tokio::io::AsyncReadExt as _;
    let app = TestApp::new(PROGRAM).start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let servers = "/v1/tenants/local/mcp-servers";
    let body = json!({
        "name": "docs", "type": "http", "url": url, "allow_private": true,
        "headers_template": { "X-Api-Key": SECRET },
    });
    let made = app.client().post(servers, &body).await.expect(201);
    let path = format!("{servers}/{}", made["id"].as_str().unwrap());
    let sent_back = json!({ "headers_template": { "X-Api-Key": "***", "X-New": "n" } });
    app.client().patch(&path, &sent_back).await.expect(200);
    // There is no value that this could stand for.
    let stray = json!({ "headers_template": { "X-Other": "***" } });
    let refused = app.client().patch(&path, &stray).await.problem(400);
    assert_eq!(refused["field"], "headers_template", "{refused}");

    let (client, check) = (app.client(), format!("{path}/check"));
    let checking = tokio::spawn(async move { client.post(&check, &json!({})).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = vec![0; 8_192];
    let count = stream.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..count]).to_lowercase();
    assert!(head.contains(&format!("x-api-key: {SECRET}")), "{head}");
    assert!(head.contains("x-new: n"), "{head}");
    // A server that repeats what it was sent is not repeated.
    use tokio::io::AsyncWriteExt as _;
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": SECRET } });
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
        answer.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let report = checking.await.unwrap();
    assert!(!report.text().contains(SECRET), "{}", report.text());
}

/// A tenant's key may move a server, but not have a value sent elsewhere that it cannot see.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_header_value_does_not_move_to_another_host() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("owner").await;
    let body = json!({
        "name": "docs", "type": "http", "url": "https://docs.example/mcp",
        "headers_template": { "X-Api-Key": SECRET, "Authorization": "Bearer ${github}" },
    });
    let made = app.client().post(&tenant.path("/mcp-servers"), &body).await.expect(201);
    let path = tenant.path(&format!("/mcp-servers/{}", made["id"].as_str().unwrap()));
    let elsewhere =
        ["https://thief.example/mcp", "http://docs.example/mcp", "https://docs.example:8443/"];
    for url in elsewhere {
        for moved in [
            json!({ "url": url }),
            json!({ "url": url, "headers_template": { "X-Api-Key": "***" } }),
            json!({ "url": url, "type": "sse" }),
            json!({ "url": url, "type": "openapi", "spec": format!("{url}/openapi.json") }),
        ] {
            let refused = tenant.client.patch(&path, &moved).await.problem(400);
            assert_eq!(refused["field"], "headers_template", "{moved}: {refused}");
        }
    }
    // At the same host it stays, and elsewhere it may be given again or left out.
    for moved in [
        json!({ "url": "https://docs.example/other" }),
        json!({ "url": elsewhere[0], "headers_template": { "X-Api-Key": "another" } }),
        json!({ "url": elsewhere[1], "headers_template": { "Authorization": "Bearer ${github}" } }),
    ] {
        tenant.client.patch(&path, &moved).await.expect(200);
    }
}
