//! Children: this test binary once more, in a role. They are real processes, so they can be
//! stopped and killed; each ends with the test that started it, however that ended.

use std::io::{BufRead as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use serde::{Deserialize, Serialize};
use shikiri_testkit::{Signal, role, signal, spawn_role, until};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};

use super::{claim_storm, lease_pause, lease_wait, native_kill, node_child};

/// What a child does, with all that it needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    WriteUnderLease(lease_pause::Writer),
    HoldLease(lease_wait::Holder),
    Claim(claim_storm::Claimer),
    Node(node_child::NodeTask),
    Native(native_kill::NativeTask),
}

/// Not a story: what a child of the stories runs.
#[test]
fn child_role() {
    let Some(role) = role() else { return };
    let orders = hear_parent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match serde_json::from_str(&role).unwrap() {
            Role::WriteUnderLease(task) => lease_pause::write(task).await,
            Role::HoldLease(task) => lease_wait::hold(task, orders).await,
            Role::Claim(task) => claim_storm::claim(task).await,
            Role::Node(task) => node_child::carry(task).await,
            Role::Native(task) => native_kill::carry(task).await,
        }
    });
}

/// The lines that the parent sends; when it is gone, so is this process.
fn hear_parent() -> mpsc::Receiver<String> {
    let (told, orders) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            // A role that takes no orders has dropped the other end.
            let _ = told.blocking_send(line);
        }
        std::process::exit(0);
    });
    orders
}

static QUIET: RwLock<()> = RwLock::const_new(());

/// For a story whose clock must not be upset by the others of this module.
pub(crate) async fn in_quiet() -> RwLockWriteGuard<'static, ()> {
    QUIET.write().await
}

/// For a story that makes noise, and bears some.
pub(crate) async fn in_noise() -> RwLockReadGuard<'static, ()> {
    QUIET.read().await
}

/// A running child; dropping it kills it.
pub(crate) struct Child(std::process::Child);

impl Child {
    pub(crate) fn spawn(role: &Role) -> Self {
        Self::spawn_with(role, None)
    }

    /// `failpoint` as `name:nth`: where the child is to be killed from inside.
    pub(crate) fn spawn_with(role: &Role, failpoint: Option<&str>) -> Self {
        let told = serde_json::to_string(role).unwrap();
        let mut command = spawn_role("chaos::child::child_role", &told);
        command
            .env_remove("SHIKIRI_FAILPOINT")
            .envs(failpoint.map(|armed| ("SHIKIRI_FAILPOINT", armed)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn order(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn stop(&self) {
        signal(self.0.id(), Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        signal(self.0.id(), Signal::CONT);
    }

    /// Kills and collects it.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        until("the child ends", async || self.ended()).await
    }
}

pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
