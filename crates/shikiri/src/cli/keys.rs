//! `shikiri keys create|list|revoke|rotate-admin`.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use shikiri_app::App;
use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::ApiKey;
use shikiri_model::record::RecordQuery;
use shikiri_model::time::Timestamp;
use shikiri_tenancy::Tenancy;
use shikiri_tenancy::keys::{ListedKey, NewApiKey};
use shikiri_web::views::{CreatedKeyJson, KeyJson};

use super::id_argument::IdArgument;
use super::parts::{all_pages, none_yet, print_page};
use super::{CommonArguments, JsonArgument, TenantArgument};
use crate::config::Config;
use crate::data_folder;
use crate::exit::Failure;
use crate::output::{Output, note};
use crate::table::TableColumn;
use crate::text::short;
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a key and print it; it is not shown again
    Create {
        /// What it is for
        #[arg(default_value = "cli")]
        name: String,
        /// When it ends: 30d, 12h, 90m, or a time like 2027-01-01T00:00:00Z [default: never]
        #[arg(long, value_name = "WHEN")]
        expires: Option<KeyEnd>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show the keys of a tenant, without their secrets
    List {
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Make a key useless at once
    Revoke {
        /// The key's id, not its secret
        key: IdArgument<KeyId>,
        #[command(flatten)]
        tenant: TenantArgument,
    },
    /// Make a new admin key in its file; every earlier one ends
    RotateAdmin,
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEnd {
    After(Duration),
    At(Timestamp),
}

#[derive(Debug, thiserror::Error)]
#[error("not a time: write 30d, 12h or 90m from now, or like 2027-01-31T12:00:00.000Z")]
pub(super) struct InvalidKeyEnd;

impl FromStr for KeyEnd {
    type Err = InvalidKeyEnd;

    fn from_str(text: &str) -> Result<Self, InvalidKeyEnd> {
        let unit = match text.chars().last() {
            Some('d') => 24 * 3_600,
            Some('h') => 3_600,
            Some('m') => 60,
            _ => return text.parse().map(Self::At).map_err(|_| InvalidKeyEnd),
        };
        let count: u64 = text[..text.len() - 1].parse().map_err(|_| InvalidKeyEnd)?;
        Ok(Self::After(Duration::from_secs(count.saturating_mul(unit))))
    }
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::List { .. } => Access::Read,
            Self::Create { .. } | Self::Revoke { .. } | Self::RotateAdmin => Access::Write,
        }
    }
}

pub(super) async fn run(app: &App, config: &Config, command: Command) -> Result<(), Failure> {
    let output = Output::stdout();
    match command {
        Command::Create { name, expires, common } => {
            let expires_at = match expires {
                Some(KeyEnd::At(time)) => Some(time),
                Some(KeyEnd::After(time)) => Some(app.runtime.store().now().await? + time),
                None => None,
            };
            let new = NewApiKey { name, expires_at };
            let (stored, secret) = app.tenancy.create_key(&common.tenant.id, new).await?;
            if common.json.json {
                return output.json(&CreatedKeyJson::new(stored, &secret));
            }
            // Alone on stdout, so that a script can read it.
            output.line(secret.reveal())?;
            note(&format!(
                "{} opens tenant {}; it is shown this once",
                stored.value.id, common.tenant.id
            ));
            Ok(())
        }
        Command::List { common } => list(app, &common.tenant.id, common.json).await,
        Command::Revoke { key, tenant } => {
            let of_tenant = RecordQuery {
                parent: Some(tenant.id.to_string()),
                ..RecordQuery::of::<ApiKey>(&TenantId::system())
            };
            let key = key.resolve_among(app, of_tenant, |_| true).await?;
            app.tenancy.revoke_key(&tenant.id, &key).await?;
            output.line(&format!("{key} is revoked"))
        }
        Command::RotateAdmin => rotate_admin(app, &config.key_file()).await,
    }
}

/// In this order, so that the key in the file is valid even if this is interrupted.
async fn rotate_admin(app: &App, path: &Path) -> Result<(), Failure> {
    let secret = Tenancy::mint_secret()?;
    app.tenancy.ensure_admin_key(&secret).await?;
    data_folder::replace_key(path, &secret)?;
    let ended = app.tenancy.revoke_other_admin_keys(&secret).await?;
    let output = Output::stdout();
    output.line(&format!("{} holds a new admin key", path.display()))?;
    output.line(&format!("earlier admin keys that ended: {ended}"))
}

async fn list(app: &App, tenant: &TenantId, json: JsonArgument) -> Result<(), Failure> {
    let keys = all_pages(async |after| app.tenancy.list_keys(tenant, after, 100).await).await?;
    let row = |ListedKey { stored, last_used_at }: &ListedKey| {
        let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), |t| t.to_string());
        vec![
            stored.value.id.to_string(),
            stored.created_at.to_string(),
            time(stored.value.expires_at),
            time(*last_used_at),
            short(&stored.value.name, 60),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::time("created"),
        TableColumn::time("expires"),
        TableColumn::time("last used"),
        TableColumn::text("name"),
    ];
    let empty = none_yet("keys", false, &format!("keys create NAME --tenant {tenant}"));
    print_page::<KeyJson, _>((keys, None), json, &columns, &empty, row)
}
