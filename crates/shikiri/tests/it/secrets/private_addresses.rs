//! Addresses of this machine and its network are reached only where a person allowed it, and a
//! refusal does not tell where a name leads.

use serde_json::json;
use shikiri_testkit::{Cli, TestApp};
use tempfile::TempDir;

use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_closed_unless_asked_for_also_to_admins() {
    let app = TestApp::new(PROGRAM).start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", listener.local_addr().unwrap().port());
    let servers = "/v1/tenants/local/mcp-servers";
    let body = json!({ "name": "near", "type": "http", "url": url });
    let made = app.client().post(servers, &body).await.expect(201);
    assert_eq!(made["allow_private"], false, "{made}");
    let check = format!("{servers}/{}/check", made["id"].as_str().unwrap());
    let report = app.client().post(&check, &json!({})).await.expect(200);
    assert_eq!(report["reachable"], false, "{report}");
    assert!(report["detail"].as_str().unwrap().contains("allow_private"), "{report}");
    assert!(listener.accept().is_err(), "a connection was made");
}

#[test]
fn the_command_line_names_the_flag_that_a_private_address_needs() {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    let create = ["servers", "create", "near", "--type", "http", "--url", "http://127.0.0.1:9/mcp"];
    let refused = cli.run(&create);
    refused.refused(3, &["private address", "--allow-private"]);
    let made = cli.run(&[&create[..], &["--allow-private", "--json"]].concat()).done().json();
    assert_eq!(made["allow_private"], true, "{made}");
    // A public one needs no flag.
    let public = ["servers", "create", "far", "--type", "http", "--url", "https://1.1.1.1/mcp"];
    assert_eq!(cli.run(&[&public[..], &["--json"]].concat()).done().json()["allow_private"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_check_does_not_tell_where_an_internal_name_leads() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("curious").await;
    let body = json!({ "name": "inside", "type": "http", "url": "http://localhost:9/mcp" });
    let made = tenant.client.post(&tenant.path("/mcp-servers"), &body).await.expect(201);
    let path = tenant.path(&format!("/mcp-servers/{}/check", made["id"].as_str().unwrap()));
    let report = tenant.client.post(&path, &json!({})).await.expect(200);
    let detail = report["detail"].as_str().unwrap();
    assert!(detail.contains("private address"), "{detail}");
    assert!(!detail.contains("127.0.0.1") && !detail.contains("::1"), "{detail}");
}
