//! Records trust decisions in the audit log of the store that the project's commands use.
//!
//! Agreements are kept outside of the store, so the two are not one commit. An unavailable store
//! must not prevent a revocation: a warning then says that the log entry is missing.

use std::time::Duration;

use shikiri_app::{App, AppOptions};

use crate::config::Config;
use crate::data_folder;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::trust::TrustAct;
use crate::wiring::{self, Access};

/// The limit for opening the store and writing to it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes these decisions to the audit log, or explains on stderr why they are missing.
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
        app.runtime.audit_trust(action, folder.clone(), files).await?;
    }
    Ok(())
}
