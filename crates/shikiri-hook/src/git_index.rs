//! Lists the files of a folder that git tracks, which are the files that came with a clone. The
//! index is read directly: git's own configuration can name programs to start.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The bytes before the object id of an entry: times, numbers, mode and size.
const STAT_BYTES: usize = 40;
/// The sizes of SHA-1 and SHA-256.
const HASH_SIZES: [usize; 2] = [20, 32];

/// The tracked files at and below `path`, which is inside `root`, as paths relative to `root`.
/// Empty outside of a repository.
pub fn tracked_files(root: &Path, path: &Path) -> io::Result<Vec<PathBuf>> {
    let root = root.canonicalize()?;
    let Some((top, index)) = find_index(&root)? else { return Ok(Vec::new()) };
    let prefix = root.strip_prefix(&top).unwrap_or(Path::new("")).join(path);
    let inside = root.strip_prefix(&top).unwrap_or(Path::new(""));
    let tracked = index_paths(&index)?;
    let tracked = tracked.iter().filter(|tracked| is_below(tracked, &prefix));
    Ok(tracked.map(|path| path.strip_prefix(inside).unwrap_or(path).to_owned()).collect())
}

/// Compares without case, like some file systems.
fn is_below(path: &Path, prefix: &Path) -> bool {
    let mut parts = path.components();
    prefix.components().all(|wanted| {
        parts.next().is_some_and(|part| part.as_os_str().eq_ignore_ascii_case(wanted.as_os_str()))
    })
}

/// The top of the work tree that contains a folder, and its index.
fn find_index(folder: &Path) -> io::Result<Option<(PathBuf, PathBuf)>> {
    for top in folder.ancestors() {
        let git = top.join(".git");
        let Ok(found) = git.metadata() else { continue };
        if found.is_dir() {
            return Ok(Some((top.to_owned(), git.join("index"))));
        }
        // In a linked work tree or submodule, this file names the git folder.
        let text = fs::read_to_string(&git)?;
        if let Some(named) = text.strip_prefix("gitdir:") {
            return Ok(Some((top.to_owned(), top.join(named.trim()).join("index"))));
        }
    }
    Ok(None)
}

/// All paths of an index and of its shared index.
fn index_paths(path: &Path) -> io::Result<Vec<PathBuf>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let read = HASH_SIZES.into_iter().find_map(|size| parse(&bytes, size));
    let (mut paths, shared) = read.ok_or_else(|| {
        let text = format!("{} has a form that is not known", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    if let Some(shared) = shared {
        let bytes = fs::read(path.with_file_name(format!("sharedindex.{shared}")))?;
        let read = HASH_SIZES.into_iter().find_map(|size| parse(&bytes, size));
        paths.extend(read.into_iter().flat_map(|(paths, _)| paths));
    }
    Ok(paths)
}

/// The paths, and the id of the shared index. None if the bytes are not an index with ids of this
/// size.
fn parse(bytes: &[u8], hash_size: usize) -> Option<(Vec<PathBuf>, Option<String>)> {
    let mut reader = GitIndexReader { rest: bytes };
    if reader.take(4)? != b"DIRC" {
        return None;
    }
    let version = reader.number()?;
    let count = reader.number()?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let (mut paths, mut path) = (Vec::new(), Vec::new());
    for _ in 0..count {
        reader.entry(version, hash_size, &mut path)?;
        paths.push(path_from(&path));
    }
    let mut shared = None;
    while reader.rest.len() > hash_size {
        let name = reader.take(4)?.to_owned();
        let size = usize::try_from(reader.number()?).ok()?;
        let extension = reader.take(size)?;
        if name == b"link" {
            let id = extension.get(..hash_size)?;
            shared = Some(hex::encode(id));
        }
    }
    Some((paths, shared))
}

fn path_from(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    std::ffi::OsStr::from_bytes(bytes).into()
}

struct GitIndexReader<'a> {
    rest: &'a [u8],
}

impl<'a> GitIndexReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn short_number(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// Reads an entry. `path` is the previous entry's path and becomes this one's.
    fn entry(&mut self, version: u32, hash_size: usize, path: &mut Vec<u8>) -> Option<()> {
        let before = self.rest.len();
        self.take(STAT_BYTES + hash_size)?;
        let flags = self.short_number()?;
        if flags & 0x4000 != 0 {
            self.take(2)?;
        }
        // From version 4 on, a path is stored as the difference to the previous one.
        let kept = if version == 4 { path.len().checked_sub(self.variable_number()?)? } else { 0 };
        path.truncate(kept);
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(self.take(end)?);
        let told = usize::from(flags & 0x0fff);
        if told != path.len().min(0x0fff) {
            return None;
        }
        let read = before - self.rest.len();
        let padding = if version == 4 { 1 } else { 8 - read % 8 };
        self.take(padding)?.iter().all(|byte| *byte == 0).then_some(())
    }

    /// Git's encoding of offsets: seven bits per byte, and each longer form continues after the
    /// shorter one.
    fn variable_number(&mut self) -> Option<usize> {
        let mut number = 0_usize;
        for position in 0.. {
            let byte = *self.take(1)?.first()?;
            if position > 0 {
                number = number.checked_add(1)?.checked_mul(128)?;
            }
            number = number.checked_add(usize::from(byte & 0x7f))?;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn git(folder: &Path, words: &[&str]) -> bool {
        let mut command = Command::new("git");
        command.current_dir(folder).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("HOME", folder).env("GIT_CONFIG_NOSYSTEM", "1");
        command.status().is_ok_and(|status| status.success())
    }

    fn fill(root: &Path) {
        fs::create_dir_all(root.join("sub/.shikiri/agents")).unwrap();
        let long = format!("sub/{}", "n".repeat(200));
        for name in ["a", "sub/.shikiri/admin.key", "sub/.shikiri/agents/x.md", "sub/b", &long] {
            fs::write(root.join(name), name).unwrap();
        }
    }

    #[test]
    fn tracked_files_are_found_in_every_form_of_the_index() {
        let forms: [(&[&str], &[&str]); 4] = [
            (&[], &[]),
            (&[], &["--index-version", "4"]),
            (&["--object-format=sha256"], &[]),
            (&[], &["--split-index"]),
        ];
        for (init, update) in forms {
            let folder = tempfile::tempdir().unwrap();
            fill(folder.path());
            if !git(folder.path(), &[&["init"][..], init].concat()) {
                continue;
            }
            let root = folder.path().join("sub");
            assert!(tracked_files(&root, Path::new(".shikiri")).unwrap().is_empty());
            assert!(git(folder.path(), &["add", "-A"]));
            assert!(git(folder.path(), &[&["update-index"][..], update].concat()), "{update:?}");
            let expected = [".shikiri/admin.key", ".shikiri/agents/x.md"].map(PathBuf::from);
            assert_eq!(
                tracked_files(&root, Path::new(".shikiri")).unwrap(),
                expected,
                "{update:?}"
            );
            assert_eq!(tracked_files(&root, Path::new("b")).unwrap(), [PathBuf::from("b")]);
            assert!(tracked_files(&root, Path::new("c")).unwrap().is_empty());
        }
    }

    #[test]
    fn nonsense_is_an_error_and_no_repository_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert!(tracked_files(folder.path(), Path::new("x")).unwrap().is_empty());
        fs::create_dir(folder.path().join(".git")).unwrap();
        assert!(tracked_files(folder.path(), Path::new("x")).unwrap().is_empty());
        for nonsense in [&b""[..], b"DIRC", b"DIRC\0\0\0\x02\0\0\0\x01zz", &[b'x'; 300]] {
            fs::write(folder.path().join(".git/index"), nonsense).unwrap();
            assert!(tracked_files(folder.path(), Path::new("x")).is_err(), "{nonsense:?}");
        }
    }
}
