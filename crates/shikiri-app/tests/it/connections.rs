//! Connections on a clock that the test moves: how long they last, how many there may be, and the
//! tickets and hand-overs that belong to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::connection::{ClientInfo, McpConnection};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::TenantId;
use shikiri_model::key::SecretToken;
use shikiri_model::run::RunStatus;
use shikiri_runtime::AppError;
use shikiri_tenancy::connections::NewConnection;

use crate::world::World;

const HOUR: Duration = Duration::from_secs(3_600);

fn local() -> TenantId {
    TenantId::local()
}

fn new(principal: &str, protocol: &str) -> NewConnection {
    NewConnection {
        tenant: local(),
        principal: principal.to_owned(),
        protocol: protocol.to_owned(),
        client: ClientInfo { name: "test".to_owned(), version: "1".to_owned() },
        capabilities: json!({}),
    }
}

async fn open(app: &App, principal: &str) -> McpConnection {
    app.tenancy.open_connection(new(principal, "2025-11-25")).await.unwrap()
}

async fn daily(app: &App, principal: &str) -> McpConnection {
    app.tenancy.daily_connection(new(principal, "2026-07-28")).await.unwrap()
}

async fn is_there(app: &App, connection: &McpConnection) -> bool {
    let found =
        app.tenancy.connection(&local(), &connection.id, &connection.principal).await.unwrap();
    found.is_some()
}

/// The same store with room for so many connections of one principal.
fn with_room(world: &World, max_connections: usize) -> App {
    let mut options = world.app.options().clone();
    options.connections.max_per_principal = max_connections;
    App::new(Arc::clone(world.app.runtime.store()), Vec::new(), options)
}

#[tokio::test]
async fn a_connection_ends_after_a_day_without_use() {
    let world = World::new(vec![]).await;
    let (used, unused) = (open(&world.app, "key_a").await, open(&world.app, "key_a").await);
    for _ in 0..3 {
        world.clock.advance(HOUR * 20);
        assert!(is_there(&world.app, &used).await, "use keeps it");
    }
    assert!(!is_there(&world.app, &unused).await);
    world.clock.advance(HOUR * 24);
    assert!(!is_there(&world.app, &used).await, "at its limit it is over");
}

#[tokio::test]
async fn an_idle_connection_is_swept_and_its_watchers_are_told() {
    let world = World::new(vec![]).await;
    let connection = open(&world.app, "key_a").await;
    let mut watch = world.app.runtime.watch(&local(), connection.stream(), 0).await.unwrap();
    world.clock.advance(HOUR * 25);
    let _node = world.node();
    let story = async {
        let mut story = Vec::new();
        while let Some(delivery) = watch.next().await.unwrap() {
            story.extend(delivery.events().map(|event| event.kind.to_owned()));
        }
        story
    };
    let story = tokio::time::timeout(Duration::from_secs(20), story).await.expect("its end");
    assert_eq!(story, ["opened", "ended"]);
    let event = NewEvent::from_value("notice", &json!({}));
    let refused = world.app.tenancy.note_on_connection(&connection, event).await;
    assert!(matches!(refused, Err(AppError::NotFound { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_connection_is_its_principals_alone() {
    let world = World::new(vec![]).await;
    let connection = open(&world.app, "key_a").await;
    let app = &world.app;
    assert!(app.tenancy.connection(&local(), &connection.id, "key_b").await.unwrap().is_none());
    let other: TenantId = "other".parse().unwrap();
    assert!(app.tenancy.connection(&other, &connection.id, "key_a").await.unwrap().is_none());
    app.tenancy.close_connection(&connection).await.unwrap();
    assert!(!is_there(app, &connection).await);
    app.tenancy.close_connection(&connection).await.unwrap();
}

#[tokio::test]
async fn who_opens_too_many_connections_loses_the_idlest_of_its_own() {
    let world = World::new(vec![]).await;
    let app = with_room(&world, 3);
    let others = open(&app, "key_b").await;
    let mut own = Vec::new();
    for _ in 0..3 {
        own.push(open(&app, "key_a").await);
    }
    world.clock.advance(HOUR * 3);
    for used in [&own[0], &own[2]] {
        assert!(is_there(&app, used).await);
    }
    let newest = open(&app, "key_a").await;
    for (connection, stays) in
        [(&own[0], true), (&own[1], false), (&own[2], true), (&newest, true), (&others, true)]
    {
        assert_eq!(is_there(&app, connection).await, stays, "{}", connection.id);
    }
    // A process that has just started counts first.
    let restarted = with_room(&world, 3);
    let after = open(&restarted, "key_a").await;
    let mut left = 0;
    for connection in own.iter().chain([&newest, &after]) {
        left += usize::from(is_there(&restarted, connection).await);
    }
    assert_eq!((left, is_there(&restarted, &after).await), (3, true));
}

/// Without it no call of the newer era could be written down for the rest of the day.
#[tokio::test]
async fn the_connection_of_today_is_never_the_one_that_makes_room() {
    let world = World::new(vec![]).await;
    let app = with_room(&world, 3);
    let today = daily(&app, "key_a").await;
    for _ in 0..5 {
        world.clock.advance(Duration::from_secs(60));
        open(&app, "key_a").await;
    }
    let event = NewEvent::from_value("call", &json!({}));
    app.tenancy.note_on_connection(&today, event).await.unwrap();
    // Yesterday's may go.
    world.clock.advance(HOUR * 5);
    let tomorrow = daily(&app, "key_a").await;
    open(&app, "key_a").await;
    assert!(!is_there(&app, &today).await);
    assert!(is_there(&app, &tomorrow).await);
}

#[tokio::test]
async fn calls_without_a_session_are_written_down_by_day_and_principal() {
    let world = World::new(vec![]).await;
    let first = daily(&world.app, "key_a").await;
    assert_eq!(daily(&world.app, "key_a").await, first, "also by another process");
    assert_ne!(daily(&world.app, "key_b").await.id, first.id);
    // It is past 20:00.
    world.clock.advance(HOUR * 5);
    assert_ne!(daily(&world.app, "key_a").await.id, first.id);
    assert!(is_there(&world.app, &first).await, "calls over midnight end where they began");
}

/// A world whose only run waits for its question.
async fn asking() -> (World, shikiri_model::ids::RunId, shikiri_runtime::run::WorkerNode) {
    let world = World::new(shikiri_agents::samples()).await;
    let run = world.start("travel_agent", json!({ "step_ms": 1 })).await;
    let node = world.node();
    world.until_status(&run, RunStatus::Waiting).await;
    (world, run, node)
}

#[tokio::test]
async fn a_ticket_is_for_its_holder_its_request_and_an_hour() {
    let (world, run, _node) = asking().await;
    let app = &world.app;
    let issue = async || {
        app.tenancy
            .issue_ticket(&local(), "key_a", &run, "digest", 7, BTreeMap::new())
            .await
            .unwrap()
    };
    let find = async |tenant: &TenantId, principal: &str, ticket: &SecretToken, digest: &str| {
        app.tenancy.ticket(tenant, principal, ticket, digest).await.unwrap()
    };
    let ticket = issue().await;
    let other: TenantId = "other".parse().unwrap();
    let forged = SecretToken::from_caller(&format!("{}x", ticket.reveal()));
    for (tenant, principal, shown, digest) in [
        (&other, "key_a", &ticket, "digest"),
        (&local(), "key_b", &ticket, "digest"),
        (&local(), "key_a", &ticket, "another"),
        (&local(), "key_a", &forged, "digest"),
    ] {
        assert!(find(tenant, principal, shown, digest).await.is_none(), "{principal} {digest}");
    }
    let found = find(&local(), "key_a", &ticket, "digest").await.unwrap();
    assert_eq!((&found.value.run, found.value.after), (&run, 7), "what was refused cost nothing");
    let used = found.value.used_with("r").unwrap();
    let first = app.runtime.answer_run_with(&used, found.version, &[]).await.unwrap();
    assert_eq!(first, Some(0));
    let second = app.runtime.answer_run_with(&used, found.version, &[]).await.unwrap();
    assert_eq!(second, None, "of two that use it at once one must look again");
    assert_eq!(app.tenancy.ticket_uses(&local(), &found.value.id).await.unwrap(), 1);

    let late = issue().await;
    world.clock.advance(HOUR - Duration::from_millis(1));
    assert!(find(&local(), "key_a", &late, "digest").await.is_some());
    world.clock.advance(Duration::from_millis(1));
    assert!(find(&local(), "key_a", &late, "digest").await.is_none(), "too old");
}

#[tokio::test]
async fn a_run_whose_caller_never_comes_back_with_its_answer_is_stopped() {
    let (world, run, _node) = asking().await;
    let app = &world.app;
    let question =
        app.runtime.load_run(&local(), &run).await.unwrap().value.questions[0].id.clone();
    let asked = BTreeMap::from([("0".to_owned(), question)]);
    app.tenancy.issue_ticket(&local(), "key_a", &run, "digest", 7, asked).await.unwrap();
    // The question itself has as long as its ticket: the sweep comes first.
    world.clock.advance(HOUR + Duration::from_millis(1));
    world.until_status(&run, RunStatus::Cancelled).await;
}

#[tokio::test]
async fn the_first_to_hand_a_call_over_decides_what_is_read() {
    let world = World::new(vec![]).await;
    let app = &world.app;
    let connection = open(app, "key_a").await;
    let first = app.tenancy.hand_over(&connection, 4, 9, json!("first")).await.unwrap();
    let second = app.tenancy.hand_over(&connection, 4, 11, json!("second")).await.unwrap();
    assert_eq!(first, second);
    assert_eq!(app.tenancy.handover(&connection, 4).await.unwrap(), Some(first));
    assert_eq!(app.tenancy.handover(&connection, 5).await.unwrap(), None);
    // They end with the connection, however many there are.
    for call in 5..240 {
        app.tenancy.hand_over(&connection, call, 1, Value::Null).await.unwrap();
    }
    app.tenancy.close_connection(&connection).await.unwrap();
    for call in 4..240 {
        assert_eq!(app.tenancy.handover(&connection, call).await.unwrap(), None, "{call}");
    }
}
