//! How many bytes a folder takes on the disk. An agent wrote it, so it is walked as an untrusted
//! folder: links are not followed, and the number of entries is bounded.

use std::path::Path;

use shikiri_files::UntrustedDir;

const MAX_ENTRIES: usize = 1_000_000;
/// The least that an entry counts, even an empty file.
const ENTRY_BYTES: u64 = 1024;

/// The bytes of everything below `root`; 0 if there is no such folder. A folder that cannot be
/// measured, because it has too many entries or the agent made it unreadable, counts as `u64::MAX`,
/// so that an agent cannot get around its limit that way.
pub(super) fn folder_bytes(root: &Path) -> u64 {
    let root = match UntrustedDir::open(root) {
        Ok(root) => root,
        Err(error) if error.is_not_found() => return 0,
        Err(_) => return u64::MAX,
    };
    let mut bytes = 0_u64;
    let walked = root.walk(MAX_ENTRIES, |entry| {
        bytes = bytes.saturating_add(entry.stat.disk_bytes.max(ENTRY_BYTES));
    });
    if walked.entries >= MAX_ENTRIES || walked.unreadable > 0 { u64::MAX } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_counts_its_files_and_no_links() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::create_dir_all(inside.join("a/b")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("large"), vec![1; 1 << 20]).unwrap();
        std::fs::write(inside.join("a/b/file"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let bytes = folder_bytes(&inside);
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(folder_bytes(&folder.path().join("none")), 0);
    }

    #[test]
    fn a_deep_folder_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let mut deep = folder.path().to_owned();
        for _ in 0..150 {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), vec![1; 100_000]).unwrap();
        assert!(folder_bytes(folder.path()) >= 100_000);
    }
}
