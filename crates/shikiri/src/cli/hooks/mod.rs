//! `shikiri hooks …`: installs our hooks in Claude Code's settings, and checks their conventions.

mod check;
mod edit;
pub(super) mod events;
mod http_key;
mod import;
mod init;
mod install;
mod jsonc;
mod problems;
mod program;
mod rehearsal;
mod settings;
mod settings_file;
mod status;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use shikiri_app::App;

use self::settings_file::SettingsFile;
use super::my_login::claude_config_dir;
use super::{Global, hook_reports};
use crate::config::{Config, Surroundings};
use crate::exit::Failure;
use crate::trust::ConfigUse;
use crate::wiring::Access;
use crate::{env_vars, logging};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Have Claude Code call Shikiri: adds hooks to a settings file and keeps all else in it
    Install(InProject<install::Install>),
    /// Take Shikiri's hooks out of a settings file
    Uninstall(InProject<install::Uninstall>),
    /// Show which settings call Shikiri, and whether that works
    Status(InProject<status::Status>),
    /// Write a first .shikiri/conventions.toml
    Init(InProject<init::Init>),
    /// Check the conventions, and show which text an agent would get
    Check(InProject<check::Check>),
    /// Print claude-nagger's YAML files as conventions
    Import(import::Import),
    /// Show what hooks were called for, the newest last
    Log(hook_reports::Log),
    /// Show how often hooks were called, what they did and how long they took
    Stats(hook_reports::Stats),
}

/// A command, and for which project.
#[derive(Args)]
struct InProject<T: Args> {
    #[command(flatten)]
    project: Project,
    #[command(flatten)]
    command: T,
}

/// Which project is meant.
#[derive(Args)]
pub(super) struct Project {
    /// The project's folder [CLAUDE_PROJECT_DIR, else the current one]
    #[arg(long = "project", value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    folder: Option<PathBuf>,
}

/// Which of Claude Code's settings are meant; those of the project, unless told.
#[derive(Args)]
struct Scope {
    /// Your own settings for all projects: ~/.claude/settings.json
    #[arg(long, conflicts_with_all = ["local", "folder"])]
    user: bool,
    /// Your own settings for this project: .claude/settings.local.json
    #[arg(long)]
    local: bool,
}

pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Install(of) => {
            let config = of.project.config_for(global, of.command.uses())?;
            of.command.run(&config).await
        }
        Command::Uninstall(of) => of.command.run(&of.project.config(global)?),
        Command::Status(of) => of.command.run(&of.project.config(global)?).await,
        Command::Init(of) => of.command.run(&of.project.config(global)?),
        Command::Check(of) => of.command.run(&of.project.config(global)?),
        Command::Import(import) => import.run(),
        Command::Log(log) => log.run(&log.project.open(global).await?).await,
        Command::Stats(stats) => stats.run(&stats.project.open(global).await?).await,
    }
}

impl Project {
    /// Opens the store of that project, with the events of its hooks.
    async fn open(&self, global: &Global) -> Result<App, Failure> {
        super::open(&self.config_for(global, &[ConfigUse::Store])?, Access::Read).await
    }

    /// The configuration of that project, for commands about Claude Code's files alone.
    fn config(&self, global: &Global) -> Result<Config, Failure> {
        self.config_for(global, &[])
    }

    fn config_for(&self, global: &Global, uses: &[ConfigUse]) -> Result<Config, Failure> {
        if let Some(folder) = self.folder.as_ref().filter(|folder| !folder.is_dir()) {
            let what = format!("--project: {} is not a folder", folder.display());
            return Err(Failure::usage(what, "name the project's folder"));
        }
        let named = self.folder.clone().map(PathBuf::into_os_string);
        let variable = |name: &str| match &named {
            Some(folder) if name == env_vars::CLAUDE_PROJECT_DIR.name => Some(folder.clone()),
            _ => std::env::var_os(name),
        };
        let surroundings = Surroundings { variable: &variable, ..Surroundings::of_process() };
        let config = Config::load_for(uses, global.settings(), &surroundings)?;
        logging::start(&config, "warn")?;
        Ok(config)
    }
}

impl Scope {
    fn settings(&self, config: &Config) -> Result<SettingsFile, Failure> {
        let root = &config.checkout;
        match self {
            Self { user: true, .. } => SettingsFile::read(user_file()?),
            Self { local: true, .. } => SettingsFile::read_in_project(local_file(root), root),
            _ => SettingsFile::read_in_project(project_file(root), root),
        }
    }

    /// The settings files besides this one that call Shikiri, with the commands that change that.
    fn others_calling(config: &Config, own: &SettingsFile) -> Vec<(PathBuf, String)> {
        let root = &config.checkout;
        let files = [("", Some(project_file(root))), (" --local", Some(local_file(root)))];
        let files = files.into_iter().chain([(" --user", user_file().ok())]);
        let read = files.filter_map(|(scope, file)| Some((scope, SettingsFile::read(file?).ok()?)));
        let calls = |file: &SettingsFile| {
            !file.is_same_file(own)
                && settings::found(file.text()).is_ok_and(|found| !found.is_empty())
        };
        read.filter(|(_, file)| calls(file))
            .map(|(scope, file)| (file.path, format!("shikiri hooks uninstall{scope}")))
            .collect()
    }

    /// Whether the file belongs to one user.
    fn is_private(&self) -> bool {
        self.user || self.local
    }
}

fn project_file(root: &Path) -> PathBuf {
    root.join(".claude/settings.json")
}

fn local_file(root: &Path) -> PathBuf {
    root.join(".claude/settings.local.json")
}

fn user_file() -> Result<PathBuf, Failure> {
    Ok(claude_config_dir("--user")?.join("settings.json"))
}
