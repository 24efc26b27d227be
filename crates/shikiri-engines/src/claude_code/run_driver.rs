//! Runs one turn, from the start of the CLI to the end of its last process.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use shikiri_executions::execution::{EngineError, EngineSender, TurnRequest};
use shikiri_model::execution::EngineMessage;
use shikiri_sandbox::SandboxPlan;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cli_command::{self, CliFilePaths};
use super::cli_process::{CliLaunch, CliProcess};
use super::cli_translator::{CliRunPhase, CliTranslator, unavailable};
use super::cli_version::InstalledCli;
use super::control_protocol::{self, CliToolPolicy};
use super::run_files::{self, McpServersFile};
use super::subagent_endings::SubagentEndings;
use super::subagent_transcripts::{SubagentTranscripts, session_files};
use super::{line_reader, supervisor};
use crate::messages::ModelApiUpstream;
use crate::redact::SecretRedactor;

/// How long the CLI may take for a result after an interrupt. Together with the rest of the shutdown
/// it must stay below the five seconds after which a run is dropped.
const INTERRUPTED: Duration = Duration::from_secs(2);
/// How long a run with a result may be quiet before it counts as finished.
const SETTLED: Duration = Duration::from_secs(3);
/// How long the CLI may take to exit after an interrupt's deadline.
const HURRIED: Duration = Duration::from_secs(1);
/// Lines without JSON that are skipped before the run fails.
const GARBAGE: usize = 100;

/// The programs of a run and its sandbox.
pub(super) struct CliRunSetup {
    pub(super) supervisor: PathBuf,
    pub(super) cli: InstalledCli,
    pub(super) plan: SandboxPlan,
    /// The server's data folder, which holds the folders of runs.
    pub(super) data: Option<PathBuf>,
    /// Knows the credentials to redact.
    pub(super) upstream: ModelApiUpstream,
}

struct CliRun {
    process: CliProcess,
    translator: CliTranslator,
    transcripts: SubagentTranscripts,
    endings: SubagentEndings,
    policy: CliToolPolicy,
    redactor: SecretRedactor,
    upstream: ModelApiUpstream,
    sender: EngineSender,
    /// Removed as soon as the CLI has read it.
    servers: Option<McpServersFile>,
    garbage: Vec<String>,
    has_begun: bool,
    interrupt: Option<PendingInterrupt>,
    /// When a run that is settling counts as finished.
    settled_at: Option<Instant>,
}

/// An interrupt that was sent.
struct PendingInterrupt {
    deadline: Instant,
    /// The number of results before the interrupt.
    results: u64,
    is_acknowledged: bool,
}

pub(super) async fn run(
    setup: CliRunSetup,
    mut request: TurnRequest,
    sender: EngineSender,
    stop: CancellationToken,
) -> Result<(), EngineError> {
    let (given, left_out) = cli_command::servers(&request.servers);
    for server in left_out {
        let why = "its address or headers hold `${`, which Claude Code would fill in itself";
        sender.send(unavailable(server, why)).await;
    }
    let RunFiles { servers, plugin, has_session } = RunFiles::write(&request, given).await?;
    if !has_session && request.resume.take().is_some() {
        // An earlier turn may have removed the session. The CLI would refuse to resume it.
        tracing::warn!("the session of the conversation is gone: Claude Code begins a new one");
    }
    let servers_path = servers.as_ref().map(|file| request.home.join(file.name()));
    let plugin = plugin.map(|plugin| request.home.join(plugin));
    let files = CliFilePaths { servers: servers_path.as_deref(), plugin: plugin.as_deref() };
    let transcripts = SubagentTranscripts::open(&request.home, request.resume.as_deref()).await?;
    run_files::hand_over(&request, &setup.plan, setup.data.as_deref()).await?;
    let process = CliProcess::start(CliLaunch {
        supervisor: &setup.supervisor,
        program: &setup.cli.program,
        arguments: cli_command::arguments(&request, files, &setup.cli),
        env: cli_command::environment(&request),
        folder: &request.folder,
        plan: setup.plan,
    })?;
    let mut run = CliRun {
        process,
        translator: CliTranslator::default(),
        transcripts,
        endings: SubagentEndings::default(),
        policy: CliToolPolicy::new(&request.servers),
        redactor: SecretRedactor::new(&request),
        upstream: setup.upstream,
        sender,
        servers,
        garbage: Vec::new(),
        has_begun: false,
        interrupt: None,
        settled_at: None,
    };
    run.process.send(&control_protocol::initialize(&request.system_prompt)).await;
    run.process.send(&control_protocol::turn(&request.prompt)).await;
    let done = run.process_lines(&stop).await;
    let done = run.end(done).await;
    run.redactor.add_secrets(run.upstream.secrets());
    done.map_err(|error| EngineError::new(run.redactor.text(&error.0)))
}

/// The files that are written for the CLI.
struct RunFiles {
    servers: Option<McpServersFile>,
    /// Relative to the home.
    plugin: Option<PathBuf>,
    /// Whether the session to resume exists.
    has_session: bool,
}

impl RunFiles {
    async fn write(
        request: &TurnRequest,
        servers: Map<String, Value>,
    ) -> Result<Self, EngineError> {
        let request = request.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let home = run_files::prepare(&request)?;
            let plugin = run_files::write_skills(&home, &request.skills)?;
            let session = request.resume.as_deref();
            let has_session = session.is_some_and(|id| !session_files(&home, id).is_empty());
            let servers = match servers.is_empty() {
                true => None,
                false => Some(McpServersFile::write(home, servers)?),
            };
            Ok(Self { servers, plugin, has_session })
        });
        writing.await.unwrap_or_else(|error| Err(EngineError::new(error.to_string())))
    }
}

impl CliRun {
    /// Processes lines until the turn is over.
    async fn process_lines(&mut self, stop: &CancellationToken) -> Result<(), EngineError> {
        loop {
            let deadline =
                self.interrupt.as_ref().map(|interrupt| interrupt.deadline).or(self.settled_at);
            let line = tokio::select! {
                line = self.process.next() => line,
                () = stop.cancelled(), if self.interrupt.is_none() => {
                    self.send_interrupt().await;
                    continue;
                }
                () = sleep_until(deadline) => return Ok(()),
                () = sleep_until(self.endings.next_look()) => {
                    self.read_transcripts().await;
                    continue;
                }
            };
            let line = line.map_err(|error| EngineError::new(format!("Claude Code: {error}")))?;
            let Some(line) = line else { return Ok(()) };
            match serde_json::from_slice::<Value>(line) {
                Ok(message) if message.is_object() => self.take(&message).await?,
                _ => {
                    let start = line_reader::start(line, 200);
                    self.skip_garbage(start)?;
                }
            }
            if self.is_over() {
                return Ok(());
            }
        }
    }

    async fn send_interrupt(&mut self) {
        self.process.send(&control_protocol::interrupt()).await;
        self.interrupt = Some(PendingInterrupt {
            deadline: Instant::now() + INTERRUPTED,
            results: self.translator.results(),
            is_acknowledged: false,
        });
    }

    fn is_over(&mut self) -> bool {
        if let Some(interrupt) = &self.interrupt {
            let is_idle = interrupt.is_acknowledged && self.translator.is_idle();
            return is_idle || self.translator.results() > interrupt.results;
        }
        let phase = self.translator.phase();
        self.settled_at = (phase == CliRunPhase::Settling).then(|| Instant::now() + SETTLED);
        phase == CliRunPhase::Done
    }

    async fn take(&mut self, message: &Value) -> Result<(), EngineError> {
        self.has_begun = true;
        match message["type"].as_str().unwrap_or_default() {
            "control_request" => self.process.send(&self.policy.answer(message)).await,
            "control_response" => self.handle_control_response(&message["response"])?,
            _ => {}
        }
        for message in self.translator.take(message) {
            if let Some(message) = self.endings.hold(message) {
                self.tell(message).await;
            }
        }
        if updates_usage(message) {
            self.read_transcripts().await;
        }
        Ok(())
    }

    /// Handles the CLI's answer to a request.
    fn handle_control_response(&mut self, response: &Value) -> Result<(), EngineError> {
        if response["request_id"] == control_protocol::INTERRUPT {
            if let Some(interrupt) = &mut self.interrupt {
                interrupt.is_acknowledged = true;
            }
        } else if response["request_id"] == control_protocol::INITIALIZE {
            // The CLI has read its files.
            self.servers = None;
            if response["subtype"] != "success" {
                let why = response["error"].as_str().unwrap_or("it does not say why");
                return Err(EngineError::new(format!("Claude Code refused to start: {why}")));
            }
        }
        Ok(())
    }

    /// Reports what subagents have spent and which have ended.
    async fn read_transcripts(&mut self) {
        let Some(session) = self.translator.session_id() else { return };
        for row in self.transcripts.read(session).await {
            if let Some(call) = self.translator.spawning_call(&row).filter(|_| row.is_last) {
                self.endings.complete(call, row.has_failed);
            }
            if let Some(spent) = self.translator.take_row(&row) {
                self.tell(spent).await;
            }
        }
        for end in self.endings.release() {
            self.tell(end).await;
        }
    }

    async fn tell(&mut self, message: EngineMessage) {
        self.redactor.add_secrets(self.upstream.secrets());
        for message in self.redactor.message(message) {
            self.sender.send(message).await;
        }
    }

    fn skip_garbage(&mut self, line: String) -> Result<(), EngineError> {
        if line.trim().is_empty() {
            return Ok(());
        }
        tracing::debug!("claude wrote a line that is no message");
        self.garbage.push(line);
        if self.garbage.len() > GARBAGE { Err(self.garbage_error()) } else { Ok(()) }
    }

    fn garbage_error(&self) -> EngineError {
        let first = self.garbage.first().map_or("", String::as_str);
        EngineError::new(format!("Claude Code wrote what is no message: {first}"))
    }

    /// Ends the process and reports its usage, also after a failure.
    async fn end(&mut self, done: Result<(), EngineError>) -> Result<(), EngineError> {
        let has_result = self.translator.results() > 0;
        let code = match &done {
            // A CLI with invalid output gets no time to exit.
            Err(_) => self.process.kill().await,
            Ok(()) => {
                let grace = Instant::now() + supervisor::GRACE;
                let hurried = self.interrupt.as_ref().map(|interrupt| interrupt.deadline + HURRIED);
                let until = hurried.map_or(grace, |hurried| hurried.min(grace));
                self.process.close_input();
                // The output ends with the last process.
                let _ = tokio::time::timeout_at(until, self.drain()).await;
                self.process.kill().await
            }
        };
        self.read_transcripts().await;
        if let Some(text) = self.redactor.flush() {
            self.sender.send(text).await;
        }
        let last = self.endings.release_all().into_iter().chain(self.translator.close());
        for message in last.collect::<Vec<_>>() {
            self.tell(message).await;
        }
        done?;
        if has_result || self.interrupt.is_some() {
            Ok(())
        } else {
            Err(self.no_result_error(code))
        }
    }

    /// Processes the remaining output, without invalid lines.
    async fn drain(&mut self) {
        while let Ok(Some(line)) = self.process.next().await {
            if let Ok(message) = serde_json::from_slice::<Value>(line) {
                let _ = self.take(&message).await;
            }
        }
    }

    fn no_result_error(&self, code: Option<i32>) -> EngineError {
        if !self.has_begun && !self.garbage.is_empty() {
            return self.garbage_error();
        }
        let how = match code {
            Some(code @ 0..) => format!("with exit code {code}"),
            Some(signal) => format!("by signal {}", -signal),
            None => "somehow".to_owned(),
        };
        let reason = self.process.stderr_tail();
        let reason = if reason.is_empty() { "it does not say why".to_owned() } else { reason };
        EngineError::new(format!("Claude Code ended {how} without a result: {reason}"))
    }
}

/// Whether a transcript has new rows after this message.
fn updates_usage(message: &Value) -> bool {
    match message["type"].as_str().unwrap_or_default() {
        "result" => true,
        "system" => {
            let subtype = message["subtype"].as_str().unwrap_or_default();
            matches!(subtype, "task_updated" | "task_notification")
        }
        _ => false,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
