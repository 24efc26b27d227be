//! The player as a task session: it does its tasks, and delegates talk to its chat session.

use serde_json::{Value, json};

use super::door::{ToolClient, Trouble};
use super::{LABEL, WAIT_SECONDS, say, script};

pub(super) async fn play(client: &ToolClient) -> Result<(), Trouble> {
    loop {
        let wait = json!({ "wait_seconds": WAIT_SECONDS });
        let action = client.call("get_next_action", &wait).await?;
        match action["action"].as_str().unwrap_or_default() {
            "work" => work(client, &action["task"]).await?,
            "wait_for_delegation" => {}
            "delegation_result" => report(client, &action).await?,
            _ => return Ok(()),
        }
    }
}

async fn work(client: &ToolClient, task: &Value) -> Result<(), Trouble> {
    let (title, description) = (text(task, "title"), text(task, "description"));
    let whole = format!("{title}\n{description}");
    say(&format!("task: {title}"));
    let Some(partner) = script::partner(&whole) else {
        return complete(client, &task_id(task), "done", &format!("{LABEL} did: {title}")).await;
    };
    say(&format!("delegating to {partner}"));
    let purpose: String = whole.trim().chars().take(4_000).collect();
    let wanted = json!({ "target_agent_id": partner, "purpose": purpose });
    match client.call("delegate_to_chat_session", &wanted).await {
        Ok(_) => Ok(()),
        Err(Trouble::Refused { code, message }) => {
            let why = format!("{LABEL} could not delegate: {code}: {message}");
            complete(client, &task_id(task), "blocked", &why).await
        }
        Err(broken) => Err(broken),
    }
}

/// Reports the task as done, with the result of the delegation.
async fn report(client: &ToolClient, outcome: &Value) -> Result<(), Trouble> {
    let task = &outcome["task_id"];
    if task.is_null() {
        // The delegation's task is no longer known.
        return Ok(());
    }
    let messages = outcome["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<_> = messages.iter().filter_map(|line| line["content"].as_str()).collect();
    let (status, result) = match text(outcome, "status").as_str() {
        "completed" => ("done", format!("{LABEL} {} messages: {}", words.len(), words.join(" → "))),
        other => ("blocked", format!("{LABEL} the delegation is {other}: {}", outcome["result"])),
    };
    complete(client, task, status, &result).await
}

async fn complete(
    client: &ToolClient,
    task: &Value,
    status: &str,
    result: &str,
) -> Result<(), Trouble> {
    say(&format!("{status}: {result}"));
    let done = json!({ "task_id": task, "status": status, "result": result });
    match client.call("report_completed", &done).await {
        // Another session has settled it meanwhile.
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
