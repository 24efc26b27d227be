//! The database for a command's tests, passed to them in `SHIKIRI_TEST_POSTGRES`. Ctrl-C and `kill`
//! need no handling here: the cluster's guard notices the end of this process and stops the
//! cluster.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail};
use shikiri_testpg::{Cluster, Installed};

use crate::cargo::in_ci;
use crate::provision::{Provision, provide};

const VARIABLE: &str = "SHIKIRI_TEST_POSTGRES";

pub(crate) enum Postgres {
    /// Our own, as long as this value lives.
    Started(Cluster),
    /// The caller has exported the variable; children inherit it.
    Given,
    None,
}

impl Postgres {
    /// For tests: installs PostgreSQL if permitted. Returns the reason if there is none; with
    /// `CI=true` that is an error.
    pub(crate) fn for_tests() -> Result<(Postgres, Option<String>)> {
        if env::var_os(VARIABLE).is_some() {
            println!("using the database in {VARIABLE}");
            return Ok((Postgres::Given, None));
        }
        match provide()? {
            Provision::Found(installed) => Ok((Postgres::start(&installed)?, None)),
            Provision::Missing(why) if in_ci() => bail!("{why} (CI=true forbids skipping)"),
            Provision::Missing(why) => Ok((Postgres::None, Some(why))),
        }
    }

    /// For commands that use it if possible: used if installed.
    pub(crate) fn if_installed() -> Result<Postgres> {
        if env::var_os(VARIABLE).is_some() {
            return Ok(Postgres::Given);
        }
        let Some(installed) = Installed::find() else {
            println!("NOTE: PostgreSQL is not installed; going on without {VARIABLE}");
            return Ok(Postgres::None);
        };
        Postgres::start(&installed)
    }

    fn start(installed: &Installed) -> Result<Postgres> {
        let cluster = Cluster::start(installed).context("cannot start PostgreSQL")?;
        println!("PostgreSQL of {} runs for this command", installed.bin().display());
        Ok(Postgres::Started(cluster))
    }

    /// Sets the variable for a child.
    pub(crate) fn export<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self {
            Postgres::Started(cluster) => command.env(VARIABLE, cluster.url()),
            Postgres::Given | Postgres::None => command,
        }
    }

    pub(crate) fn stop(&self) -> Result<()> {
        match self {
            Postgres::Started(cluster) => cluster.stop().context("cannot stop PostgreSQL"),
            Postgres::Given | Postgres::None => Ok(()),
        }
    }
}
