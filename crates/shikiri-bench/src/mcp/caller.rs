//! One client of an MCP server on one connection: it opens a session where the era has them,
//! calls tools, and checks every reply.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use super::message;
use super::wire::Wire;
use crate::payload;

/// Progress notifications that one call of `burst` asks for.
pub(super) const BURST: u64 = 100;

/// The two ways of speaking MCP over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Era {
    /// Sessions that are opened by a handshake
    Legacy,
    /// Every request stands alone
    Modern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// Gives the text back
    Echo,
    /// Tells its progress a hundred times
    Burst,
}

impl Era {
    pub(super) const ALL: [Self; 2] = [Self::Legacy, Self::Modern];

    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }

    /// As an argument of a child.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

impl Tool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Burst => "burst",
        }
    }
}

pub(super) struct Caller {
    wire: Wire,
    era: Era,
    /// The headers of every request.
    headers: String,
    last_id: u64,
    request: Vec<u8>,
}

impl Caller {
    /// Connected and, in the legacy era, with a session of its own.
    pub(super) async fn open(address: SocketAddr, era: Era, key: Option<&str>) -> Result<Self> {
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let headers = format!(
            "host: {address}\r\n{key}content-type: application/json\r\n\
             mcp-protocol-version: {}\r\n",
            era.version()
        );
        let wire = Wire::open(address).await?;
        let mut caller = Self { wire, era, headers, last_id: 0, request: Vec::new() };
        if era == Era::Legacy {
            caller.initialize().await.context("cannot open a session")?;
        }
        Ok(caller)
    }

    async fn initialize(&mut self) -> Result<()> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#,
            self.era.version()
        );
        self.post("", &body).await?;
        let reply = self.wire.reply().await?;
        ensure!(reply.head.status == 200, "{}", refusal(&reply));
        let session = reply.head.session.context("a handshake without a session id")?;
        self.headers.push_str(&format!("mcp-session-id: {session}\r\n"));
        self.post("", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
        let reply = self.wire.reply().await?;
        ensure!(reply.head.status == 202, "{}", refusal(&reply));
        Ok(())
    }

    /// Calls the tool and checks what comes back. Returns how long the call took, from its sending
    /// to the end of the reply: making the one and checking the other is the client's own time.
    pub(super) async fn call(&mut self, tool: Tool) -> Result<Duration> {
        self.last_id += 1;
        let id = self.last_id;
        let text = format!("{id} {}", payload::text());
        let (arguments, token) = match tool {
            Tool::Echo => (format!(r#"{{"text":"{text}"}}"#), String::new()),
            Tool::Burst => (format!(r#"{{"count":{BURST}}}"#), format!(r#""progressToken":{id}"#)),
        };
        let name = tool.name();
        let meta = self.meta(&token);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}{meta}}}}}"#
        );
        let about = match self.era {
            Era::Legacy => String::new(),
            Era::Modern => format!("mcp-method: tools/call\r\nmcp-name: {name}\r\n"),
        };
        let sent = Instant::now();
        self.post(&about, &body).await?;
        let reply = self.wire.reply().await?;
        let took = sent.elapsed();
        ensure!(reply.head.status == 200, "{}", refusal(&reply));
        let answer = message::read(reply.body, reply.head.event_stream)?;
        match tool {
            Tool::Echo => answer.check(id, Some(&text), 0)?,
            Tool::Burst => answer.check(id, None, BURST)?,
        }
        Ok(took)
    }

    /// What a call says about itself, as a member of its parameters.
    fn meta(&self, token: &str) -> String {
        match self.era {
            Era::Legacy if token.is_empty() => String::new(),
            Era::Legacy => format!(r#","_meta":{{{token}}}"#),
            Era::Modern => {
                let comma = if token.is_empty() { "" } else { "," };
                format!(
                    r#","_meta":{{"io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}}{comma}{token}}}"#,
                    self.era.version()
                )
            }
        }
    }

    /// Opens the session's own stream, on the same connection: nothing else can be asked after.
    pub(super) async fn listen(&mut self) -> Result<()> {
        let request =
            format!("GET /mcp HTTP/1.1\r\n{}accept: text/event-stream\r\n\r\n", self.headers);
        self.wire.send(request.as_bytes()).await?;
        let head = self.wire.head().await?;
        if head.status != 200 || !head.event_stream {
            bail!("status {} instead of a stream", head.status);
        }
        Ok(())
    }

    async fn post(&mut self, about: &str, body: &str) -> Result<()> {
        self.request.clear();
        write!(
            self.request,
            "POST /mcp HTTP/1.1\r\n{}{about}accept: application/json, text/event-stream\r\n\
             content-length: {}\r\n\r\n{body}",
            self.headers,
            body.len()
        )?;
        self.wire.send(&self.request).await
    }
}

fn refusal(reply: &super::wire::Reply<'_>) -> String {
    format!("status {}: {}", reply.head.status, String::from_utf8_lossy(reply.body))
}
