//! `shikiri schema NAME`.

use clap::{Args, ValueEnum as _};

use crate::exit::Failure;
use crate::file_schemas::FileSchema;
use crate::output::Output;
use crate::table::TableColumn;

#[derive(Args)]
pub(super) struct Arguments {
    /// The kind of file [default: list the kinds]
    name: Option<FileSchema>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let output = Output::stdout();
    if let Some(schema) = arguments.name {
        return output.json(&schema.document());
    }
    let rows = FileSchema::value_variants().iter();
    let rows: Vec<_> =
        rows.map(|schema| vec![schema.name().to_owned(), schema.files().to_owned()]).collect();
    let columns = [TableColumn::text("name"), TableColumn::text("file")];
    output.table(&columns, &rows, "")
}
