//! The way to the folders of a run whose engine has another user than the server.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Lets other users pass, but not look, from `above` down to `folder`.
pub fn open_way(above: &Path, folder: &Path) -> io::Result<()> {
    let between = folder.ancestors().skip(1).take_while(|place| place.starts_with(above));
    for place in between {
        let mode = std::fs::metadata(place)?.permissions().mode();
        if mode & 0o001 == 0 {
            std::fs::set_permissions(place, PermissionsExt::from_mode(mode | 0o001))?;
        }
    }
    Ok(())
}
