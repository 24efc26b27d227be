//! Updates of a run while it works: how a caller sends them and how the agent reads them.
//!
//! An update is stored with the run. The agent reads updates where it can still change course. Each
//! read is journaled with its result, even an empty one, so a replay goes the same way even if more
//! updates have come since.

use std::future::Future;
use std::sync::Arc;

use serde_json::{Value, json};
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::journal::{JournalEntry, JournalOperation, OperationKind};
use shikiri_model::run::{RunCommand, RunEventName, RunRefusal};

use super::run_context::RunContext;
use super::run_driver::RunDriver;
use super::use_cases::RunView;
use crate::error::AppError;
use crate::runtime::Runtime;

impl Runtime {
    /// Sends an update to a run that has not ended, if its agent accepts it.
    pub async fn update_run(
        &self,
        tenant: &TenantId,
        id: &RunId,
        input: Value,
    ) -> Result<RunView, AppError> {
        let run = self.load_run(tenant, id).await?.value;
        if run.status.is_terminal() {
            return Err(RunRefusal::Ended(run.status).into());
        }
        let checked = match self.agent(&run.agent) {
            Some(agent) => agent.check_update(&input),
            None => Err(format!("there is no agent {:?} here that could take it", run.agent)),
        };
        checked.map_err(|reason| AppError::invalid("input", reason))?;
        self.change_run(tenant, id, None, |_| RunCommand::Input(input.clone())).await?;
        self.run(tenant, id).await
    }
}

impl RunContext {
    /// The updates since the agent last read them, oldest first. Each is returned once.
    pub fn updates(&self) -> impl Future<Output = Vec<Value>> + use<> {
        let index = self.driver.next_index();
        let driver = Arc::clone(&self.driver);
        async move {
            let operation =
                JournalOperation { kind: OperationKind::Updates, name: "updates".to_owned() };
            match driver.recall(index, &operation).await {
                Some(JournalEntry::InputsTaken(inputs)) => inputs,
                _ => driver.take_inputs(index).await,
            }
        }
    }
}

impl RunDriver {
    /// Queues the event without waiting for it: everything that the agent waits for next is written
    /// after it. If the event is lost, so is everything that could have followed from it.
    async fn take_inputs(&self, index: u64) -> Vec<Value> {
        let take = async {
            // Held until the event is queued: if a joined read were written first and this one
            // lost, these inputs would not be seen again.
            let mut taken = self.inputs_taken.lock().await;
            let run = self.runtime.load_run(&self.run.tenant, &self.run.id).await?;
            let inputs = run.value.inputs.get(*taken..).unwrap_or_default().to_vec();
            let data = json!({ "index": index, "from": *taken, "inputs": inputs });
            self.outbox
                .push(NewEvent::from_value(RunEventName::InputsTaken.as_str(), &data), None)
                .await?;
            *taken += inputs.len();
            Ok::<_, AppError>(inputs)
        };
        match self.busy(take).await {
            Ok(inputs) => inputs,
            Err(error) => self.abort_attempt(error.to_string()).await,
        }
    }
}
