//! `shikiri hooks install|uninstall`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::events::{Hook, Ours, http_url};
use super::program::{HookPrograms, Places, search_path};
use super::settings::{self, differ_in_ours_only};
use super::settings_file::SettingsFile;
use super::{Scope, http_key};
use crate::cli::status::ServerFinding;
use crate::cli::{JsonArgument, TenantArgument, open};
use crate::config::Config;
use crate::data_folder::KEY_PREFIX;
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};
use crate::store_url::StoreUrl;
use crate::trust::ConfigUse;
use crate::wiring::Access;

#[derive(Args)]
pub(super) struct Install {
    #[command(flatten)]
    scope: Scope,
    /// Post events to this server instead of starting a program for each
    #[arg(long, value_name = "URL")]
    http: Option<String>,
    /// The key that the server asks for; without it, one is made in this project's store
    #[arg(long, value_name = "KEY", requires = "http")]
    key: Option<String>,
    #[command(flatten)]
    tenant: TenantArgument,
    /// Only show what the file would say
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonArgument,
}

#[derive(Args)]
pub(super) struct Uninstall {
    #[command(flatten)]
    scope: Scope,
    /// Only show what the file would say
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonArgument,
}

impl Install {
    /// Which hooks can be installed depends on the store.
    pub(super) fn uses(&self) -> &'static [ConfigUse] {
        &[ConfigUse::Store]
    }

    pub(super) async fn run(&self, config: &Config) -> Result<(), Failure> {
        let file = self.scope.settings(config)?;
        // No key is created for a file that cannot hold it.
        let before = settings::found(file.text()).map_err(|fault| file.broken(&fault))?;
        let (hook, warning) = self.hook(&file, config).await?;
        let text = settings::install(file.text(), &hook).map_err(|fault| file.broken(&fault))?;
        let changed = file.text.as_ref() != Some(&text);
        if changed && !self.dry_run {
            // An older backup predates the hooks that are in the file now, or is outdated.
            let is_first = before.is_empty();
            let has_copy = file.backup().is_some() || settings::is_made_by_install(file.text());
            if is_first || !has_copy {
                file.keep()?;
            }
            file.replace(&text, hook.is_http())?;
        }
        if let Some(warning) = &warning {
            note(warning);
        }
        for (other, command) in Scope::others_calling(config, &file) {
            note(&format!(
                "{} calls Shikiri too, so each event is handled twice: `{command}` changes that",
                other.display()
            ));
        }
        if hook.is_http() && !self.scope.is_private() {
            note(&format!(
                "{} holds the server's key: keep it out of version control, or use --local",
                file.path.display()
            ));
        }
        let summary = match changed {
            true => format!("{} calls {}", file.path.display(), hook.name()),
            false => format!("{} calls {} already", file.path.display(), hook.name()),
        };
        Report { file: &file, changed, dry_run: self.dry_run, json: self.json }
            .tell(&text, &summary)
    }

    /// The hook, and what to say about it.
    async fn hook(
        &self,
        file: &SettingsFile,
        config: &Config,
    ) -> Result<(Hook, Option<String>), Failure> {
        match (&self.http, &config.store) {
            (Some(base), _) => Ok((self.posting_hook(base, file, config).await?, None)),
            (None, StoreUrl::Postgres(_)) => {
                let base = known_server(config).await?;
                let hook = self.posting_hook(&base, file, config).await?;
                let why = format!("the store is {}, so events are posted to {base}", config.store);
                Ok((hook, Some(why)))
            }
            (None, StoreUrl::Sqlite(_)) => {
                let programs = HookPrograms::beside(&program()?);
                let search_path = search_path();
                let named = match self.scope.is_private() {
                    true => programs.private_name(),
                    false => programs.shared_name(&Places {
                        search_path: search_path.as_deref(),
                        project: &config.checkout,
                    }),
                };
                let named = named.ok_or_else(program_gone)?;
                Ok((Hook::calling(named.command, named.args), named.warning))
            }
        }
    }

    async fn posting_hook(
        &self,
        base: &str,
        file: &SettingsFile,
        config: &Config,
    ) -> Result<Hook, Failure> {
        if !base.starts_with("http://") && !base.starts_with("https://") {
            let what = format!("--http: {base:?} is no address of a server");
            return Err(Failure::usage(what, "write it as http://127.0.0.1:7420"));
        }
        if let Some(key) = self.key.as_ref().filter(|key| !key.starts_with(KEY_PREFIX)) {
            let what = format!("--key: {:?} is no key of Shikiri's", shown(key));
            return Err(Failure::usage(what, "they begin with shk_, `shikiri keys` makes them"));
        }
        let known = || known_key(file, base);
        let key = match self.key.clone().or_else(known) {
            Some(key) => key,
            None if self.dry_run => format!("{KEY_PREFIX}KEY"),
            None => http_key::make(config, &self.tenant.id).await?,
        };
        Ok(Hook::posting(base, &key))
    }
}

impl Uninstall {
    pub(super) fn run(&self, config: &Config) -> Result<(), Failure> {
        let file = self.scope.settings(config)?;
        let broken = |fault| file.broken(&fault);
        let before = file.text();
        let mut text = settings::uninstall(before).map_err(broken)?;
        let changed = text != before;
        // If nothing else has changed since, the backup is restored byte for byte.
        let backup = file.backup().filter(|backup| {
            changed
                && settings::found(backup).is_ok_and(|found| found.is_empty())
                && differ_in_ours_only(before, backup).unwrap_or(false)
        });
        let made_by_us = settings::is_made_by_install(before);
        if let Some(backup) = &backup {
            text.clone_from(backup);
        }
        if changed && !self.dry_run {
            match &backup {
                None if !made_by_us => {
                    file.keep()?;
                    file.replace(&text, true)?;
                }
                backup => file.restore(backup.as_deref())?,
            }
        }
        for (other, command) in Scope::others_calling(config, &file) {
            note(&format!("{} still calls Shikiri: `{command}` changes that", other.display()));
        }
        let summary = match changed {
            true => format!("{} calls no hook of Shikiri any more", file.path.display()),
            false => format!("{} calls no hook of Shikiri", file.path.display()),
        };
        Report { file: &file, changed, dry_run: self.dry_run, json: self.json }
            .tell(&text, &summary)
    }
}

/// The address of a running server of a store that hook processes do not reach.
async fn known_server(config: &Config) -> Result<String, Failure> {
    let found = match open(config, Access::Read).await {
        Ok(app) => ServerFinding::answering(&app).await?,
        // No server has used the store yet.
        Err(Failure::Told { exit: Exit::NotFound, .. }) => None,
        Err(failure) => return Err(failure),
    };
    if let Some(url) = found {
        return Ok(url);
    }
    let what = format!(
        "the store is {}: hooks reach it only through a server, and none of this store answers",
        config.store
    );
    let next = "start `shikiri serve` and install again, or name the server with --http URL";
    Err(Failure::new(Exit::Refused, what, next))
}

/// The report of what a command did, or would do.
struct Report<'a> {
    file: &'a SettingsFile,
    changed: bool,
    dry_run: bool,
    json: JsonArgument,
}

impl Report<'_> {
    fn tell(&self, text: &str, summary: &str) -> Result<(), Failure> {
        let output = Output::stdout();
        if self.json.json {
            let found = settings::found(text).unwrap_or_default();
            let events: Vec<_> = found.iter().map(|found| found.event.as_str()).collect();
            let backup = Some(self.file.backup_path()).filter(|path| path.exists());
            return output.json(&json!({
                "file": self.file.path,
                "changed": self.changed,
                "dry_run": self.dry_run,
                "events": events,
                "backup": backup,
            }));
        }
        if self.dry_run {
            return output.piece(text);
        }
        output.line(summary)
    }
}

/// Enough of a secret to recognise it.
fn shown(key: &str) -> String {
    let start: String = key.chars().take(4).collect();
    if start.len() < key.len() { format!("{start}…") } else { start }
}

/// The path of this program.
fn program() -> Result<PathBuf, Failure> {
    let found = std::env::current_exe().ok().filter(|path| path.exists());
    found.ok_or_else(program_gone)
}

fn program_gone() -> Failure {
    let what = "this program cannot be found on the disk any more";
    Failure::new(Exit::Failed, what, "install it, and call it by its path")
}

/// The key with which hooks are already posted to that server.
fn known_key(file: &SettingsFile, base: &str) -> Option<String> {
    let found = settings::found(file.text()).ok()?;
    found.into_iter().find_map(|found| match found.ours {
        Ours::Server { url, key } if url == http_url(base) => Some(key),
        _ => None,
    })
}
