//! Which user runs the server. PostgreSQL refuses to run as root, so a root caller (a container,
//! usually) hands everything to `postgres`, or to `nobody` where there is no such user.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::process;

/// Whether this process is root, which may install packages but may not run PostgreSQL.
pub fn running_as_root() -> bool {
    process::effective_uid() == Some(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// The server runs as the caller.
    Caller { uid: u32 },
    /// The caller is root and the server runs as another user.
    Other { uid: u32, gid: u32 },
}

impl Account {
    pub(crate) fn for_servers() -> Result<Account, Error> {
        let uid = process::effective_uid()
            .ok_or_else(|| Error::new("cannot tell the current user: /proc/self/status"))?;
        if uid != 0 {
            return Ok(Account::Caller { uid });
        }
        let passwd = fs::read_to_string("/etc/passwd")
            .map_err(|cause| Error::file("read", Path::new("/etc/passwd"), &cause))?;
        unprivileged(&passwd).ok_or_else(|| {
            Error::new("PostgreSQL does not run as root, and there is no user postgres or nobody")
        })
    }

    pub(crate) fn uid(self) -> u32 {
        match self {
            Account::Caller { uid } | Account::Other { uid, .. } => uid,
        }
    }

    /// Makes a file or folder of the caller the account's.
    pub(crate) fn give(self, path: &Path) -> Result<(), Error> {
        match self {
            Account::Caller { .. } => Ok(()),
            Account::Other { uid, gid } => chown(path, Some(uid), Some(gid))
                .map_err(|cause| Error::file("give away", path, &cause)),
        }
    }

    /// A command that runs as the account, in `folder`, with an environment free of the caller's
    /// `PG…` settings.
    pub(crate) fn command(self, program: impl AsRef<OsStr>, folder: &Path) -> Command {
        let mut command = Command::new(program);
        // The caller's current folder may be closed to the account.
        command.current_dir(folder);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
        if let Account::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Where temporary folders go: the caller's choice, unless the account cannot reach it.
    pub(crate) fn temporary_root(self) -> PathBuf {
        let chosen = std::env::temp_dir();
        let reachable = match self {
            Account::Caller { .. } => true,
            Account::Other { .. } => chosen.ancestors().all(open_to_all),
        };
        if reachable { chosen } else { PathBuf::from("/tmp") }
    }
}

fn open_to_all(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.mode() & 0o001 != 0)
}

fn unprivileged(passwd: &str) -> Option<Account> {
    ["postgres", "nobody"].into_iter().find_map(|name| look_up(passwd, name))
}

fn look_up(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        (uid != 0).then_some(Account::Other { uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";

    #[test]
    fn postgres_is_preferred_to_nobody() {
        let both = format!("{NOBODY}postgres:x:101:104:PostgreSQL,,,:/var/lib:/bin/bash\n");
        assert_eq!(unprivileged(&both), Some(Account::Other { uid: 101, gid: 104 }));
        assert_eq!(unprivileged(NOBODY), Some(Account::Other { uid: 65534, gid: 65533 }));
    }

    #[test]
    fn root_under_another_name_and_broken_lines_are_no_account() {
        assert_eq!(unprivileged("postgres:x:0:0::/:/bin/sh\nnobody:x:many\n"), None);
    }
}
