//! Redirecting a run while it works: what it is given, and how its agent sees it.
//!
//! An update is kept with the run; the agent looks for it where it can still change course. A look
//! is journaled with what it found, nothing included, so a replay goes the same way even if more
//! has come since.

use std::future::Future;
use std::sync::Arc;

use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::journal::{Operation, OperationKind, Recorded};
use shikiri_model::run::{Command, Refusal};

use super::context::Context;
use super::drive::Driver;
use super::use_cases::RunView;
use crate::app::App;
use crate::error::AppError;

impl App {
    /// Gives a run that has not ended something new to go by, if its agent takes that.
    pub async fn update_run(
        &self,
        tenant: &TenantId,
        id: &RunId,
        input: Value,
    ) -> Result<RunView, AppError> {
        let run = self.load_run(tenant, id).await?.value;
        if run.status.is_terminal() {
            return Err(Refusal::Ended(run.status).into());
        }
        let checked = match self.agent(&run.agent) {
            Some(agent) => agent.check_update(&input),
            None => Err(format!("there is no agent {:?} here that could take it", run.agent)),
        };
        checked.map_err(|reason| AppError::invalid("input", reason))?;
        self.change_run(tenant, id, None, |_| Command::Input(input.clone())).await?;
        self.run(tenant, id).await
    }
}

impl Context {
    /// The updates that came since the agent last looked, oldest first; each is given once.
    pub fn updates(&self) -> impl Future<Output = Vec<Value>> + use<> {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        async move {
            let operation = Operation { kind: OperationKind::Updates, name: "updates".to_owned() };
            match driver.recall(index, &operation).await {
                Some(Recorded::InputsTaken(inputs)) => inputs,
                _ => driver.take_inputs(index).await,
            }
        }
    }
}

impl Driver {
    /// Queues the event without waiting for it: whatever the agent does next and waits for is
    /// written after it. If it is lost, so is all that could have followed from it.
    async fn take_inputs(&self, index: u64) -> Vec<Value> {
        let take = async {
            // Held until the event is queued: were a joined look written first and this one lost,
            // nobody would see these inputs again.
            let mut taken = self.inputs_taken.lock().await;
            let run = self.app.load_run(&self.run.tenant, &self.run.id).await?;
            let inputs = run.value.inputs.get(*taken..).unwrap_or_default().to_vec();
            let data = json!({ "index": index, "from": *taken, "inputs": inputs });
            self.outbox.push(NewEvent::from_value("inputs_taken", &data), None).await?;
            *taken += inputs.len();
            Ok::<_, AppError>(inputs)
        };
        match self.busy(take).await {
            Ok(inputs) => inputs,
            Err(error) => self.lost(error.to_string()).await,
        }
    }
}
