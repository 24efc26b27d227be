#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, dead_code)]
#[path = "it/mcp"]
mod mcp {
    mod conformance;
    mod served;
    use serde_json::Value;
    use shikiri_testkit::Client;
    fn linked_run(result: &Value) -> String {
        let content = result["content"].as_array().into_iter().flatten();
        let link = content.into_iter().find(|part| part["type"] == "resource_link");
        let uri = link.and_then(|link| link["uri"].as_str());
        let run = uri.and_then(|uri| uri.strip_prefix("shikiri://runs/"));
        run.unwrap_or_else(|| panic!("no link in {result}")).to_owned()
    }
    async fn count_runs(client: &Client, tenant: &str) -> usize {
        let page = client.get(&format!("/v1/tenants/{tenant}/runs?limit=200")).await.expect(200);
        page["items"].as_array().expect("a list").len()
    }
}
