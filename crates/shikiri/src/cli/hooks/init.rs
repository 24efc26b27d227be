//! `shikiri hooks init`.

use std::fs::Permissions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clap::Args;

use crate::config::Config;
use crate::data_folder;
use crate::exit::{Exit, Failure};
use crate::file_schemas::FileSchema;
use crate::output::{Output, note};

/// The conventions of a new project.
const STARTER: &str = include_str!("starter.toml");
/// Beside the conventions. Git ignores it there; `shikiri schema conventions` prints it.
const SCHEMA: &str = "conventions.schema.json";

#[derive(Args)]
pub(super) struct Init {
    /// Write it in place of the one that is there
    #[arg(long)]
    force: bool,
}

impl Init {
    pub(super) fn run(&self, config: &Config) -> Result<(), Failure> {
        data_folder::prepare(&config.data_folder())?;
        let path = config.data_folder().join("conventions.toml");
        place(&path, STARTER, self.force)?;
        // The first line of the conventions names it, for editors.
        let schema = format!("{:#}\n", FileSchema::Conventions.document());
        place(&config.data_folder().join(SCHEMA), &schema, true)?;
        Output::stdout().line(&path.display().to_string())?;
        note("change it to what your agents should know, then look with `shikiri hooks check`");
        Ok(())
    }
}

/// Writes the file atomically: a hook may read it at any moment.
fn place(path: &Path, text: &str, replaces: bool) -> Result<(), Failure> {
    let written = (|| {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mode = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        let placed = match replaces {
            true => file.persist(path),
            false => file.persist_noclobber(path),
        };
        placed.map(drop).map_err(|error| error.error)
    })();
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let what = format!("{} is there already", path.display());
            Failure::new(Exit::Refused, what, "change it, or replace it with --force")
        }
        _ => {
            let what = format!("cannot write {}: {error}", path.display());
            Failure::new(Exit::Failed, what, "make it writable")
        }
    })
}
