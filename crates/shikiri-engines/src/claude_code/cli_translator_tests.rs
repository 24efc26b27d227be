use serde_json::json;

use super::*;

fn system(subtype: &str, rest: Value) -> Value {
    let mut line = json!({ "type": "system", "subtype": subtype });
    line.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    line
}

fn state(state: &str) -> Value {
    system("session_state_changed", json!({ "state": state }))
}

fn started(task: &str, call: &str) -> Value {
    system(
        "task_started",
        json!({ "task_type": "local_agent", "task_id": task, "tool_use_id": call }),
    )
}

fn result(turns: u64) -> Value {
    json!({ "type": "result", "num_turns": turns, "result": "r", "session_id": "s" })
}

fn phases(lines: &[Value]) -> Vec<CliRunPhase> {
    let mut translator = CliTranslator::default();
    let phase = |line: &Value| {
        translator.take(line);
        translator.phase()
    };
    lines.iter().map(phase).collect()
}

#[test]
fn a_run_is_over_when_it_is_idle_and_the_model_has_heard_of_every_subagent() {
    use CliRunPhase::{Done, Settling, Working};
    // As 2.1.197 tells of one in the background: it calls itself idle in between.
    let completed = json!({ "task_id": "a", "patch": { "status": "completed" } });
    let heard = json!({ "task_id": "a", "status": "completed" });
    let lines = [
        state("running"),
        started("a", "t1"),
        result(1),
        state("idle"),
        system("task_updated", completed),
        state("running"),
        system("task_notification", heard),
        result(1),
        state("idle"),
    ];
    let expected = [Working, Working, Working, Working, Settling, Working, Working, Working, Done];
    assert_eq!(phases(&lines), expected);
    // One that never says how it is has done its work with the result.
    assert_eq!(phases(&[started("a", "t1"), result(1)]), [Working, Working]);
    assert_eq!(phases(&[result(1)]), [Done]);
    // A command in the background is not waited for.
    let command = system("task_started", json!({ "task_type": "local_bash", "task_id": "b" }));
    assert_eq!(phases(&[command, result(1)]), [Working, Done]);
}

#[test]
fn turns_add_up_and_an_empty_result_between_others_is_none() {
    let mut translator = CliTranslator::default();
    let mut empty = result(0);
    empty["origin"] = json!({ "kind": "task-notification" });
    let lines = [result(3), empty, result(1)];
    let told: Vec<_> = lines.iter().flat_map(|line| translator.take(line)).collect();
    let turns = |message: &EngineMessage| match message {
        EngineMessage::Finished(finish) => Some(finish.num_turns),
        _ => None,
    };
    assert_eq!(told.iter().map(turns).collect::<Vec<_>>(), [Some(3), None, Some(4)]);
}

#[test]
fn text_is_told_once_and_whole_however_its_pieces_come() {
    let event = |event: Value| json!({ "type": "stream_event", "event": event });
    let delta = |text: &str| {
        event(json!({
            "type": "content_block_delta", "delta": { "type": "text_delta", "text": text },
        }))
    };
    let whole = |text: &str| {
        let block = json!({ "type": "text", "text": text });
        json!({ "type": "assistant", "message": { "model": "m", "content": [block] } })
    };
    let begin = event(json!({ "type": "content_block_start" }));
    // The first block lacks its last piece, the second has none at all.
    let lines = [begin.clone(), delta("hel"), whole("hello"), begin, whole("bye")];
    let mut translator = CliTranslator::default();
    let mut text = String::new();
    for message in lines.iter().flat_map(|line| translator.take(line)) {
        match message {
            EngineMessage::TextDelta { text: piece } => text.push_str(&piece),
            EngineMessage::Text { text: whole, streamed: false, .. } => text.push_str(&whole),
            _ => {}
        }
    }
    assert_eq!(text, "hellobye");
}

#[test]
fn a_model_that_is_asked_for_after_the_start_is_told_then() {
    let mut translator = CliTranslator::default();
    translator.take(&started("a", "t1"));
    let call = json!({
        "type": "tool_use", "id": "t1", "name": "Agent",
        "input": { "subagent_type": "x", "model": "haiku" },
    });
    let line = json!({ "type": "assistant", "message": { "model": "m", "content": [call] } });
    let told = translator.take(&line);
    let Some(EngineMessage::SubagentStarted(start)) = told.last() else { panic!("{told:?}") };
    assert_eq!((start.model.as_deref(), start.agent_id.as_deref()), (Some("haiku"), Some("a")));
}

#[test]
fn servers_that_cannot_be_used_are_told_once() {
    let server = |name: &str, status: &str| json!({ "name": name, "status": status });
    let init = system(
        "init",
        json!({ "session_id": "s", "model": "m", "mcp_servers": [
            server("good", "connected"), server("bad", "failed"), server("shy", "needs-auth"),
        ] }),
    );
    let mut translator = CliTranslator::default();
    let told = translator.take(&init);
    let named = |message: &EngineMessage| match message {
        EngineMessage::Warning { code, server, .. } => Some((*code, server.clone().unwrap())),
        _ => None,
    };
    let code = WarningCode::McpServerUnavailable;
    let expected = [(code, "bad".to_owned()), (code, "shy".to_owned())];
    assert_eq!(told.iter().filter_map(named).collect::<Vec<_>>(), expected);
    assert!(translator.take(&init).is_empty(), "again, on the CLI's next turn");
}

#[test]
fn nothing_that_is_unheard_of_is_fatal_or_lost() {
    let mut translator = CliTranslator::default();
    let odd = [
        json!({ "type": "hologram", "uuid": "u", "x": 1 }),
        system("finish", json!({ "x": 1 })),
        system("new_thing", json!({ "x": 1 })),
        json!({ "type": "assistant", "message": { "model": "m", "content": [{ "type": "odd" }] } }),
    ];
    let notes: Vec<_> = odd.iter().flat_map(|line| translator.take(line)).collect();
    let subtype = |message: &EngineMessage| match message {
        EngineMessage::Note { subtype, .. } => subtype.clone(),
        other => panic!("{other:?}"),
    };
    let named: Vec<_> = notes.iter().map(subtype).collect();
    assert_eq!(named, ["hologram", "finish", "new_thing", "odd"]);
    for empty in [json!({}), json!({ "type": 7 }), json!({ "type": "result" })] {
        translator.take(&empty);
    }
    assert!(translator.take(&json!({ "type": "control_response", "response": {} })).is_empty());
}
