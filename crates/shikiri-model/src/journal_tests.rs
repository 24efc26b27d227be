use serde_json::json;

use super::*;

fn journal(events: &[(&str, Value)]) -> Journal {
    let mut journal = Journal::default();
    for (kind, data) in events {
        let data = data.to_string();
        let event = EventRef { seq: 1, at: Timestamp::default(), kind, data: &data };
        journal.replay(event).unwrap();
    }
    journal
}

fn operation(kind: OperationKind, name: &str) -> JournalOperation {
    JournalOperation { kind, name: name.into() }
}

fn step(name: &str) -> JournalOperation {
    operation(OperationKind::Step, name)
}

#[test]
fn each_kind_of_entry_is_recalled_as_it_was_left() {
    let journal = journal(&[
        ("started", json!({"attempt": 1})),
        ("progress", json!({"index": 0, "progress": 1})),
        ("step_started", json!({"index": 1, "name": "a", "attempt": 1})),
        ("step_completed", json!({"index": 1, "name": "a", "result": {"x": 1}})),
        ("step_started", json!({"index": 2, "name": "b", "attempt": 1})),
        ("step_failed", json!({"index": 2, "name": "b", "error": "no"})),
        ("step_started", json!({"index": 3, "name": "c", "attempt": 2})),
        ("question", json!({"index": 4, "question_id": "q_1", "kind": "human"})),
        ("answer", json!({"index": 4, "action": "accept", "content": true})),
        ("timer_set", json!({"index": 5, "until": "2026-01-01T00:00:00.000Z"})),
        ("child_started", json!({"index": 6, "agent": "echo", "child_run_id": "run_2"})),
        ("child_ended", json!({"index": 6, "status": "completed", "result": 7})),
        ("inputs_taken", json!({"index": 7, "from": 0, "inputs": []})),
        ("inputs_taken", json!({"index": 8, "from": 0, "inputs": [{"topic": "茶"}, null]})),
        ("question", json!({"index": 9, "question_id": "q_2", "kind": "roots"})),
        ("answer", json!({"index": 9, "action": "cancel", "content": null, "reason": "no roots"})),
    ]);
    let no_roots = QuestionAnswer {
        reason: Some("no roots".into()),
        ..QuestionAnswer::new(crate::run::AnswerAction::Cancel, Value::Null)
    };
    let until = "2026-01-01T00:00:00.000Z".parse().unwrap();
    for (index, operation, expected) in [
        (0, operation(OperationKind::Note, "progress"), Some(JournalEntry::Told)),
        (1, step("a"), Some(JournalEntry::StepCompleted(json!({"x": 1})))),
        (2, step("b"), Some(JournalEntry::StepFailed("no".into()))),
        (3, step("c"), Some(JournalEntry::Unknown { attempts: 2 })),
        (
            4,
            operation(OperationKind::Question, "human"),
            Some(JournalEntry::Answered(QuestionAnswer::accept(json!(true)))),
        ),
        (5, operation(OperationKind::Timer, "sleep"), Some(JournalEntry::TimerSet(until))),
        (
            6,
            operation(OperationKind::Child, "echo"),
            Some(JournalEntry::ChildEnded(RunOutcome::Completed(json!(7)))),
        ),
        (7, operation(OperationKind::Updates, "updates"), Some(JournalEntry::InputsTaken(vec![]))),
        (
            8,
            operation(OperationKind::Updates, "updates"),
            Some(JournalEntry::InputsTaken(vec![json!({"topic": "茶"}), Value::Null])),
        ),
        (9, operation(OperationKind::Question, "roots"), Some(JournalEntry::Answered(no_roots))),
        (10, step("d"), None),
    ] {
        assert_eq!(journal.recall(index, &operation).unwrap(), expected.as_ref(), "{index}");
    }
    assert_eq!(journal.check_end(10), Ok(()));
    assert_eq!(journal.inputs_taken(), 2);
}

#[test]
fn a_renamed_step_does_not_fit() {
    let journal = journal(&[("step_started", json!({"index": 0, "name": "book", "attempt": 1}))]);
    let mismatch = journal.recall(0, &step("reserve")).unwrap_err().to_string();
    assert!(mismatch.contains(r#"was step "book""#), "{mismatch}");
    assert!(mismatch.contains(r#"now does step "reserve""#), "{mismatch}");
    assert!(journal.recall(0, &operation(OperationKind::Timer, "sleep")).is_err());
}

#[test]
fn a_removed_last_step_does_not_fit() {
    let journal = journal(&[("step_started", json!({"index": 1, "name": "x", "attempt": 1}))]);
    assert_eq!(journal.check_end(1), Err(JournalMismatch::Unused { recorded: 2, used: 1 }));
}

#[test]
fn the_answer_about_one_attempt_says_nothing_about_the_next() {
    let journal = journal(&[
        ("step_started", json!({"index": 0, "name": "pay", "attempt": 1})),
        ("question", json!({"index": 0, "question_id": "q_1", "kind": "human"})),
        ("answer", json!({"index": 0, "action": "accept", "content": {"retry": true}})),
        ("step_started", json!({"index": 0, "name": "pay", "attempt": 2})),
    ]);
    let unknown = JournalEntry::Unknown { attempts: 2 };
    assert_eq!(journal.recall(0, &step("pay")).unwrap(), Some(&unknown));
    assert_eq!(journal.step_confirmation(0), None);
}

#[test]
fn a_question_under_a_step_is_the_doubt_about_it() {
    let journal = journal(&[
        ("step_started", json!({"index": 0, "name": "pay", "attempt": 1})),
        ("question", json!({"index": 0, "question_id": "q_1", "kind": "human"})),
        ("answer", json!({"index": 0, "action": "decline"})),
    ]);
    let unknown = JournalEntry::Unknown { attempts: 1 };
    assert_eq!(journal.recall(0, &step("pay")).unwrap(), Some(&unknown));
    assert!(matches!(journal.step_confirmation(0), Some(JournalEntry::Answered(_))));
}
