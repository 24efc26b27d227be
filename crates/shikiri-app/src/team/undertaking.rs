//! What an agent may still undertake, by all that it was told.

use shikiri_model::team::{AgentSession, Budget, Dialogue};
use shikiri_model::time::Timestamp;
use shikiri_store::StoreExt;

use super::TeamError;
use super::desk::{Desk, session_over};
use super::draft::Draft;

impl Desk {
    /// For something new of this agent.
    pub(super) async fn budget(
        &self,
        living: &[Dialogue],
        now: Timestamp,
    ) -> Result<Budget, TeamError> {
        Ok(Budget::for_undertaking(&self.told(living).await?, self.limits(), now)?)
    }

    /// All that something new of this agent may follow from: what its session was shown, and those
    /// who talk to it now.
    pub(super) async fn told(&self, living: &[Dialogue]) -> Result<Vec<Budget>, TeamError> {
        let talked_to = living.iter().filter(|one| one.participant == *self.agent());
        let mut told: Vec<Budget> = talked_to.map(|one| one.budget).collect();
        let open = self.app.open_delegations(self.tenant(), &self.place().project).await?;
        let for_it = open.iter().filter(|one| one.target == *self.agent());
        told.extend(for_it.filter(|one| one.dialogue.is_none()).map(|one| one.budget));
        told.extend(self.session.told);
        Ok(told)
    }

    /// A session pays for what it begins of its own accord from what it was told.
    pub(super) async fn pay(&self, draft: &mut Draft, turns: u32) -> Result<(), TeamError> {
        if self.session.told.is_none() {
            return Ok(());
        }
        let id = self.session.id.as_str();
        let found = self.app.store.load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = found else { return Err(session_over().into()) };
        if let Some(told) = &mut session.value.told {
            told.spend(turns);
            draft.put(&session)?;
        }
        Ok(())
    }
}
