//! Lets the engine's user reach the folders of a run, if that is not the server's user.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Lets other users traverse, but not list, the folders from `above` down to `folder`.
pub fn allow_traversal(above: &Path, folder: &Path) -> io::Result<()> {
    let between = folder.ancestors().skip(1).take_while(|place| place.starts_with(above));
    for place in between {
        let mode = std::fs::metadata(place)?.permissions().mode();
        if mode & 0o001 == 0 {
            std::fs::set_permissions(place, PermissionsExt::from_mode(mode | 0o001))?;
        }
    }
    Ok(())
}
