//! Whether the project's own files are trusted.

use super::{Finding, Verdict};
use crate::config::Config;
use crate::data_folder;
use crate::trust::FileTrust;

const CHECK: &str = "project trust";

pub(super) fn project_trust(config: &Config) -> Finding {
    let requests = config.trust.requests();
    if requests.is_empty() {
        let text = "the project's files ask for nothing that needs your agreement";
        return Finding::new(CHECK, Verdict::Ok, text);
    }
    let (mut agreed, mut open) = (Vec::new(), Vec::new());
    for request in &requests {
        let (file, names) = (request.file.name(), request.names().join(", "));
        match config.trust.judge(request) {
            Ok(FileTrust::Trusted { agreed_at }) => {
                agreed.push(format!("you agreed to {file} at {agreed_at}"));
            }
            Ok(FileTrust::Changed(_)) => {
                open.push(format!("{file} has changed since you agreed to it ({names})"));
            }
            Ok(FileTrust::Untrusted) => open.push(format!("{file} asks for {names}")),
            Err(error) => open.push(error.to_string()),
        }
    }
    if open.is_empty() {
        return Finding::new(CHECK, Verdict::Ok, agreed.join("; "));
    }
    let text = format!("{}: not used; {}", open.join("; "), config.trust.next_step());
    Finding::new(CHECK, Verdict::Warn, text)
}

/// A data folder of another user.
pub(super) fn foreign_data(config: &Config) -> Option<Finding> {
    let refused = data_folder::check(&config.root).err()?;
    Some(Finding::new("data folder", Verdict::Fail, refused.to_string()))
}
