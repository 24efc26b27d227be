//! What servers said of their tools, kept so that a change is noticed: compare, pin, accept.
//! `docs/decisions/0022` says what follows from a change.

use shikiri_model::host::ServerSpec;
use shikiri_model::ids::{ServerId, TenantId};
use shikiri_model::record::{Document as _, Expect, RecordChange, Stored};
use shikiri_model::server::Transport;
use shikiri_model::tool::{ToolChange, ToolDefinition, ToolPins};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::app::{App, busy, max_tries};
use crate::error::AppError;

/// Whose tools are meant.
#[derive(Clone, Debug)]
pub(crate) struct PinOwner {
    tenant: TenantId,
    id: String,
    place: String,
}

impl PinOwner {
    /// A tenant's MCP server. The pins have the id of its record.
    pub(crate) fn of_server(
        tenant: &TenantId,
        id: &ServerId,
        transport: &Transport,
    ) -> Result<Self, AppError> {
        // Hashed: an address may hold a secret.
        let place = sha256(&serde_json::to_string(transport)?);
        Ok(Self { tenant: tenant.clone(), id: id.to_string(), place })
    }

    /// A server that a host calls, known by its name and where it is.
    pub(crate) fn of_host(tenant: &TenantId, spec: &ServerSpec) -> Self {
        let place = spec.reach.endpoint();
        let id = format!("host-{}", &sha256(&format!("{}\n{place}", spec.name))[..32]);
        Self { tenant: tenant.clone(), id, place }
    }
}

fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a person agreed to.
#[derive(Clone, Copy)]
pub(crate) enum Accepted<'a> {
    /// All that the server lists.
    All,
    /// The tool of this name.
    One(&'a str),
}

impl App {
    /// How a server's tools differ from what is known of them. Nothing is kept.
    pub(crate) async fn compare_tools(
        &self,
        owner: &PinOwner,
        listed: &[ToolDefinition],
    ) -> Result<Vec<ToolChange>, AppError> {
        let known = self.pins_of(owner).await?.filter(|known| known.value.place == owner.place);
        Ok(known.map(|known| known.value.compare(listed)).unwrap_or_default())
    }

    /// The same, and tools that were never seen are pinned. Those of a server that was never seen are
    /// no change.
    pub(crate) async fn pin_tools(
        &self,
        owner: &PinOwner,
        listed: &[ToolDefinition],
    ) -> Result<Vec<ToolChange>, AppError> {
        self.change_pins(owner, false, |pins| pins.add_new(listed), listed).await
    }

    /// Pins changed tools as they are now: a person has accepted them.
    pub(crate) async fn accept_tools(
        &self,
        owner: &PinOwner,
        listed: &[ToolDefinition],
        accepted: Accepted<'_>,
    ) -> Result<Vec<ToolChange>, AppError> {
        let accept = |pins: &mut ToolPins| match accepted {
            Accepted::All => pins.accept_all(listed),
            Accepted::One(name) => {
                listed.iter().filter(|tool| tool.name == name).for_each(|tool| pins.accept(tool));
            }
        };
        self.change_pins(owner, true, accept, listed).await
    }

    /// The change that removes what is known of a server's tools, for the commit that removes it.
    pub(crate) async fn unpin(
        &self,
        tenant: &TenantId,
        server: &ServerId,
    ) -> Result<Option<RecordChange>, AppError> {
        let known = self.store.load::<ToolPins>(tenant, server.as_str()).await?;
        Ok(known
            .map(|known| RecordChange::Delete { key: known.value.key(), version: known.version }))
    }

    async fn pins_of(&self, owner: &PinOwner) -> Result<Option<Stored<ToolPins>>, AppError> {
        Ok(self.store.load::<ToolPins>(&owner.tenant, &owner.id).await?)
    }

    /// Only what a person accepts is a change of what may be called, so only that is audited.
    async fn change_pins(
        &self,
        owner: &PinOwner,
        is_audited: bool,
        change: impl Fn(&mut ToolPins) + Send,
        listed: &[ToolDefinition],
    ) -> Result<Vec<ToolChange>, AppError> {
        for _ in 0..max_tries() {
            let stored = self.pins_of(owner).await?;
            let expect = stored.as_ref().map_or(Expect::New, |it| Expect::Version(it.version));
            let known = stored.map(|it| it.value).filter(|known| known.place == owner.place);
            let changes = known.as_ref().map(|known| known.compare(listed)).unwrap_or_default();
            let (id, place) = (owner.id.clone(), owner.place.clone());
            let new = || ToolPins::new(owner.tenant.clone(), id, place);
            let mut next = known.clone().unwrap_or_else(new);
            change(&mut next);
            if known.as_ref() == Some(&next) {
                return Ok(changes);
            }
            let mut commit = Commit::new().record(RecordChange::put(&next, expect)?);
            if is_audited {
                commit.appends.extend(self.audit(known.as_ref(), Some(&next))?);
            }
            match self.store.commit(commit).await {
                Ok(_) => return Ok(changes),
                // Another process has pinned this server's tools since: compare with what it kept.
                Err(CommitError::Conflict(_) | CommitError::Exists(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy(ToolPins::KIND, &owner.id))
    }
}
