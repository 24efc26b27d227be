//! A client that starts `shikiri mcp` itself and talks over its pipes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use serde_json::{Value, json};

use super::PATIENCE;
use crate::process::code;
use crate::wait::until_blocking;

/// The child is killed on drop.
#[derive(Debug)]
pub struct StdioClient {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    /// All messages so far, in order.
    pub seen: Vec<Value>,
    next_id: i64,
}

impl StdioClient {
    /// `command` is the program with its arguments.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut errors_from = child.stderr.take().expect("piped");
        let (line, lines) = channel();
        std::thread::spawn(move || {
            for text in output.lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        let (all, errors) = channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors_from.read_to_end(&mut text);
            let _ = all.send(String::from_utf8_lossy(&text).into_owned());
        });
        Self { child, input, lines, errors, seen: Vec::new(), next_id: 1 }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a raw line.
    pub fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("an open input");
        input.write_all(format!("{line}\n").as_bytes()).expect("a process that reads");
        input.flush().expect("a process that reads");
    }

    pub fn send(&mut self, message: &Value) {
        self.write(&message.to_string());
    }

    /// Sends a request and returns its id.
    pub fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message; None after the last. Output that is no message fails the test.
    pub fn hear(&mut self) -> Option<Value> {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing came after {:?}", self.seen),
        };
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("no message ({e}): {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        self.seen.push(message.clone());
        Some(message)
    }

    /// Reads up to the first matching message.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        while let Some(message) = self.hear() {
            if wanted(&message) {
                return message;
            }
        }
        panic!("the output ended without {what}: {:?}", self.seen);
    }

    /// The response to this request, which may have arrived already.
    pub fn reply(&mut self, id: i64) -> Value {
        let answers = move |m: &Value| m["id"] == id && m.get("method").is_none();
        match self.seen.iter().find(|message| answers(message)) {
            Some(message) => message.clone(),
            None => self.until("an answer", answers),
        }
    }

    /// The result of a successful request.
    pub fn result(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let reply = self.reply(id);
        assert!(reply.get("error").is_none(), "{reply}");
        reply["result"].clone()
    }

    /// Opens the connection of the older era.
    pub fn initialize(&mut self, capabilities: Value, name: &str) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": name, "version": "1" },
        });
        let result = self.result("initialize", params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        result
    }

    /// Closes the input, reads the remaining messages, and returns the exit code and the stderr
    /// output.
    pub fn end(&mut self) -> (i32, String) {
        drop(self.input.take());
        while self.hear().is_some() {}
        let ended = || self.child.try_wait().expect("a child");
        let status = until_blocking("the process ends after its input", ended);
        (code(status), self.errors.recv_timeout(PATIENCE).unwrap_or_default())
    }

    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        self.kill9();
    }
}
