//! The client that the suite tries: it reaches the server that it is given, and uses everything
//! that this server offers. Only `shikiri-client` speaks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use shikiri_client::{
    CallHandler, CallOwnershipLost, ClientError, ClientOptions, ClientToolCall, FollowOutcome,
    LoginBrowser, OAuthTokenProvider, ServerConnection, ServerTool, TokenProvider, TokenStore,
    follow_call,
};
use shikiri_model::host::{
    CallEvent, CallOutcome, ElicitationForm, FormAnswer, HostTransport, OAuthSpec, ResumePoint,
    ServerSpec,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Shorter than the suite's own patience, so that the reason is told.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the suite expects us to be described; it is not read.
const OUR_METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// What the suite says of one scenario.
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) url: String,
    /// Data of the scenario, or null.
    pub(crate) context: Value,
}

/// Fails with the reason; for some scenarios that is the right end.
pub(crate) async fn play(scenario: &Scenario) -> Result<(), String> {
    let spec = ServerSpec {
        name: "suite".to_owned(),
        reach: HostTransport::Http { url: scenario.url.clone(), headers: Default::default() },
        oauth: oauth(&scenario.context),
    };
    let browser: Arc<dyn LoginBrowser> = Arc::new(Visitor);
    let login = OAuthTokenProvider::new(&spec, Arc::new(Drawer::default()), Some(browser));
    let introduction = ClientOptions {
        name: "shikiri-conformance".to_owned(),
        version: "1".to_owned(),
        elicitation: true,
        sampling: true,
        authority: login.map(|login| Arc::new(login) as Arc<dyn TokenProvider>),
        protocol: None,
        addresses: Vec::new(),
    };
    let server = ServerConnection::connect(&spec, &introduction, "c").await.map_err(told)?;
    let offer = server.tools().await.map_err(told)?;
    look_at_the_rest(&server).await.map_err(told)?;
    for (tool, arguments) in calls(scenario, &offer.tools)? {
        call(&server, tool, &arguments).await?;
    }
    server.close(true).await;
    Ok(())
}

/// What was registered by hand, if anything was.
fn oauth(context: &Value) -> OAuthSpec {
    let text = |key: &str| context[key].as_str().map(str::to_owned);
    OAuthSpec {
        client_id: text("client_id"),
        client_secret: text("client_secret"),
        client_metadata_url: Some(OUR_METADATA.to_owned()),
        ..OAuthSpec::default()
    }
}

fn told(error: ClientError) -> String {
    error.to_string()
}

/// Resources and prompts, as far as the server has some.
async fn look_at_the_rest(server: &ServerConnection) -> Result<(), ClientError> {
    let has = |what: &str| server.about().capabilities.get(what).is_some();
    if has("resources") {
        let listed = server.send_request("resources/list", json!({})).await?;
        for resource in listed["resources"].as_array().into_iter().flatten() {
            server.send_request("resources/read", json!({ "uri": resource["uri"] })).await?;
        }
    }
    if has("prompts") {
        let listed = server.send_request("prompts/list", json!({})).await?;
        for prompt in listed["prompts"].as_array().into_iter().flatten() {
            server.send_request("prompts/get", json!({ "name": prompt["name"] })).await?;
        }
    }
    Ok(())
}

/// A tool and what it is called with.
type Call<'a> = (&'a ServerTool, Map<String, Value>);

/// What to call: what the suite wants, or else every tool once.
fn calls<'a>(scenario: &Scenario, tools: &'a [ServerTool]) -> Result<Vec<Call<'a>>, String> {
    let find = |name: &str| {
        let found = tools.iter().find(|tool| tool.name == name);
        found.ok_or_else(|| format!("{name} is not offered"))
    };
    if let Some(wanted) = scenario.context["toolCalls"].as_array() {
        let read = |call: &Value| {
            let tool = find(call["name"].as_str().unwrap_or_default())?;
            Ok((tool, call["arguments"].as_object().cloned().unwrap_or_default()))
        };
        return wanted.iter().map(read).collect();
    }
    match scenario.name.as_str() {
        // Its server answers no call: it only looks at what is done with the list.
        "json-schema-ref-no-deref" => Ok(Vec::new()),
        // What was listed is shown to it as it reached us.
        "json-schema-2020-12-preservation" => {
            let schema = find("json_schema_2020_12_tool")?.input_schema.clone();
            let arguments = Map::from_iter([("schema".to_owned(), schema)]);
            Ok(vec![(find("json_schema_echo")?, arguments)])
        }
        _ => Ok(tools.iter().map(|tool| (tool, something_for(tool))).collect()),
    }
}

/// Some value of the right type for each argument that must be there.
fn something_for(tool: &ServerTool) -> Map<String, Value> {
    let required = tool.arguments().into_iter().filter(|(_, _, required)| *required);
    let value = |schema: &Value| match schema["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        Some("array") => json!([]),
        _ => json!("text"),
    };
    required.map(|(name, schema, _)| (name.to_owned(), value(schema))).collect()
}

async fn call(
    server: &ServerConnection,
    tool: &ServerTool,
    arguments: &Map<String, Value>,
) -> Result<(), String> {
    let order = ClientToolCall {
        tool: &tool.name,
        schema: Some(&tool.input_schema),
        arguments,
        repeatable: false,
        key: &tool.name,
        bookmark: &ResumePoint::default(),
        deadline: Instant::now() + PATIENCE,
        cancel: &CancellationToken::new(),
    };
    match follow_call(server, &order, &Agreeable).await {
        FollowOutcome::Over(CallOutcome::Answered(_)) => Ok(()),
        other => Err(format!("{}: {other:?}", tool.name)),
    }
}

/// Takes every form as it is, and keeps nothing.
struct Agreeable;

#[async_trait]
impl CallHandler for Agreeable {
    async fn record_events(&self, _: Vec<CallEvent>) -> Result<(), CallOwnershipLost> {
        Ok(())
    }

    async fn ask(&self, form: &ElicitationForm) -> FormAnswer {
        form.default_answer()
    }

    async fn visit(&self, _: &str, _: &str) -> FormAnswer {
        FormAnswer::Cancel
    }

    async fn sample(&self, _: &Value) -> Result<Value, String> {
        let content = json!({ "type": "text", "text": "a word" });
        Ok(json!({ "role": "assistant", "model": "none", "content": content }))
    }
}

/// Agrees to every login: the suite's page sends it straight on to where it came from.
struct Visitor;

#[async_trait]
impl LoginBrowser for Visitor {
    async fn show(&self, _: &str, page: &str) -> Result<(), String> {
        let tls = shikiri_client::tls_config()?;
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls).build();
        let visiting = client.map_err(|error| error.to_string())?.get(page).send();
        tokio::spawn(visiting);
        Ok(())
    }
}

/// Keeps secrets as long as this process lives.
#[derive(Default)]
struct Drawer(Mutex<HashMap<String, Vec<u8>>>);

#[async_trait]
impl TokenStore for Drawer {
    async fn open(&self, place: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.0.lock().unwrap().get(place).cloned())
    }

    async fn keep(&self, place: &str, secret: &[u8]) -> Result<(), String> {
        self.0.lock().unwrap().insert(place.to_owned(), secret.to_vec());
        Ok(())
    }

    async fn forget(&self, place: &str) -> Result<(), String> {
        self.0.lock().unwrap().remove(place);
        Ok(())
    }

    async fn lock(&self) -> Result<Box<dyn Send>, String> {
        Ok(Box::new(()))
    }
}
