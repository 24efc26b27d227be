//! Each version tells its users what it brings: a page in `docs/releases`.

use std::path::Path;

#[test]
fn this_version_has_its_release_notes() {
    let version = env!("CARGO_PKG_VERSION");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/releases");
    let page = folder.join(format!("{version}.md"));
    let notes = std::fs::read_to_string(&page).unwrap_or_default();
    let title = format!("# Shikiri {version}\n");
    assert!(notes.starts_with(&title), "write {} with the title {title:?}", page.display());
    assert!(notes.len() > 10 * title.len(), "{} says nothing", page.display());
}
