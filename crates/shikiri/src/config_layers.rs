//! Where settings come from: the environment and the two files, each as one layer.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;

use crate::config::{Settings, Surroundings};
use crate::config_lanes::Loose;
use crate::env_vars::{self, EnvVar};
use crate::exit::{Exit, Failure};
use crate::trust::NEVER_FROM_PROJECT;

pub(crate) struct Layer {
    pub(crate) origin: Origin,
    pub(crate) settings: Settings,
    /// What relative paths of this layer start from.
    pub(crate) folder: PathBuf,
}

pub(crate) enum Origin {
    Flag,
    Environment,
    File(PathBuf),
}

impl Origin {
    /// How to speak of a setting of this origin.
    pub(crate) fn name(&self, key: &str) -> String {
        match self {
            Self::Flag => format!("--{}", key.replace('_', "-")),
            Self::Environment => format!("SHIKIRI_{}", key.to_uppercase()),
            Self::File(path) => format!("`{key}` in {}", path.display()),
        }
    }
}

pub(crate) fn environment_layer(
    surroundings: &Surroundings<'_>,
    folder: PathBuf,
) -> Result<Layer, Failure> {
    let text = |variable: EnvVar| -> Result<Option<String>, Failure> {
        let Some(value) = surroundings.get(variable) else { return Ok(None) };
        value.into_string().map(Some).map_err(|_| bad(variable, "is not UTF-8", "write plain text"))
    };
    let either = |ours: EnvVar, common: EnvVar| Ok::<_, Failure>(text(ours)?.or(text(common)?));
    let settings = Settings {
        store: text(env_vars::STORE)?,
        listen: text(env_vars::LISTEN)?,
        allow_remote: flag(env_vars::ALLOW_REMOTE, text(env_vars::ALLOW_REMOTE)?)?,
        allowed_hosts: text(env_vars::ALLOWED_HOSTS)?.map(|hosts| split(&hosts)),
        metrics_public: flag(env_vars::METRICS_PUBLIC, text(env_vars::METRICS_PUBLIC)?)?,
        max_connections: number(env_vars::MAX_CONNECTIONS, text(env_vars::MAX_CONNECTIONS)?)?,
        max_streams: number(env_vars::MAX_STREAMS, text(env_vars::MAX_STREAMS)?)?,
        node_lease_seconds: number(
            env_vars::NODE_LEASE_SECONDS,
            text(env_vars::NODE_LEASE_SECONDS)?,
        )?,
        retention_days: number(env_vars::RETENTION_DAYS, text(env_vars::RETENTION_DAYS)?)?,
        execution_timeout_seconds: number(
            env_vars::EXECUTION_TIMEOUT_SECONDS,
            text(env_vars::EXECUTION_TIMEOUT_SECONDS)?,
        )?,
        lock_wait_seconds: number(env_vars::LOCK_WAIT_SECONDS, text(env_vars::LOCK_WAIT_SECONDS)?)?,
        lock_lease_seconds: number(
            env_vars::LOCK_LEASE_SECONDS,
            text(env_vars::LOCK_LEASE_SECONDS)?,
        )?,
        dialogue_pending_seconds: number(
            env_vars::DIALOGUE_PENDING_SECONDS,
            text(env_vars::DIALOGUE_PENDING_SECONDS)?,
        )?,
        dialogue_idle_seconds: number(
            env_vars::DIALOGUE_IDLE_SECONDS,
            text(env_vars::DIALOGUE_IDLE_SECONDS)?,
        )?,
        session_seconds: number(env_vars::SESSION_SECONDS, text(env_vars::SESSION_SECONDS)?)?,
        chat_idle_seconds: number(env_vars::CHAT_IDLE_SECONDS, text(env_vars::CHAT_IDLE_SECONDS)?)?,
        delegation_claim_seconds: number(
            env_vars::DELEGATION_CLAIM_SECONDS,
            text(env_vars::DELEGATION_CLAIM_SECONDS)?,
        )?,
        delegation_depth: number(env_vars::DELEGATION_DEPTH, text(env_vars::DELEGATION_DEPTH)?)?,
        delegation_seconds: number(
            env_vars::DELEGATION_SECONDS,
            text(env_vars::DELEGATION_SECONDS)?,
        )?,
        spawn_guard_seconds: number(
            env_vars::SPAWN_GUARD_SECONDS,
            text(env_vars::SPAWN_GUARD_SECONDS)?,
        )?,
        max_spawns: number(env_vars::MAX_SPAWNS, text(env_vars::MAX_SPAWNS)?)?,
        session_ttl_minutes: either(
            env_vars::SESSION_TTL_MINUTES,
            env_vars::CAI_SESSION_TTL_MINUTES,
        )?
        .map(Loose),
        max_agents: either(env_vars::MAX_AGENTS, env_vars::CAI_MAX_AGENTS)?.map(Loose),
        max_questions: number(env_vars::MAX_QUESTIONS, text(env_vars::MAX_QUESTIONS)?)?,
        max_queued_questions: number(
            env_vars::MAX_QUEUED_QUESTIONS,
            text(env_vars::MAX_QUEUED_QUESTIONS)?,
        )?,
        question_wait_seconds: number(
            env_vars::QUESTION_WAIT_SECONDS,
            text(env_vars::QUESTION_WAIT_SECONDS)?,
        )?,
        pages: text(env_vars::PAGES)?,
        claude_bin: text(env_vars::CLAUDE_BIN)?,
        engine_paths: surroundings.get(env_vars::ENGINE_PATHS).map(|paths| {
            std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty()).collect()
        }),
        engine_memory_mb: number(env_vars::ENGINE_MEMORY_MB, text(env_vars::ENGINE_MEMORY_MB)?)?,
        engine_processes: number(env_vars::ENGINE_PROCESSES, text(env_vars::ENGINE_PROCESSES)?)?,
        engine_file_mb: number(env_vars::ENGINE_FILE_MB, text(env_vars::ENGINE_FILE_MB)?)?,
        engine_open_files: number(env_vars::ENGINE_OPEN_FILES, text(env_vars::ENGINE_OPEN_FILES)?)?,
        unconfined_engines: flag(
            env_vars::UNCONFINED_ENGINES,
            text(env_vars::UNCONFINED_ENGINES)?,
        )?,
        browser_url: text(env_vars::BROWSER_URL)?,
        browser_allow_remote: flag(
            env_vars::BROWSER_ALLOW_REMOTE,
            text(env_vars::BROWSER_ALLOW_REMOTE)?,
        )?,
        browser_headless: flag(env_vars::BROWSER_HEADLESS, text(env_vars::BROWSER_HEADLESS)?)?,
        chrome_bin: text(env_vars::CHROME_BIN)?,
        durability: word(env_vars::DURABILITY, text(env_vars::DURABILITY)?)?,
        postgres_connections: number(
            env_vars::POSTGRES_CONNECTIONS,
            text(env_vars::POSTGRES_CONNECTIONS)?,
        )?,
        log: either(env_vars::LOG, env_vars::RUST_LOG)?,
        log_format: word(
            env_vars::LOG_FORMAT,
            either(env_vars::LOG_FORMAT, env_vars::PLAIN_LOG_FORMAT)?,
        )?,
    };
    Ok(Layer { origin: Origin::Environment, settings, folder })
}

/// None if there is no such file.
pub(crate) fn file_layer(path: &Path) -> Result<Option<Layer>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let what = format!("cannot read {}: {error}", path.display());
            return Err(Failure::new(Exit::Unavailable, what, "make it readable or remove it"));
        }
    };
    let settings = settings_of(&text).map_err(|error| {
        Failure::usage(format!("{} {error}", path.display()), "correct the file")
    })?;
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok(Some(Layer { origin: Origin::File(path.to_owned()), settings, folder }))
}

/// What is wrong in a file of settings, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub(crate) struct SettingsError {
    line: usize,
    message: String,
}

fn settings_of(text: &str) -> Result<Settings, SettingsError> {
    toml::from_str(text).map_err(|error| SettingsError {
        line: error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
        message: error.message().to_owned(),
    })
}

/// The settings of a project's file, and the keys in it that never count there.
pub(crate) fn parse_settings(text: &str) -> Result<(Settings, Vec<&'static str>), SettingsError> {
    let table: toml::Table = text.parse().unwrap_or_default();
    let is_there = |key: &&&str| table.contains_key(**key);
    let forbidden: Vec<&'static str> =
        NEVER_FROM_PROJECT.iter().filter(is_there).copied().collect();
    let mut settings = settings_of(text)?;
    settings.unconfined_engines = None;
    Ok((settings, forbidden))
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

pub(crate) fn flag(variable: EnvVar, text: Option<String>) -> Result<Option<bool>, Failure> {
    match text.as_deref() {
        None => Ok(None),
        Some("1" | "true" | "yes") => Ok(Some(true)),
        Some("0" | "false" | "no") => Ok(Some(false)),
        Some(other) => Err(bad(variable, &format!("{other:?} is unclear"), "write true or false")),
    }
}

fn number<T: FromStr>(variable: EnvVar, text: Option<String>) -> Result<Option<T>, Failure> {
    let parse = |text: String| {
        let (what, next) =
            (format!("{text:?} is not a number"), format!("write one ({})", variable.about));
        text.trim().parse().map_err(|_| bad(variable, &what, &next))
    };
    text.map(parse).transpose()
}

fn word<T: ValueEnum>(variable: EnvVar, text: Option<String>) -> Result<Option<T>, Failure> {
    let parse = |text: String| {
        T::from_str(&text, true).map_err(|_| {
            let words: Vec<String> = T::value_variants()
                .iter()
                .filter_map(|v| Some(v.to_possible_value()?.get_name().to_owned()))
                .collect();
            bad(
                variable,
                &format!("{text:?} is not known"),
                &format!("write {}", words.join(" or ")),
            )
        })
    };
    text.map(parse).transpose()
}

fn bad(variable: EnvVar, what: &str, next: &str) -> Failure {
    Failure::usage(format!("{}: {what}", variable.name), next)
}
