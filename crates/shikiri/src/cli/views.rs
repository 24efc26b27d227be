//! Records as JSON, with the field names that the REST door gives them.

use serde_json::{Value, json};
use shikiri_app::run::RunView;
use shikiri_model::key::ApiKey;
use shikiri_model::record::{Position, Stored};
use shikiri_model::run::{Question, Run};
use shikiri_model::tenant::Tenant;
use shikiri_model::time::Timestamp;

pub(super) fn page(items: Vec<Value>, next: Option<&Position>) -> Value {
    json!({ "items": items, "next_cursor": next.map(Position::encode) })
}

pub(super) fn tenant(stored: &Stored<Tenant>) -> Value {
    let tenant = &stored.value;
    json!({
        "id": tenant.id,
        "name": tenant.name,
        "system_prompt": tenant.system_prompt,
        "model_id": tenant.model_id,
        "status": tenant.status,
        "workspace_enabled": tenant.workspace_enabled,
        "limits": tenant.limits,
        "created_at": stored.created_at,
        "updated_at": stored.updated_at,
    })
}

pub(super) fn key(stored: &Stored<ApiKey>) -> Value {
    json!({ "id": stored.value.id, "name": stored.value.name, "created_at": stored.created_at })
}

pub(super) fn run(view: &RunView) -> Value {
    let mut value = bare_run(&view.run, view.created_at, view.updated_at);
    for part in ["progress", "total", "message"] {
        value[part] = view.progress.as_ref().map(|note| note[part].clone()).unwrap_or_default();
    }
    value
}

pub(super) fn listed_run(stored: &Stored<Run>) -> Value {
    bare_run(&stored.value, stored.created_at, stored.updated_at)
}

fn bare_run(run: &Run, created_at: Timestamp, updated_at: Timestamp) -> Value {
    json!({
        "id": run.id,
        "run_id": run.id,
        "agent": run.agent,
        "input": run.input,
        "status": run.status,
        "progress": null,
        "total": null,
        "message": null,
        "questions": run.questions.iter().map(question).collect::<Vec<_>>(),
        "result": run.result,
        "error": run.error,
        "parent_run_id": run.parent.as_ref().map(|parent| &parent.run),
        "created_at": created_at,
        "updated_at": updated_at,
        "ended_at": run.ended_at,
    })
}

fn question(question: &Question) -> Value {
    json!({
        "question_id": question.id,
        "kind": question.kind,
        "message": question.message,
        "schema": question.schema,
        "expires_at": question.expires_at,
    })
}
