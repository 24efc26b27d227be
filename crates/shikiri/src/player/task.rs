//! The player as a task session: it does what it is given, and has its chat session talk.

use serde_json::{Value, json};

use super::door::{Door, Trouble};
use super::{LABEL, WAIT_SECONDS, say, script};

pub(super) async fn play(door: &mut Door) -> Result<(), Trouble> {
    loop {
        let wait = json!({ "wait_seconds": WAIT_SECONDS });
        let action = door.call("get_next_action", &wait).await?;
        match action["action"].as_str().unwrap_or_default() {
            "work" => work(door, &action["task"]).await?,
            "wait_for_delegation" => {}
            "delegation_result" => report(door, &action).await?,
            _ => return Ok(()),
        }
    }
}

async fn work(door: &mut Door, task: &Value) -> Result<(), Trouble> {
    let (title, description) = (text(task, "title"), text(task, "description"));
    let whole = format!("{title}\n{description}");
    say(&format!("task: {title}"));
    let Some(partner) = script::partner(&whole) else {
        return complete(door, &task_id(task), "done", &format!("{LABEL} did: {title}")).await;
    };
    say(&format!("delegating to {partner}"));
    let purpose: String = whole.trim().chars().take(4_000).collect();
    let wanted = json!({ "target_agent_id": partner, "purpose": purpose });
    match door.call("delegate_to_chat_session", &wanted).await {
        Ok(_) => Ok(()),
        Err(Trouble::Refused { code, message }) => {
            let why = format!("{LABEL} could not delegate: {code}: {message}");
            complete(door, &task_id(task), "blocked", &why).await
        }
        Err(broken) => Err(broken),
    }
}

/// The task is done with what was said.
async fn report(door: &mut Door, outcome: &Value) -> Result<(), Trouble> {
    let task = &outcome["task_id"];
    if task.is_null() {
        // What it was for is not known any more.
        return Ok(());
    }
    let messages = outcome["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<_> = messages.iter().filter_map(|line| line["content"].as_str()).collect();
    let (status, result) = match text(outcome, "status").as_str() {
        "completed" => ("done", format!("{LABEL} {} messages: {}", words.len(), words.join(" → "))),
        other => ("blocked", format!("{LABEL} the delegation is {other}: {}", outcome["result"])),
    };
    complete(door, task, status, &result).await
}

async fn complete(
    door: &mut Door,
    task: &Value,
    status: &str,
    result: &str,
) -> Result<(), Trouble> {
    say(&format!("{status}: {result}"));
    let done = json!({ "task_id": task, "status": status, "result": result });
    match door.call("report_completed", &done).await {
        // Somebody else has settled it meanwhile: nothing is left to report.
        Err(Trouble::Refused { code, message }) => {
            say(&format!("not reported: {code}: {message}"));
            Ok(())
        }
        other => other.map(drop),
    }
}

fn task_id(task: &Value) -> Value {
    task.get("task_id").or_else(|| task.get("id")).cloned().unwrap_or_default()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
