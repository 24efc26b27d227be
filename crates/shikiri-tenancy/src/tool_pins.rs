//! The tool definitions of servers, pinned so that a change is noticed: compare, pin, accept.
//! `docs/decisions/0022` says what follows from a change.

use shikiri_model::host::ServerSpec;
use shikiri_model::ids::{ServerId, TenantId};
use shikiri_model::record::{Document as _, ExpectedVersion, RecordChange, StoredDocument};
use shikiri_model::server::McpServerTransport;
use shikiri_model::tool::{ToolChange, ToolDefinition, ToolPins};
use shikiri_runtime::{AppError, transact};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::Tenancy;

/// The server whose tools are pinned.
#[derive(Clone, Debug)]
pub struct PinOwner {
    tenant: TenantId,
    id: String,
    /// Where the server is, in the form that its [`ToolPins`] store.
    place: String,
}

impl PinOwner {
    /// A tenant's MCP server. The pins have the id of its record.
    pub fn of_server(
        tenant: &TenantId,
        id: &ServerId,
        transport: &McpServerTransport,
    ) -> Result<Self, AppError> {
        // Hashed: an address may hold a secret.
        let place = sha256(&serde_json::to_string(transport)?);
        Ok(Self { tenant: tenant.clone(), id: id.to_string(), place })
    }

    /// A server that a host calls, identified by its name and endpoint.
    pub fn of_host(tenant: &TenantId, spec: &ServerSpec) -> Self {
        let place = spec.reach.endpoint();
        let id = format!("host-{}", &sha256(&format!("{}\n{place}", spec.name))[..32]);
        Self { tenant: tenant.clone(), id, place }
    }
}

fn sha256(text: &str) -> String {
    hex::encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()))
}

/// The tools that a person accepted.
#[derive(Clone, Copy)]
pub enum AcceptedTools<'a> {
    /// All that the server lists.
    All,
    /// The tool of this name.
    One(&'a str),
}

impl Tenancy {
    /// Compares a server's tools with the pinned ones. Stores nothing.
    pub async fn compare_tools(
        &self,
        owner: &PinOwner,
        listed: &[ToolDefinition],
    ) -> Result<Vec<ToolChange>, AppError> {
        let known = self.pins_of(owner).await?.filter(|known| known.value.place == owner.place);
        Ok(known.map(|known| known.value.compare(listed)).unwrap_or_default())
    }

    /// Compares a server's tools with the pinned ones, and pins new tools. The first tools of a new
    /// server are no change.
    pub async fn pin_tools(
        &self,
        owner: &PinOwner,
        listed: &[ToolDefinition],
    ) -> Result<Vec<ToolChange>, AppError> {
        self.change_pins(owner, false, |pins| pins.add_new(listed), listed).await
    }

    /// Pins changed tools as they are now, because a person has accepted them.
    pub async fn accept_tools(
        &self,
        owner: &PinOwner,
        listed: &[ToolDefinition],
        accepted: AcceptedTools<'_>,
    ) -> Result<Vec<ToolChange>, AppError> {
        let accept = |pins: &mut ToolPins| match accepted {
            AcceptedTools::All => pins.accept_all(listed),
            AcceptedTools::One(name) => {
                listed.iter().filter(|tool| tool.name == name).for_each(|tool| pins.accept(tool));
            }
        };
        self.change_pins(owner, true, accept, listed).await
    }

    /// The change that deletes a server's pins, for the commit that deletes the server.
    pub async fn unpin(
        &self,
        tenant: &TenantId,
        server: &ServerId,
    ) -> Result<Option<RecordChange>, AppError> {
        let known = self.runtime.store().load::<ToolPins>(tenant, server.as_str()).await?;
        Ok(known
            .map(|known| RecordChange::Delete { key: known.value.key(), version: known.version }))
    }

    async fn pins_of(
        &self,
        owner: &PinOwner,
    ) -> Result<Option<StoredDocument<ToolPins>>, AppError> {
        Ok(self.runtime.store().load::<ToolPins>(&owner.tenant, &owner.id).await?)
    }

    /// Changes the pins of a server. Only what a person accepts changes which tools may be called,
    /// so only that is audited.
    async fn change_pins(
        &self,
        owner: &PinOwner,
        is_audited: bool,
        change: impl Fn(&mut ToolPins) + Send + Sync,
        listed: &[ToolDefinition],
    ) -> Result<Vec<ToolChange>, AppError> {
        transact(ToolPins::KIND, &owner.id, || async {
            let stored = self.pins_of(owner).await?;
            let expect = stored
                .as_ref()
                .map_or(ExpectedVersion::New, |it| ExpectedVersion::Version(it.version));
            let known = stored.map(|it| it.value).filter(|known| known.place == owner.place);
            let changes = known.as_ref().map(|known| known.compare(listed)).unwrap_or_default();
            let (id, place) = (owner.id.clone(), owner.place.clone());
            let new = || ToolPins::new(owner.tenant.clone(), id, place);
            let mut next = known.clone().unwrap_or_else(new);
            change(&mut next);
            if known.as_ref() == Some(&next) {
                return Ok(Some(changes));
            }
            let mut commit = Commit::new().record(RecordChange::put(&next, expect)?);
            if is_audited {
                commit.appends.extend(self.runtime.audit(known.as_ref(), Some(&next))?);
            }
            match self.runtime.store().commit(commit).await {
                Ok(_) => Ok(Some(changes)),
                // Another process has pinned this server's tools since: compare with what it kept.
                Err(CommitError::Conflict(_) | CommitError::Exists(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }
}
