//! A subscriber is told of everything that is published after it subscribed: chunk by chunk, or
//! by one `Behind` that sends it back to the store.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde_json::json;
use shikiri_model::event::{ChunkBuilder, NewEvent, Seq};
use shikiri_model::time::Timestamp;

use super::*;

fn topic() -> HubTopic {
    HubTopic::Stream(StreamId::new("会話/一"))
}

fn chunk(seq: Seq) -> Chunk {
    let mut builder = ChunkBuilder::default();
    builder.push(Timestamp::default(), &NewEvent::from_value("log", &json!({ "番": seq })));
    builder.finish(seq).unwrap()
}

fn wake(seq: Seq) -> HubWake {
    HubWake::Chunk { chunk: chunk(seq), closes: false }
}

/// The numbers of the chunks, 0 for `Behind`.
fn seqs(wakes: &[HubWake]) -> Vec<Seq> {
    wakes
        .iter()
        .map(|wake| match wake {
            HubWake::Chunk { chunk, .. } => chunk.first_seq(),
            HubWake::Behind => 0,
        })
        .collect()
}

#[test]
fn what_is_published_between_subscribing_and_waiting_is_not_lost() {
    let hub = Arc::new(Hub::default());
    let mut subscription = hub.subscribe(topic());
    hub.publish(&topic(), &wake(1));
    hub.publish(&topic(), &wake(2));
    assert_eq!(subscription.next().now_or_never().map(|w| seqs(&w)), Some(vec![1, 2]));
    assert!(subscription.next().now_or_never().is_none(), "nothing is told twice");
    hub.publish(&topic(), &wake(3));
    assert_eq!(subscription.next().now_or_never().map(|w| seqs(&w)), Some(vec![3]));
}

#[test]
fn a_wait_that_is_given_up_loses_nothing() {
    let hub = Arc::new(Hub::default());
    let mut subscription = hub.subscribe(topic());
    assert!(subscription.next().now_or_never().is_none());
    hub.publish(&topic(), &wake(1));
    assert_eq!(seqs(&subscription.take()), [1]);
    // The wake-up that belonged to 1 is still there; it must not become an empty answer.
    assert!(subscription.next().now_or_never().is_none());
}

#[test]
fn the_end_of_a_stream_is_told_with_its_last_chunk() {
    let hub = Arc::new(Hub::default());
    let mut subscription = hub.subscribe(topic());
    hub.publish(&topic(), &HubWake::Chunk { chunk: chunk(9), closes: true });
    let news = subscription.take();
    assert!(
        matches!(&news[..], [HubWake::Chunk { chunk, closes: true }] if chunk.first_seq() == 9)
    );
}

#[test]
fn a_full_queue_becomes_one_behind_and_never_a_part_of_the_queue() {
    let hub = Arc::new(Hub::default());
    let mut subscription = hub.subscribe(topic());
    let full = QUEUE_CHUNKS as u64;
    for seq in 1..=full {
        hub.publish(&topic(), &wake(seq));
    }
    assert_eq!(seqs(&subscription.take()), (1..=full).collect::<Vec<_>>(), "just full is whole");

    for seq in 1..=full + 40 {
        hub.publish(&topic(), &wake(seq));
    }
    assert_eq!(seqs(&subscription.take()), [0]);
    assert!(subscription.take().is_empty());
    hub.publish(&topic(), &wake(200));
    assert_eq!(seqs(&subscription.take()), [200], "after Behind it goes on chunk by chunk");
}

#[test]
fn behind_replaces_what_waited_and_hides_what_follows() {
    let hub = Arc::new(Hub::default());
    let mut subscription = hub.subscribe(topic());
    hub.publish(&topic(), &wake(1));
    hub.publish(&topic(), &HubWake::Behind);
    hub.publish(&topic(), &wake(3));
    hub.publish(&topic(), &HubWake::Behind);
    assert_eq!(seqs(&subscription.take()), [0]);
    assert!(subscription.take().is_empty());
}

#[test]
fn one_slow_subscriber_costs_the_others_nothing() {
    let hub = Arc::new(Hub::default());
    let mut slow = hub.subscribe(topic());
    let mut quick = hub.subscribe(topic());
    let mut got = Vec::new();
    for seq in 1..=300 {
        hub.publish(&topic(), &wake(seq));
        got.extend(seqs(&quick.take()));
    }
    assert_eq!(got, (1..=300).collect::<Vec<_>>());
    assert_eq!(seqs(&slow.take()), [0]);
}

#[test]
fn wakes_reach_their_topic_alone() {
    let hub = Arc::new(Hub::default());
    let mut stream = hub.subscribe(topic());
    let mut due = hub.subscribe(HubTopic::Due("run"));
    let mut lease = hub.subscribe(HubTopic::Lease("会話/一".into()));
    hub.publish(&HubTopic::Due("run"), &HubWake::Behind);
    hub.publish(&HubTopic::Due("other"), &HubWake::Behind);
    assert_eq!(
        (seqs(&stream.take()), seqs(&due.take()), seqs(&lease.take())),
        (vec![], vec![0], vec![])
    );
    hub.publish_where(|topic| matches!(topic, HubTopic::Lease(_)));
    assert_eq!(
        (seqs(&stream.take()), seqs(&due.take()), seqs(&lease.take())),
        (vec![], vec![], vec![0])
    );
    hub.publish_all();
    assert_eq!(
        (seqs(&stream.take()), seqs(&due.take()), seqs(&lease.take())),
        (vec![0], vec![0], vec![0])
    );
}

#[test]
fn a_dropped_subscription_frees_its_topic() {
    let hub = Arc::new(Hub::default());
    assert!(hub.is_idle());
    let first = hub.subscribe(topic());
    let mut second = hub.subscribe(topic());
    drop(first);
    assert!(!hub.is_idle());
    hub.publish(&topic(), &wake(1));
    assert_eq!(seqs(&second.take()), [1]);
    drop(second);
    assert!(hub.is_idle());
    hub.publish(&topic(), &wake(2));
}

#[test]
fn the_first_waiter_of_an_idle_hub_is_announced_when_it_is_there() {
    let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let hub = Arc::new(Hub::with_first_subscriber_callback(move || {
        counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }));
    let told = || calls.load(std::sync::atomic::Ordering::SeqCst);
    let first = hub.subscribe(topic());
    let second = hub.subscribe(HubTopic::Due("run"));
    assert_eq!(told(), 1);
    drop((first, second));
    let _again = hub.subscribe(topic());
    assert_eq!(told(), 2);
}

#[tokio::test]
async fn a_publish_from_another_thread_wakes_a_waiter() {
    let hub = Arc::new(Hub::default());
    let mut subscription = hub.subscribe(topic());
    let publisher = {
        let hub = Arc::clone(&hub);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            hub.publish(&topic(), &wake(1));
        })
    };
    let news = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await.unwrap();
    assert_eq!(seqs(&news), [1]);
    publisher.join().unwrap();
}

/// A log as a reader sees it: the store's head, and the hub that tells of every commit after it.
struct Log {
    hub: Arc<Hub>,
    head: Mutex<Seq>,
    finished: AtomicBool,
}

impl Log {
    fn append(&self) {
        // The lock is held over the publishing, as one writer publishes in the order of commits.
        let mut head = lock(&self.head);
        *head += 1;
        self.hub.publish(&topic(), &wake(*head));
    }

    /// Subscribes, reads, follows; and leaves again after some hundred events.
    async fn follow(&self) -> Result<(), String> {
        let mut subscription = self.hub.subscribe(topic());
        let mut cursor = *lock(&self.head);
        let until = cursor + 300;
        while cursor < until && !self.finished.load(Ordering::SeqCst) {
            let waited =
                tokio::time::timeout(Duration::from_millis(500), subscription.next()).await;
            let Ok(news) = waited else {
                let lost = *lock(&self.head) > cursor && !self.finished.load(Ordering::SeqCst);
                return if lost { Err(format!("not woken after {cursor}")) } else { Ok(()) };
            };
            for wake in news {
                match wake {
                    HubWake::Behind => cursor = *lock(&self.head),
                    HubWake::Chunk { chunk, .. } if chunk.first_seq() <= cursor => {}
                    HubWake::Chunk { chunk, .. } if chunk.first_seq() == cursor + 1 => cursor += 1,
                    HubWake::Chunk { chunk, .. } => {
                        return Err(format!("{} after {cursor}", chunk.first_seq()));
                    }
                }
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_come_and_go_under_load_see_no_gap() {
    let hub = Arc::new(Hub::default());
    let log = Arc::new(Log { hub, head: Mutex::new(0), finished: AtomicBool::new(false) });
    let end = Instant::now() + Duration::from_millis(700);
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                while !log.finished.load(Ordering::SeqCst) {
                    log.follow().await?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                while Instant::now() < end {
                    log.append();
                    std::thread::yield_now();
                }
                log.finished.store(true, Ordering::SeqCst);
            })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), Ok(()));
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert!(log.hub.is_idle());
}
