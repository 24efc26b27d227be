//! Limits per process or user. Memory is limited by a cgroup or by the supervisor: a limit on the
//! address space would break JavaScript runtimes, which reserve far more than they use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shikiri_model::confinement::ConfinementLevel;

use crate::error::{SandboxError, step};
use crate::sandbox_plan::SandboxPlan;

/// Runs of a root server share one user, so that the kernel counts their tasks together. The
/// supervisor holds each to its own limit; this one is only a last bound.
const SHARED: u64 = 16;

/// How soon the kernel ends a process of a run when memory is short: before the server, which may have
/// been exempted (`OOMScoreAdjust=` of systemd) and would pass that on.
const OOM_SCORE_ADJ: &str = "500";

pub(super) fn apply(plan: &SandboxPlan) -> Result<(), SandboxError> {
    let limits = &plan.limits;
    // Where `/proc` is missing or read-only, the limits below still hold.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
    lower(Resource::Core, 0)?;
    lower(Resource::Fsize, limits.file_bytes)?;
    lower(Resource::Nofile, limits.open_files)?;
    if let Some(tasks) = countable_tasks(plan) {
        lower(Resource::Nproc, tasks)?;
    }
    Ok(())
}

/// The limit of tasks; `None` if the kernel would also count tasks outside of runs, or if the run has a
/// cgroup, which reports when its limit is reached.
fn countable_tasks(plan: &SandboxPlan) -> Option<u64> {
    if plan.cgroup.is_some() {
        return None;
    }
    if plan.confinement.engine_user.is_some() {
        return Some(plan.limits.tasks * SHARED);
    }
    let has_namespace = plan.confinement.level == ConfinementLevel::Namespaces;
    let is_root = rustix::process::geteuid().is_root();
    (has_namespace && !is_root && counts_by_namespace()).then_some(plan.limits.tasks)
}

/// Since 5.14 tasks are counted for each user namespace.
fn counts_by_namespace() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 14)
}

/// Never above what this process has itself.
fn lower(resource: Resource, wanted: u64) -> Result<(), SandboxError> {
    let most = getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).map_err(step("a limit"))
}
