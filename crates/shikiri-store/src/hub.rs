//! Wakes subscribers of a stream, of due records or of a lease after a commit.
//!
//! A subscription has a bounded queue. A full queue is replaced by one [`HubWake::Behind`]: the
//! reader then goes back to the store, so it is slowed down but never skips an event.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use shikiri_model::event::{Chunk, StreamId};
use tokio::sync::Notify;

/// A topic to subscribe to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HubTopic {
    Stream(StreamId),
    /// Records of this kind may be due.
    Due(&'static str),
    /// The lease with this name may be free.
    Lease(String),
}

#[derive(Clone, Debug)]
pub enum HubWake {
    /// Committed just now by this process; `closes` if nothing can follow it. An earlier chunk of
    /// another node may not have been reported yet, so a reader checks that this chunk is its next.
    Chunk { chunk: Chunk, closes: bool },
    /// Read the store: another process wrote, or this subscription fell behind.
    Behind,
}

/// The most chunks in the queue of one subscriber.
const QUEUE_CHUNKS: usize = 64;

#[derive(Default)]
pub struct Hub {
    topics: Mutex<HashMap<HubTopic, Vec<Weak<SubscriberMailbox>>>>,
    on_first: Option<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct SubscriberMailbox {
    queue: Mutex<PendingWakes>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct PendingWakes {
    wakes: Vec<HubWake>,
    behind: bool,
}

#[derive(Debug)]
pub struct HubSubscription {
    hub: Arc<Hub>,
    topic: HubTopic,
    mailbox: Arc<SubscriberMailbox>,
}

impl Hub {
    /// A hub that calls `on_first` when it gets a subscriber and had none before.
    pub fn with_first_subscriber_callback(on_first: impl Fn() + Send + Sync + 'static) -> Self {
        Self { on_first: Some(Box::new(on_first)), ..Self::default() }
    }

    /// Subscribe first and read the store then, so that no event is missed in between.
    pub fn subscribe(self: &Arc<Self>, topic: HubTopic) -> HubSubscription {
        let mailbox = Arc::new(SubscriberMailbox::default());
        let mut topics = lock(&self.topics);
        let is_first = topics.is_empty();
        topics.entry(topic.clone()).or_default().push(Arc::downgrade(&mailbox));
        drop(topics);
        if is_first && let Some(call) = &self.on_first {
            call();
        }
        HubSubscription { hub: Arc::clone(self), topic, mailbox }
    }

    pub fn publish(&self, topic: &HubTopic, wake: &HubWake) {
        let mailboxes: Vec<_> = match lock(&self.topics).get(topic) {
            Some(boxes) => boxes.iter().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        for mailbox in mailboxes {
            mailbox.put(wake);
        }
    }

    /// Makes every subscriber read the store, after wake-ups may have been lost.
    pub fn publish_all(&self) {
        let topics: Vec<_> = lock(&self.topics).keys().cloned().collect();
        for topic in topics {
            self.publish(&topic, &HubWake::Behind);
        }
    }

    pub fn publish_where(&self, matches: impl Fn(&HubTopic) -> bool) {
        let topics: Vec<_> =
            lock(&self.topics).keys().filter(|topic| matches(topic)).cloned().collect();
        for topic in topics {
            self.publish(&topic, &HubWake::Behind);
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

impl SubscriberMailbox {
    fn put(&self, wake: &HubWake) {
        let mut queue = lock(&self.queue);
        match wake {
            HubWake::Chunk { .. } if !queue.behind && queue.wakes.len() < QUEUE_CHUNKS => {
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

impl HubSubscription {
    /// Waits for the next wake-ups. Never empty: several chunks, or one `Behind`.
    pub async fn next(&mut self) -> Vec<HubWake> {
        loop {
            let news = self.take();
            if !news.is_empty() {
                return news;
            }
            self.mailbox.ready.notified().await;
        }
    }

    /// The wake-ups so far, without waiting.
    pub fn take(&mut self) -> Vec<HubWake> {
        let mut queue = lock(&self.mailbox.queue);
        if std::mem::take(&mut queue.behind) {
            return vec![HubWake::Behind];
        }
        std::mem::take(&mut queue.wakes)
    }
}

impl Drop for HubSubscription {
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

/// Every change under these locks is complete, so a panic of another thread leaves no broken state.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
