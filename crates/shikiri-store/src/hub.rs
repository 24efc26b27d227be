//! Wakes whoever waits for a stream, for due records or for a lease, once the commit is done.
//!
//! A subscription has a bounded queue. When it is full the queue is given up and replaced by one
//! `Behind`: the reader then goes back to the store, so it is slowed but never skips an event.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use shikiri_model::event::{Chunk, StreamId};
use tokio::sync::Notify;

/// What one can wait for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    Stream(StreamId),
    /// Records of this kind may be due.
    Due(&'static str),
    /// The lease of this name may be free.
    Lease(String),
}

#[derive(Clone, Debug)]
pub enum Wake {
    /// Committed just now by this process; `closes` if nothing can follow it. Another node's
    /// earlier chunk may not have been heard of yet: a reader checks that this one is its next.
    Chunk { chunk: Chunk, closes: bool },
    /// Look in the store: another process wrote, or this subscription fell behind.
    Behind,
}

/// Chunks that may wait for one subscriber.
const QUEUE_CHUNKS: usize = 64;

#[derive(Default)]
pub struct Hub {
    topics: Mutex<HashMap<Topic, Vec<Weak<Mailbox>>>>,
    on_first: Option<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    wakes: Vec<Wake>,
    behind: bool,
}

#[derive(Debug)]
pub struct Subscription {
    hub: Arc<Hub>,
    topic: Topic,
    mailbox: Arc<Mailbox>,
}

impl Hub {
    /// A hub that calls `on_first` once somebody waits while nobody did before.
    pub fn calling(on_first: impl Fn() + Send + Sync + 'static) -> Self {
        Self { on_first: Some(Box::new(on_first)), ..Self::default() }
    }

    /// Subscribe first, then read the store: nothing falls between the two.
    pub fn subscribe(self: &Arc<Self>, topic: Topic) -> Subscription {
        let mailbox = Arc::new(Mailbox::default());
        let mut topics = lock(&self.topics);
        let is_first = topics.is_empty();
        topics.entry(topic.clone()).or_default().push(Arc::downgrade(&mailbox));
        drop(topics);
        if is_first && let Some(call) = &self.on_first {
            call();
        }
        Subscription { hub: Arc::clone(self), topic, mailbox }
    }

    pub fn publish(&self, topic: &Topic, wake: &Wake) {
        let mailboxes: Vec<_> = match lock(&self.topics).get(topic) {
            Some(boxes) => boxes.iter().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        for mailbox in mailboxes {
            mailbox.put(wake);
        }
    }

    /// Everybody looks in the store: used when the stream of wake-ups itself was cut.
    pub fn publish_all(&self) {
        let topics: Vec<_> = lock(&self.topics).keys().cloned().collect();
        for topic in topics {
            self.publish(&topic, &Wake::Behind);
        }
    }

    pub fn publish_where(&self, matches: impl Fn(&Topic) -> bool) {
        let topics: Vec<_> =
            lock(&self.topics).keys().filter(|topic| matches(topic)).cloned().collect();
        for topic in topics {
            self.publish(&topic, &Wake::Behind);
        }
    }

    pub fn is_idle(&self) -> bool {
        lock(&self.topics).is_empty()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl Mailbox {
    fn put(&self, wake: &Wake) {
        let mut queue = lock(&self.queue);
        match wake {
            Wake::Chunk { .. } if !queue.behind && queue.wakes.len() < QUEUE_CHUNKS => {
                queue.wakes.push(wake.clone());
            }
            _ => {
                queue.wakes.clear();
                queue.behind = true;
            }
        }
        drop(queue);
        self.ready.notify_one();
    }
}

impl Subscription {
    /// Waits for news. Never empty: several chunks, or one `Behind`.
    pub async fn next(&mut self) -> Vec<Wake> {
        loop {
            let news = self.take();
            if !news.is_empty() {
                return news;
            }
            self.mailbox.ready.notified().await;
        }
    }

    /// What has come so far, without waiting.
    pub fn take(&mut self) -> Vec<Wake> {
        let mut queue = lock(&self.mailbox.queue);
        if std::mem::take(&mut queue.behind) {
            return vec![Wake::Behind];
        }
        std::mem::take(&mut queue.wakes)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = lock(&self.hub.topics);
        if let Some(boxes) = topics.get_mut(&self.topic) {
            boxes.retain(|b| b.strong_count() > 0 && !b.ptr_eq(&Arc::downgrade(&self.mailbox)));
            if boxes.is_empty() {
                topics.remove(&self.topic);
            }
        }
    }
}

/// The data under these locks is whole at every step, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
