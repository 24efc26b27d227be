//! Removing a conversation: all of its messages, in slices, and nobody else's.

use serde_json::json;
use shikiri_app::AppError;
use shikiri_app::conversations::ConversationPatch;
use shikiri_model::conversation::lock_of;
use shikiri_model::execution::{MessageKind, MessageLog};
use shikiri_model::ids::{ConversationId, RunId, TenantId};
use shikiri_model::record::{Document, Expect, RecordChange, RecordQuery};
use shikiri_store::{Commit, StoreExt};

use crate::world::World;

async fn made(world: &World) -> ConversationId {
    let patch = ConversationPatch::default();
    world.app.create_conversation(&TenantId::local(), patch).await.unwrap().value.id
}

/// Puts messages in as an execution does: all at one time.
async fn say(world: &World, conversation: &ConversationId, count: usize) {
    let now = world.app.store().now().await.unwrap();
    let mut commit = Commit::new();
    for seq in 1..=count {
        let message = MessageLog {
            id: format!("msg_{}_{seq:06}", conversation.as_str().trim_start_matches("cnv_")),
            tenant: TenantId::local(),
            conversation: conversation.clone(),
            execution: RunId::mint_execution(now, [7; 10]),
            turn: 1,
            seq,
            kind: MessageKind::Assistant,
            subtype: None,
            content: json!("言葉"),
            parent_tool_use_id: None,
            at: now,
        };
        commit = commit.record(RecordChange::put(&message, Expect::New).unwrap());
    }
    world.app.store().commit(commit).await.unwrap();
}

async fn count(world: &World, conversation: &ConversationId) -> usize {
    let query = RecordQuery {
        kind: MessageLog::KIND,
        tenant: Some(TenantId::local()),
        parent: Some(conversation.to_string()),
        limit: 10_000,
        ..RecordQuery::default()
    };
    world.app.store().list(query).await.unwrap().len()
}

#[tokio::test]
async fn a_long_conversation_goes_with_every_message_and_alone() {
    let world = World::new(vec![]).await;
    let (gone, kept) = (made(&world).await, made(&world).await);
    say(&world, &gone, 450).await;
    say(&world, &kept, 3).await;
    world.app.delete_conversation(&TenantId::local(), &gone).await.unwrap();
    assert_eq!((count(&world, &gone).await, count(&world, &kept).await), (0, 3));
    let lease = world.app.store().lease(&lock_of(&gone)).await.unwrap();
    assert!(lease.is_none(), "the lease of what is gone is gone too: {lease:?}");
    let again = world.app.delete_conversation(&TenantId::local(), &gone).await;
    assert!(matches!(again, Err(AppError::NotFound { kind: "conversation", .. })), "{again:?}");
}

#[tokio::test]
async fn a_removal_that_was_cut_short_is_finished_by_the_next() {
    let world = World::new(vec![]).await;
    let id = made(&world).await;
    say(&world, &id, 450).await;
    let store = world.app.store();
    // A remover that died after its first slice: messages are missing and the lease is held.
    let first = RecordQuery {
        kind: MessageLog::KIND,
        tenant: Some(TenantId::local()),
        parent: Some(id.to_string()),
        limit: 200,
        ..RecordQuery::default()
    };
    let mut commit = Commit::new();
    for record in store.list(first).await.unwrap() {
        let version = record.version;
        commit = commit.record(RecordChange::Delete { key: record.key, version });
    }
    store.commit(commit).await.unwrap();
    let minute = std::time::Duration::from_secs(60);
    store.try_acquire(&lock_of(&id), "a change", minute).await.unwrap();

    let held = world.app.delete_conversation(&TenantId::local(), &id).await;
    assert!(matches!(held, Err(AppError::Locked { .. })), "{held:?}");
    assert_eq!(count(&world, &id).await, 250, "nothing is done without the lease");
    world.clock.advance(minute);
    world.app.delete_conversation(&TenantId::local(), &id).await.unwrap();
    assert_eq!(count(&world, &id).await, 0);
}

#[tokio::test]
async fn a_session_is_not_forgotten_under_an_execution() {
    let world = World::new(vec![]).await;
    let (id, tenant) = (made(&world).await, TenantId::local());
    let minute = std::time::Duration::from_secs(60);
    let lease = world.app.store().try_acquire(&lock_of(&id), "exe_1", minute).await.unwrap();
    let forget = ConversationPatch { forget_session: true, ..ConversationPatch::default() };
    let refused = world.app.update_conversation(&tenant, &id, forget.clone()).await;
    assert!(
        matches!(&refused, Err(AppError::Locked { execution, .. }) if execution == "exe_1"),
        "{refused:?}"
    );
    world.app.store().release(&lease.guard()).await.unwrap();
    world.app.update_conversation(&tenant, &id, forget).await.unwrap();
    let (_, lapsed) = world.app.store().lease(&lock_of(&id)).await.unwrap().unwrap();
    assert!(lapsed, "it is given back at once");
}
