//! Landlock: which files may be reached, and where namespaces are missing, which ports.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
    path_beneath_rules,
};
use shikiri_model::confinement::ConfinementLevel;

use crate::error::SandboxError;
use crate::sandbox_plan::SandboxPlan;
use crate::system_paths::ROOT_ONLY;

/// Older kernels apply the part that they support.
const NEWEST: ABI = ABI::V6;
/// The oldest version that is accepted.
const OLDEST: ABI = ABI::V1;
/// Writable folders of a run's own file tree.
const OWN: [&str; 3] = ["/dev", "/tmp", "/run"];
/// Devices without data. Terminals and shared memory are left out, because other users share them.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

pub(super) fn apply(plan: &SandboxPlan) -> Result<(), SandboxError> {
    let rules = match plan.confinement.level {
        ConfinementLevel::Namespaces => in_own_tree(plan),
        ConfinementLevel::Landlock => in_the_machines_tree(plan),
        ConfinementLevel::None => return Ok(()),
    };
    let restricted = rules.and_then(RulesetCreated::restrict_self);
    restricted.map(drop).map_err(|error| SandboxError::Landlock(error.to_string()))
}

/// Files, signals and abstract sockets. A kernel without Landlock is an error.
fn ruleset() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))
}

/// Write access without device files, which would give access to whole disks.
fn write_access() -> landlock::BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST) & !(AccessFs::MakeBlock | AccessFs::MakeChar)
}

/// A second barrier: the run's own tree holds only the paths of the plan already.
fn in_own_tree(plan: &SandboxPlan) -> Result<RulesetCreated, RulesetError> {
    let write = plan.write.iter().map(PathBuf::as_path).chain(OWN.map(Path::new));
    ruleset()?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(write, write_access()))
}

fn in_the_machines_tree(plan: &SandboxPlan) -> Result<RulesetCreated, RulesetError> {
    let real = |place: &Path| place.canonicalize().ok();
    let mut hidden: Vec<_> = plan.hidden.iter().filter_map(|place| real(place)).collect();
    if plan.confinement.engine_user.is_none() && rustix::process::geteuid().is_root() {
        hidden.extend(ROOT_ONLY.iter().filter_map(|place| real(Path::new(place))));
    }
    let mut read = Vec::new();
    let wanted = plan.read.iter().map(PathBuf::as_path).chain(["/proc", "/sys"].map(Path::new));
    for place in wanted.filter_map(real).filter(|place| place.parent().is_some()) {
        leave_out(&place, &hidden, &mut read);
    }
    let write = plan.write.iter().map(PathBuf::as_path).chain(DEVICES.map(Path::new));
    let ports = plan.loopback_ports.iter();
    ruleset()?
        .handle_access(AccessNet::ConnectTcp)?
        .create()?
        .add_rules(path_beneath_rules(read, AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(write, write_access()))?
        .add_rules(
            ports.map(|port| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp))),
        )
}

/// Adds the place, or, if something below it is hidden, its other entries.
fn leave_out(place: &Path, hidden: &[PathBuf], left: &mut Vec<PathBuf>) {
    if hidden.iter().any(|hidden| place.starts_with(hidden)) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(place)) {
        left.push(place.to_owned());
        return;
    }
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        // The target of a link is elsewhere.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            leave_out(&entry.path(), hidden, left);
        }
    }
}
