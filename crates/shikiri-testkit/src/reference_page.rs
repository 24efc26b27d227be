//! The reference pages of the documentation, which tests make from the program.

use std::fs;
use std::path::Path;

/// `cargo xtask reference` sets it: pages are written instead of compared.
const WRITE: &str = "SHIKIRI_WRITE_REFERENCE";

/// Compares `docs/reference/NAME` with what the program says of itself. If they differ, the new page is
/// written beside the old one to be read, and the test fails.
#[track_caller]
pub fn check_reference_page(name: &str, page: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let path = folder.join(name);
    let new = path.with_extension("md.new");
    let is_current = fs::read_to_string(&path).is_ok_and(|written| written == page);
    if !is_current {
        fs::create_dir_all(&folder).expect("a folder for reference pages");
        let is_wanted = std::env::var_os(WRITE).is_some();
        let written = if is_wanted { &path } else { &new };
        fs::write(written, page).expect("a reference page");
        assert!(
            is_wanted,
            "docs/reference/{name} is not what the program says: read {}, then run `cargo xtask \
             reference`",
            new.display()
        );
    }
    let _ = fs::remove_file(new);
}

/// A text as it may stand in a cell of a table: a bar or a line's end would end the cell.
pub fn table_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
