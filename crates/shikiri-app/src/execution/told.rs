//! The way from an engine to whoever follows it: what it tells, and the steps that it has kept.

use std::collections::VecDeque;

use serde_json::Value;
use shikiri_model::execution::EngineMessage;
use shikiri_model::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::engine::EngineError;

/// Where an engine tells. Waits while nobody takes what it told: a flood stops at its source.
#[derive(Clone)]
pub struct Told(mpsc::Sender<Word>);

/// Words that may wait to be taken.
const WAITING: usize = 256;

/// What an engine says, in the order in which it is said.
#[derive(Debug)]
pub enum Word {
    Message(EngineMessage),
    /// A step of the turn, with what readers are told of it. Both are written together.
    Step {
        entry: Value,
        messages: Vec<EngineMessage>,
        kept: Kept,
    },
    /// What was told before, in another process: readers have it.
    Again {
        messages: Vec<EngineMessage>,
        at: Timestamp,
    },
}

/// To be told once a step is durable. Dropped, it says that it never will be.
#[derive(Debug)]
pub struct Kept(oneshot::Sender<()>);

impl Kept {
    pub fn done(self) {
        // The engine may be gone.
        let _ = self.0.send(());
    }
}

impl Told {
    pub fn channel() -> (Self, Heard) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), Heard { words: receiver, waiting: VecDeque::new() })
    }

    /// If nobody listens any more the engine is about to be dropped: it may go on till then.
    pub async fn tell(&self, message: EngineMessage) {
        let _ = self.0.send(Word::Message(message)).await;
    }

    /// Keeps a step of the turn, and tells of it; returns when it is durable. Whatever the step
    /// leads to is done after that.
    pub async fn keep(
        &self,
        entry: Value,
        messages: Vec<EngineMessage>,
    ) -> Result<(), EngineError> {
        let lost = || EngineError::new("a step of the turn could not be kept");
        let (sender, kept) = oneshot::channel();
        let step = Word::Step { entry, messages, kept: Kept(sender) };
        self.0.send(step).await.map_err(|_| lost())?;
        kept.await.map_err(|_| lost())
    }

    /// Tells what readers know, so that the account of the turn is whole.
    pub async fn again(&self, messages: Vec<EngineMessage>, at: Timestamp) {
        let _ = self.0.send(Word::Again { messages, at }).await;
    }
}

/// What an engine said, to be taken.
#[derive(Debug)]
pub struct Heard {
    words: mpsc::Receiver<Word>,
    /// Messages of a step, for who takes them one by one.
    waiting: VecDeque<EngineMessage>,
}

impl Heard {
    /// The next word; None when the engine says no more.
    pub async fn word(&mut self) -> Option<Word> {
        self.words.recv().await
    }

    /// The next message, for who keeps nothing.
    pub async fn recv(&mut self) -> Option<EngineMessage> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }
            match self.words.recv().await? {
                Word::Message(message) => return Some(message),
                Word::Step { messages, kept, .. } => {
                    self.waiting.extend(messages);
                    kept.done();
                }
                Word::Again { messages, .. } => self.waiting.extend(messages),
            }
        }
    }

    /// Takes several at once; nothing when the engine says no more.
    pub(super) async fn take(&mut self, words: &mut Vec<Word>, most: usize) -> usize {
        self.words.recv_many(words, most).await
    }

    pub(super) fn take_left(&mut self, words: &mut Vec<Word>) {
        while let Ok(word) = self.words.try_recv() {
            words.push(word);
        }
    }
}
