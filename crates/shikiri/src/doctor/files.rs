//! The data folder and what lies in it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::{Finding, Verdict};
use crate::config::Config;
use crate::data_folder;
use crate::store_url::StoreUrl;

const FOLDER: &str = "data folder";
const KEY: &str = "admin key";

pub(super) fn data_folder(config: &Config) -> Finding {
    let folder = config.data_folder();
    let shown = folder.display();
    if !folder.exists() {
        return if writable(&config.root) {
            let text = format!("{shown} is not there yet; `shikiri serve` makes it");
            Finding::new(FOLDER, Verdict::Info, text)
        } else {
            let text = format!(
                "{} is not writable: make it so, or set CLAUDE_PROJECT_DIR",
                config.root.display()
            );
            Finding::new(FOLDER, Verdict::Fail, text)
        };
    }
    if !folder.is_dir() || !writable(&folder) {
        let text = format!("{shown} is not a writable folder: correct its owner and mode");
        return Finding::new(FOLDER, Verdict::Fail, text);
    }
    match mode(&folder) {
        Some(mode) if mode & 0o077 != 0 => {
            let text = format!("others may look into {shown} (mode {mode:o}): chmod 700 {shown}");
            Finding::new(FOLDER, Verdict::Warn, text)
        }
        _ => Finding::new(FOLDER, Verdict::Ok, shown.to_string()),
    }
}

pub(super) fn admin_key(config: &Config) -> Finding {
    let path = config.key_file();
    let shown = path.display();
    match data_folder::read_key(&path) {
        Err(failure) => Finding::new(KEY, Verdict::Fail, failure.to_string()),
        Ok(None) => Finding::new(
            KEY,
            Verdict::Info,
            format!("{shown} is not there yet; `shikiri serve` makes it"),
        ),
        Ok(Some(_)) => match mode(&path) {
            Some(0o600) => Finding::new(KEY, Verdict::Ok, format!("{shown}, mode 600")),
            mode => {
                let mode = mode.unwrap_or(0);
                let text = format!("{shown} has mode {mode:o}: chmod 600 {shown}");
                Finding::new(KEY, Verdict::Fail, text)
            }
        },
    }
}

/// Backups of damaged databases.
pub(super) fn set_aside(config: &Config) -> Vec<Finding> {
    let StoreUrl::Sqlite(path) = &config.store else { return Vec::new() };
    let finding = |file: PathBuf| {
        let text =
            format!("{} was damaged and set aside: look into it, then remove it", file.display());
        Finding::new("set aside", Verdict::Warn, text)
    };
    data_folder::damaged_copies(path).into_iter().map(finding).collect()
}

fn mode(path: &Path) -> Option<u32> {
    Some(path.metadata().ok()?.permissions().mode() & 0o777)
}

fn writable(path: &Path) -> bool {
    access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok()
}
