use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::event::NewEvent;
use crate::ids::QuestionId;

const NOW: i64 = 1_000_000;

fn now() -> Timestamp {
    Timestamp::from_millis(NOW)
}

fn later(ms: u64) -> Timestamp {
    now() + Duration::from_millis(ms)
}

fn node(n: u8) -> NodeId {
    NodeId::mint(now(), [n; 10])
}

fn question(deadline: Option<Timestamp>) -> RunQuestion {
    RunQuestion {
        id: QuestionId::mint(now(), [1; 10]),
        index: 4,
        name: None,
        kind: QuestionKind::Human,
        message: "続けますか".into(),
        schema: json!({}),
        expires_at: deadline,
    }
}

fn queued() -> Run {
    let id = RunId::mint(now(), [9; 10]);
    Run::new(id, TenantId::local(), "echo".into(), json!({}), now())
}

fn then(run: &Run, command: RunCommand) -> Run {
    decide(run, command, now()).unwrap().run
}

fn running() -> Run {
    then(&queued(), RunCommand::Start { node: node(1) })
}

fn asking(deadline: Option<Timestamp>) -> Run {
    then(&running(), RunCommand::Ask(question(deadline)))
}

fn waiting(deadline: Option<Timestamp>) -> Run {
    then(&asking(deadline), RunCommand::Suspend { seen_wakes: 0, until: None })
}

fn answer() -> RunCommand {
    RunCommand::Answer { question: question(None).id, answer: QuestionAnswer::accept(json!(true)) }
}

fn kinds(decision: &RunDecision) -> Vec<&'static str> {
    decision.events.iter().map(NewEvent::kind).collect()
}

/// Every command on every status: what it leads to, or that it is refused.
#[test]
fn every_command_against_every_status() {
    let done = then(&running(), RunCommand::Finish(RunOutcome::Completed(json!(1))));
    let failed = RunError::new("BOOM", "x");
    let failed = then(&running(), RunCommand::Finish(RunOutcome::Failed(failed)));
    let cancelled = then(&queued(), RunCommand::Cancel);
    let states = [queued(), asking(None), waiting(None), done, failed, cancelled];
    let commands: Vec<(&str, RunCommand)> = vec![
        ("enqueue", RunCommand::Enqueue),
        ("start", RunCommand::Start { node: node(2) }),
        ("ask", RunCommand::Ask(question(None))),
        ("answer", answer()),
        ("input", RunCommand::Input(json!({ "topic": "茶" }))),
        (
            "child",
            RunCommand::ChildEnded { index: 2, child: "c".into(), outcome: RunOutcome::Cancelled },
        ),
        ("suspend", RunCommand::Suspend { seen_wakes: 0, until: Some(later(5)) }),
        ("finish", RunCommand::Finish(RunOutcome::Completed(Value::Null))),
        ("cancel", RunCommand::Cancel),
        ("lose", RunCommand::Lose { node: node(1) }),
    ];
    let mut table = String::new();
    for (name, command) in commands {
        let cells: Vec<_> = states
            .iter()
            .map(|run| match decide(run, command.clone(), now()) {
                Ok(next) => next.run.status.as_str(),
                Err(RunRefusal::Ended(_)) => "ended",
                Err(RunRefusal::NotNow(_)) => "-",
                Err(RunRefusal::NoSuchQuestion(_)) => "no question",
                Err(RunRefusal::TooManyInputs | RunRefusal::LargeInput(_)) => "refused",
            })
            .collect();
        table.push_str(&format!("{name:8}{}\n", cells.join(" | ")));
    }
    insta::assert_snapshot!(table, @r"
    enqueue queued | - | - | ended | ended | ended
    start   running | - | running | ended | ended | ended
    ask     - | running | - | ended | ended | ended
    answer  no question | running | queued | ended | ended | ended
    input   queued | running | waiting | ended | ended | ended
    child   queued | running | queued | ended | ended | ended
    suspend - | waiting | - | ended | ended | ended
    finish  - | completed | - | ended | ended | ended
    cancel  cancelled | running | cancelled | ended | ended | ended
    lose    - | queued | - | ended | ended | ended
    ");
}

#[test]
fn an_answer_that_comes_while_the_run_decides_to_wait_is_not_slept_over() {
    let answered = then(&asking(None), answer());
    let suspended = then(&answered, RunCommand::Suspend { seen_wakes: 0, until: None });
    assert_eq!((suspended.status, suspended.due_at), (RunStatus::Queued, Some(now())));
}

#[test]
fn a_question_past_its_deadline_is_answered_with_timeout_and_late_answers_are_refused() {
    let run = waiting(Some(later(10)));
    assert_eq!(run.due_at, Some(later(10)));
    assert!(matches!(decide(&run, answer(), later(10)), Err(RunRefusal::NoSuchQuestion(_))));

    let woken = decide(&run, RunCommand::Start { node: node(2) }, later(10)).unwrap();
    assert_eq!(kinds(&woken), ["started", "answer"]);
    assert!(woken.events[1].data().contains(r#""action":"timeout""#));
    assert!(woken.run.questions.is_empty());
}

#[test]
fn an_input_is_told_numbered_and_kept_and_wakes_no_reader() {
    let before = waiting(Some(later(10)));
    let first = decide(&before, RunCommand::Input(json!({ "topic": "茶" })), now()).unwrap();
    let second = decide(&first.run, RunCommand::Input(json!(null)), now()).unwrap();
    let told = |decision: &RunDecision| decision.events[0].data().to_owned();
    assert_eq!((kinds(&first), kinds(&second)), (vec!["input"], vec!["input"]));
    assert_eq!(told(&first), r#"{"input":{"topic":"茶"},"number":1}"#);
    assert_eq!(told(&second), r#"{"input":null,"number":2}"#);
    let inputs = vec![json!({ "topic": "茶" }), json!(null)];
    assert_eq!(second.run, Run { inputs, ..before });
}

#[test]
fn a_run_takes_only_so_many_inputs_of_only_such_a_size() {
    let fits = Value::String("x".repeat(64 * 1024 - 2));
    let mut run = then(&running(), RunCommand::Input(fits.clone()));
    // One byte more, though no character more.
    let large = Value::String(format!("{}é", "x".repeat(64 * 1024 - 3)));
    let refusal = decide(&run, RunCommand::Input(large), now()).unwrap_err();
    assert_eq!(refusal, RunRefusal::LargeInput(64 * 1024 + 1));
    assert!(refusal.to_string().contains("at most 65536"), "{refusal}");
    for _ in 1..100 {
        run = then(&run, RunCommand::Input(json!(1)));
    }
    let refusal = decide(&run, RunCommand::Input(json!(1)), now()).unwrap_err();
    assert_eq!(refusal, RunRefusal::TooManyInputs);
    assert!(refusal.to_string().contains("100 inputs"), "{refusal}");
}

#[test]
fn who_asked_for_a_run_is_told_when_it_is_queued() {
    let origin = json!({ "door": "mcp", "tool_use_id": "toolu_1" });
    let run = Run { origin: Some(origin.clone()), ..queued() };
    let told = |run| decide(run, RunCommand::Enqueue, now()).unwrap().events[0].data().to_owned();
    let data: Value = serde_json::from_str(&told(&run)).unwrap();
    assert_eq!(data["origin"], origin);
    assert!(!told(&queued()).contains("origin"));
}

#[test]
fn why_a_door_answered_by_itself_is_told_with_the_answer() {
    let reason = Some("unsupported by the client".to_owned());
    let answer =
        QuestionAnswer { reason, ..QuestionAnswer::new(AnswerAction::Cancel, Value::Null) };
    let command = RunCommand::Answer { question: question(None).id, answer };
    let answered = decide(&asking(None), command, now()).unwrap();
    assert!(answered.events[0].data().contains(r#""reason":"unsupported by the client""#));
    let plain = decide(&asking(None), self::answer(), now()).unwrap();
    assert!(!plain.events[0].data().contains("reason"));
}

/// Records of earlier versions lack the newer fields.
#[test]
fn a_run_that_was_stored_before_there_were_inputs_is_read() {
    let mut stored = serde_json::to_value(waiting(None)).unwrap();
    for newer in ["inputs", "origin"] {
        assert!(stored.as_object_mut().unwrap().remove(newer).is_some(), "{newer}");
    }
    assert_eq!(serde_json::from_value::<Run>(stored).unwrap(), waiting(None));
}

#[test]
fn a_question_is_answered_once() {
    let run = then(&waiting(None), answer());
    assert!(matches!(decide(&run, answer(), now()), Err(RunRefusal::NoSuchQuestion(_))));
}

#[test]
fn a_run_is_lost_only_with_the_node_that_has_it() {
    assert!(decide(&running(), RunCommand::Lose { node: node(2) }, now()).is_err());
    let lost = decide(&running(), RunCommand::Lose { node: node(1) }, now()).unwrap();
    assert_eq!((lost.run.node.clone(), lost.run.due_at), (None, Some(now())));
    assert_eq!(kinds(&lost), ["node_lost"]);
}

#[test]
fn a_run_that_keeps_losing_its_node_waits_longer_and_longer() {
    let lost = |losses| {
        let run = Run { losses, ..running() };
        then(&run, RunCommand::Lose { node: node(1) }).due_at.unwrap().since(now())
    };
    assert_eq!(lost(19), Duration::ZERO);
    assert_eq!(lost(20), Duration::from_secs(2));
    assert_eq!(lost(u32::MAX), Duration::from_secs(60));
    let waited =
        then(&Run { losses: 19, ..running() }, RunCommand::Suspend { seen_wakes: 0, until: None });
    assert_eq!(waited.losses, 0);
}

#[test]
fn a_cancelled_run_that_lost_its_node_ends_cancelled_when_taken_up() {
    let run = then(&running(), RunCommand::Cancel);
    assert_eq!(run.status, RunStatus::Running);
    let run = then(&run, RunCommand::Lose { node: node(1) });
    let end = decide(&run, RunCommand::Start { node: node(2) }, now()).unwrap();
    assert_eq!((end.run.status, kinds(&end)), (RunStatus::Cancelled, vec!["error"]));
}

#[test]
fn an_agent_that_fails_after_it_was_asked_to_stop_counts_as_cancelled() {
    let run = then(&running(), RunCommand::Cancel);
    let error = RunError::new("BOOM", "interrupted");
    let end = then(&run, RunCommand::Finish(RunOutcome::Failed(error)));
    assert_eq!(end.status, RunStatus::Cancelled);
}

#[test]
fn an_ended_run_has_one_terminal_event_no_owner_and_nothing_due() {
    for outcome in [
        RunOutcome::Completed(json!({"ok": true})),
        RunOutcome::Failed(RunError::new("BOOM", "x")),
        RunOutcome::Cancelled,
    ] {
        let end = decide(&asking(None), RunCommand::Finish(outcome.clone()), now()).unwrap();
        assert_eq!(end.events.len(), 1);
        assert!(end.run.status.is_terminal() && end.run.outcome() == Some(outcome));
        assert_eq!((end.run.node, end.run.due_at, end.run.questions), (None, None, vec![]));
    }
}

fn execution() -> Run {
    let execution = crate::execution::Execution {
        conversation: "cnv_1".parse().unwrap(),
        turn: 1,
        model_id: crate::ids::ModelId::offline(),
        engine: crate::models::EngineKind::Offline,
        executor: crate::execution::ExecutionUser {
            user_id: "太郎".into(),
            name: None,
            email: None,
        },
        is_resumable: false,
        confinement: None,
        usage: crate::execution::TokenUsage::default(),
        total_cost_usd: crate::execution::Cost::default(),
    };
    let mut run = Run::new(
        "exe_1".parse().unwrap(),
        crate::ids::TenantId::local(),
        "execution".into(),
        json!({}),
        Timestamp::from_millis(0),
    );
    run.execution = Some(Box::new(execution));
    run
}

fn conclude(ending: crate::execution::ExecutionOutcome) -> RunCommand {
    let usage = crate::execution::TokenUsage { input_tokens: 9, ..Default::default() };
    RunCommand::Conclude(crate::execution::ExecutionConclusion {
        ending,
        usage,
        total_cost_usd: crate::execution::Cost::default(),
    })
}

/// What a stopped engine had written.
fn stopped(code: &str) -> crate::execution::ExecutionOutcome {
    let partial = Some(json!({ "result": "半", "partial": true }));
    crate::execution::ExecutionOutcome::Error { error: RunError::new(code, "x"), partial }
}

#[test]
fn an_execution_tells_only_what_its_engine_told_and_one_end() {
    use crate::execution::ExecutionOutcome;
    let now = Timestamp::from_millis(7);
    let node: NodeId = "nod_1".parse().unwrap();
    let queued = decide(&execution(), RunCommand::Enqueue, now).unwrap();
    let running = decide(&queued.run, RunCommand::Start { node: node.clone() }, now).unwrap();
    let stopping = decide(&running.run, RunCommand::Cancel, now).unwrap();
    assert!(queued.events.is_empty() && running.events.is_empty() && stopping.events.is_empty());
    assert!(stopping.run.cancel_requested);
    // Replaying an engine is not possible: it is concluded instead.
    assert!(decide(&running.run, RunCommand::Lose { node }, now).is_err());

    let data = json!({ "result": "済", "partial": false });
    for (ending, status, kind) in [
        (
            ExecutionOutcome::Result { data: data.clone(), error: None },
            RunStatus::Completed,
            "result",
        ),
        (
            ExecutionOutcome::Result {
                data: data.clone(),
                error: Some(RunError::new("SDK_ERROR", "x")),
            },
            RunStatus::Failed,
            "result",
        ),
        (stopped("INTERRUPTED"), RunStatus::Failed, "error"),
        (stopped("CANCELLED"), RunStatus::Cancelled, "error"),
    ] {
        let ended = decide(&running.run, conclude(ending), now).unwrap();
        assert_eq!(ended.run.status, status);
        assert_eq!(ended.events.iter().map(NewEvent::kind).collect::<Vec<_>>(), [kind]);
        let execution = ended.run.execution.as_ref().unwrap();
        assert_eq!((execution.usage.input_tokens, ended.run.ended_at), (9, Some(now)));
        let partial = kind == "error";
        assert_eq!(ended.run.result.as_ref().unwrap()["partial"], json!(partial));
        assert!(decide(&ended.run, RunCommand::Cancel, now).is_err());
    }
}

#[test]
fn an_execution_that_waits_for_its_conversation_ends_at_once() {
    let now = Timestamp::from_millis(7);
    let waiting = decide(&execution(), RunCommand::Enqueue, now).unwrap().run;
    assert!(waiting.is_waiting_execution());
    let failed = RunOutcome::Failed(RunError::new("NOT_STARTED", "x"));
    for (command, status) in [
        (RunCommand::Cancel, RunStatus::Cancelled),
        (RunCommand::Finish(failed.clone()), RunStatus::Failed),
    ] {
        let ended = decide(&waiting, command, now).unwrap();
        assert_eq!((ended.run.status, ended.run.ended_at), (status, Some(now)));
        assert_eq!(ended.events.iter().map(NewEvent::kind).collect::<Vec<_>>(), ["error"]);
    }
    // One that was lost has a bill, and an agent's run a worker that ends it.
    let lost = Run { starts: 1, ..waiting };
    assert!(decide(&lost, RunCommand::Finish(failed.clone()), now).is_err());
    let agent = Run { execution: None, ..execution() };
    assert!(decide(&agent, RunCommand::Finish(failed), now).is_err());
}

#[test]
fn only_an_execution_is_concluded() {
    let now = Timestamp::from_millis(7);
    let mut run = execution();
    run.execution = None;
    let started = decide(&run, RunCommand::Start { node: "nod_1".parse().unwrap() }, now).unwrap();
    let ending = stopped("X");
    assert!(decide(&started.run, conclude(ending), now).is_err());
}

#[test]
fn a_resumable_execution_is_queued_again_and_a_cancelled_one_waits_for_its_bill() {
    let now = Timestamp::from_millis(7);
    let node: NodeId = "nod_1".parse().unwrap();
    let mut run = execution();
    run.execution.as_mut().unwrap().is_resumable = true;
    let running = decide(&run, RunCommand::Start { node: node.clone() }, now).unwrap().run;
    let lost = decide(&running, RunCommand::Lose { node: node.clone() }, now).unwrap();
    assert_eq!((lost.run.status, lost.run.due_at), (RunStatus::Queued, Some(now)));
    assert!(lost.events.is_empty(), "readers see nothing of it");
    let cancelled = decide(&lost.run, RunCommand::Cancel, now).unwrap();
    assert!(cancelled.run.cancel_requested && cancelled.run.status == RunStatus::Queued);
    let again = decide(&cancelled.run, RunCommand::Start { node }, now).unwrap();
    assert_eq!((again.run.status, again.run.cancel_requested), (RunStatus::Running, true));
    assert!(cancelled.events.is_empty() && again.events.is_empty());
}
