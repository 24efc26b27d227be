use serde::Serialize;
use serde_json::Value;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{QuestionKind, Run, RunError, RunQuestion, RunStatus};
use shikiri_model::time::Timestamp;
use shikiri_runtime::run::{OpenQuestion, RunView};
use utoipa::ToSchema;

use super::schemas::RunErrorSchema;
use super::words::{QuestionKindSchema, RunStatusSchema};

/// One durable piece of agent work.
#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub struct RunJson {
    #[schema(value_type = String)]
    id: RunId,
    /// The same as `id`.
    #[schema(value_type = String)]
    run_id: RunId,
    agent: String,
    input: Value,
    #[schema(value_type = RunStatusSchema)]
    status: RunStatus,
    /// How far it is, of `total`. Lists leave progress out.
    progress: Value,
    total: Value,
    message: Value,
    /// Open questions.
    questions: Vec<QuestionJson>,
    result: Option<Value>,
    #[schema(value_type = Option<RunErrorSchema>)]
    error: Option<RunError>,
    #[schema(value_type = Option<String>)]
    parent_run_id: Option<RunId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Question)]
struct QuestionJson {
    #[schema(value_type = String)]
    question_id: QuestionId,
    #[schema(value_type = QuestionKindSchema)]
    kind: QuestionKind,
    message: String,
    /// What a good answer looks like.
    schema: Value,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// A question of any run that waits for its answer.
#[derive(Serialize, ToSchema)]
#[schema(as = OpenQuestion)]
pub struct OpenQuestionJson {
    #[schema(value_type = String)]
    run_id: RunId,
    agent: String,
    #[serde(flatten)]
    question: QuestionJson,
    /// Until when it can be answered; the same as `expires_at`.
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline: Option<Timestamp>,
}

impl From<OpenQuestion> for OpenQuestionJson {
    fn from(open: OpenQuestion) -> Self {
        let deadline = open.question.expires_at;
        Self { run_id: open.run, agent: open.agent, question: open.question.into(), deadline }
    }
}

impl From<RunView> for RunJson {
    fn from(view: RunView) -> Self {
        let part = |name| view.progress.as_ref().and_then(|note| note.get(name)).cloned();
        let (progress, total, message) = (part("progress"), part("total"), part("message"));
        Self {
            progress: progress.unwrap_or_default(),
            total: total.unwrap_or_default(),
            message: message.unwrap_or_default(),
            ..run_json(view.run, view.created_at, view.updated_at)
        }
    }
}

impl From<StoredDocument<Run>> for RunJson {
    fn from(stored: StoredDocument<Run>) -> Self {
        run_json(stored.value, stored.created_at, stored.updated_at)
    }
}

fn run_json(run: Run, created_at: Timestamp, updated_at: Timestamp) -> RunJson {
    RunJson {
        id: run.id.clone(),
        run_id: run.id,
        agent: run.agent,
        input: run.input,
        status: run.status,
        progress: Value::Null,
        total: Value::Null,
        message: Value::Null,
        questions: run.questions.into_iter().map(QuestionJson::from).collect(),
        result: run.result,
        error: run.error,
        parent_run_id: run.parent.map(|parent| parent.run),
        created_at,
        updated_at,
        ended_at: run.ended_at,
    }
}

impl From<RunQuestion> for QuestionJson {
    fn from(question: RunQuestion) -> Self {
        Self {
            question_id: question.id,
            kind: question.kind,
            message: question.message,
            schema: question.schema,
            expires_at: question.expires_at,
        }
    }
}
