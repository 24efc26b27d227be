//! The guard: a shell that waits for its standard input to end, which happens when the creator
//! is gone for whatever reason, and then ends the server and removes the folder. A signal
//! handler could not promise that, and a parent-death signal follows threads, not processes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::Error;

/// `$1` is the cluster's folder. Same rule as in `folder::server`: a pid counts only if the
/// process was started on our data folder.
const SCRIPT: &str = r#"
trap '' HUP INT
data="$1/data"
while read -r _; do :; done
pid=$(head -n 1 "$data/postmaster.pid")
runs() { [ -n "$pid" ] && tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF -- "$data"; }
if runs; then
    kill -QUIT "$pid"
    tries=0
    while runs && [ "$tries" -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
fi
rm -rf -- "$1"
"#;

pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    pub(crate) fn post(folder: &Path) -> Result<Guard, Error> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "shikiri-testpg-guard"])
            .arg(folder)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Away from the terminal's group: Ctrl-C is for the creator.
            .process_group(0)
            .spawn()
            .map_err(|cause| Error::new(format!("cannot start the guard /bin/sh: {cause}")))?;
        let guard = Guard { shell };
        let path = folder.join("guard");
        fs::write(&path, guard.shell.id().to_string())
            .map_err(|cause| Error::file("write", &path, &cause))?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
