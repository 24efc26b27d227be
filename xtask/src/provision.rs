//! Installs PostgreSQL on a bare Debian machine, so that one command tests everything there. Only
//! the server's programs are installed: no system cluster is created or started.

use std::{env, fs};

use anyhow::{Context, Result, bail};
use shikiri_testpg::Installed;

use crate::apt;
use crate::cargo::run;

const CREATE_CLUSTER: &str = "/etc/postgresql-common/createcluster.conf";

pub(crate) enum Provision {
    Found(Installed),
    /// Why it is missing, and exactly what to install.
    Missing(String),
}

/// The installed PostgreSQL; otherwise one installed now, if this is root on Debian.
pub(crate) fn provide() -> Result<Provision> {
    if let Some(installed) = Installed::find() {
        return Ok(Provision::Found(installed));
    }
    if let Some(ordered) = env::var_os("SHIKIRI_PG_BIN") {
        bail!("SHIKIRI_PG_BIN={} has no initdb, pg_ctl and postgres", ordered.display());
    }
    if !apt::may_install() {
        return Ok(Provision::Missing(advice(apt::on_debian())));
    }
    install_on_debian()?;
    let installed = Installed::find().context("installed postgresql, but found no initdb")?;
    Ok(Provision::Found(installed))
}

fn advice(debian: bool) -> String {
    let how = if debian {
        "`sudo apt-get install --no-install-recommends postgresql`"
    } else {
        "PostgreSQL's server programs (Fedora: postgresql-server, Alpine: postgresql, \
         Arch: postgresql), or name their folder in SHIKIRI_PG_BIN"
    };
    format!("PostgreSQL is not installed; install {how}, then run this again")
}

fn install_on_debian() -> Result<()> {
    run(&mut apt::update())?;
    // The common package first: its settings file decides whether a system cluster is created.
    run(&mut apt::install("postgresql-common"))?;
    let settings = fs::read_to_string(CREATE_CLUSTER).unwrap_or_default();
    fs::write(CREATE_CLUSTER, without_main_cluster(&settings))
        .with_context(|| format!("cannot write {CREATE_CLUSTER}"))?;
    run(&mut apt::install("postgresql"))
}

/// The settings with `create_main_cluster = false` instead of their own value.
fn without_main_cluster(settings: &str) -> String {
    let about_it = |line: &str| line.trim_start().starts_with("create_main_cluster");
    settings
        .lines()
        .filter(|line| !about_it(line))
        .chain(["create_main_cluster = false"])
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_cluster_is_switched_off_whatever_was_set() {
        let off = "create_main_cluster = false\n";
        assert_eq!(without_main_cluster(""), off);
        assert_eq!(without_main_cluster(off), off);
        assert_eq!(
            without_main_cluster("#create_main_cluster = true\ncreate_main_cluster=true\nssl = on"),
            format!("#create_main_cluster = true\nssl = on\n{off}")
        );
    }
}
