//! The key with which Claude Code posts events to a server: it opens nothing else.

use shikiri_app::keys::NewKey;
use shikiri_model::ids::TenantId;

use crate::cli::open;
use crate::config::Config;
use crate::exit::Failure;
use crate::output::note;
use crate::wiring::Access;

/// Makes one in the store of this project, which the server is taken to use.
pub(super) async fn make(config: &Config, tenant: &TenantId) -> Result<String, Failure> {
    let app = open(config, Access::Write).await?;
    let (stored, secret) = app.create_hooks_key(tenant, NewKey::named("hooks")).await?;
    note(&format!("{} was made for tenant {tenant}; it can only post hooks", stored.value.id));
    Ok(secret.reveal().to_owned())
}
