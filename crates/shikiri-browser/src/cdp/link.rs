//! One connection to one target: a tab, or the browser itself. chromiumoxide has the socket and the
//! types of the commands. Its own handler of a whole browser is not used: that one attaches to every
//! tab there is, those of other lanes too, and a call to a tab that dies waits for its timeout.
//!
//! When the target ends, every call that waits is told at once, and every later one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chromiumoxide::cdp::browser_protocol::page::HandleJavaScriptDialogParams;
use chromiumoxide::conn::Connection;
use chromiumoxide::error::CdpError;
use chromiumoxide::types::{CallId, Command, EventMessage, Message, Method, MethodId, Response};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::error::BrowserError;

/// Calls that may wait to be sent; more wait in their callers.
const WAITING: usize = 16;
const CONNECT: Duration = Duration::from_secs(10);
/// How long a browser may take for one command.
const ANSWER: Duration = Duration::from_secs(20);

/// Ends with its last handle.
pub(crate) struct Link {
    calls: mpsc::Sender<Call>,
    crashed: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

struct Call {
    method: MethodId,
    params: Value,
    answer: oneshot::Sender<Result<Value, BrowserError>>,
}

/// An event as it comes: only a few matter here, and newer browsers have ones that nobody knows.
#[derive(Debug, Deserialize)]
struct Event {
    method: MethodId,
    #[serde(default)]
    params: Value,
}

impl Method for Event {
    fn identifier(&self) -> MethodId {
        self.method.clone()
    }
}

impl EventMessage for Event {
    fn session_id(&self) -> Option<&str> {
        None
    }
}

impl Link {
    pub(crate) async fn connect(address: &str) -> Result<Self, BrowserError> {
        let connecting = Connection::<Event>::connect(address);
        let connection = match tokio::time::timeout(CONNECT, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(BrowserError::lost(format!("no connection: {error}"))),
            Err(_) => return Err(BrowserError::lost("no connection: it does not answer")),
        };
        let (calls, wanted) = mpsc::channel(WAITING);
        let crashed = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(serve(connection, wanted, Arc::clone(&crashed)));
        Ok(Self { calls, crashed, _task: AbortOnDropHandle::new(task) })
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.calls.is_closed()
    }

    /// Whether it ended because the page did: the tab is still there, and answers nothing.
    pub(crate) fn is_crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }

    pub(crate) async fn run<C: Command>(&self, command: C) -> Result<C::Response, BrowserError> {
        let method = command.identifier();
        let answer = self.raw(&command).await?;
        C::response_from_value(answer).map_err(|error| refused(&method, error.to_string()))
    }

    /// The answer as it comes.
    pub(crate) async fn raw<C: Command>(&self, command: &C) -> Result<Value, BrowserError> {
        self.raw_with(command, Duration::ZERO).await
    }

    /// The same for a command that may take so much longer than others.
    pub(crate) async fn raw_with<C: Command>(
        &self,
        command: &C,
        longer: Duration,
    ) -> Result<Value, BrowserError> {
        let method = command.identifier();
        let params =
            serde_json::to_value(command).map_err(|error| refused(&method, error.to_string()))?;
        let (answer, answered) = oneshot::channel();
        let call = Call { method: method.clone(), params, answer };
        let gone = || BrowserError::lost("the tab or the browser was closed");
        let work = async {
            self.calls.send(call).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        };
        match tokio::time::timeout(ANSWER + longer, work).await {
            Ok(answered) => answered,
            Err(_) => Err(BrowserError::Late { method: method.into_owned() }),
        }
    }
}

fn refused(method: &str, message: String) -> BrowserError {
    BrowserError::Refused { method: method.to_owned(), message }
}

/// Until the handle or the target is gone.
async fn serve(
    mut connection: Connection<Event>,
    mut calls: mpsc::Receiver<Call>,
    crashed: Arc<AtomicBool>,
) {
    let mut waiting: HashMap<CallId, Call> = HashMap::new();
    let why = loop {
        tokio::select! {
            call = calls.recv() => {
                let Some(mut call) = call else { return };
                let params = std::mem::take(&mut call.params);
                match connection.submit_command(call.method.clone(), None, params) {
                    Ok(id) => { waiting.insert(id, call); }
                    Err(error) => break error.to_string(),
                }
            }
            message = connection.next() => match message {
                None => break "the tab or the browser was closed".to_owned(),
                Some(Ok(Message::Response(response))) => {
                    if let Some(call) = waiting.remove(&response.id) {
                        // Whoever asked may have given up.
                        let _ = call.answer.send(answer_of(&call.method, response));
                    }
                }
                Some(Ok(Message::Event(event))) => match on_event(&event) {
                    Next::Nothing => {}
                    Next::End(why) => break why,
                    Next::Crash => {
                        crashed.store(true, Ordering::SeqCst);
                        break "the page crashed".to_owned();
                    }
                    Next::Send(method, params) => {
                        if let Err(error) = connection.submit_command(method, None, params) {
                            break error.to_string();
                        }
                    }
                },
                // One message that cannot be read says nothing about the next.
                Some(Err(CdpError::InvalidMessage(..))) => {}
                Some(Err(error)) => break format!("the connection to the browser broke: {error}"),
            }
        }
    };
    // From here on nobody can call; what was about to be, is told the same.
    calls.close();
    while let Some(call) = calls.recv().await {
        let _ = call.answer.send(Err(BrowserError::lost(why.clone())));
    }
    for call in waiting.into_values() {
        let _ = call.answer.send(Err(BrowserError::lost(why.clone())));
    }
}

fn answer_of(method: &str, response: Response) -> Result<Value, BrowserError> {
    match response.error {
        Some(error) => Err(refused(method, error.message)),
        None => Ok(response.result.unwrap_or_default()),
    }
}

enum Next {
    Nothing,
    Send(MethodId, Value),
    End(String),
    Crash,
}

fn on_event(event: &Event) -> Next {
    let text = |name: &str| event.params.get(name).and_then(Value::as_str).unwrap_or_default();
    match event.method.as_ref() {
        "Inspector.targetCrashed" => Next::Crash,
        "Inspector.detached" => {
            let why = match text("reason") {
                "target_closed" | "Render process gone." => "the tab was closed".to_owned(),
                other => format!("the browser let go of the tab ({other})"),
            };
            Next::End(why)
        }
        // It would stop everything else in the page. A page that asks whether it may be left may.
        "Page.javascriptDialogOpening" => {
            let accept = text("type") != "prompt" && text("type") != "confirm";
            let command = HandleJavaScriptDialogParams::new(accept);
            match serde_json::to_value(&command) {
                Ok(params) => Next::Send(Cow::Owned(command.identifier().into_owned()), params),
                Err(_) => Next::Nothing,
            }
        }
        _ => Next::Nothing,
    }
}
