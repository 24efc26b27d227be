//! One turn, from the start of the CLI to the end of the last process.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use shikiri_app::execution::{EngineError, Order, Told};
use shikiri_model::execution::EngineMessage;
use shikiri_sandbox::SandboxPlan;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::command::{self, Files};
use super::control::{self, Policy};
use super::endings::Endings;
use super::files::{self, ServersFile};
use super::lines;
use super::process::{Process, Start};
use super::supervisor;
use super::transcripts::{Transcripts, session_files};
use super::translate::{Phase, Translator, unavailable};
use crate::messages::Upstream;
use crate::redact::Redactor;

/// How long the CLI may take to give a result once it was interrupted. With what follows, to the
/// end of its last process, it must be less than the five seconds after which a run is dropped.
const INTERRUPTED: Duration = Duration::from_secs(2);
/// How long all may be quiet before a run that has a result is taken to be over.
const SETTLED: Duration = Duration::from_secs(3);
/// How long the CLI may take to end after that.
const HURRIED: Duration = Duration::from_secs(1);
/// Lines that are no JSON: so many are passed over.
const GARBAGE: usize = 100;

/// With which programs a run is done, and how far they reach.
pub(super) struct Means {
    pub(super) supervisor: PathBuf,
    pub(super) cli: PathBuf,
    pub(super) plan: SandboxPlan,
    /// The server's folder, in which those of runs lie.
    pub(super) data: Option<PathBuf>,
    /// Whose credentials must not be told.
    pub(super) upstream: Upstream,
}

struct Run {
    process: Process,
    translator: Translator,
    transcripts: Transcripts,
    endings: Endings,
    policy: Policy,
    redactor: Redactor,
    upstream: Upstream,
    told: Told,
    /// Gone as soon as the CLI has read it.
    servers: Option<ServersFile>,
    garbage: Vec<String>,
    has_begun: bool,
    stopping: Option<Stopping>,
    settling: Option<Instant>,
}

/// It was asked to stop.
struct Stopping {
    until: Instant,
    /// Results that there were before.
    results: u64,
    is_acknowledged: bool,
}

pub(super) async fn run(
    means: Means,
    mut order: Order,
    told: Told,
    stop: CancellationToken,
) -> Result<(), EngineError> {
    let (given, left_out) = command::servers(&order.servers);
    for server in left_out {
        let why = "its address or headers hold `${`, which Claude Code would fill in itself";
        told.tell(unavailable(server, why)).await;
    }
    let RunFiles { servers, plugin, has_session } = RunFiles::write(&order, given).await?;
    if !has_session && order.resume.take().is_some() {
        // An earlier turn may have removed it. The CLI would refuse this turn and all that follow.
        tracing::warn!("the session of the conversation is gone: Claude Code begins a new one");
    }
    let servers_path = servers.as_ref().map(|file| order.home.join(file.name()));
    let plugin = plugin.map(|plugin| order.home.join(plugin));
    let files = Files { servers: servers_path.as_deref(), plugin: plugin.as_deref() };
    let transcripts = Transcripts::open(&order.home, order.resume.as_deref()).await?;
    files::hand_over(&order, &means.plan, means.data.as_deref()).await?;
    let process = Process::start(Start {
        supervisor: &means.supervisor,
        program: &means.cli,
        arguments: command::arguments(&order, files),
        env: command::environment(&order),
        folder: &order.folder,
        plan: means.plan,
    })?;
    let mut run = Run {
        process,
        translator: Translator::default(),
        transcripts,
        endings: Endings::default(),
        policy: Policy::new(&order.servers),
        redactor: Redactor::new(&order),
        upstream: means.upstream,
        told,
        servers,
        garbage: Vec::new(),
        has_begun: false,
        stopping: None,
        settling: None,
    };
    run.process.send(&control::initialize(&order.system_prompt)).await;
    run.process.send(&control::turn(&order.prompt)).await;
    let done = run.follow(&stop).await;
    let done = run.end(done).await;
    run.redactor.learn(run.upstream.secrets());
    done.map_err(|error| EngineError::new(run.redactor.text(&error.0)))
}

/// What lies on disk for the CLI, besides its own.
struct RunFiles {
    servers: Option<ServersFile>,
    /// Below the home.
    plugin: Option<PathBuf>,
    /// What the order wants to be resumed is there.
    has_session: bool,
}

impl RunFiles {
    async fn write(order: &Order, servers: Map<String, Value>) -> Result<Self, EngineError> {
        let order = order.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let home = files::prepare(&order)?;
            let plugin = files::write_skills(&home, &order.skills)?;
            let session = order.resume.as_deref();
            let has_session = session.is_some_and(|id| !session_files(&home, id).is_empty());
            let servers = match servers.is_empty() {
                true => None,
                false => Some(ServersFile::write(home, servers)?),
            };
            Ok(Self { servers, plugin, has_session })
        });
        writing.await.unwrap_or_else(|error| Err(EngineError::new(error.to_string())))
    }
}

impl Run {
    /// Takes line after line until the turn is over, one way or the other.
    async fn follow(&mut self, stop: &CancellationToken) -> Result<(), EngineError> {
        loop {
            let deadline = self.stopping.as_ref().map(|stopping| stopping.until).or(self.settling);
            let line = tokio::select! {
                line = self.process.next() => line,
                () = stop.cancelled(), if self.stopping.is_none() => {
                    self.interrupt().await;
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
                    let start = lines::start(line, 200);
                    self.pass_over(start)?;
                }
            }
            if self.is_over() {
                return Ok(());
            }
        }
    }

    async fn interrupt(&mut self) {
        self.process.send(&control::interrupt()).await;
        self.stopping = Some(Stopping {
            until: Instant::now() + INTERRUPTED,
            results: self.translator.results(),
            is_acknowledged: false,
        });
    }

    fn is_over(&mut self) -> bool {
        if let Some(stopping) = &self.stopping {
            let is_idle = stopping.is_acknowledged && self.translator.is_idle();
            return is_idle || self.translator.results() > stopping.results;
        }
        let phase = self.translator.phase();
        self.settling = (phase == Phase::Settling).then(|| Instant::now() + SETTLED);
        phase == Phase::Done
    }

    async fn take(&mut self, message: &Value) -> Result<(), EngineError> {
        self.has_begun = true;
        match message["type"].as_str().unwrap_or_default() {
            "control_request" => self.process.send(&self.policy.answer(message)).await,
            "control_response" => self.answered(&message["response"])?,
            _ => {}
        }
        for message in self.translator.take(message) {
            if let Some(message) = self.endings.hold(message) {
                self.tell(message).await;
            }
        }
        if tells_of_spending(message) {
            self.read_transcripts().await;
        }
        Ok(())
    }

    /// The CLI has answered a request of ours.
    fn answered(&mut self, response: &Value) -> Result<(), EngineError> {
        if response["request_id"] == control::INTERRUPT {
            if let Some(stopping) = &mut self.stopping {
                stopping.is_acknowledged = true;
            }
        } else if response["request_id"] == control::INITIALIZE {
            // It has read its files.
            self.servers = None;
            if response["subtype"] != "success" {
                let why = response["error"].as_str().unwrap_or("it does not say why");
                return Err(EngineError::new(format!("Claude Code refused to start: {why}")));
            }
        }
        Ok(())
    }

    /// Tells what subagents have spent, and of those that have ended.
    async fn read_transcripts(&mut self) {
        let Some(session) = self.translator.session_id() else { return };
        for row in self.transcripts.read(session).await {
            if let Some(call) = self.translator.call_of(&row).filter(|_| row.is_last) {
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
        self.redactor.learn(self.upstream.secrets());
        for message in self.redactor.message(message) {
            self.told.tell(message).await;
        }
    }

    fn pass_over(&mut self, line: String) -> Result<(), EngineError> {
        if line.trim().is_empty() {
            return Ok(());
        }
        tracing::debug!("claude wrote a line that is no message");
        self.garbage.push(line);
        if self.garbage.len() > GARBAGE { Err(self.nonsense()) } else { Ok(()) }
    }

    fn nonsense(&self) -> EngineError {
        let first = self.garbage.first().map_or("", String::as_str);
        EngineError::new(format!("Claude Code wrote what is no message: {first}"))
    }

    /// Ends the process and tells what it spent, also after a failure.
    async fn end(&mut self, done: Result<(), EngineError>) -> Result<(), EngineError> {
        let has_result = self.translator.results() > 0;
        let code = match &done {
            // Whoever floods or talks nonsense is not waited for.
            Err(_) => self.process.kill().await,
            Ok(()) => {
                let grace = Instant::now() + supervisor::GRACE;
                let hurried = self.stopping.as_ref().map(|stopping| stopping.until + HURRIED);
                let until = hurried.map_or(grace, |hurried| hurried.min(grace));
                self.process.close_input();
                // The end of its output is the end of its processes.
                let _ = tokio::time::timeout_at(until, self.drain()).await;
                self.process.kill().await
            }
        };
        self.read_transcripts().await;
        if let Some(text) = self.redactor.flush() {
            self.told.tell(text).await;
        }
        let last = self.endings.release_all().into_iter().chain(self.translator.close());
        for message in last.collect::<Vec<_>>() {
            self.tell(message).await;
        }
        done?;
        if has_result || self.stopping.is_some() { Ok(()) } else { Err(self.gave_nothing(code)) }
    }

    /// Takes what is still written, nonsense aside.
    async fn drain(&mut self) {
        while let Ok(Some(line)) = self.process.next().await {
            if let Ok(message) = serde_json::from_slice::<Value>(line) {
                let _ = self.take(&message).await;
            }
        }
    }

    fn gave_nothing(&self, code: Option<i32>) -> EngineError {
        if !self.has_begun && !self.garbage.is_empty() {
            return self.nonsense();
        }
        let how = match code {
            Some(code @ 0..) => format!("with exit code {code}"),
            Some(signal) => format!("by signal {}", -signal),
            None => "somehow".to_owned(),
        };
        let words = self.process.last_words();
        let words = if words.is_empty() { "it does not say why".to_owned() } else { words };
        EngineError::new(format!("Claude Code ended {how} without a result: {words}"))
    }
}

/// Messages after which a transcript has something new.
fn tells_of_spending(message: &Value) -> bool {
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
