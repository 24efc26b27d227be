//! What a run reaches through the proxy of its gateway, by the tenant's policy.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::World;

/// A service of the host that says `inside` to every caller.
async fn service() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = socket.read(&mut request).await;
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside";
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    port
}

/// Asks for each address through the proxy, plainly and by a tunnel, and gives both statuses.
pub(super) fn ask_all(hosts: &[&str], port: u16) -> String {
    let each = hosts.iter().map(|host| {
        let curl = "curl -s -m 20 -o /dev/null --noproxy ''";
        format!(
            "echo {host} $({curl} -w '%{{http_code}}' http://{host}:{port}/) \
             $({curl} -w '%{{http_connect}}' -p http://{host}:{port}/);"
        )
    });
    each.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_own_addresses_are_refused_under_every_policy() {
    let port = service().await;
    let world = World::start(&[("ANTHROPIC_API_KEY", "sk-operator")], json!({})).await;
    let hosts = [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "169.254.169.254",
        "[fe80::1]",
    ];
    for egress in ["none", "public", "open"] {
        let patch = json!({ "egress": egress });
        let tenant = world.app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        assert_eq!(tenant["egress"], egress);
        let told = world.bash(&ask_all(&hosts, port)).await;
        let wanted: String = hosts.iter().map(|host| format!("{host} 403 403\n")).collect();
        assert_eq!(told, wanted, "{egress}");
    }
    let code = format!("curl -s --noproxy '' http://127.0.0.1:{port}/");
    let refused = world.bash(&code).await;
    assert!(refused.contains(&format!("127.0.0.1:{port}")), "{refused}");
    assert!(refused.contains("`open`"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_need_the_policy_open_and_a_token_is_needed_for_all() {
    let world = World::start(&[("ANTHROPIC_API_KEY", "sk-operator")], json!({})).await;
    let code = "curl -s -m 30 -o /dev/null --noproxy '' -w '%{http_code} ' http://10.255.255.1:9/; \
                curl -s -m 5 -o /dev/null --noproxy '' -w '%{http_code}' \
                -x ${HTTP_PROXY/run:*@/run:wrong@} http://10.255.255.1:9/";
    for egress in ["none", "public", "open"] {
        let patch = json!({ "egress": egress });
        world.app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let told = world.bash(code).await;
        let (allowed, wrong_token) = told.split_once(' ').unwrap();
        // Whether anything is there depends on the network of this machine.
        assert_eq!(allowed == "403", egress != "open", "{egress}: {told}");
        assert_eq!(wrong_token, "407", "{egress}");
    }
    // Only an admin sets it.
    let tenant = world.app.tenant("user").await;
    let patch = json!({ "egress": "open" });
    tenant.client.patch(&tenant.path(""), &patch).await.problem(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runs_own_server_is_reachable_under_every_policy() {
    let port = service().await;
    let world = World::start(&[("ANTHROPIC_API_KEY", "sk-operator")], json!({})).await;
    let server = json!({
        "name": "own", "type": "http", "url": format!("http://127.0.0.1:{port}/mcp"),
        "allow_private": true,
    });
    let servers = world.app.local().path("/mcp-servers");
    world.app.client().post(&servers, &server).await.expect(201);
    world.app.client().patch("/v1/tenants/local", &json!({ "egress": "none" })).await.expect(200);
    // By exactly this host and port.
    let code =
        format!("curl -s --noproxy '' http://127.0.0.1:{port}/; {}", ask_all(&["127.0.0.2"], port));
    assert_eq!(world.bash(&code).await, "inside127.0.0.2 403 403\n");
}
