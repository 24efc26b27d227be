use serde::{Deserialize, Serialize};
use serde_json::Value;
use shikiri_app::run::RunView;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::record::Stored;
use shikiri_model::run::{Question, QuestionKind, Run, RunError, RunStatus};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

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
    status: Status,
    /// How far it is, of `total`. Lists leave progress out.
    progress: Value,
    total: Value,
    message: Value,
    /// Open questions.
    questions: Vec<QuestionJson>,
    result: Option<Value>,
    error: Option<ErrorJson>,
    #[schema(value_type = Option<String>)]
    parent_run_id: Option<RunId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RunStatus)]
pub enum Status {
    Queued,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Question)]
struct QuestionJson {
    #[schema(value_type = String)]
    question_id: QuestionId,
    kind: Kind,
    message: String,
    /// What a good answer looks like.
    schema: Value,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = QuestionKind)]
enum Kind {
    Human,
    Model,
    Roots,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RunError)]
pub(super) struct ErrorJson {
    code: String,
    message: String,
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

impl From<Stored<Run>> for RunJson {
    fn from(stored: Stored<Run>) -> Self {
        run_json(stored.value, stored.created_at, stored.updated_at)
    }
}

fn run_json(run: Run, created_at: Timestamp, updated_at: Timestamp) -> RunJson {
    RunJson {
        id: run.id.clone(),
        run_id: run.id,
        agent: run.agent,
        input: run.input,
        status: run.status.into(),
        progress: Value::Null,
        total: Value::Null,
        message: Value::Null,
        questions: run.questions.into_iter().map(QuestionJson::from).collect(),
        result: run.result,
        error: run.error.map(ErrorJson::from),
        parent_run_id: run.parent.map(|parent| parent.run),
        created_at,
        updated_at,
        ended_at: run.ended_at,
    }
}

impl From<RunError> for ErrorJson {
    fn from(RunError { code, message }: RunError) -> Self {
        Self { code, message }
    }
}

impl From<Question> for QuestionJson {
    fn from(question: Question) -> Self {
        Self {
            question_id: question.id,
            kind: match question.kind {
                QuestionKind::Human => Kind::Human,
                QuestionKind::Model => Kind::Model,
                QuestionKind::Roots => Kind::Roots,
            },
            message: question.message,
            schema: question.schema,
            expires_at: question.expires_at,
        }
    }
}

impl From<RunStatus> for Status {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Queued => Self::Queued,
            RunStatus::Running => Self::Running,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

impl From<Status> for RunStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Queued => Self::Queued,
            Status::Running => Self::Running,
            Status::Waiting => Self::Waiting,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Cancelled => Self::Cancelled,
        }
    }
}
