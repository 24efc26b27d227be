//! `shikiri keys create|list|revoke|rotate-admin`.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use shikiri_app::App;
use shikiri_app::keys::{ListedKey, NewKey};
use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::time::Timestamp;
use shikiri_web::views::{KeyJson, MadeKey, Page};

use super::{JsonArgument, TenantArgument};
use crate::config::Config;
use crate::data_folder;
use crate::exit::Failure;
use crate::output::{Output, note};
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
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show the keys of a tenant, without their secrets
    List {
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Make a key useless at once
    Revoke {
        key: KeyId,
        #[command(flatten)]
        tenant: TenantArgument,
    },
    /// Make a new admin key in its file; every earlier one ends
    RotateAdmin,
}

/// When a key ends.
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
        Command::Create { name, expires, tenant, json } => {
            let expires_at = match expires {
                Some(KeyEnd::At(time)) => Some(time),
                Some(KeyEnd::After(time)) => Some(app.store().now().await? + time),
                None => None,
            };
            let new = NewKey { name, expires_at };
            let (stored, secret) = app.create_key(&tenant.id, new).await?;
            if json.json {
                return output.json(&MadeKey::new(stored, &secret));
            }
            // Alone on stdout, so that a script can take it.
            output.line(secret.reveal())?;
            note(&format!("{} opens tenant {}; it is shown this once", stored.value.id, tenant.id));
            Ok(())
        }
        Command::List { tenant, json } => list(app, &tenant.id, json).await,
        Command::Revoke { key, tenant } => {
            app.revoke_key(&tenant.id, &key).await?;
            output.line(&format!("{key} is revoked"))
        }
        Command::RotateAdmin => rotate_admin(app, &config.key_file()).await,
    }
}

/// In this order, so that wherever it is broken off, the key in the file is good.
async fn rotate_admin(app: &App, path: &Path) -> Result<(), Failure> {
    let secret = App::mint_secret()?;
    app.ensure_admin_key(&secret).await?;
    data_folder::replace_key(path, &secret)?;
    let ended = app.revoke_other_admin_keys(&secret).await?;
    let output = Output::stdout();
    output.line(&format!("{} holds a new admin key", path.display()))?;
    output.line(&format!("earlier admin keys that ended: {ended}"))
}

async fn list(app: &App, tenant: &TenantId, json: JsonArgument) -> Result<(), Failure> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = app.list_keys(tenant, after, 100).await?;
        keys.extend(page);
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let output = Output::stdout();
    if json.json {
        return output.json(&Page::<KeyJson>::new((keys, None)));
    }
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|ListedKey { stored, last_used_at }| {
            let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), |t| t.to_string());
            vec![
                stored.value.id.to_string(),
                stored.created_at.to_string(),
                time(stored.value.expires_at),
                time(*last_used_at),
                short(&stored.value.name, 60),
            ]
        })
        .collect();
    output.table(&["id", "created", "expires", "last used", "name"], &rows)
}
