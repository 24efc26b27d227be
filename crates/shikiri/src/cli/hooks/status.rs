//! `shikiri hooks status`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use shikiri_hook::configured_store::ConfiguredStore;
use shikiri_hook::conventions_file;

use super::events::{HTTP_PATH, Ours};
use super::program::{Places, find, search_path};
use super::settings::{self, Found};
use super::settings_file::SettingsFile;
use super::{local_file, project_file, user_file};
use crate::cli::JsonArgument;
use crate::client::{Client, ServerUrl};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};
use crate::table::TableColumn;
use crate::text::one_line;

/// How long a server may take to refuse an empty event.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    json: JsonArgument,
}

/// The state of one settings file.
#[derive(Serialize)]
struct SettingsStatus {
    scope: &'static str,
    file: PathBuf,
    /// The program or server that our hooks call, if any.
    calls: Option<String>,
    events: Vec<String>,
    /// The plugin provides the same hooks.
    plugin: bool,
    problems: Vec<String>,
}

impl Status {
    pub(super) async fn run(&self, config: &Config) -> Result<(), Failure> {
        let mut files = vec![
            ("project", project_file(&config.checkout)),
            ("local", local_file(&config.checkout)),
        ];
        files.extend(user_file().ok().map(|file| ("user", file)));
        let mut statuses = Vec::new();
        for (scope, file) in files {
            statuses.push(look(scope, file, config).await);
        }
        let conventions = config.data_folder().join("conventions.toml");
        let (state, problem) = match conventions_file::load(&conventions) {
            Err(problem) => ("broken", Some(problem.to_string())),
            Ok(_) if conventions.exists() => ("found", None),
            Ok(_) => ("none", None),
        };
        let callers =
            statuses.iter().map(|p| usize::from(p.calls.is_some()) + usize::from(p.plugin));
        let callers: usize = callers.sum();
        if self.json.json {
            let conventions = json!({ "file": conventions, "state": state, "problem": problem });
            let installed = callers > 0;
            let all =
                json!({ "installed": installed, "places": statuses, "conventions": conventions });
            Output::stdout().json(&all)?;
        } else {
            print(&statuses, callers, state, problem.as_deref())?;
        }
        let problems: usize = statuses.iter().map(|status| status.problems.len()).sum();
        match problems + usize::from(state == "broken") {
            0 => Ok(()),
            count => {
                let what = format!("problems with the hooks: {count}");
                Err(Failure::new(Exit::Failed, what, "see the lines marked fail"))
            }
        }
    }
}

async fn look(scope: &'static str, file: PathBuf, config: &Config) -> SettingsStatus {
    let mut status = SettingsStatus {
        scope,
        file,
        calls: None,
        events: Vec::new(),
        plugin: false,
        problems: Vec::new(),
    };
    let read = match SettingsFile::read(status.file.clone()) {
        Ok(read) => read,
        Err(failure) => {
            status.problems.push(failure.to_string());
            return status;
        }
    };
    match settings::found(read.text()) {
        Ok(found) => judge(&mut status, &found, config).await,
        Err(fault) => status.problems.push(read.broken(&fault).to_string()),
    }
    let is_ours = |(name, value): (&String, &Value)| name.starts_with("shikiri@") && value == true;
    let plugins = settings::setting(read.text(), "enabledPlugins");
    status.plugin =
        plugins.as_ref().and_then(Value::as_object).is_some_and(|p| p.iter().any(is_ours));
    let is_off = settings::setting(read.text(), "disableAllHooks") == Some(Value::Bool(true));
    if is_off {
        let file = status.file.display();
        status.problems.push(format!("{file} has disableAllHooks: no hook is called"));
    }
    status
}

/// Checks that the hooks' program or server is there, and that they cover all events.
async fn judge(status: &mut SettingsStatus, found: &[Found], config: &Config) {
    let Some(first) = found.first() else { return };
    let file = status.file.display();
    status.calls = Some(first.ours.name());
    status.events = found.iter().map(|found| found.event.clone()).collect();
    let problem = match &first.ours {
        Ours::Program(program) => program_problem(program, config),
        Ours::Server { url, key } => server_problem(url, key).await,
    };
    status.problems.extend(problem.map(|problem| format!("{file} {problem}")));
    let missing: Vec<_> = first
        .ours
        .events()
        .filter(|event| !status.events.iter().any(|e| e == event.name))
        .collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|event| event.name).collect();
        let what = format!("{file} has no hook for {}", names.join(", "));
        status.problems.push(format!("{what}: install again with `shikiri hooks install`"));
    }
}

fn program_problem(program: &Path, config: &Config) -> Option<String> {
    let search_path = search_path();
    let places = Places { search_path: search_path.as_deref(), project: &config.checkout };
    if find(program, &places).is_none() {
        let shown = program.display();
        let what = match program.components().count() {
            1 => format!("calls {shown}, which is not on the PATH"),
            _ => format!("calls {shown}, which is not there"),
        };
        return Some(format!("{what}: install again with `shikiri hooks install`"));
    }
    // As the hook itself finds its store.
    match ConfiguredStore::find(&config.root, &config.checkout, &|name| std::env::var_os(name)) {
        Ok(ConfiguredStore::Server(source)) => Some(format!(
            "calls a program, but {source} names a database server, which it does not reach: \
             install again with `shikiri hooks install`"
        )),
        Ok(ConfiguredStore::Default | ConfiguredStore::File(_)) => None,
        Err(why) => Some(format!("calls a program that cannot find its store: {why}")),
    }
}

/// An empty event is refused by a server that knows the key, and leaves no trace.
async fn server_problem(url: &str, key: &str) -> Option<String> {
    let base = ServerUrl::parse(url.strip_suffix(HTTP_PATH)?)?;
    let asked = tokio::time::timeout(PATIENCE, async {
        let client = Client::named(&base).await?.with_key(key.to_owned());
        client.request(Method::POST, HTTP_PATH, Some(&json!({}))).await
    });
    let shown = &base.authority;
    match asked.await {
        Ok(Ok((StatusCode::BAD_REQUEST, _))) => None,
        Ok(Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _))) => Some(format!(
            "posts to {shown} with a key that the server refuses: install again with `shikiri \
             hooks install --http URL --key KEY`"
        )),
        Ok(Ok((status, _))) => Some(format!("posts to {shown}, which answers with {status}")),
        Ok(Err(_)) | Err(_) => Some(format!(
            "posts to {shown}, where no server answers: start it, or install again with `shikiri \
             hooks install`"
        )),
    }
}

fn print(
    statuses: &[SettingsStatus],
    callers: usize,
    conventions: &str,
    problem: Option<&str>,
) -> Result<(), Failure> {
    let output = Output::stdout();
    let rows: Vec<_> = statuses
        .iter()
        .map(|status| {
            let plugin = status.plugin.then(|| "the plugin".to_owned());
            let calls = status.calls.iter().map(|calls| one_line(calls)).chain(plugin);
            let calls = calls.collect::<Vec<_>>().join(", ");
            let calls = if calls.is_empty() { "–".to_owned() } else { calls };
            vec![
                status.scope.to_owned(),
                status.events.len().to_string(),
                calls,
                status.file.display().to_string(),
            ]
        })
        .collect();
    let columns = [
        TableColumn::text("settings"),
        TableColumn::text("events"),
        TableColumn::text("calls"),
        TableColumn::text("file").minor(),
    ];
    output.table(&columns, &rows, "")?;
    for problem in statuses.iter().flat_map(|status| &status.problems) {
        output.line(&format!("{}  {}", output.paint(Style::Bad, "fail"), one_line(problem)))?;
    }
    let note = |text: &str| output.line(&format!("{}  {text}", output.paint(Style::Dim, "note")));
    match callers {
        0 => note("Claude Code does not call Shikiri: `shikiri hooks install` changes that")?,
        1 => {}
        _ => note("each event is handled more than once: keep one of these")?,
    }
    match conventions {
        "none" => note("there are no conventions: `shikiri hooks init` writes the first"),
        "broken" => {
            let fail = output.paint(Style::Bad, "fail");
            let problem = one_line(problem.unwrap_or_default());
            let effect = "no rule holds: `shikiri hooks check`";
            output.line(&format!("{fail}  the conventions cannot be read: {problem}; {effect}"))
        }
        _ => Ok(()),
    }
}
