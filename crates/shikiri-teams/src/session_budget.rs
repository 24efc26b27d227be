//! An agent's remaining budget, by everything that it was told.

use shikiri_model::team::{Dialogue, TeamBudget};
use shikiri_model::time::Timestamp;

use super::TeamError;
use super::session_handle::AgentSessionHandle;

impl AgentSessionHandle {
    /// The budget for a new action of this agent.
    pub(super) async fn budget(
        &self,
        living: &[Dialogue],
        now: Timestamp,
    ) -> Result<TeamBudget, TeamError> {
        Ok(TeamBudget::for_new_work(&self.received_budgets(living).await?, self.limits(), now)?)
    }

    /// The budgets that a new action of this agent may follow from: those that its session was
    /// shown, and those of the agents that talk to it now.
    pub(super) async fn received_budgets(
        &self,
        living: &[Dialogue],
    ) -> Result<Vec<TeamBudget>, TeamError> {
        let talked_to = living.iter().filter(|one| one.participant == *self.agent());
        let mut budgets: Vec<TeamBudget> = talked_to.map(|one| one.budget).collect();
        let open = self.teams.open_delegations(self.tenant(), &self.place().project).await?;
        let for_it = open.iter().filter(|one| one.target == *self.agent());
        budgets.extend(for_it.filter(|one| one.dialogue.is_none()).map(|one| one.budget));
        budgets.extend(self.session.told);
        Ok(budgets)
    }
}
