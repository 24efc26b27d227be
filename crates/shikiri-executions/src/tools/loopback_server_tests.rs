use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::tools::tests::{World, api_server, petstore};

/// One request on its own connection: status and body. None if the connection fails.
async fn ask(url: &str, method: &str, token: Option<&str>, body: &str) -> Option<(u16, Value)> {
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    let mut stream = TcpStream::connect(host).await.ok()?;
    let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} /{path} HTTP/1.1\r\nHost: {host}\r\n{token}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n")?.1;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

fn request(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
}

fn address(server: &ResolvedServer) -> (String, String) {
    let McpServerTransport::Http { url } = &server.transport else { panic!("no address") };
    (url.clone(), server.headers["Authorization"].clone())
}

#[tokio::test]
async fn an_api_is_a_server_behind_a_door_that_only_its_run_can_open() {
    let mut world = petstore(1).await;
    let mut api = api_server(&world.url);
    api.allowed_tools = Some(vec!["getPetById".to_owned(), "addPet".to_owned()]);
    let plain = ResolvedServer {
        name: "other".to_owned(),
        transport: McpServerTransport::Http { url: "http://127.0.0.1:1/".to_owned() },
        headers: BTreeMap::new(),
        ..api.clone()
    };
    let (servers, loopback_server, left_out) =
        World::start().await.open_loopback_server(vec![api, plain]).await;
    assert_eq!(left_out, []);
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["other", "pets"]);
    let (url, token) = address(&servers[1]);
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/pets"), "{url}");
    // The program does not get the API's own secret.
    assert!(!token.contains("canary") && token.len() == 71, "{token}");

    let list = request("tools/list", json!({}));
    for wrong in [None, Some("Bearer x"), Some(""), Some(&token[..70]), Some(&token[7..])] {
        assert_eq!(ask(&url, "POST", wrong, &list).await, Some((401, Value::Null)), "{wrong:?}");
    }
    let token = Some(token.as_str());
    let elsewhere = url.replace("/pets", "/other");
    assert_eq!(ask(&elsewhere, "POST", token, &list).await.unwrap().0, 404);
    assert_eq!(ask(&url, "GET", token, "").await.unwrap().0, 405);
    assert_eq!(ask(&url, "POST", token, "{").await.unwrap().1["error"]["code"], -32700);
    let notification =
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    assert_eq!(ask(&url, "POST", token, &notification).await, Some((202, Value::Null)));
    let hello = request("initialize", json!({ "protocolVersion": "2025-06-18" }));
    let hello = ask(&url, "POST", token, &hello).await.unwrap().1;
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");

    let listed = ask(&url, "POST", token, &list).await.unwrap().1;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["addPet", "getPetById"]);
    assert_eq!(tools[1]["annotations"]["readOnlyHint"], true);
    let call = |name: &str, arguments: Value| {
        request("tools/call", json!({ "name": name, "arguments": arguments }))
    };
    let called = call("getPetById", json!({ "petId": 7 }));
    let called = ask(&url, "POST", token, &called).await.unwrap().1;
    let expected = json!({ "content": [{ "type": "text", "text": "{\"name\":\"ポチ\"}" }],
        "isError": false });
    assert_eq!(called["result"], expected);
    let seen = world.asked.recv().await.unwrap();
    assert!(seen.starts_with("GET /api/v3/pet/7 ") && seen.contains("Bearer canary"), "{seen}");
    // A tool that is not allowed does not exist; invalid arguments are an error result.
    let refused = ask(&url, "POST", token, &call("deletePet", json!({ "petId": 7 }))).await;
    assert_eq!(refused.unwrap().1["error"]["code"], -32602);
    let unfit = ask(&url, "POST", token, &call("getPetById", json!({ "petId": ".." }))).await;
    assert_eq!(unfit.unwrap().1["result"]["isError"], true);

    // The listener closes with the run.
    drop(loopback_server);
    tokio::time::timeout(Duration::from_secs(10), async {
        while ask(&url, "POST", token, &list).await.is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the door is shut");
}

#[tokio::test]
async fn an_api_that_is_away_is_left_out_and_opens_no_door() {
    let world = petstore(0).await;
    let mut private = api_server(&world.url);
    private.allow_private = false;
    let mut nowhere = api_server(&world.url);
    nowhere.name = "nowhere".to_owned();
    nowhere.transport =
        McpServerTransport::Openapi { spec: "http://127.0.0.1:1/spec".to_owned(), url: None };
    let (servers, loopback_server, left_out) =
        World::start().await.open_loopback_server(vec![private, nowhere]).await;
    assert!(servers.is_empty() && loopback_server.is_none());
    assert_eq!(left_out.len(), 2);
    assert!(left_out[0].1.contains("allow_private"), "{left_out:?}");
    assert!(left_out[1].1.contains("cannot be reached"), "{left_out:?}");
}
