//! One writer per conversation, whatever happens to it.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use shikiri_testkit::{Builder, TestApp, have_postgres, until};

use super::kit::{Talk, events, terminal};
use crate::PROGRAM;

/// Rows 1.3, 1.29.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_at_once_one_runs_and_the_others_are_told_in_time() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let body = Talk::body("#offline events=1 hang=1");
    let posts = (0..100).map(|_| {
        let (talk, body) = (talk.clone(), body.clone());
        async move {
            let begun = Instant::now();
            let answer = talk.post(&body, &[("Prefer", "respond-async")]).await;
            (answer, begun.elapsed())
        }
    });
    let answers = join_all(posts).await;
    let (started, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|(answer, _)| answer.status == 202);
    assert_eq!((started.len(), refused.len()), (1, 99));
    let id = started[0].0.json()["id"].clone();
    let mut times: Vec<_> = refused.iter().map(|(_, took)| *took).collect();
    times.sort_unstable();
    assert!(times[0] >= Duration::from_millis(4_750), "{:?}", times[0]);
    // All but the first few of a hundred wait for this machine, not for us.
    assert!(times[0] <= Duration::from_millis(6_500), "{:?}", times[0]);
    assert!(times[49] <= Duration::from_secs(10), "{:?}", times[49]);
    assert!(times[98] <= Duration::from_secs(25), "{:?}", times[98]);
    for (answer, _) in refused {
        let problem = answer.problem(409);
        assert_eq!(problem["code"], "CONVERSATION_LOCKED");
        assert_eq!(problem["execution_id"], id);
        assert!(problem["retry_after_ms"].is_u64() && answer.header("retry-after").is_some());
    }
    talk.cancel(id.as_str().unwrap()).await.expect(200);
}

/// It waits for the release, not for the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_execution_starts_as_soon_as_the_conversation_lock_is_free() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_LOCK_WAIT_SECONDS", "60").start().await;
    let talk = Talk::start(&app.local()).await;
    let first = talk.begin("#offline events=1 hang=1").await;
    let waiting = tokio::spawn({
        let talk = talk.clone();
        async move { talk.say("次").await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    talk.cancel(&first).await.expect(200);
    let begun = Instant::now();
    terminal(&waiting.await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Row 1.18 and fault (ii): a turn never reads the session of the turn before the last.
#[tokio::test(flavor = "multi_thread")]
async fn no_turn_reads_an_old_session() {
    let turns = if shikiri_testkit::long() { 5_000 } else { 100 };
    let app = TestApp::new(PROGRAM).env("SHIKIRI_DURABILITY", "normal").start().await;
    let talk = Talk::start(&app.local()).await;
    let alternate = |_| async {
        for _ in 0..turns {
            let events = talk.say("#offline events=1").await;
            assert_eq!(terminal(&events).kind, "result");
        }
    };
    join_all((0..2).map(alternate)).await;
    let record = talk.record().await;
    assert_eq!(record["turns"], 2 * turns);
    // Each turn's number is one more than the one before: each saw what that had written.
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = talk.path(&format!("/executions?limit=200{cursor}"));
        let page = talk.tenant.client.get(&path).await.expect(200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|e| e["turn"].as_u64().unwrap()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=2 * turns).collect::<Vec<u64>>());
}

/// Row 1.3: the lease is renewed for as long as the execution lives. A busy machine may be late for
/// the first one.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_execution_keeps_its_lock() {
    let is_kept = is_lock_kept("0.6", "2").await || is_lock_kept("6", "20").await;
    assert!(is_kept, "it lost its lock in spite of itself");
}

/// Over a wait of three leases.
async fn is_lock_kept(lease: &str, wait: &str) -> bool {
    let app = TestApp::new(PROGRAM)
        .env("SHIKIRI_LOCK_LEASE_SECONDS", lease)
        .env("SHIKIRI_LOCK_WAIT_SECONDS", wait)
        .start()
        .await;
    let talk = Talk::start(&app.local()).await;
    let id = talk.begin("#offline events=1 hang=1").await;
    let refused = talk.post(&Talk::body("x"), &[]).await;
    if refused.status != 409 {
        return false;
    }
    assert_eq!(refused.problem(409)["execution_id"], json!(id));
    talk.cancel(&id).await.expect(200);
    let end = events(&talk.follow(&id, 0).await);
    terminal(&end).data["code"] == "CANCELLED"
}

/// Renewal must not wait for a store that is busy with what the execution writes. A machine that is
/// busy itself may be late for the first lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_events_does_not_cost_an_execution_its_lock() {
    let mut end = json!(null);
    for (lease, count) in [("0.5", 1_500), ("3", 9_000)] {
        let app = TestApp::new(PROGRAM).env("SHIKIRI_LOCK_LEASE_SECONDS", lease).start().await;
        let talk = Talk::start(&app.local()).await;
        let told = talk.say(&format!("#offline events={count} chars=4000")).await;
        if terminal(&told).kind == "result" {
            return;
        }
        end = terminal(&told).data.clone();
    }
    panic!("{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_a_conversation_takes_no_place() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_LOCK_WAIT_SECONDS", "0.5").start().await;
    let limits = json!({ "limits": { "max_concurrent_executions": 2 } });
    app.client().patch("/v1/tenants/local", &limits).await.expect(200);
    let (busy, free) = (Talk::start(&app.local()).await, Talk::start(&app.local()).await);
    let id = busy.begin("#offline hang=1").await;
    let waiting = join_all((0..10).map(|_| async { busy.post(&Talk::body("x"), &[]).await }));
    let turns = async {
        for _ in 0..3 {
            terminal(&free.say("#offline events=1").await);
        }
    };
    let (answers, ()) = tokio::join!(waiting, turns);
    for answer in answers {
        assert_eq!(answer.problem(409)["code"], "CONVERSATION_LOCKED");
    }
    busy.cancel(&id).await.expect(200);
}

/// A paused server that wakes after its lease finds its executions ended, or ends them itself, but
/// never as a fault of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_slept_past_its_lease_has_interrupted_executions() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", "1").start().await;
    let local = app.local();
    let talks = join_all((0..4).map(|_| Talk::start(&local))).await;
    let begun = talks.iter().map(|talk| talk.begin("#offline events=2 tokens_in=6 hang=1"));
    let ids = join_all(begun).await;
    for (talk, id) in talks.iter().zip(&ids) {
        until("the bill so far", async || {
            talk.execution(id, "").await["usage"]["input_tokens"] == 6
        })
        .await;
    }
    app.stop_signal();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    app.cont();
    for (talk, id) in talks.iter().zip(&ids) {
        let told = events(&talk.follow(id, 0).await);
        assert_eq!(terminal(&told).data["code"], "INTERRUPTED", "{}", terminal(&told).data);
        assert_eq!(talk.execution(id, "").await["usage"]["input_tokens"], 6);
        terminal(&talk.say("#offline events=1").await);
    }
}

/// A wait for a lease to lapse, or a refusal because the conversation is held, would be seen.
async fn killed(app: Builder) {
    let app = app.env("SHIKIRI_NODE_LEASE_SECONDS", "120").env("SHIKIRI_LOCK_WAIT_SECONDS", "30");
    let mut app = app.start().await;
    let talk = Talk::start(&app.local()).await;
    let before = talk.say("一").await;
    let session = before[0].data["session_id"].clone();
    let id = talk.begin("#offline events=3 subagents=2 tokens_in=77 hang=1").await;
    // Until what it spent is in the store.
    until("the bill so far", async || {
        let rows = talk.execution(&id, "/usage").await;
        let rows = rows["items"].as_array().unwrap();
        rows.iter().any(|row| row["usage"]["input_tokens"] == 77)
    })
    .await;
    app.kill9();
    app.restart().await;
    let begun = Instant::now();
    let next = talk.say("#offline events=1").await;
    assert!(begun.elapsed() < Duration::from_secs(30), "free at once: {:?}", begun.elapsed());
    assert_eq!(next[0].data["session_id"], session, "the last committed session goes on");
    assert_eq!(next[0].data["turn"], 2);

    let ended = events(&talk.follow(&id, 0).await);
    let end = terminal(&ended);
    assert_eq!((end.kind.as_str(), &end.data["code"]), ("error", &json!("INTERRUPTED")));
    let record = talk.execution(&id, "").await;
    assert_eq!(record["status"], "failed");
    let rows = talk.execution(&id, "/usage").await["items"].as_array().unwrap().clone();
    let main = rows.iter().find(|row| row["kind"] == "main").unwrap();
    assert_eq!((&main["usage"]["input_tokens"], &main["status"]), (&json!(77), &json!("failed")));
    let sum: u64 = rows.iter().map(|row| row["usage"]["output_tokens"].as_u64().unwrap()).sum();
    assert_eq!(record["usage"]["output_tokens"], sum);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_leaves_a_bill_and_a_free_conversation() {
    killed(TestApp::new(PROGRAM)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_leaves_a_bill_and_a_free_conversation_on_postgresql() {
    if have_postgres("executions killed on PostgreSQL") {
        killed(TestApp::new(PROGRAM).postgres()).await;
    }
}

/// Another server ends what a dead one had, and knows when it is dead by its lease.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_frees_the_conversation_of_a_dead_one() {
    let mut app = TestApp::new(PROGRAM)
        .env("SHIKIRI_NODE_LEASE_SECONDS", "1")
        .env("SHIKIRI_LOCK_WAIT_SECONDS", "30")
        .start()
        .await;
    let talk = Talk::start(&app.local()).await;
    let id = talk.begin("#offline events=1 hang=1").await;
    let other = app.another().await;
    app.kill9();
    let mut talk = talk;
    talk.tenant.client = shikiri_testkit::Client::new(other.base()).with_key(&talk.tenant.key);
    terminal(&talk.say("次").await);
    assert_eq!(talk.execution(&id, "").await["error"]["code"], "INTERRUPTED");
}

/// A server that is asked to stop ends what it runs, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_server_ends_its_executions() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let id = talk.begin("#offline events=1 tokens_in=5 hang=1").await;
    let (code, took) = app.terminate().await;
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(20), "{took:?}");
    app.restart().await;
    let record = talk.execution(&id, "").await;
    assert_eq!(record["error"]["code"], "INTERRUPTED");
    assert_eq!(record["usage"]["input_tokens"], 5);
    terminal(&talk.say("次").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_as_many_executions_at_once_as_its_limit_says() {
    let app = TestApp::new(PROGRAM).start().await;
    let limits = json!({ "limits": { "max_concurrent_executions": 2 } });
    app.client().patch("/v1/tenants/local", &limits).await.expect(200);
    let local = app.local();
    let talks = join_all((0..3).map(|_| Talk::start(&local))).await;
    let first = talks[0].begin("#offline hang=1").await;
    talks[1].begin("#offline hang=1").await;
    let refused = talks[2].post(&Talk::body("x"), &[]).await;
    assert_eq!(refused.problem(429)["code"], "LIMIT_EXCEEDED");
    talks[0].cancel(&first).await.expect(200);
    talks[0].follow(&first, 0).await;
    terminal(&talks[2].say("x").await);
}
