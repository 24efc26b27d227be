//! Finds, by trying, where cgroups of runs can be made.
//!
//! Only a cgroup that was handed to the server is used: one that systemd marks as delegated, or the
//! topmost that can be seen, as in a container. A cgroup that holds processes cannot give its
//! children limits, unless it is the kernel's own root. A server that is alone in its cgroup moves to
//! one below; otherwise that cgroup stays as it is, and the supervisors watch their runs.

use std::path::{Path, PathBuf};
use std::{fs, io};

use shikiri_model::confinement::{Confinement, ConfinementLevel};

use super::{confinement_probe, mount_table, run_cgroup};
use crate::sandbox_plan::{RUN_CGROUP, SandboxPlan};

/// Where the server moves to.
const SERVER: &str = "shikiri-server";
/// What runs are limited in.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// Attributes with which systemd marks a delegated cgroup. Every user can read the first one.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// The folder for cgroups of runs; `None` if this process cannot limit memory with cgroups. Removes
/// leftovers of killed servers. `program` must call `run_if_asked`. Blocks for some milliseconds.
pub fn find_cgroup_place(program: &Path) -> Option<PathBuf> {
    let OwnCgroup { folder, is_topmost } = own_cgroup()?;
    let has_moved = folder.file_name().is_some_and(|name| name == SERVER);
    let own = Some(folder.as_path()).filter(|own| is_topmost || is_delegated(own));
    let above = folder.parent().filter(|above| has_moved || is_delegated(above));
    let mut places = [own, above].into_iter().flatten();
    let place = places.find(|place| prepare(place) && works(program, place))?;
    run_cgroup::remove_abandoned(place);
    Some(place.to_owned())
}

struct OwnCgroup {
    folder: PathBuf,
    /// Nothing above it can be seen.
    is_topmost: bool,
}

fn own_cgroup() -> Option<OwnCgroup> {
    let mountinfo = fs::read("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    // The newest mount of several in one place is the one that is seen.
    let mut mounts = mount_table::below(Path::new("/"), &mountinfo).into_iter().rev();
    let mount = mounts.find(|mount| mount.kind == b"cgroup2")?;
    let below = path.strip_prefix(&mount.root).ok()?;
    let is_topmost = below.as_os_str().is_empty();
    let folder = if is_topmost { mount.place } else { mount.place.join(below) };
    Some(OwnCgroup { folder, is_topmost })
}

fn is_delegated(folder: &Path) -> bool {
    let mut value = [0; 8];
    DELEGATED.iter().any(|name| {
        let length = rustix::fs::getxattr(folder, *name, &mut value[..]).unwrap_or(0);
        value.get(..length) == Some(b"1")
    })
}

fn has_controllers(file: &Path) -> bool {
    let listed = fs::read_to_string(file).unwrap_or_default();
    CONTROLLERS.iter().all(|wanted| listed.split_ascii_whitespace().any(|name| name == *wanted))
}

/// Lets cgroups in this folder have limits.
fn prepare(folder: &Path) -> bool {
    let file = folder.join("cgroup.subtree_control");
    if has_controllers(&file) {
        return true;
    }
    if !has_controllers(&folder.join("cgroup.controllers")) {
        return false;
    }
    let enable = || fs::write(&file, CONTROLLERS.map(|name| format!("+{name}")).join(" "));
    match enable() {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy && is_alone(folder) => {
            let below = folder.join(SERVER);
            // It may be there from an earlier server.
            let _ = fs::create_dir(&below);
            let is_enabled = move_to(&below).and_then(|()| enable()).is_ok();
            if !is_enabled {
                let _ = move_to(folder);
            }
            is_enabled
        }
        Err(_) => false,
    }
}

/// Whether this process is the only one in the cgroup. Those of other process namespaces are 0.
fn is_alone(folder: &Path) -> bool {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    processes.trim() == std::process::id().to_string()
}

fn move_to(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
}

/// Probes a cgroup with a process, using the same code as runs.
fn works(program: &Path, place: &Path) -> bool {
    let name = format!("{RUN_CGROUP}probe-{}", std::process::id());
    let plan = SandboxPlan {
        cgroup: Some(place.join(name)),
        ..confinement_probe::plan(Confinement { level: ConfinementLevel::None, engine_user: None })
    };
    confinement_probe::succeeds(program, &plan, Path::new("/"))
}
