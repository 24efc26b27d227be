//! Hooks: the same rows and decisions on both databases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_model::hook::{
    Conventions, EvidenceRequest, FileTouchQuery, HookDecision, HookEvidence, HookInput,
    HookOutcome, LogQuery, PromptRole, RoleSource, SubagentQuery, SubagentState, ToolCaller,
    TranscriptOffset,
};
use shikiri_model::ids::TenantId;
use shikiri_store::{HookEventInput, Store};

use crate::words::acme;
use crate::world::on_both;

fn other() -> TenantId {
    "other".parse().unwrap()
}

fn turn(me: &str, payload: Value) -> HookEventInput {
    let conventions = json!({
        "main": { "text": "main text", "token_threshold": 100 },
        "default": { "text": "default text" },
        "roles": { "tester": { "text": "tester text" }, "coder": { "text": "coder text" } },
    });
    let conventions: Conventions = serde_json::from_value(conventions).unwrap();
    HookEventInput {
        payload: Arc::new(HookInput::parse(payload.to_string().as_bytes()).unwrap()),
        conventions: Arc::new(conventions),
        evidence: HookEvidence { me: me.to_owned(), ..HookEvidence::default() },
        read: Vec::new(),
        started: Instant::now(),
    }
}

/// Takes the event, with no file to be found on any disk; `tokens` is what the transcript says.
async fn decide(store: &dyn Store, turn: HookEventInput, tokens: u64) -> HookDecision {
    decide_for(&acme(), store, turn, tokens).await
}

async fn decide_for(
    tenant: &TenantId,
    store: &dyn Store,
    mut turn: HookEventInput,
    tokens: u64,
) -> HookDecision {
    loop {
        let want = match store.hooks().handle_event(tenant, turn.clone()).await.unwrap() {
            HookOutcome::Done(decision) => return *decision,
            HookOutcome::Wants(want) => want,
        };
        match want {
            EvidenceRequest::Meta { .. } => turn.evidence.meta = Some(None),
            EvidenceRequest::Spawns => turn.evidence.spawns = Some(Vec::new()),
            EvidenceRequest::PromptRole { .. } => {
                turn.evidence.prompt_role = Some(PromptRole::Unread)
            }
            EvidenceRequest::NamesAgents => turn.evidence.names_agents = Some(Some(true)),
            EvidenceRequest::Tokens { .. } => turn.evidence.tokens = Some(Some(tokens)),
            EvidenceRequest::Usage(requests) => {
                let found = requests.into_iter().map(|it| (it.agent_id, Default::default()));
                turn.evidence.usage.extend(found);
            }
            EvidenceRequest::Heard { .. } => turn.evidence.is_heard = Some(false),
            EvidenceRequest::Start { .. } => turn.evidence.note_start_wait(1),
            EvidenceRequest::Claimant { by } => turn.evidence.claimants.push((by, true)),
        }
    }
}

/// The event, decided and confirmed: what the agent is told.
async fn tell(store: &dyn Store, payload: Value, tokens: u64) -> Option<String> {
    let decision = decide(store, turn("1.1", payload), tokens).await;
    assert!(store.hooks().confirm(&acme(), "1.1", decision.confirm).await.unwrap());
    decision.answer.context
}

fn event(name: &str, session: &str) -> Value {
    json!({ "hook_event_name": name, "session_id": session })
}

fn spawning(session: &str, id: &str, role: &str) -> Value {
    let mut payload = event("PreToolUse", session);
    payload["tool_name"] = json!("Agent");
    payload["tool_use_id"] = json!(id);
    payload["tool_input"] =
        json!({ "subagent_type": "general-purpose", "prompt": format!("[ROLE:{role}] go") });
    payload
}

fn by_agent(name: &str, session: &str, agent: &str) -> Value {
    let mut payload = event(name, session);
    payload["agent_id"] = json!(agent);
    payload["agent_type"] = json!("general-purpose");
    payload
}

fn mcp_call(session: &str, agent: Option<&str>, id: &str) -> Value {
    let mut payload = match agent {
        Some(agent) => by_agent("PreToolUse", session, agent),
        None => event("PreToolUse", session),
    };
    payload["tool_name"] = json!("mcp__shikiri__run_list");
    payload["tool_use_id"] = json!(id);
    payload
}

async fn subagents(store: &dyn Store, query: SubagentQuery) -> Vec<String> {
    let query = SubagentQuery { limit: 100, ..query };
    let found = store.hooks().subagents(&acme(), query).await.unwrap();
    found.into_iter().map(|agent| agent.agent_id).collect()
}

/// Rows 3.16, 3.17: fetched, listed while active, counted while unprocessed, given a role, ended,
/// cleaned up; and what a reader from outside expects of the record.
#[tokio::test]
async fn a_subagent_is_found_listed_counted_given_a_role_and_cleaned_up() {
    on_both(async |world| {
        let store = world.open().await;
        let hooks = store.hooks();
        assert_eq!(tell(&*store, spawning("s1", "t1", "tester"), 0).await.unwrap(), "main text");
        let started = by_agent("SubagentStart", "s1", "a1");
        assert_eq!(tell(&*store, started, 0).await.as_deref(), Some("tester text"));
        world.clock.advance(Duration::from_secs(1));
        // Its start is taken, and never confirmed.
        decide(&*store, turn("2.2", by_agent("SubagentStart", "s1", "a2@team")), 0).await;
        decide(&*store, turn("2.2", by_agent("SubagentStart", "s2", "a3")), 0).await;

        let found = hooks.subagent(&acme(), "a1").await.unwrap().unwrap();
        assert_eq!((found.agent_id.as_str(), found.session_id.as_str()), ("a1", "s1"));
        assert_eq!(found.agent_type, "general-purpose");
        assert_eq!(found.role.as_deref(), Some("tester"));
        assert_eq!(found.role_source, Some(RoleSource::TaskMatch));
        assert_eq!(found.created_at.to_string(), "2026-11-15T20:00:00.000Z");
        assert!(found.startup_processed && found.startup_processed_at.is_some());
        assert!(found.task_match_index.is_some());
        assert_eq!(hooks.subagent(&other(), "a1").await.unwrap(), None, "it is another tenant's");

        let of_s1 = SubagentQuery { session_id: Some("s1".to_owned()), ..Default::default() };
        assert_eq!(subagents(&*store, of_s1.clone()).await, ["a2@team", "a1"], "newest first");
        assert_eq!(subagents(&*store, SubagentQuery::default()).await, ["a3", "a2@team", "a1"]);
        let sessions = hooks.stats(&acme()).await.unwrap().sessions;
        let s1 = sessions.iter().find(|session| session.session_id == "s1").unwrap();
        assert_eq!((s1.active, s1.unprocessed), (2, 1));

        decide(&*store, turn("2.2", by_agent("SubagentStop", "s1", "a1")), 0).await;
        let active = SubagentQuery { state: Some(SubagentState::Active), ..of_s1.clone() };
        assert_eq!(subagents(&*store, active).await, ["a2@team"]);
        let ended = SubagentQuery { state: Some(SubagentState::Ended), ..of_s1.clone() };
        assert_eq!(subagents(&*store, ended).await, ["a1"]);

        let manual = RoleSource::Manual;
        let given = hooks.set_role(&acme(), "a2@team", "coder", manual).await.unwrap().unwrap();
        assert_eq!(hooks.subagent(&acme(), "a2@team").await.unwrap(), Some(given.clone()));
        assert_eq!((given.role.as_deref(), given.role_source), (Some("coder"), Some(manual)));
        assert_eq!(hooks.set_role(&acme(), "absent", "coder", manual).await.unwrap(), None);
        assert_eq!(hooks.set_role(&other(), "a2@team", "x", manual).await.unwrap(), None);
        world.clock.advance(Duration::from_secs(3));
        let told = tell(&*store, mcp_call("s1", Some("a2@team"), "m1"), 0).await;
        assert_eq!(told.as_deref(), Some("coder text"), "the new role's convention");

        assert_eq!(hooks.forget_session(&other(), "s1").await.unwrap(), 0);
        assert_eq!(hooks.forget_session(&acme(), "s1").await.unwrap(), 2);
        assert_eq!(subagents(&*store, SubagentQuery::default()).await, ["a3"]);
    })
    .await;
}

/// Row 3.16: pages of subagents neither repeat nor leave out, also where many began at once.
#[tokio::test]
async fn pages_of_subagents_hold_each_of_them_once() {
    on_both(async |world| {
        let store = world.open().await;
        for number in 0..7 {
            let payload = by_agent("SubagentStart", "s", &format!("a{number}"));
            decide(&*store, turn("1.1", payload), 0).await;
            if number % 3 == 2 {
                world.clock.advance(Duration::from_millis(1));
            }
        }
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let query = SubagentQuery { after, limit: 2, ..SubagentQuery::default() };
            let page = store.hooks().subagents(&acme(), query).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(shikiri_model::record::RecordPosition {
                created_at: last.created_at,
                id: last.agent_id.clone(),
            });
            seen.extend(page.into_iter().map(|agent| agent.agent_id));
        }
        assert_eq!(seen, ["a6", "a5", "a4", "a3", "a2", "a1", "a0"]);
    })
    .await;
}

/// Rows 3.9, 3.18: told once, again when the tokens have grown past the threshold or the session
/// was compacted; one session's state is not another's.
#[tokio::test]
async fn what_a_session_was_told_is_judged_by_tokens_and_expires() {
    on_both(async |world| {
        let store = world.open().await;
        let call = |session: &str| mcp_call(session, None, "t");
        let told = async |session: &str, tokens| tell(&*store, call(session), tokens).await;
        assert_eq!(told("s1", 1_000).await.as_deref(), Some("main text"));
        assert_eq!(told("s1", 1_099).await, None, "below the threshold");
        assert_eq!(told("s2", 5).await.as_deref(), Some("main text"), "another session");
        assert_eq!(told("s1", 1_100).await.as_deref(), Some("main text"), "the threshold");
        assert_eq!(told("s1", 1_101).await, None, "counted from the last time");

        decide(&*store, turn("1.1", by_agent("SubagentStart", "s1", "a1")), 0).await;
        let before = store.hooks().subagent(&acme(), "a1").await.unwrap();
        let mut compacted = event("SessionStart", "s1");
        compacted["source"] = json!("compact");
        decide(&*store, turn("1.1", compacted), 0).await;
        assert_eq!(store.hooks().subagent(&acme(), "a1").await.unwrap(), before);
        assert_eq!(told("s1", 1_102).await.as_deref(), Some("main text"), "it is forgotten");
        assert_eq!(told("s2", 6).await, None, "the other session was not compacted");
    })
    .await;
}

/// Rows 3.10, 3.19: what the log takes, the latest 50 unless told, and figures.
#[tokio::test]
async fn the_log_gives_the_latest_and_figures() {
    on_both(async |world| {
        let store = world.open().await;
        let hooks = store.hooks();
        tell(&*store, mcp_call("s1", None, "m0"), 0).await;
        world.clock.advance(Duration::from_secs(1));
        for _ in 0..60 {
            decide(&*store, turn("1.1", event("Notification", "s2")), 0).await;
        }
        let latest = hooks.log(&acme(), LogQuery::default()).await.unwrap();
        assert_eq!(latest.len(), 50);
        assert!(latest.iter().all(|line| line.session_id == "s2"));
        assert!(latest.is_sorted_by(|a, b| a.id > b.id), "newest first");
        let of_s1 = LogQuery { session_id: Some("s1".to_owned()), ..LogQuery::default() };
        let lines = hooks.log(&acme(), of_s1).await.unwrap();
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(
            (line.event_type.as_str(), line.hook_name.as_str()),
            ("PreToolUse", "session_startup")
        );
        assert_eq!(line.result.as_deref(), Some("injected"));
        assert_eq!(line.timestamp.to_string(), "2026-11-15T20:00:00.000Z");
        assert_eq!((line.agent_id.as_deref(), line.tool_use_id.as_deref()), (None, Some("m0")));
        assert_eq!(line.details.as_ref().unwrap()["convention"], "main");
        assert!(line.duration_ms.is_some_and(|ms| (0..60_000).contains(&ms)));
        let rest = LogQuery { before: Some(latest[49].id), limit: 100, ..LogQuery::default() };
        assert_eq!(hooks.log(&acme(), rest).await.unwrap().len(), 11);
        assert_eq!(hooks.log(&other(), LogQuery::default()).await.unwrap(), []);

        let stats = hooks.stats(&acme()).await.unwrap();
        let figures: Vec<_> = stats
            .hooks
            .iter()
            .map(|h| (h.event_type.as_str(), h.hook_name.as_str(), h.count, h.injected, h.blocked))
            .collect();
        let expected = [
            ("Notification", "Notification", 60, 0, 0),
            ("PreToolUse", "session_startup", 1, 1, 0),
        ];
        assert_eq!(figures, expected);
        assert!(stats.hooks.iter().all(|hook| hook.average_ms.is_some() && hook.max_ms.is_some()));
        let sessions: Vec<_> =
            stats.sessions.iter().map(|s| (s.session_id.as_str(), s.count, s.injected)).collect();
        assert_eq!(sessions, [("s2", 60, 0), ("s1", 1, 1)]);
        assert_eq!(hooks.stats(&other()).await.unwrap(), Default::default());
    })
    .await;
}

#[tokio::test]
async fn a_call_of_an_mcp_tool_is_traced_to_its_subagent() {
    on_both(async |world| {
        let store = world.open().await;
        for (agent, call, role) in [("a1", "t1", "tester"), ("a2", "t2", "coder")] {
            tell(&*store, spawning("s1", call, role), 0).await;
            tell(&*store, by_agent("SubagentStart", "s1", agent), 0).await;
        }
        tell(&*store, mcp_call("s1", Some("a2"), "m2"), 0).await;
        tell(&*store, mcp_call("s1", Some("a1"), "m1"), 0).await;
        tell(&*store, mcp_call("s1", None, "m0"), 0).await;
        let who = async |id: &str| store.hooks().find_tool_caller(&acme(), id).await.unwrap();
        let by = |agent: &str, role: &str| ToolCaller {
            session_id: "s1".to_owned(),
            agent_id: Some(agent.to_owned()),
            agent_type: Some("general-purpose".to_owned()),
            role: Some(role.to_owned()),
        };
        assert_eq!(who("m1").await, Some(by("a1", "tester")));
        assert_eq!(who("m2").await, Some(by("a2", "coder")));
        let main = ToolCaller { session_id: "s1".to_owned(), ..ToolCaller::default() };
        assert_eq!(who("m0").await, Some(main));
        assert_eq!(who("m3").await, None);
        assert_eq!(store.hooks().find_tool_caller(&other(), "m1").await.unwrap(), None);
    })
    .await;
}

/// What another process took on meanwhile is not confirmed by the first one.
#[tokio::test]
async fn a_confirmation_that_comes_too_late_is_refused() {
    on_both(async |world| {
        let store = world.open().await;
        let start = by_agent("SubagentStart", "s1", "a1");
        let first = decide(&*store, turn("1.1", start.clone()), 0).await;
        assert_eq!(first.answer.context.as_deref(), Some("default text"));
        let meanwhile = decide(&*store, turn("2.2", start.clone()), 0).await;
        assert_eq!(meanwhile.answer.context, None, "the first one is about to say it");
        world.clock.advance(Duration::from_secs(5));
        let second = decide(&*store, turn("2.2", start), 0).await;
        assert_eq!(second.answer.context.as_deref(), Some("default text"));
        assert!(!store.hooks().confirm(&acme(), "1.1", first.confirm).await.unwrap());
        assert!(!store.hooks().subagent(&acme(), "a1").await.unwrap().unwrap().startup_processed);
        assert!(store.hooks().confirm(&acme(), "2.2", second.confirm).await.unwrap());
        assert!(store.hooks().subagent(&acme(), "a1").await.unwrap().unwrap().startup_processed);

        // The same for what a session is told.
        let main = decide(&*store, turn("1.1", mcp_call("s1", None, "m")), 0).await;
        assert_eq!(main.answer.context.as_deref(), Some("main text"));
        world.clock.advance(Duration::from_secs(5));
        let again = decide(&*store, turn("2.2", mcp_call("s1", None, "m")), 0).await;
        assert_eq!(again.answer.context.as_deref(), Some("main text"));
        assert!(!store.hooks().confirm(&acme(), "1.1", main.confirm).await.unwrap());
        assert!(store.hooks().confirm(&acme(), "2.2", again.confirm).await.unwrap());
    })
    .await;
}

/// Twenty starts of one subagent at once, through two handles: one of them delivers.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_events_at_once_one_delivers() {
    on_both(async |world| {
        let (one, two) = world.two_handles().await;
        let started = (0..20).map(|number| {
            let store = if number % 2 == 0 { Arc::clone(&one) } else { Arc::clone(&two) };
            tokio::spawn(async move {
                let start = by_agent("SubagentStart", "s1", "a1");
                decide(&*store, turn(&format!("{number}.1"), start), 0).await.answer.context
            })
        });
        let answers = futures_util::future::join_all(started.collect::<Vec<_>>()).await;
        let told: Vec<_> = answers.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(told, ["default text"]);
        let all = LogQuery { limit: 100, ..LogQuery::default() };
        assert_eq!(one.hooks().log(&acme(), all).await.unwrap().len(), 20, "all are recorded");
    })
    .await;
}

#[tokio::test]
async fn how_far_a_transcript_was_read_is_kept_with_what_was_decided() {
    on_both(async |world| {
        let store = world.open().await;
        assert_eq!(store.hooks().read_to("/文書.jsonl").await.unwrap(), None);
        let read = TranscriptOffset { inode: 7, offset: u64::from(u32::MAX) + 1, lines: 3 };
        for read in [TranscriptOffset { offset: 1, ..read }, read] {
            let mut turn = turn("1.1", event("Notification", "s"));
            turn.read.push(("/文書.jsonl".to_owned(), read));
            decide(&*store, turn, 0).await;
        }
        assert_eq!(store.hooks().read_to("/文書.jsonl").await.unwrap(), Some(read));
    })
    .await;
}

#[tokio::test]
async fn old_lines_of_the_log_go_step_by_step_and_young_ones_stay() {
    on_both(async |world| {
        let store = world.open().await;
        let write = async |count: usize| {
            for _ in 0..count {
                decide(&*store, turn("1.1", event("Notification", "s")), 0).await;
            }
        };
        write(5).await;
        world.clock.advance(Duration::from_secs(10));
        let before = world.now();
        write(3).await;
        let mut steps = Vec::new();
        loop {
            let gone = store.hooks().purge_log(before, 2).await.unwrap();
            if gone == 0 {
                break;
            }
            steps.push(gone);
        }
        assert_eq!(steps, [2, 2, 1]);
        let kept = store.hooks().log(&acme(), LogQuery::default()).await.unwrap();
        assert_eq!(kept.len(), 3);
        assert!(kept.iter().all(|line| line.timestamp >= before));
    })
    .await;
}

#[tokio::test]
async fn an_erased_tenant_leaves_no_rows_of_hooks() {
    on_both(async |world| {
        let store = world.open().await;
        for number in 0..130 {
            let agent = format!("a{number}");
            tell(&*store, spawning("s", &format!("t{number}"), "tester"), 0).await;
            decide(&*store, turn("1.1", by_agent("SubagentStart", "s", &agent)), 0).await;
        }
        let bystander = turn("1.1", by_agent("SubagentStart", "s", "a0"));
        decide_for(&other(), &*store, bystander, 0).await;
        store.erase(&acme()).await.unwrap();
        assert_eq!(subagents(&*store, SubagentQuery::default()).await, [""; 0]);
        assert_eq!(store.hooks().log(&acme(), LogQuery::default()).await.unwrap(), []);
        // A session that was told before is told again, and a start finds no call.
        let told = tell(&*store, mcp_call("s", None, "m"), 0).await;
        assert_eq!(told.as_deref(), Some("main text"));
        let started = tell(&*store, by_agent("SubagentStart", "s", "a0"), 0).await;
        assert_eq!(started.as_deref(), Some("default text"));
        assert!(store.hooks().subagent(&other(), "a0").await.unwrap().is_some());
    })
    .await;
}

/// The calls that used a file are found by its path, by its name in the project, and by the folder
/// that was removed around it; they end with the log, and with their tenant.
#[tokio::test]
async fn uses_of_a_file_are_found_and_end_with_the_log() {
    on_both(async |world| {
        let store = world.open().await;
        let hooks = store.hooks();
        tell(&*store, spawning("s", "t1", "tester"), 0).await;
        tell(&*store, by_agent("SubagentStart", "s", "a1"), 0).await;
        let used = async |event: &str, tool: &str, input: Value| {
            let mut payload = by_agent(event, "s", "a1");
            payload["cwd"] = json!("/p");
            payload["tool_name"] = json!(tool);
            payload["tool_input"] = input;
            decide(&*store, turn("1.1", payload), 0).await;
        };
        used("PostToolUse", "Write", json!({ "file_path": "src/試" })).await;
        used("PostToolUse", "Edit", json!({ "file_path": "/p/.claude/worktrees/w/src/試" })).await;
        used("PostToolUseFailure", "Edit", json!({ "file_path": "src/試" })).await;
        used("PostToolUse", "Read", json!({ "file_path": "src/other" })).await;
        used("PostToolUse", "Bash", json!({ "command": "rm -r src; ls\u{0}" })).await;

        let query = |paths: &[&str], name: Option<&str>, limit| FileTouchQuery {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            name: name.map(str::to_owned),
            limit,
        };
        let found = async |tenant: &TenantId, query: FileTouchQuery| {
            let found = hooks.touches(tenant, query).await.unwrap();
            let line = |touch: shikiri_model::hook::FileTouchRecord| {
                format!("{} {} {}", touch.tool, touch.path, touch.outcome.as_str())
            };
            found.into_iter().map(line).collect::<Vec<_>>()
        };
        let whole = query(&["/p/src/試"], Some("src/試"), 9);
        let removed = "Bash /p/src done";
        let edited = "Edit /p/src/試 failed";
        let in_worktree = "Edit /p/.claude/worktrees/w/src/試 done";
        let written = "Write /p/src/試 done";
        assert_eq!(found(&acme(), whole.clone()).await, [removed, edited, in_worktree, written]);
        let by_path = query(&["/x", "/p/src/試"], None, 9);
        assert_eq!(found(&acme(), by_path).await, [removed, edited, written]);
        let newest = query(&["/p/src/試"], Some("src/試"), 1);
        assert_eq!(found(&acme(), newest).await, [removed]);
        assert!(found(&acme(), query(&["/p/none"], None, 9)).await.is_empty());
        assert!(found(&other(), whole.clone()).await.is_empty(), "another tenant's");
        let first = hooks.touches(&acme(), whole.clone()).await.unwrap().remove(0);
        assert_eq!(first.role.as_deref(), Some("tester"));
        assert_eq!(first.command.as_deref(), Some("rm -r src; ls"));
        assert_eq!((first.agent_id.as_deref(), first.session_id.as_str()), (Some("a1"), "s"));

        world.clock.advance(Duration::from_secs(60));
        let later = store.now().await.unwrap();
        while hooks.purge_log(later, 2).await.unwrap() > 0 {}
        assert!(found(&acme(), whole.clone()).await.is_empty());
        used("PostToolUse", "Write", json!({ "file_path": "src/試" })).await;
        assert_eq!(found(&acme(), whole).await, [written]);
    })
    .await;
}
