//! Removes clusters whose creator is gone: what is left when the guard was killed too.
//!
//! Best effort by design. A leftover that cannot be removed costs disk, not correctness, and two
//! sweeps may meet at the same folder; so nothing here fails a start.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::account::Account;
use crate::folder;
use crate::installed::Installed;

pub(crate) fn sweep(installed: &Installed, account: Account) {
    let Ok(entries) = fs::read_dir(account.temporary_root()) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some(creator) = folder::creator_in_name(&name) else { continue };
        // Not followed if it is a link, and not touched if it is another user's.
        let ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == account.uid());
        if ours && folder::is_abandoned(&entry.path(), creator) {
            end_and_remove(&entry.path(), installed, account);
        }
    }
}

/// Stops a folder's server at once, if one runs, and removes the folder.
pub(crate) fn end_and_remove(folder: &Path, installed: &Installed, account: Account) {
    if folder::server(folder).is_some() {
        let _ = account
            .command(installed.program("pg_ctl"), folder)
            .args(["stop", "-w", "-t", "30", "-m", "immediate", "-D"])
            .arg(folder::data(folder))
            .output();
    }
    let _ = fs::remove_dir_all(folder);
}
