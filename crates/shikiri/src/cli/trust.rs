//! `shikiri trust`: accepts the requests of a project's own files, or revokes that.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use shikiri_hook::hook_project::ProjectFolders;

use super::{Global, JsonArgument};
use crate::config::{Config, Surroundings, project_root};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};
use crate::table::TableColumn;
use crate::text::one_line;
use crate::trust::{
    FileRequest, FileTrust, ProjectTrust, TrustFile, TrustFileError, changed_lines, entry_lines,
};
use crate::trust_audit;

#[derive(Args)]
pub(super) struct Arguments {
    /// The project's folder [default: the one that commands here work in]
    folder: Option<PathBuf>,
    /// Take the agreement to this folder's files back
    #[arg(long, conflicts_with = "list")]
    revoke: bool,
    /// Show every folder that you agreed to, and whether its files are still the same
    #[arg(long, conflicts_with = "folder")]
    list: bool,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let surroundings = Surroundings::of_process();
    if arguments.list {
        return list(&surroundings, arguments.json);
    }
    let folder = match &arguments.folder {
        Some(folder) => named_folder(folder)?,
        None => project_root(&surroundings)?,
    };
    let trust = ProjectTrust::new(&folder, &surroundings)?;
    let done = match arguments.revoke {
        true => revoke(&trust, arguments.json),
        false => agree(&trust, arguments.json),
    };
    // Read after that: the project's file names the store only if it is trusted now.
    let acts = trust.take_acts();
    if !acts.is_empty() {
        match Config::load_at(folder, &[], global.settings(), &surroundings) {
            Ok(config) => trust_audit::record(&config, acts).await,
            Err(failure) => trust_audit::not_recorded(&failure),
        }
    }
    done
}

fn named_folder(folder: &Path) -> Result<PathBuf, Failure> {
    if folder.is_dir() {
        return Ok(ProjectFolders::named(folder.to_owned()).root);
    }
    let what = format!("{} is no folder", folder.display());
    Err(Failure::new(Exit::NotFound, what, "name a project's folder"))
}

/// Shows the requests, and stores the agreement to exactly these.
fn agree(trust: &ProjectTrust, json: JsonArgument) -> Result<(), Failure> {
    let output = Output::stdout();
    let mut requests = Vec::new();
    for request in trust.requests() {
        let before = trust.judge(&request)?;
        requests.push((request, before));
    }
    let folder = one_line(&trust.root().display().to_string());
    if !requests.is_empty() {
        let all: Vec<FileRequest> = requests.iter().map(|(request, _)| request.clone()).collect();
        trust.agree(&all)?;
    }
    if json.json {
        let files: Vec<Value> = requests.iter().map(|(request, _)| file_json(request)).collect();
        return output.json(&json!({ "folder": trust.root(), "files": files }));
    }
    if requests.is_empty() {
        return output.line(&format!("the files in {folder} ask for nothing that needs agreement"));
    }
    for (request, before) in &requests {
        let head = match before {
            FileTrust::Changed(_) => "changed since you agreed to it",
            FileTrust::Trusted { .. } => "as you agreed to it before",
            FileTrust::Untrusted => "asks for",
        };
        let name = output.paint(Style::Bold, request.file.name());
        output.line(&format!("{name}: {head}"))?;
        let lines = match before {
            FileTrust::Changed(changes) => changed_lines(changes),
            _ => entry_lines(request),
        };
        lines.iter().try_for_each(|line| output.line(line))?;
    }
    output.line(&format!("agreed for {folder}, as long as these files stay as they are"))
}

fn file_json(request: &FileRequest) -> Value {
    json!({
        "file": request.file.name(),
        "sha256": request.sha256,
        "entries": request.texts(),
        "state": "trusted",
    })
}

fn revoke(trust: &ProjectTrust, json: JsonArgument) -> Result<(), Failure> {
    let folder = one_line(&trust.root().display().to_string());
    if !trust.revoke()? {
        let what = format!("you have agreed to nothing in {folder}");
        return Err(Failure::new(Exit::NotFound, what, "`shikiri trust --list` shows agreements"));
    }
    let output = Output::stdout();
    match json.json {
        true => output.json(&json!({ "folder": trust.root(), "revoked": true })),
        false => output.line(&format!("revoked for {folder}")),
    }
}

fn list(surroundings: &Surroundings<'_>, json: JsonArgument) -> Result<(), Failure> {
    let file = TrustFile::locate(surroundings.variable).ok_or(TrustFileError::NoHome)?;
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    for (folder, files) in file.read()?.folders {
        let trust = ProjectTrust::new(Path::new(&folder), surroundings)?;
        let requests = trust.requests();
        let mut listed = Vec::new();
        for (name, agreement) in files {
            let request = requests.iter().find(|request| request.file.name() == name);
            let state = request
                .map_or("gone", |request| FileTrust::judge(request, Some(&agreement)).as_str());
            let agreed_at = agreement.agreed_at.to_string();
            rows.push(vec![one_line(&folder), name.clone(), state.to_owned(), agreed_at]);
            listed.push(json!({
                "file": name,
                "state": state,
                "agreed_at": agreement.agreed_at,
                "sha256": agreement.sha256,
                "entries": agreement.entries,
            }));
        }
        items.push(json!({ "folder": folder, "files": listed }));
    }
    if json.json {
        return Output::stdout().json(&json!({ "items": items }));
    }
    let columns = [
        TableColumn::text("folder"),
        TableColumn::text("file"),
        TableColumn::state("state"),
        TableColumn::time("agreed"),
    ];
    Output::stdout().table(&columns, &rows, "No agreements yet. Make one: shikiri trust")
}
