//! Events of hooks, taken by a server: what is delivered, and how often.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::execution::TokenPrice;
use shikiri_model::hook::{
    Conventions, EvidenceRequest, HookEvidence, HookInput, LogQuery, PathFacts, PromptRole,
    SubagentQuery, TranscriptOffset, TranscriptUsage,
};
use shikiri_model::ids::TenantId;
use shikiri_model::key::KeyScope;
use shikiri_model::models::EngineKind;
use shikiri_subagents::{HookAnswer, HookFiles, SubagentSpending};
use shikiri_tenancy::keys::NewApiKey;
use shikiri_tenancy::models::{ModelPatch, PricesPatch};
use shikiri_testkit::until;

use crate::world::World;

/// A disk that holds conventions and what an agent spent, and notes what it is asked for.
#[derive(Default)]
struct Disk {
    asked: Mutex<Vec<EvidenceRequest>>,
    read: Mutex<Vec<Option<TranscriptOffset>>>,
    /// The transcripts lack the last answers.
    is_late: AtomicBool,
}

impl HookFiles for Disk {
    fn conventions(&self) -> Arc<Conventions> {
        let conventions = json!({
            "main": { "text": "main text" },
            "default": { "text": "default text" },
            "rules": [{ "name": "no push", "commands": ["git push*"], "severity": "block",
                        "message": "never push" }],
        });
        Arc::new(serde_json::from_value(conventions).unwrap())
    }

    fn project(&self) -> Option<String> {
        None
    }

    fn find(
        &self,
        _: &HookInput,
        want: &EvidenceRequest,
        evidence: &mut HookEvidence,
        read: Option<TranscriptOffset>,
    ) -> Vec<(String, TranscriptOffset)> {
        self.asked.lock().unwrap().push(want.clone());
        match want {
            EvidenceRequest::Meta { .. } => evidence.meta = Some(None),
            EvidenceRequest::PromptRole { .. } => evidence.prompt_role = Some(PromptRole::Unread),
            EvidenceRequest::NamesAgents => evidence.names_agents = Some(None),
            EvidenceRequest::Tokens { .. } => evidence.tokens = Some(None),
            EvidenceRequest::Heard { .. } => evidence.is_heard = Some(false),
            EvidenceRequest::Start { .. } => panic!("a start is not on the disk"),
            EvidenceRequest::Usage(requests) => {
                let usage = json!({
                    "claude-x": { "input_tokens": 1_000, "output_tokens": 200,
                                  "cache_write_5m_tokens": 0, "cache_write_1h_tokens": 0,
                                  "cache_read_tokens": 0 },
                });
                for request in requests {
                    let usage = Some(usage.to_string());
                    let is_late = self.is_late.load(Ordering::Relaxed);
                    let found = TranscriptUsage {
                        usage: usage.filter(|_| !is_late),
                        is_complete: !is_late,
                        path: Some("/t".to_owned()),
                    };
                    evidence.usage.push((request.agent_id.clone(), found));
                }
            }
            EvidenceRequest::Spawns => {
                self.read.lock().unwrap().push(read);
                evidence.spawns = Some(Vec::new());
                let lines = read.map_or(1, |read| read.lines + 1);
                let read = TranscriptOffset { inode: 1, offset: 10, lines };
                return vec![("/transcript".to_owned(), read)];
            }
            EvidenceRequest::Claimant { .. } => panic!("a claimant is not on the disk"),
        }
        Vec::new()
    }

    fn resolve(&self, _: &HookInput, _: &[String]) -> PathFacts {
        PathFacts::default()
    }

    fn is_claimant_alive(&self, _: &str) -> bool {
        true
    }
}

async fn office() -> (World, App, Arc<Disk>) {
    let world = World::new(Vec::new()).await;
    let disk = Arc::new(Disk::default());
    let app = world.app.clone().with_hook_files(disk.clone());
    (world, app, disk)
}

async fn take(app: &App, payload: &Value) -> HookAnswer {
    app.subagents.hook(&TenantId::local(), payload.to_string().as_bytes()).await.unwrap()
}

fn text(answer: &HookAnswer) -> Option<&str> {
    answer.json.as_ref()?["hookSpecificOutput"]["additionalContext"].as_str()
}

fn started(agent: &str) -> Value {
    json!({ "hook_event_name": "SubagentStart", "session_id": "s", "agent_id": agent,
            "agent_type": "general-purpose", "transcript_path": "/transcript" })
}

/// An answer that was not given is given again, at once; one that is on its way or was confirmed
/// is not.
#[tokio::test]
async fn what_was_not_delivered_is_delivered_again() {
    let (world, app, _) = office().await;
    let lost = take(&app, &started("a")).await;
    assert_eq!(text(&lost), Some("default text"));
    assert_eq!(text(&take(&app, &started("a")).await), None, "it is on its way");
    drop(lost);
    let given = take(&app, &started("a")).await;
    assert_eq!(text(&given), Some("default text"), "it was lost");
    given.delivery.unwrap().confirm().await.unwrap();
    world.clock.advance(Duration::from_secs(60));
    assert!(take(&app, &started("a")).await.json.is_none(), "it was given");

    // Another process cannot be asked: it has its time.
    let elsewhere = world.upgraded(Vec::new()).with_hook_files(Arc::new(Disk::default()));
    let theirs = take(&elsewhere, &started("b")).await;
    assert_eq!(text(&theirs), Some("default text"));
    assert_eq!(text(&take(&app, &started("b")).await), None);
    world.clock.advance(Duration::from_secs(3));
    let ours = take(&app, &started("b")).await;
    assert_eq!(text(&ours), Some("default text"));
    assert!(theirs.delivery.unwrap().confirm().await.is_err(), "too late");
    ours.delivery.unwrap().confirm().await.unwrap();
}

/// Files of this machine belong to its operator: another tenant's event reads none.
#[tokio::test]
async fn another_tenants_events_do_not_look_at_files() {
    let (_world, app, disk) = office().await;
    let acme = app.tenancy.create_tenant(Some("acme".parse().unwrap()), Default::default());
    let acme = acme.await.unwrap().value.id;
    let mut call = started("a");
    call["hook_event_name"] = json!("PreToolUse");
    call["tool_name"] = json!("Read");
    let answer = app.subagents.hook(&acme, call.to_string().as_bytes()).await.unwrap();
    assert_eq!(text(&answer), Some("default text"));
    assert_eq!(*disk.asked.lock().unwrap(), []);
    take(&app, &call).await;
    assert!(!disk.asked.lock().unwrap().is_empty(), "the same event of ours does");
}

/// Rows 3.16, 3.19: what use cases tell about subagents and events; cost by the models' prices.
#[tokio::test]
async fn reports_tell_what_became_of_events() {
    let (world, app, _) = office().await;
    let local = TenantId::local();
    take(&app, &started("a")).await.delivery.unwrap().confirm().await.unwrap();
    world.clock.advance(Duration::from_millis(1_500));
    let stopped = json!({ "hook_event_name": "SubagentStop", "session_id": "s", "agent_id": "a",
                          "agent_type": "general-purpose" });
    take(&app, &stopped).await;
    let push = json!({ "hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash",
                       "tool_input": { "command": "git push" } });
    let denied = take(&app, &push).await.json.unwrap();
    assert_eq!(denied["hookSpecificOutput"]["permissionDecision"], "deny");
    assert_eq!(denied["hookSpecificOutput"]["permissionDecisionReason"], "never push");

    let query = SubagentQuery { limit: 10, ..SubagentQuery::default() };
    let (found, next) = app.subagents.subagents(&local, query.clone()).await.unwrap();
    let [view] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((view.duration_ms, next), (1_500, None));
    let spent = view.spent.as_ref().unwrap();
    assert_eq!((spent.usage.input_tokens, spent.cost), (1_000, None), "the price is unknown");
    price(&app).await;
    let (found, _) = app.subagents.subagents(&local, query.clone()).await.unwrap();
    let cost = found[0].spent.as_ref().unwrap().cost.unwrap();
    assert_eq!(cost.dollars(), 0.006, "1,000 in at 3 and 200 out at 15 per million");

    let (log, _) = app.subagents.hook_log(&local, LogQuery::default()).await.unwrap();
    let results: Vec<_> = log.iter().map(|line| line.result.as_deref().unwrap()).collect();
    assert_eq!(results, ["blocked", "ok", "injected"]);
    let stats = app.subagents.hook_stats(&local).await.unwrap();
    assert_eq!(stats.hooks.iter().map(|hook| hook.blocked).sum::<u64>(), 1);
    for bad in ["", "a b", "x\u{7}"] {
        assert!(app.subagents.set_role(&local, "a", bad).await.is_err(), "{bad:?}");
    }
    assert_eq!(
        app.subagents.set_role(&local, "a", "coder").await.unwrap().subagent.role.unwrap(),
        "coder"
    );
    assert!(app.subagents.set_role(&local, "absent", "coder").await.is_err());
    assert!(app.subagents.subagents(&"absent".parse().unwrap(), query).await.is_err());
}

/// What a hook could not read in time is read when somebody asks, and kept.
#[tokio::test]
async fn usage_that_was_not_written_in_time_is_read_by_whoever_asks_for_it() {
    let (_world, app, disk) = office().await;
    let local = TenantId::local();
    let event = |name: &str| json!({ "hook_event_name": name, "session_id": "s" });
    disk.is_late.store(true, Ordering::Relaxed);
    take(&app, &event("UserPromptSubmit")).await;
    take(&app, &started("a")).await;
    let mut stopped = started("a");
    stopped["hook_event_name"] = json!("SubagentStop");
    take(&app, &stopped).await;
    take(&app, &event("Stop")).await;
    let input = async || {
        let query = SubagentQuery { limit: 10, ..SubagentQuery::default() };
        let (found, _) = app.subagents.subagents(&local, query).await.unwrap();
        let session = app.subagents.hook_session(&local, "s").await.unwrap().unwrap();
        let tokens = |spent: Option<SubagentSpending>| spent.map(|it| it.usage.input_tokens);
        let agent = tokens(found[0].spent.clone());
        (agent, tokens(session.spent), tokens(session.total), session.incomplete)
    };
    assert_eq!(input().await, (None, None, None, 2));
    disk.is_late.store(false, Ordering::Relaxed);
    assert_eq!(input().await, (Some(1_000), Some(1_000), Some(2_000), 0));
    let spent = app.subagents.hook_spending(&local, None, None).await.unwrap();
    assert_eq!((spent.sessions, spent.subagents, spent.incomplete), (1, 1, 0));
    assert_eq!(spent.by_model["claude-x"].0.input_tokens, 2_000);
    // It is kept: nothing is read again.
    disk.is_late.store(true, Ordering::Relaxed);
    assert_eq!(input().await, (Some(1_000), Some(1_000), Some(2_000), 0));
}

async fn price(app: &App) {
    let prices = PricesPatch {
        input: Some(TokenPrice::from_micros(3_000_000)),
        output: Some(TokenPrice::from_micros(15_000_000)),
        ..PricesPatch::default()
    };
    let patch = ModelPatch { prices, ..ModelPatch::default() };
    let id = Some("claude-x".parse().unwrap());
    app.tenancy.create_model(id, EngineKind::ClaudeCode, patch).await.unwrap();
}

#[tokio::test]
async fn what_is_no_event_is_refused() {
    let (_world, app, _) = office().await;
    let local = TenantId::local();
    for bad in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"session_id":"s"}"#,
        r#"{"session_id":7,"hook_event_name":"Stop"}"#,
        r#"{"session_id":"s\u0000","hook_event_name":"Stop"}"#,
    ] {
        let refused = app.subagents.hook(&local, bad.as_bytes()).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{bad:?} was taken"));
        assert!(matches!(refused, shikiri_runtime::AppError::Invalid { .. }), "{bad:?}: {refused}");
    }
    let (log, _) = app.subagents.hook_log(&local, LogQuery::default()).await.unwrap();
    assert_eq!(log, []);
}

/// The sweep of a node removes lines of the log that are older than events are kept.
#[tokio::test]
async fn the_log_is_kept_as_long_as_events_are() {
    let (world, app, _) = office().await;
    let local = TenantId::local();
    let told = json!({ "hook_event_name": "Notification", "session_id": "old" });
    take(&app, &told).await;
    world.clock.advance(app.options().runtime.retention + Duration::from_secs(1));
    take(&app, &json!({ "hook_event_name": "Notification", "session_id": "young" })).await;
    let node = world.node();
    let left = until("the old session is swept", async || {
        let (log, _) = app.subagents.hook_log(&local, LogQuery::default()).await.unwrap();
        (log.len() == 1).then_some(log)
    })
    .await;
    assert_eq!(left[0].session_id, "young");
    node.leave().await;
}

#[tokio::test]
async fn a_key_for_hooks_is_its_tenants_to_list_and_to_revoke() {
    let (_world, app, _) = office().await;
    let local = TenantId::local();
    let (stored, secret) =
        app.tenancy.create_hooks_key(&local, NewApiKey::named("laptop")).await.unwrap();
    let found = app.tenancy.key_of(&secret).await.unwrap().unwrap();
    assert_eq!(found.scope, KeyScope::Hooks(local.clone()));
    let (keys, _) = app.tenancy.list_keys(&local, None, 10).await.unwrap();
    assert_eq!(keys.iter().map(|key| &key.stored.value.id).collect::<Vec<_>>(), [&stored.value.id]);
    app.tenancy.revoke_key(&local, &stored.value.id).await.unwrap();
    assert!(app.tenancy.key_of(&secret).await.unwrap().is_none());
}
