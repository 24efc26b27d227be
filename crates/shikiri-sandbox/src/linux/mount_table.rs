//! The mounts of this process's namespace, as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

pub(super) struct MountEntry {
    /// Which folder of its file system is mounted.
    pub(super) root: PathBuf,
    pub(super) place: PathBuf,
    pub(super) flags: MountFlags,
    /// Of the file system.
    pub(super) kind: Vec<u8>,
}

/// From the text of `/proc/PID/mountinfo`: what is mounted below `above`, and there.
pub(super) fn below(above: &Path, mountinfo: &[u8]) -> Vec<MountEntry> {
    let lines = mountinfo.split(|byte| *byte == b'\n').filter_map(read_line);
    lines.filter(|mount| mount.place.starts_with(above)).collect()
}

fn read_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ').skip(3);
    let root = unescape(fields.next()?);
    let place = unescape(fields.next()?);
    let mut flags = MountFlags::empty();
    for option in fields.next()?.split(|byte| *byte == b',') {
        flags |= match option {
            b"ro" => MountFlags::RDONLY,
            b"nosuid" => MountFlags::NOSUID,
            b"nodev" => MountFlags::NODEV,
            b"noexec" => MountFlags::NOEXEC,
            b"noatime" => MountFlags::NOATIME,
            b"nodiratime" => MountFlags::NODIRATIME,
            b"relatime" => MountFlags::RELATIME,
            b"nosymfollow" => MountFlags::NOSYMFOLLOW,
            _ => MountFlags::empty(),
        };
    }
    // Optional fields end with a dash.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?.to_vec();
    let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
    Some(MountEntry { root: path(root), place: path(place), flags, kind })
}

/// Spaces, tabs, line breaks and backslashes are written in octal.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                text.push(byte);
                rest = &after[3..];
            }
            None => {
                text.push(*first);
                rest = after;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn mountinfo_is_read() {
        let text =
            b"36 35 98:0 /a /mnt/with\\040space rw,nosuid,noatime master:1 - ext3 /dev/x rw\n\
            37 35 98:0 / /mnt ro - tmpfs t rw\n38 35 0:1 / /else rw - tmpfs t rw\n";
        let found = below(Path::new("/mnt"), text);
        let places: Vec<_> = found.iter().map(|mount| mount.place.as_os_str().as_bytes()).collect();
        assert_eq!(places, [b"/mnt/with space".as_slice(), b"/mnt"]);
        assert_eq!(found[0].flags, MountFlags::NOSUID | MountFlags::NOATIME);
        assert_eq!(found[1].flags, MountFlags::RDONLY);
        assert_eq!((found[0].root.as_path(), &*found[0].kind), (Path::new("/a"), &b"ext3"[..]));
    }
}
