//! The Unix socket at which a keeper shares its Chrome. It lies in the browser's folder, which only
//! its user can enter.
//!
//! Both sides check that the peer has the same user. A client must also send a token that it reads
//! from a file in the folder. This keeps out confined programs of the same user, such as those of a
//! run: file rules do not always cover connections to sockets.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};

const SOCKET: &str = "devtools.sock";
const TOKEN: &str = "devtools.token";
const NEW_TOKEN: &str = "devtools.token.new";
/// The address of a socket is at most 107 bytes on Linux and 103 on macOS.
const MAX_ADDRESS: usize = 100;

/// The token that a client must send. Each keeper has a new one.
#[derive(Clone)]
pub(crate) struct KeeperToken(String);

impl KeeperToken {
    fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(hex::encode(bytes)))
    }

    pub(super) fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

/// A keeper's folder and token, with which a client connects.
#[derive(Clone)]
pub(crate) struct KeeperAddress {
    folder: PathBuf,
    token: KeeperToken,
}

/// Equal addresses are of the same keeper: a later keeper in the folder has another token.
impl PartialEq for KeeperAddress {
    fn eq(&self, other: &Self) -> bool {
        self.folder == other.folder && self.token.is(other.token.0.as_bytes())
    }
}

impl KeeperAddress {
    /// Reads the address of the keeper that last listened in a browser's folder.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let token = KeeperToken(fs::read_to_string(folder.join(TOKEN))?);
        Ok(Self { folder: folder.to_owned(), token })
    }

    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        let address = KeeperSocketPath::new(&self.folder)?;
        let mut stream = UnixStream::connect(&address.path).await?;
        check_peer(&stream)?;
        let mut greeting = self.token.0.clone().into_bytes();
        greeting.push(0);
        stream.write_all(&greeting).await?;
        Ok(stream)
    }
}

/// Checks that the peer is a process of this user.
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let (peer, us) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    match peer == us {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the other side is of another user (id {peer})"),
        )),
    }
}

/// A keeper's listening socket, removed when the keeper ends.
pub(super) struct KeeperSocket {
    pub(super) listener: UnixListener,
    pub(super) token: KeeperToken,
    folder: PathBuf,
    /// Tells whether the file is still this keeper's socket.
    inode: u64,
}

impl KeeperSocket {
    /// Listens in a browser's folder. Replaces the socket of a keeper that was killed.
    pub(super) fn bind(folder: &Path) -> io::Result<Self> {
        let path = folder.join(SOCKET);
        let address = KeeperSocketPath::new(folder)?;
        let listener = match UnixListener::bind(&address.path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if std::os::unix::net::UnixStream::connect(&address.path).is_ok() {
                    let text = format!("{} belongs to another keeper that lives", path.display());
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
                }
                fs::remove_file(&path)?;
                UnixListener::bind(&address.path)?
            }
            bound => bound?,
        };
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(&path)?.ino();
        let token = KeeperToken::generate()?;
        write_token(folder, &token)?;
        Ok(Self { listener, token, folder: folder.to_owned(), inode })
    }

    /// Removes the files while still listening. A new keeper that starts meanwhile fails to bind or
    /// finds no file, so its own socket is never removed.
    pub(super) fn remove(self) {
        let path = self.folder.join(SOCKET);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == self.inode) {
            // The next keeper replaces files that cannot be removed.
            let _ = fs::remove_file(self.folder.join(TOKEN));
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes the token file by renaming, so that readers never see a part of it.
fn write_token(folder: &Path, token: &KeeperToken) -> io::Result<()> {
    let new = folder.join(NEW_TOKEN);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(token.0.as_bytes())?;
    fs::rename(new, folder.join(TOKEN))
}

/// A path of the socket that is short enough for a socket address.
struct KeeperSocketPath {
    path: PathBuf,
    /// Kept open while the path leads through its descriptor.
    _folder: Option<File>,
}

impl KeeperSocketPath {
    fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(SOCKET);
        if path.as_os_str().as_bytes().len() <= MAX_ADDRESS {
            return Ok(Self { path, _folder: None });
        }
        let open = File::open(folder)?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&open);
        let through = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
        if !through.exists() {
            let text = format!("{} is too long for the address of a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self { path: through.join(SOCKET), _folder: Some(open) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_of_a_dead_keeper_is_replaced_and_one_of_a_living_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let first = KeeperSocket::bind(folder.path()).unwrap();
        let error = KeeperSocket::bind(folder.path()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let known = KeeperAddress::read(folder.path()).unwrap();
        assert!(known.connect().await.is_ok());
        // As when it is killed: its files stay.
        let KeeperSocket { listener, .. } = first;
        drop(listener);
        let second = KeeperSocket::bind(folder.path()).unwrap();
        let anew = KeeperAddress::read(folder.path()).unwrap();
        assert!(known != anew && anew.connect().await.is_ok());
        second.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_folder_may_have_a_path_that_is_too_long_for_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(120)).join("y".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        let socket = KeeperSocket::bind(&deep).unwrap();
        let mode = fs::metadata(deep.join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(KeeperAddress::read(&deep).unwrap().connect().await.is_ok());
        socket.remove();
        assert!(!deep.join(SOCKET).exists());
    }
}
