//! The NOTIFY messages between nodes: the topics that a commit touched. The payload is a JSON array
//! that starts with the sender: `["TAG","s:run/run_1","d:run","l:node/nod_1"]`.

use std::collections::BTreeSet;

use shikiri_model::event::StreamId;
use sqlx::postgres::PgConnection;

use crate::batch_decision::BatchWrites;
use crate::hub::{Hub, HubTopic, HubWake};

pub(super) const CHANNEL: &str = "shikiri";

/// Wakes every waiter, if the list of topics would be too long.
const ALL: &str = "*";

/// Below PostgreSQL's limit of 8,000.
const PAYLOAD_BYTES: usize = 7_900;

/// With more notifications per commit, waking every waiter is cheaper for the server.
const MOST_PAYLOADS: usize = 8;

/// Part of the transaction: the server delivers it when the transaction commits.
pub(super) async fn notify(
    tx: &mut PgConnection,
    tag: &str,
    writes: &BatchWrites,
) -> Result<(), sqlx::Error> {
    let payloads = payloads(tag, &topics(writes));
    if payloads.is_empty() {
        return Ok(());
    }
    sqlx::query("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload")
        .bind(CHANNEL)
        .bind(payloads)
        .execute(tx)
        .await?;
    Ok(())
}

pub(super) fn wake_all_payload(tag: &str) -> String {
    serde_json::json!([tag, ALL]).to_string()
}

fn topics(writes: &BatchWrites) -> BTreeSet<String> {
    let streams = writes.streams.iter().map(|write| format!("s:{}", write.stream));
    let wakes = writes.wakes.iter().map(|topic| match topic {
        HubTopic::Stream(stream) => format!("s:{stream}"),
        HubTopic::Due(kind) => format!("d:{kind}"),
        HubTopic::Lease(name) => format!("l:{name}"),
    });
    streams.chain(wakes).collect()
}

fn payloads(tag: &str, topics: &BTreeSet<String>) -> Vec<String> {
    let mut payloads = Vec::new();
    let mut open = String::new();
    for topic in topics {
        let item = serde_json::Value::from(topic.as_str()).to_string();
        if !open.is_empty() && open.len() + item.len() + 2 > PAYLOAD_BYTES {
            payloads.push(std::mem::take(&mut open) + "]");
        }
        if open.is_empty() {
            open = format!("[{}", serde_json::Value::from(tag));
        }
        open = open + "," + &item;
        if payloads.len() >= MOST_PAYLOADS || open.len() >= PAYLOAD_BYTES {
            return vec![wake_all_payload(tag)];
        }
    }
    if !open.is_empty() {
        payloads.push(open + "]");
    }
    payloads
}

/// Wakes this node's watchers after another node's commit.
pub(super) fn publish_payload(hub: &Hub, own_tag: &str, payload: &str) {
    // An unknown format comes from a newer node. Waking every waiter is always correct.
    let Ok(items) = serde_json::from_str::<Vec<String>>(payload) else {
        return hub.publish_all();
    };
    let Some((tag, topics)) = items.split_first() else { return };
    if tag == own_tag {
        return;
    }
    let mut kinds = BTreeSet::new();
    for topic in topics {
        match topic.split_once(':') {
            Some(("s", name)) => {
                hub.publish(&HubTopic::Stream(StreamId::new(name)), &HubWake::Behind)
            }
            Some(("l", name)) => hub.publish(&HubTopic::Lease(name.to_owned()), &HubWake::Behind),
            Some(("d", kind)) => {
                kinds.insert(kind);
            }
            _ => return hub.publish_all(),
        }
    }
    if !kinds.is_empty() {
        hub.publish_where(|topic| matches!(topic, HubTopic::Due(kind) if kinds.contains(kind)));
    }
}

/// Wakes this node's watchers after its own commit.
pub(super) fn publish(hub: &Hub, writes: &BatchWrites) {
    for write in &writes.streams {
        let topic = HubTopic::Stream(write.stream.clone());
        let last = write.chunks.len().saturating_sub(1);
        for (index, chunk) in write.chunks.iter().enumerate() {
            let closes = write.row.closed && index == last;
            hub.publish(&topic, &HubWake::Chunk { chunk: chunk.clone(), closes });
        }
        if write.chunks.is_empty() {
            hub.publish(&topic, &HubWake::Behind);
        }
    }
    for topic in &writes.wakes {
        hub.publish(topic, &HubWake::Behind);
    }
}

#[cfg(test)]
#[path = "wake_notify_tests.rs"]
mod tests;
