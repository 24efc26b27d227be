//! The channel from an engine to its execution: messages, and steps to persist.

use std::collections::VecDeque;

use serde_json::Value;
use shikiri_model::execution::EngineMessage;
use shikiri_model::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::engine::EngineError;

/// The engine's end. Sending waits while the channel is full, so a flood is stopped at its source.
#[derive(Clone)]
pub struct EngineSender(mpsc::Sender<EngineOutput>);

/// Capacity of the channel.
const WAITING: usize = 256;

/// What an engine sends, in order.
#[derive(Debug)]
pub enum EngineOutput {
    Message(EngineMessage),
    /// A step of the turn, with the messages to publish. Both are written together.
    Step {
        entry: Value,
        messages: Vec<EngineMessage>,
        kept: PersistAck,
    },
    /// Messages that another process already published.
    Again {
        messages: Vec<EngineMessage>,
        at: Timestamp,
    },
}

/// Confirms that a step is durable. Dropping it reports that the step was not persisted.
#[derive(Debug)]
pub struct PersistAck(oneshot::Sender<()>);

impl PersistAck {
    pub fn confirm(self) {
        // The engine may be gone.
        let _ = self.0.send(());
    }
}

impl EngineSender {
    pub fn channel() -> (Self, EngineReceiver) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), EngineReceiver { outputs: receiver, waiting: VecDeque::new() })
    }

    /// Sends a message. A closed channel is ignored: the engine is about to be dropped.
    pub async fn send(&self, message: EngineMessage) {
        let _ = self.0.send(EngineOutput::Message(message)).await;
    }

    /// Persists a step of the turn and publishes its messages. Returns when the step is durable;
    /// only then may its effects begin.
    pub async fn persist_step(
        &self,
        entry: Value,
        messages: Vec<EngineMessage>,
    ) -> Result<(), EngineError> {
        let lost = || EngineError::new("a step of the turn could not be kept");
        let (sender, kept) = oneshot::channel();
        let step = EngineOutput::Step { entry, messages, kept: PersistAck(sender) };
        self.0.send(step).await.map_err(|_| lost())?;
        kept.await.map_err(|_| lost())
    }

    /// Sends what was already published, so that the record of the turn is complete.
    pub async fn replay(&self, messages: Vec<EngineMessage>, at: Timestamp) {
        let _ = self.0.send(EngineOutput::Again { messages, at }).await;
    }
}

/// The execution's end of the channel.
#[derive(Debug)]
pub struct EngineReceiver {
    outputs: mpsc::Receiver<EngineOutput>,
    /// Messages of a step that `recv` has not returned yet.
    waiting: VecDeque<EngineMessage>,
}

impl EngineReceiver {
    /// The next output; None when the engine has finished.
    pub async fn next_output(&mut self) -> Option<EngineOutput> {
        self.outputs.recv().await
    }

    /// The next message, for a receiver that persists nothing.
    pub async fn recv(&mut self) -> Option<EngineMessage> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }
            match self.outputs.recv().await? {
                EngineOutput::Message(message) => return Some(message),
                EngineOutput::Step { messages, kept, .. } => {
                    self.waiting.extend(messages);
                    kept.confirm();
                }
                EngineOutput::Again { messages, .. } => self.waiting.extend(messages),
            }
        }
    }

    /// Receives several outputs at once; none when the engine has finished.
    pub(super) async fn recv_many(
        &mut self,
        outputs: &mut Vec<EngineOutput>,
        most: usize,
    ) -> usize {
        self.outputs.recv_many(outputs, most).await
    }

    pub(super) fn drain(&mut self, outputs: &mut Vec<EngineOutput>) {
        while let Ok(output) = self.outputs.try_recv() {
            outputs.push(output);
        }
    }
}
