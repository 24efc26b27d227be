//! The second half of the story: an agent as an MCP tool, whose question outlives the server.

use std::io;
use std::path::Path;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::child::ServerProcess;
use super::story::{RECONNECT_PAUSE, went_wrong};
use crate::client::{Client, EventStream};
use crate::exit::Failure;
use crate::output::{Output, Style};

const DESTINATION: &str = "Kyoto";
const STEP_MS: u64 = 150;
const MAX_TRIES: u32 = 100;

/// Plays it on a server that is up, and gives back the one that is up at the end.
pub(super) async fn play(root: &Path, server: ServerProcess) -> Result<ServerProcess, Failure> {
    let output = Output::stdout();
    let act = |text: &str| output.line(&format!("\n{}", output.paint(Style::Bold, text)));

    act("6. The same server for MCP clients: every agent is a tool")?;
    let mut trip = Trip::connect(server.client()?).await?;
    output.line(&format!("   session {}", trip.session))?;
    output.line(&format!("   tools: {}", trip.tools().await?.join(", ")))?;

    act(&format!("7. travel_agent to {DESTINATION}, until it asks"))?;
    trip.call().await?;
    let question = trip.question.clone().ok_or_else(|| went_wrong("it asked nothing"))?;
    output.line(&format!("   it asks: {}", question["params"]["message"]))?;

    act(&format!(
        "8. SIGKILL to the server while the question is open (process {})",
        server.pid()
    ))?;
    let address = server.address();
    server.kill().await?;
    let server = ServerProcess::start_at(root, address).await?;
    output.line(&format!("   process {}; the same session answers: yes", server.pid()))?;
    trip.answer(&question).await?;

    act("9. The call goes on where its stream broke off")?;
    trip.resume().await?;
    let result = trip.result.as_ref().map_or(&Value::Null, |result| &result["structuredContent"]);
    let booked = result["booked"] == json!(true);
    let mark =
        if booked { output.paint(Style::Good, "ok") } else { output.paint(Style::Bad, "NO") };
    output.line(&format!("   {mark}  {result}"))?;
    if booked { Ok(server) } else { Err(went_wrong("the trip was not booked")) }
}

/// One MCP client of the demo.
struct Trip {
    client: Client,
    session: String,
    last_event_id: String,
    question: Option<Value>,
    result: Option<Value>,
}

impl Trip {
    async fn connect(client: Client) -> Result<Self, Failure> {
        let mut trip = Self {
            client,
            session: String::new(),
            last_event_id: String::new(),
            question: None,
            result: None,
        };
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "shikiri-demo", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = trip.post(&request(1, "initialize", &hello)).await.map_err(broke)?;
        let session = answer.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
        trip.session = session.ok_or_else(|| went_wrong("there is no session"))?.to_owned();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        trip.post(&ready).await.map_err(broke)?;
        Ok(trip)
    }

    async fn post(&self, message: &Value) -> io::Result<Response<Incoming>> {
        let accept = ("accept", "application/json, text/event-stream");
        let session = ("mcp-session-id", self.session.as_str());
        let headers = if self.session.is_empty() { vec![accept] } else { vec![accept, session] };
        self.client.exchange(Method::POST, "/mcp", &headers, Some(message)).await
    }

    async fn tools(&self) -> Result<Vec<String>, Failure> {
        let answer = self.post(&request(2, "tools/list", &json!({}))).await.map_err(broke)?;
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| went_wrong(&error.to_string()))?.to_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let tools = answer["result"]["tools"].as_array().cloned().unwrap_or_default();
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    /// Calls the tool and follows its stream until it asks.
    async fn call(&mut self) -> Result<(), Failure> {
        let call = json!({
            "name": "travel_agent",
            "arguments": { "destination": DESTINATION, "step_ms": STEP_MS },
            "_meta": { "progressToken": "trip" },
        });
        let answer = self.post(&request(3, "tools/call", &call)).await.map_err(broke)?;
        self.read(EventStream::new(answer.into_body())).await
    }

    /// Comes back to the stream, as often as it takes.
    async fn resume(&mut self) -> Result<(), Failure> {
        for _ in 0..MAX_TRIES {
            let id = self.last_event_id.clone();
            let headers = [
                ("accept", "text/event-stream"),
                ("mcp-session-id", self.session.as_str()),
                ("last-event-id", id.as_str()),
            ];
            if let Ok(answer) = self.client.exchange(Method::GET, "/mcp", &headers, None).await
                && answer.status() == StatusCode::OK
            {
                self.read(EventStream::new(answer.into_body())).await?;
            }
            if self.result.is_some() {
                return Ok(());
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        Err(went_wrong("the call never ended"))
    }

    /// Shows what comes until the run asks or ends, or the stream does.
    async fn read(&mut self, mut stream: EventStream) -> Result<(), Failure> {
        let output = Output::stdout();
        while let Ok(Some(frame)) = stream.next().await {
            self.last_event_id = frame.id_text;
            let message: Value = serde_json::from_str(&frame.data).unwrap_or_default();
            match message["method"].as_str() {
                Some("notifications/progress") => {
                    let told = &message["params"];
                    let text = told["message"].as_str().unwrap_or_default();
                    output.line(&format!("   {:>5} %  {text}", told["progress"]))?;
                }
                Some("elicitation/create") => {
                    self.question = Some(message);
                    return Ok(());
                }
                Some(_) => {}
                None if message.get("result").is_some() => {
                    self.result = Some(message["result"].clone());
                    return Ok(());
                }
                None => {}
            }
        }
        Ok(())
    }

    async fn answer(&self, question: &Value) -> Result<(), Failure> {
        let yes = json!({ "action": "accept", "content": { "confirm": true, "notes": "window" } });
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes });
        match self.post(&answer).await.map_err(broke)?.status() {
            StatusCode::ACCEPTED => Ok(()),
            status => Err(went_wrong(&format!("the answer was not taken ({status})"))),
        }
    }
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn broke(error: io::Error) -> Failure {
    went_wrong(&error.to_string())
}
