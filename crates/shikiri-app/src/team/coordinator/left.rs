//! What becomes of what a run has left on its agent's list.

use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::record::Stored;
use shikiri_model::team::{
    Arrival, Message, Purpose, Seat, Task, Waiting, What, given_up, is_reason, is_taken_by,
};
use shikiri_store::StoreExt;

use crate::app::App;
use crate::team::draft::Draft;
use crate::team::{TeamError, until_settled};

/// What a person reads in a task that nobody could do.
const GIVEN_UP: &str = "the agent was started again and again, and each time ended without \
                        finishing this; set the task to todo for another try";

impl App {
    /// What a run that ended well has read and need not answer.
    pub(super) async fn take_off(
        &self,
        waiting: &[Stored<Waiting>],
        session: &AgentSessionId,
    ) -> Result<(), TeamError> {
        for one in waiting.iter().filter(|one| one.value.is_seen_by(session)) {
            self.take_one_off(&one.value, session).await?;
        }
        Ok(())
    }

    async fn take_one_off(
        &self,
        taken: &Waiting,
        session: &AgentSessionId,
    ) -> Result<(), TeamError> {
        until_settled!(&taken.id, self.try_take_off(taken, session).await?)
    }

    async fn try_take_off(
        &self,
        taken: &Waiting,
        session: &AgentSessionId,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut found) = self.store.load::<Waiting>(&taken.tenant, &taken.id).await? else {
            return Ok(Some(()));
        };
        // That may not be written down yet.
        found.value.has_come |= self.arrivals.of(session, &taken.id) == Arrival::Came;
        // If another session has seen it meanwhile, it is that one's.
        if !is_taken_by(&found.value, session) {
            return Ok(Some(()));
        }
        let mut draft = Draft::begin(self, &taken.tenant).await?;
        draft.remove(&found);
        draft.settle(self, ()).await
    }

    /// Nobody is started any more for what waits there. It is still seen by whoever comes.
    pub(super) async fn give_up(
        &self,
        seat: &Seat,
        waiting: &[Stored<Waiting>],
    ) -> Result<(), TeamError> {
        for one in waiting.iter().filter(|one| is_reason(&one.value)) {
            if !matches!(one.value.what, What::Task(_)) {
                self.set_aside(&one.value.tenant, &one.value.id).await?;
            }
        }
        if seat.purpose == Purpose::Chat {
            return Ok(());
        }
        let tasks = self.open_tasks(&seat.tenant, &seat.place).await?;
        for task in given_up(&tasks) {
            self.block(task).await?;
        }
        Ok(())
    }

    async fn set_aside(&self, tenant: &TenantId, id: &str) -> Result<(), TeamError> {
        until_settled!(id, self.try_set_aside(tenant, id).await?)
    }

    async fn try_set_aside(&self, tenant: &TenantId, id: &str) -> Result<Option<()>, TeamError> {
        let Some(mut waiting) = self.store.load::<Waiting>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut draft = Draft::begin(self, tenant).await?;
        if let What::Message(id) = &waiting.value.what
            && let Some(mut message) = self.store.load::<Message>(tenant, id.as_str()).await?
        {
            // Whoever read it has done nothing about it.
            message.value.read_at = None;
            draft.put(&message)?;
        }
        waiting.value.due_at = None;
        draft.put(&waiting)?;
        draft.settle(self, ()).await
    }

    async fn block(&self, task: &Task) -> Result<(), TeamError> {
        until_settled!(task.id.as_str(), self.try_block(task).await?)
    }

    async fn try_block(&self, task: &Task) -> Result<Option<()>, TeamError> {
        let (tenant, id) = (&task.tenant, task.id.as_str());
        let found = self.store.load::<Task>(tenant, id).await?;
        // Somebody has changed it meanwhile: then it is not given up.
        let Some(mut found) = found.filter(|found| found.value == *task) else {
            return Ok(Some(()));
        };
        let mut draft = Draft::begin(self, tenant).await?;
        found.value.block(GIVEN_UP);
        draft.put(&found)?;
        draft.stop_waiting(self, id).await?;
        if let Some(place) = found.value.place() {
            self.settle_outcomes(&mut draft, &found.value, &place).await?;
            draft.ring(place);
        }
        draft.settle(self, ()).await
    }
}
