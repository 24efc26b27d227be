//! Checks an installation for problems, and changes nothing.

mod files;
mod machine;
mod store;
mod trust;

use serde::Serialize;

use crate::config::Config;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    /// Neither good nor bad.
    Info,
    Warn,
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub verdict: Verdict,
    pub text: String,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { check, verdict, text: text.into() }
    }
}

pub async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![
        machine::version(),
        machine::sqlite(),
        trust::foreign_data(config).unwrap_or_else(|| files::data_folder(config)),
        files::admin_key(config),
        store::database(config).await,
        store::sealing(config).await,
        trust::project_trust(config),
        machine::disk_space(config),
        machine::server(config).await,
    ];
    findings.extend(files::set_aside(config));
    findings.push(machine::claude(config).await);
    findings.push(machine::sandbox(config).await);
    findings.push(machine::native().await);
    findings.push(machine::browser(config));
    findings
}
