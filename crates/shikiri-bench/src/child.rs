//! The other processes of a benchmark. Each speaks in lines: it reads commands from its input,
//! ends when that is closed, and answers on its output.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use crate::engines::api;
use crate::executions::{callers, server as executions};
use crate::log::reader;
use crate::machine;
use crate::mcp::{bare as mcp_bare, hold, load, ours};
use crate::sse::{bare, client, product};

#[derive(Subcommand)]
pub(crate) enum Role {
    /// Follows streams of a store and tells how old their events were
    Reader(reader::Arguments),
    /// Reads SSE streams
    Client(client::Arguments),
    /// An axum server that stores nothing
    Bare,
    /// Shikiri's server with an agent for measuring
    Product(product::Arguments),
    /// Calls tools of an MCP server
    McpLoad(load::Arguments),
    /// Holds idle sessions of an MCP server
    McpHold(hold::Arguments),
    /// An MCP server of rmcp alone
    McpBare,
    /// Shikiri's MCP server with tools for measuring
    McpOurs(ours::Arguments),
    /// Shikiri's server with its engines
    Executions(executions::Arguments),
    /// A model API that answers at once
    EnginesApi,
    /// Asks for turns of conversations
    Callers(callers::Arguments),
}

pub(crate) fn run(role: Role) -> Result<()> {
    machine::raise_open_files()?;
    match role {
        Role::Reader(arguments) => reader::run(&arguments),
        Role::Client(arguments) => client::run(arguments),
        Role::Bare => bare::run(),
        Role::Product(arguments) => product::run(&arguments),
        Role::McpLoad(arguments) => load::run(&arguments),
        Role::McpHold(arguments) => hold::run(&arguments),
        Role::McpBare => mcp_bare::run(),
        Role::McpOurs(arguments) => ours::run(&arguments),
        Role::Executions(arguments) => executions::run(&arguments),
        Role::EnginesApi => api::run(),
        Role::Callers(arguments) => callers::run(&arguments),
    }
}

/// A running child; it is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// This program in one of its roles.
    pub(crate) fn role<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let program = std::env::current_exe()?;
        Self::start(Command::new(program).arg("child").args(arguments))
    }

    pub(crate) fn program(program: &Path, arguments: &[&Path]) -> Result<Self> {
        Self::start(Command::new(program).args(arguments))
    }

    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let output = child.stdout.take().context("a child without output")?;
        Ok(Self { input: child.stdin.take(), output: BufReader::new(output), child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the child's input is closed")?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    /// The next line.
    pub(crate) fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "a child ended before it answered");
        Ok(line.trim_end().to_owned())
    }

    /// The next line, which must start with this word; gives the rest.
    pub(crate) fn hear_word(&mut self, word: &str) -> Result<String> {
        let line = self.hear()?;
        match line.strip_prefix(word) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => bail!("expected {word:?} of a child, which said {line:?}"),
        }
    }

    /// Lets it end by itself.
    pub(crate) fn finish(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "a child ended with {status}");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: tells the parent.
pub(crate) fn tell(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

/// In a child: the next command, none once the parent is done.
pub(crate) async fn command() -> Result<Option<String>> {
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    })
    .await??;
    Ok((!line.is_empty()).then(|| line.trim_end().to_owned()))
}
