//! The key with which Claude Code posts events to a server. It opens nothing else.

use shikiri_model::ids::TenantId;
use shikiri_tenancy::keys::NewApiKey;

use crate::cli::open;
use crate::config::Config;
use crate::exit::Failure;
use crate::output::note;
use crate::wiring::Access;

/// Creates one in this project's store, which the server is assumed to use.
pub(super) async fn make(config: &Config, tenant: &TenantId) -> Result<String, Failure> {
    let app = open(config, Access::Write).await?;
    let (stored, secret) = app.tenancy.create_hooks_key(tenant, NewApiKey::named("hooks")).await?;
    note(&format!("{} was made for tenant {tenant}; it can only post hooks", stored.value.id));
    Ok(secret.reveal().to_owned())
}
