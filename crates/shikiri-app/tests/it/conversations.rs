//! Removing a conversation: all of its messages, in slices, and no others. Reading them: in pages
//! that are not too large.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use shikiri_app::App;
use shikiri_executions::conversations::ConversationPatch;
use shikiri_model::conversation::conversation_lock;
use shikiri_model::execution::{MessageKind, MessageLog};
use shikiri_model::ids::{ConversationId, RunId, TenantId};
use shikiri_model::record::{Document, ExpectedVersion, RecordChange, RecordQuery};
use shikiri_runtime::AppError;
use shikiri_store::{Commit, StoreExt};
use shikiri_testkit::until;

use crate::flaky::Flaky;
use crate::world::World;

async fn made(world: &World) -> ConversationId {
    let patch = ConversationPatch::default();
    world.app.executions.create_conversation(&TenantId::local(), patch).await.unwrap().value.id
}

/// Puts messages in as an execution does: all at one time.
async fn say(world: &World, conversation: &ConversationId, count: usize) {
    say_all(world, conversation, vec!["言葉".to_owned(); count]).await;
}

async fn say_all(world: &World, conversation: &ConversationId, words: Vec<String>) {
    let now = world.app.runtime.store().now().await.unwrap();
    let mut commit = Commit::new();
    for (seq, words) in (1..).zip(words) {
        let message = MessageLog {
            id: format!("msg_{}_{seq:06}", conversation.as_str().trim_start_matches("cnv_")),
            tenant: TenantId::local(),
            conversation: conversation.clone(),
            execution: RunId::mint_execution(now, [7; 10]),
            turn: 1,
            seq,
            kind: MessageKind::Assistant,
            subtype: None,
            content: json!(words),
            parent_tool_use_id: None,
            at: now,
        };
        commit = commit.record(RecordChange::put(&message, ExpectedVersion::New).unwrap());
    }
    world.app.runtime.store().commit(commit).await.unwrap();
}

async fn count(world: &World, conversation: &ConversationId) -> usize {
    let query = RecordQuery {
        kind: MessageLog::KIND,
        tenant: Some(TenantId::local()),
        parent: Some(conversation.to_string()),
        limit: 10_000,
        ..RecordQuery::default()
    };
    world.app.runtime.store().list(query).await.unwrap().len()
}

#[tokio::test]
async fn a_long_conversation_goes_with_every_message_and_alone() {
    let world = World::new(vec![]).await;
    let (gone, kept) = (made(&world).await, made(&world).await);
    say(&world, &gone, 450).await;
    say(&world, &kept, 3).await;
    world.app.executions.delete_conversation(&TenantId::local(), &gone).await.unwrap();
    assert_eq!((count(&world, &gone).await, count(&world, &kept).await), (0, 3));
    let lease = world.app.runtime.store().lease(&conversation_lock(&gone)).await.unwrap();
    assert!(lease.is_none(), "the lease of what is gone is gone too: {lease:?}");
    let again = world.app.executions.delete_conversation(&TenantId::local(), &gone).await;
    assert!(matches!(again, Err(AppError::NotFound { kind: "conversation", .. })), "{again:?}");
}

#[tokio::test]
async fn a_removal_that_was_cut_short_is_finished_by_the_next() {
    let world = World::new(vec![]).await;
    let id = made(&world).await;
    say(&world, &id, 450).await;
    let store = world.app.runtime.store();
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
    let minute = Duration::from_secs(60);
    store.try_acquire(&conversation_lock(&id), "a change", minute).await.unwrap();

    let held = world.app.executions.delete_conversation(&TenantId::local(), &id).await;
    assert!(matches!(held, Err(AppError::Locked { .. })), "{held:?}");
    assert_eq!(count(&world, &id).await, 250, "nothing is done without the lease");
    world.clock.advance(minute);
    world.app.executions.delete_conversation(&TenantId::local(), &id).await.unwrap();
    assert_eq!(count(&world, &id).await, 0);
}

#[tokio::test]
async fn a_removal_whose_caller_hangs_up_is_done_all_the_same() {
    let world = World::new(vec![]).await;
    let (id, tenant) = (made(&world).await, TenantId::local());
    say(&world, &id, 450).await;
    let store = Flaky::over(Arc::clone(world.app.runtime.store()));
    let app = App::new(store.clone(), vec![], world.app.options().clone());
    store.hold_removals(true);
    let lock = conversation_lock(&id);
    let is_locked = async || world.app.runtime.store().lease(&lock).await.unwrap().is_some();
    tokio::select! {
        done = app.executions.delete_conversation(&tenant, &id) => panic!("nothing could be removed: {done:?}"),
        () = until("the removal begins", is_locked) => {}
    }
    assert_eq!(count(&world, &id).await, 450);
    store.hold_removals(false);
    // The clock stands still: no lease runs out here.
    let is_gone = async || world.app.executions.conversation(&tenant, &id).await.is_err();
    until("the whole conversation is removed", is_gone).await;
    assert_eq!(count(&world, &id).await, 0);
    // The lock is freed after the last record is removed.
    until("the lock is free", async || !is_locked().await).await;
}

#[tokio::test]
async fn a_page_of_messages_has_an_end_in_bytes_too_and_none_is_missed() {
    let world = World::new(vec![]).await;
    let (id, tenant) = (made(&world).await, TenantId::local());
    let mib = 1024 * 1024;
    // Small ones before large ones, and one that is larger than a page.
    let mut sizes = vec![10; 30];
    sizes.extend([mib; 9]);
    sizes.extend([5 * mib, 10]);
    let words = sizes.iter().map(|size| "x".repeat(*size)).collect();
    say_all(&world, &id, words).await;
    let (mut pages, mut seen, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let (page, next) =
            world.app.executions.list_messages(&tenant, &id, after, 200).await.unwrap();
        pages.push(page.len());
        seen.extend(page.iter().map(|stored| stored.value.seq));
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(pages, [33, 3, 3, 1, 1]);
    assert_eq!(seen, (1..=41).collect::<Vec<_>>());

    // And still one in number.
    let (page, next) = world.app.executions.list_messages(&tenant, &id, None, 30).await.unwrap();
    assert_eq!((page.len(), next.is_some()), (30, true));
    let (rest, none) = world.app.executions.list_messages(&tenant, &id, next, 3).await.unwrap();
    assert_eq!((rest[0].value.seq, rest.len(), none.is_some()), (31, 3, true));
}

#[tokio::test]
async fn a_session_is_not_forgotten_under_an_execution() {
    let world = World::new(vec![]).await;
    let (id, tenant) = (made(&world).await, TenantId::local());
    let minute = Duration::from_secs(60);
    let lease = world
        .app
        .runtime
        .store()
        .try_acquire(&conversation_lock(&id), "exe_1", minute)
        .await
        .unwrap();
    let forget = ConversationPatch { forget_session: true, ..ConversationPatch::default() };
    let refused = world.app.executions.update_conversation(&tenant, &id, forget.clone()).await;
    assert!(
        matches!(&refused, Err(AppError::Locked { execution, .. }) if execution == "exe_1"),
        "{refused:?}"
    );
    world.app.runtime.store().release(&lease.guard()).await.unwrap();
    world.app.executions.update_conversation(&tenant, &id, forget).await.unwrap();
    let (_, lapsed) =
        world.app.runtime.store().lease(&conversation_lock(&id)).await.unwrap().unwrap();
    assert!(lapsed, "it is given back at once");
}
