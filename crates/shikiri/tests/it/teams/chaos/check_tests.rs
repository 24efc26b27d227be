//! The checker can find fault: a good history passes, and each way to spoil it is noticed.

use serde_json::json;

use super::super::journal::{Known, Notes, Outcome, Told, Who};
use super::super::state::{Delegation, Dialogue, Line, State, Task};
use super::{History, UNWRITTEN};

fn good() -> History {
    let who = |agent, session| Who { agent, session };
    let line = |id: &str, from: &str, content: &str| Line {
        message_id: id.to_owned(),
        from: from.to_owned(),
        content: content.to_owned(),
    };
    let lines = vec![line("m1", "ann", "dlg_1 a"), line("m2", "ben", "b"), line("m3", "ann", "c")];
    let known = |by: Who, at: usize| Known {
        by,
        conversation: "dia_1".to_owned(),
        message_id: lines[at].message_id.clone(),
        content: lines[at].content.clone(),
    };
    let (text, reason) = (|text: &str| text.to_owned(), "initiator_ended".to_owned());
    let contents: Vec<_> = lines.iter().map(|line| line.content.clone()).collect();
    let notes = Notes {
        said: vec![known(who("ben", 2), 1), known(who("ann", 1), 2)],
        heard: vec![known(who("ann", 1), 1), known(who("ben", 2), 2)],
        started: vec![(who("ann", 1), text("dia_1"), text("dlg_1 a"))],
        told: ["ann", "ben"]
            .map(|agent| Told {
                by: who(agent, 1),
                conversation: text("dia_1"),
                reason: reason.clone(),
                told_before: false,
                is_acknowledged: true,
                at_ms: 20,
            })
            .to_vec(),
        delegated: vec![(who("ann", 3), text("dlg_1"), text("tsk_1"))],
        outcomes: vec![Outcome {
            by: who("ann", 3),
            task: Some(text("tsk_1")),
            delegation: text("dlg_1"),
            status: text("completed"),
            contents: contents.clone(),
            at_ms: 30,
        }],
        done: vec![text("tsk_1")],
        sent: vec![(who("ann", 1), text("msg_1"))],
        received: vec![(who("ben", 2), text("msg_1"), 40)],
        lost_looks: 0,
        sessions: 3,
    };
    let messages: Vec<_> = contents.iter().map(|content| json!({ "content": content })).collect();
    let state = State {
        dialogues: vec![Dialogue {
            id: text("dia_1"),
            initiator: text("ann"),
            participant: text("ben"),
            state: text("ended"),
            end_reason: Some(reason),
            messages: 3,
            max_turns: 12,
            delegation: Some(text("dlg_1")),
            began_ms: 10,
            ended_ms: Some(20),
            lines,
        }],
        delegations: vec![Delegation {
            id: text("dlg_1"),
            agent: text("ann"),
            status: text("completed"),
            attempts: 1,
            task: Some(text("tsk_1")),
            dialogue: Some(text("dia_1")),
            result: json!({ "conversation_id": "dia_1", "messages": messages }),
        }],
        tasks: vec![Task { id: text("tsk_1"), assignee: text("ann"), status: text("done") }],
    };
    History { notes, state, kills: Vec::new() }
}

#[test]
fn a_good_history_passes() {
    assert_eq!(good().faults(), Vec::<String>::new());
}

#[test]
fn a_killed_server_excuses_news_told_twice_and_not_news_untold() {
    let faults_after = |kill: i64, spoil: fn(&mut History)| {
        let mut history = good();
        history.kills.push(kill);
        spoil(&mut history);
        history.faults().len()
    };
    let again = |h: &mut History| {
        let told = Told { at_ms: 9_000, told_before: true, ..h.notes.told[0].clone() };
        h.notes.told.push(told);
        let outcome = Outcome { at_ms: 9_000, ..h.notes.outcomes[0].clone() };
        h.notes.outcomes.push(outcome);
        let (who, id, _) = h.notes.received[0].clone();
        h.notes.received.push((who, id, 9_000));
    };
    assert_eq!((faults_after(41, again), faults_after(UNWRITTEN + 41, again)), (0, 3));
    let never = |h: &mut History| {
        h.notes.told.remove(0);
        h.notes.outcomes.clear();
        h.notes.received.clear();
    };
    assert_eq!(faults_after(21, never), 3);
}

/// The next session of one that died with an answer is told, and told that it may know.
#[test]
fn an_end_is_told_again_only_to_the_next_session_of_one_that_died() {
    let faults_if = |is_acknowledged: bool, session: usize, told_before: bool| {
        let mut history = good();
        history.notes.told[0].is_acknowledged = is_acknowledged;
        let first = history.notes.told[0].clone();
        let by = Who { session, ..first.by.clone() };
        history.notes.told.push(Told { by, told_before, at_ms: 9_000, ..first });
        history.faults().len()
    };
    assert_eq!(faults_if(false, 7, true), 0);
    assert_eq!(faults_if(true, 7, true), 1, "the first had called again");
    assert_eq!(faults_if(false, 1, true), 1, "it is the same session");
    assert_eq!(faults_if(false, 7, false), 1, "told as news");
}

#[test]
fn a_lost_look_does_not_excuse_news_untold() {
    let mut history = good();
    history.notes.lost_looks = 3;
    history.notes.told.pop();
    assert_eq!(history.faults().len(), 1);
}

#[test]
fn whatever_is_wrong_is_found() {
    type Spoil = fn(&mut History);
    let spoils: [(&str, Spoil); 23] = [
        ("living", |h| h.state.dialogues[0].state = "active".to_owned()),
        ("no reason", |h| h.state.dialogues[0].end_reason = None),
        ("not at its end", |h| h.state.dialogues[0].end_reason = Some("max_turns".to_owned())),
        ("beyond its end", |h| h.state.dialogues[0].max_turns = 2),
        ("not in turn", |h| h.state.dialogues[0].lines[1].from = "ann".to_owned()),
        ("a line lost", |h| drop(h.state.dialogues[0].lines.pop())),
        ("a line twice", |h| {
            let again = h.state.dialogues[0].lines[1].clone();
            h.state.dialogues[0].lines.push(again);
        }),
        ("one side not told", |h| drop(h.notes.told.pop())),
        ("one side told twice", |h| h.notes.told.push(h.notes.told[0].clone())),
        ("told something else", |h| h.notes.told[0].reason = "timeout".to_owned()),
        ("two at once", |h| {
            let mut other = h.state.dialogues[0].clone();
            (other.began_ms, other.ended_ms) = (19, Some(30));
            h.state.dialogues.push(other);
        }),
        ("an open delegation", |h| h.state.delegations[0].status = "processing".to_owned()),
        ("one attempt too many", |h| h.state.delegations[0].attempts = 4),
        ("no result", |h| h.state.delegations[0].result = json!(null)),
        ("another's dialogue", |h| h.state.dialogues[0].delegation = Some("dlg_2".to_owned())),
        ("another task's delegation", |h| h.state.delegations[0].task = Some("tsk_2".to_owned())),
        ("heard by another task's session", |h| {
            h.notes.outcomes[0].task = Some("tsk_2".to_owned())
        }),
        ("never heard", |h| h.notes.outcomes.clear()),
        ("heard twice", |h| h.notes.outcomes.push(h.notes.outcomes[0].clone())),
        ("an untrue outcome", |h| drop(h.notes.outcomes[0].contents.pop())),
        ("a message that came twice", |h| h.notes.received.push(h.notes.received[0].clone())),
        ("a message that never came", |h| h.notes.received.clear()),
        ("a task that waits", |h| h.state.tasks[0].status = "in_progress".to_owned()),
    ];
    for (what, spoil) in spoils {
        let mut history = good();
        spoil(&mut history);
        assert!(!history.faults().is_empty(), "{what} was not found");
    }
}
