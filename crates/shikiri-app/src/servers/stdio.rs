//! A server that is a program: started, spoken to line by line, ended with all that it started.

use std::process::Stdio as Pipe;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Take};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::check::is_answer;

/// All that it may say.
const MAX_SAID: u64 = 1024 * 1024;
/// For a program whose input has ended.
const GRACE: Duration = Duration::from_secs(1);
/// Of our own environment, what a program needs to be found and to write properly.
const INHERITED: [&str; 3] = ["PATH", "LANG", "TZ"];

pub(super) struct Stdio {
    child: Child,
    stdin: ChildStdin,
    stdout: Take<BufReader<ChildStdout>>,
    group: Group,
}

/// Ends the whole family of a program with it.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Stdio {
    pub(super) fn start(words: &[String]) -> Result<Self, String> {
        let (program, arguments) = words.split_first().ok_or("there is no command")?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(std::env::temp_dir()).env_clear();
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.stdin(Pipe::piped()).stdout(Pipe::piped()).stderr(Pipe::null());
        let started = command.process_group(0).kill_on_drop(true).spawn();
        let mut child = started.map_err(|error| format!("{program} does not start: {error}"))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = Group(pid);
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the program has no pipes".to_owned());
        };
        Ok(Self { child, stdin, stdout: BufReader::new(stdout).take(MAX_SAID), group })
    }

    pub(super) async fn ask(&mut self, request: &Value) -> Result<Value, String> {
        self.tell(request).await?;
        loop {
            let mut line = Vec::new();
            let read = self.stdout.read_until(b'\n', &mut line).await;
            if read.map_err(|error| format!("cannot be heard: {error}"))? == 0 {
                return Err("the program ended without an answer".to_owned());
            }
            // Programs that chat on stdout are not rare; only messages count.
            if let Ok(message) = serde_json::from_slice::<Value>(&line)
                && is_answer(&message, request)
            {
                return Ok(message);
            }
        }
    }

    pub(super) async fn tell(&mut self, message: &Value) -> Result<(), String> {
        let line = format!("{message}\n");
        let told = self.stdin.write_all(line.as_bytes()).await;
        told.map_err(|error| format!("the program does not listen: {error}"))
    }

    /// Ends its input, which tells it to end; then ends what is left of it.
    pub(super) async fn close(self) {
        let Self { mut child, stdin, group, .. } = self;
        drop(stdin);
        let _ = tokio::time::timeout(GRACE, child.wait()).await;
        drop(group);
    }
}
