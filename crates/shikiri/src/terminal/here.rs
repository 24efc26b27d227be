//! Executions in this process, on the store that servers share.

use std::time::Duration;

use serde_json::Value;
use shikiri_app::App;
use shikiri_executions::conversations::ConversationPatch;
use shikiri_executions::execution::NewExecution;
use shikiri_model::execution::ExecutionUser;
use shikiri_model::ids::{ConversationId, ModelId, RunId, TenantId};
use shikiri_model::models::ActiveStatus;
use shikiri_runtime::AppError;
use shikiri_runtime::run::WorkerNode;
use shikiri_web::views::ExecutionJson;

use super::{Local, ModelChoice, Wanted};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::wiring::{self, Access, Offer};

const PAGE: u32 = 200;
/// How long this process may take to join as a node, and the pause between checks.
const JOINING: Duration = Duration::from_secs(5);

pub struct Here {
    app: App,
    node: WorkerNode,
    tenant: TenantId,
}

impl Here {
    pub async fn open(config: &Config, offer: &Offer, tenant: TenantId) -> Result<Self, Failure> {
        let app = wiring::open_app(config, offer, Access::Write).await?;
        let node = app.start_own_worker();
        Ok(Self { app, node, tenant })
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub async fn models(&self) -> Result<Vec<ModelChoice>, Failure> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (models, next) = self.app.tenancy.list_models(after, PAGE).await?;
            all.extend(models.into_iter().map(|stored| ModelChoice {
                id: stored.value.id.to_string(),
                engine: stored.value.engine.as_str().to_owned(),
                is_active: stored.value.status == ActiveStatus::Active,
            }));
            match next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// The model that is used by default.
    pub async fn usual_model(
        &self,
        conversation: Option<&ConversationId>,
    ) -> Result<Option<String>, Failure> {
        if let Some(conversation) = conversation {
            let found = self.app.executions.conversation(&self.tenant, conversation).await?;
            if let Some(model) = found.value.model_id {
                return Ok(Some(model.to_string()));
            }
        }
        Ok(self.app.runtime.tenant(&self.tenant).await?.value.model_id)
    }

    pub(super) async fn new_conversation(&self) -> Result<ConversationId, Failure> {
        let new = ConversationPatch::default();
        Ok(self.app.executions.create_conversation(&self.tenant, new).await?.value.id)
    }

    pub(super) async fn execute(&self, wanted: Wanted) -> Result<RunId, Failure> {
        let model_id = wanted.model_id.map(|id| {
            let wrong = |error| Failure::told(Exit::Usage, format!("--model: {error}"));
            id.parse::<ModelId>().map_err(wrong)
        });
        let request = NewExecution {
            conversation: wanted.conversation,
            user_input: wanted.user_input,
            executor: ExecutionUser { user_id: wanted.user_id, name: None, email: None },
            tokens: wanted.tokens,
            preferred_skills: Vec::new(),
            model_id: model_id.transpose()?,
            idempotency_key: None,
            limits: wanted.limits,
        };
        let _ = tokio::time::timeout(JOINING, self.node.joined()).await;
        Ok(self.app.executions.execute(&self.tenant, request).await?.value.id)
    }

    pub(super) async fn feed(&self, execution: &RunId) -> Result<Local, Failure> {
        Local::start(&self.app, &self.tenant, execution, 0).await
    }

    pub(super) async fn cancel(&self, execution: &RunId) -> Result<(), Failure> {
        match self.app.runtime.cancel_run(&self.tenant, execution).await {
            Ok(_) | Err(AppError::NotNow(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn record(&self, execution: &RunId) -> Result<Value, Failure> {
        let stored = self.app.executions.execution(&self.tenant, execution).await?;
        serde_json::to_value(ExecutionJson::from(stored))
            .map_err(|error| Failure::told(Exit::Failed, error))
    }

    pub(super) async fn close(self) {
        self.node.leave().await;
    }
}
