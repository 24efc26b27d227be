//! A client of MCP that calls tools one after the other, over HTTP or over the pipes of a process
//! of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::program;
use crate::mcp::wire::Wire;

const VERSION: &str = "2026-07-28";

pub(super) enum Door {
    Http(Http),
    Pipes(Box<Pipes>),
}

pub(super) struct Http {
    wire: Wire,
    head: String,
    last_id: u64,
}

/// A process `shikiri mcp`, which is killed when this is dropped.
pub(super) struct Pipes {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

impl Door {
    pub(super) async fn http(address: SocketAddr, key: &str) -> Result<Self> {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: {VERSION}\r\nmcp-method: tools/call\r\n"
        );
        Ok(Self::Http(Http { wire: Wire::open(address).await?, head, last_id: 0 }))
    }

    pub(super) fn pipes(folder: &Path) -> Result<Self> {
        let mut command = tokio::process::Command::from(program::command(folder, None)?);
        command.arg("mcp").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start `shikiri mcp`")?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self::Pipes(Box::new(Pipes { _child: child, input, output, last_id: 0 })))
    }

    /// What the tool answers; a refusal is an error.
    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let mut answer = match self {
            Self::Http(http) => http.call(tool, arguments).await?,
            Self::Pipes(pipes) => pipes.call(tool, arguments).await?,
        };
        let result = &mut answer["result"];
        ensure!(result.is_object() && result["isError"] != true, "{tool}: {answer}");
        Ok(result["structuredContent"].take())
    }
}

impl Http {
    async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        self.last_id += 1;
        let body = message(self.last_id, tool, &arguments).to_string();
        let head = &self.head;
        let length = body.len();
        let request = format!("{head}mcp-name: {tool}\r\ncontent-length: {length}\r\n\r\n{body}");
        self.wire.send(request.as_bytes()).await?;
        let reply = self.wire.reply().await?;
        let text = String::from_utf8_lossy(reply.body);
        ensure!(reply.head.status == 200, "{tool}: status {}: {text}", reply.head.status);
        if !reply.head.event_stream {
            return Ok(serde_json::from_str(&text)?);
        }
        let mut data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        Ok(serde_json::from_str(data.next_back().context("a stream without an answer")?)?)
    }
}

impl Pipes {
    async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        self.last_id += 1;
        let line = format!("{}\n", message(self.last_id, tool, &arguments));
        self.input.write_all(line.as_bytes()).await?;
        self.input.flush().await?;
        while let Some(line) = self.output.next_line().await? {
            let message: Value = serde_json::from_str(&line)?;
            if message["id"] == self.last_id {
                return Ok(message);
            }
        }
        bail!("`shikiri mcp` ended before it answered {tool}")
    }
}

fn message(id: u64, tool: &str, arguments: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}
