//! What a person says about trust, in the audit log of the store that commands in the project use.
//!
//! Agreements are kept outside of the store, so the two are not one commit. A store that cannot be
//! reached must not keep anybody from taking an agreement back: what is missing in the log is told.

use std::time::Duration;

use shikiri_app::{App, AppOptions};

use crate::config::Config;
use crate::data_folder;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::trust::TrustAct;
use crate::wiring::{self, Access};

/// For the store to be opened and written to.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes these acts to the audit log, or says on stderr why they are not there.
pub async fn record(config: &Config, acts: Vec<TrustAct>) {
    if acts.is_empty() {
        return;
    }
    let written = tokio::time::timeout(PATIENCE, write(config, acts)).await;
    let slow = |_| Err(Failure::told(Exit::Unavailable, "the store did not answer within 10 s"));
    if let Err(failure) = written.unwrap_or_else(slow) {
        not_recorded(&failure);
    }
}

pub fn not_recorded(failure: &Failure) {
    note(&format!("shikiri: this is not in the audit log: {failure}"));
}

async fn write(config: &Config, acts: Vec<TrustAct>) -> Result<(), Failure> {
    data_folder::check(&config.root)?;
    data_folder::prepare(&config.data_folder())?;
    let store = wiring::open_store(config, Access::Write).await?;
    let app = App::new(store, Vec::new(), AppOptions::default()).acting_as(wiring::person());
    let folder = config.trust.root().display().to_string();
    for TrustAct { action, files } in acts {
        app.audit_trust(action, folder.clone(), files).await?;
    }
    Ok(())
}
