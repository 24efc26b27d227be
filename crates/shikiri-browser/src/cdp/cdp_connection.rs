//! One connection to one target: a tab, or the browser itself. Connections share nothing, so a lane
//! receives the events of its own tab only.
//!
//! When the target ends, all pending and later calls fail at once.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::commands::{AttachToTarget, CdpCommand, HandleDialog};
use super::transport::{self, CdpTransport};
use crate::chrome::BrowserEndpoint;
use crate::error::BrowserError;

/// Calls that may be queued; further callers wait.
const WAITING: usize = 16;
const CONNECT: Duration = Duration::from_secs(10);
/// How long a browser may take for one command.
const ANSWER: Duration = Duration::from_secs(20);

/// The connection closes when this is dropped.
pub(crate) struct CdpConnection {
    calls: mpsc::Sender<CdpCall>,
    /// The session of the tab; `None` sends commands to the browser.
    session: Option<String>,
    crashed: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

struct CdpCall {
    session: Option<String>,
    method: &'static str,
    params: Box<RawValue>,
    answer: oneshot::Sender<Result<Box<RawValue>, BrowserError>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CdpCommandMessage<'a> {
    id: u64,
    method: &'static str,
    params: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
}

/// An answer or an event. Only a few events are used; unknown ones are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrowserMessage {
    id: Option<u64>,
    result: Option<Box<RawValue>>,
    error: Option<CdpCommandError>,
    #[serde(default)]
    method: String,
    params: Option<Box<RawValue>>,
    session_id: Option<String>,
}

#[derive(Deserialize)]
struct CdpCommandError {
    #[serde(default)]
    message: String,
}

impl CdpConnection {
    /// Connects to the browser itself.
    pub(crate) async fn connect(endpoint: &BrowserEndpoint) -> Result<Self, BrowserError> {
        let transport = match tokio::time::timeout(CONNECT, transport::connect(endpoint)).await {
            Ok(Ok(transport)) => transport,
            Ok(Err(error)) => return Err(BrowserError::lost(format!("no connection: {error}"))),
            Err(_) => return Err(BrowserError::lost("no connection: it does not answer")),
        };
        let (calls, wanted) = mpsc::channel(WAITING);
        let crashed = Arc::new(AtomicBool::new(false));
        let serving = CdpConnectionTask { transport, waiting: HashMap::new(), last_id: 0 };
        let task = tokio::spawn(serving.serve(wanted, Arc::clone(&crashed)));
        Ok(Self { calls, session: None, crashed, _task: AbortOnDropHandle::new(task) })
    }

    /// Connects to one tab.
    pub(crate) async fn attach(
        endpoint: &BrowserEndpoint,
        tab: &str,
    ) -> Result<Self, BrowserError> {
        let mut link = Self::connect(endpoint).await?;
        let attached = link.run(&AttachToTarget { target_id: tab, flatten: true }).await?;
        link.session = Some(attached.session_id);
        Ok(link)
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.calls.is_closed()
    }

    /// Whether the page crashed: its tab still exists but answers nothing.
    pub(crate) fn is_crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }

    pub(crate) async fn run<C: CdpCommand>(&self, command: &C) -> Result<C::Answer, BrowserError> {
        self.run_longer(command, Duration::ZERO).await
    }

    /// Runs a command whose time limit is extended by `longer`.
    pub(crate) async fn run_longer<C: CdpCommand>(
        &self,
        command: &C,
        longer: Duration,
    ) -> Result<C::Answer, BrowserError> {
        let method = C::METHOD;
        let wrong = |error: serde_json::Error| refused(method, error.to_string());
        let params = serde_json::value::to_raw_value(command).map_err(wrong)?;
        let (answer, answered) = oneshot::channel();
        let call = CdpCall { session: self.session.clone(), method, params, answer };
        let gone = || BrowserError::lost("the tab or the browser was closed");
        let work = async {
            self.calls.send(call).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        };
        match tokio::time::timeout(ANSWER + longer, work).await {
            Ok(answered) => serde_json::from_str(answered?.get()).map_err(wrong),
            Err(_) => Err(BrowserError::Late { method: method.to_owned() }),
        }
    }
}

fn refused(method: &str, message: String) -> BrowserError {
    BrowserError::Refused { method: method.to_owned(), message }
}

/// The task that owns the transport of a connection.
struct CdpConnectionTask {
    transport: Box<dyn CdpTransport>,
    waiting: HashMap<u64, CdpCall>,
    last_id: u64,
}

impl CdpConnectionTask {
    /// Serves calls until the handle is dropped or the target ends.
    async fn serve(mut self, mut calls: mpsc::Receiver<CdpCall>, crashed: Arc<AtomicBool>) {
        let why = loop {
            tokio::select! {
                call = calls.recv() => {
                    let Some(call) = call else { return };
                    let sent = self.send(call.method, &call.params, call.session.as_deref()).await;
                    match sent {
                        Ok(id) => { self.waiting.insert(id, call); }
                        Err(error) => break broke(&error),
                    }
                }
                message = self.transport.receive() => match message {
                    Ok(None) => break "the tab or the browser was closed".to_owned(),
                    Err(error) => break broke(&error),
                    // An unreadable message does not affect the next one.
                    Ok(Some(message)) => match serde_json::from_slice(&message) {
                        Err(_) => {}
                        Ok(message) => match self.take(message).await {
                            CdpLoopStep::GoOn => {}
                            CdpLoopStep::End(why) => break why,
                            CdpLoopStep::Crash => {
                                crashed.store(true, Ordering::SeqCst);
                                break "the page crashed".to_owned();
                            }
                        }
                    }
                }
            }
        };
        // Closed first, so that no further call can be queued.
        calls.close();
        while let Some(call) = calls.recv().await {
            let _ = call.answer.send(Err(BrowserError::lost(why.clone())));
        }
        for call in self.waiting.into_values() {
            let _ = call.answer.send(Err(BrowserError::lost(why.clone())));
        }
    }

    async fn send(
        &mut self,
        method: &'static str,
        params: &RawValue,
        session_id: Option<&str>,
    ) -> io::Result<u64> {
        self.last_id += 1;
        let message = CdpCommandMessage { id: self.last_id, method, params, session_id };
        self.transport.send(serde_json::to_string(&message)?).await?;
        Ok(self.last_id)
    }

    async fn take(&mut self, message: BrowserMessage) -> CdpLoopStep {
        let Some(id) = message.id else { return self.on_event(message).await };
        if let Some(call) = self.waiting.remove(&id) {
            let answer = match message.error {
                Some(error) => Err(refused(call.method, error.message)),
                None => Ok(message.result.unwrap_or_else(|| RawValue::NULL.to_owned())),
            };
            // The caller may have stopped waiting.
            let _ = call.answer.send(answer);
        }
        CdpLoopStep::GoOn
    }

    async fn on_event(&mut self, event: BrowserMessage) -> CdpLoopStep {
        let params: Value = event
            .params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        match event.method.as_str() {
            "Inspector.targetCrashed" => CdpLoopStep::Crash,
            "Target.detachedFromTarget" => CdpLoopStep::End("the tab was closed".to_owned()),
            "Inspector.detached" => match text("reason") {
                "target_closed" | "Render process gone." => {
                    CdpLoopStep::End("the tab was closed".to_owned())
                }
                other => CdpLoopStep::End(format!("the browser let go of the tab ({other})")),
            },
            // An open dialog blocks the page. Leaving the page is accepted; questions are not.
            "Page.javascriptDialogOpening" => {
                let accept = text("type") != "prompt" && text("type") != "confirm";
                let command = HandleDialog { accept };
                let Ok(params) = serde_json::value::to_raw_value(&command) else {
                    return CdpLoopStep::GoOn;
                };
                let session = event.session_id.as_deref();
                match self.send(HandleDialog::METHOD, &params, session).await {
                    Ok(_) => CdpLoopStep::GoOn,
                    Err(error) => CdpLoopStep::End(broke(&error)),
                }
            }
            _ => CdpLoopStep::GoOn,
        }
    }
}

fn broke(error: &io::Error) -> String {
    format!("the connection to the browser broke: {error}")
}

enum CdpLoopStep {
    GoOn,
    End(String),
    Crash,
}
