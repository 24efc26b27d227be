//! The file tree of a run: a new root in memory on which only planned places are mounted.
//!
//! Places keep their paths. What may be read is mounted read-only, what may be written is not, and
//! everything else does not exist. `/dev`, `/tmp`, `/run` and `/proc` are the run's own.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, unmount,
};
use rustix::process::pivot_root;

use super::{mount_table, namespaces};
use crate::error::{SandboxError, at, step};
use crate::sandbox_plan::SandboxPlan;
use crate::system_paths::ROOT_ONLY;

/// Where the machine's own tree is while the new one is built.
const OLD: &str = "/old";
/// Where the new one is built.
const NEW: &str = "/new";
/// Devices without data.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Folders in memory, with their largest size and their mode.
const IN_MEMORY: [(&str, &str); 4] = [
    ("/dev", "size=64k,nr_inodes=4k,mode=755"),
    ("/dev/shm", "size=512m,nr_inodes=16k,mode=1777"),
    ("/tmp", "size=1g,nr_inodes=256k,mode=1777"),
    ("/run", "size=64m,nr_inodes=16k,mode=1777"),
];
const PRIVATE: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Replaces this process's file tree. It must be process 1 of its process namespace.
pub(super) fn build(plan: &SandboxPlan) -> Result<(), SandboxError> {
    let places = ResolvedPaths::of(plan);
    namespaces::separate_mounts()?;
    // Nothing that is mounted here from now on is seen outside.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave).map_err(step("separating the mounts"))?;
    move_old_root()?;
    for (folder, options) in IN_MEMORY {
        make_folder(&inside(Path::new(folder)))?;
        mount_tmpfs(&inside(Path::new(folder)), options, PRIVATE)?;
    }
    for place in &places.read {
        bind(place)?;
    }
    protect(Path::new("/"), MountFlags::RDONLY)?;
    for place in &places.hidden {
        hide(place)?;
    }
    for place in &places.write {
        bind(place)?;
        protect(place, MountFlags::empty())?;
    }
    make_devices()?;
    add_process_files()?;
    places.make_links()?;
    add_user(plan)?;
    enter_tree()
}

/// All places with every link in their paths resolved.
struct ResolvedPaths {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    /// Links on the way to them, with what they say.
    links: BTreeSet<(PathBuf, PathBuf)>,
}

impl ResolvedPaths {
    fn of(plan: &SandboxPlan) -> Self {
        let mut links = BTreeSet::new();
        let mut real = |places: &[PathBuf]| {
            let mut found: Vec<PathBuf> =
                places.iter().filter_map(|place| resolve(place, &mut links)).collect();
            found.sort();
            found.dedup();
            found
        };
        let (write, mut hidden) = (real(&plan.write), real(&plan.hidden));
        if plan.confinement.engine_user.is_none() && rustix::process::geteuid().is_root() {
            hidden.extend(real(&ROOT_ONLY.map(PathBuf::from)));
        }
        let mut read = Vec::<PathBuf>::new();
        for place in real(&plan.read) {
            let is_covered = read.iter().any(|above| place.starts_with(above));
            let is_hidden = hidden.iter().any(|hidden| place.starts_with(hidden));
            // The whole machine is no place to read, and process files are the run's own.
            let is_ours = place.parent().is_none() || place.starts_with("/proc");
            if !is_covered && !is_hidden && !is_ours && !place.starts_with("/dev") {
                read.push(place);
            }
        }
        Self { read, write, hidden, links }
    }

    fn make_links(&self) -> Result<(), SandboxError> {
        for (link, target) in &self.links {
            let link = inside(link);
            if link.symlink_metadata().is_ok() {
                continue;
            }
            if let Some(folder) = link.parent() {
                make_folder(folder)?;
            }
            symlink(target, &link).map_err(at("linking", link))?;
        }
        Ok(())
    }
}

/// The place without links in its path; those that were met are added. None if it does not exist.
fn resolve(place: &Path, links: &mut BTreeSet<(PathBuf, PathBuf)>) -> Option<PathBuf> {
    const MOST_LINKS: u32 = 40;
    let mut left: Vec<PathBuf> = parts(place);
    let mut real = PathBuf::from("/");
    let mut met = 0;
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(part);
        if next.symlink_metadata().ok()?.is_symlink() {
            met += 1;
            let target = fs::read_link(&next).ok().filter(|_| met <= MOST_LINKS)?;
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            left.extend(parts(&target));
            links.insert((next, target));
        } else {
            real = next;
        }
    }
    Some(real)
}

/// The parts of a path, the first one last.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut parts: Vec<PathBuf> = named.map(|part| part.as_os_str().into()).collect();
    parts.reverse();
    parts
}

/// Puts the machine's tree at `OLD`, on a root in memory.
fn move_old_root() -> Result<(), SandboxError> {
    let base = ["/tmp", "/run", "/mnt", "/var"].map(Path::new).into_iter().find(|p| p.is_dir());
    let base = base.unwrap_or(Path::new("/proc"));
    let small = "size=1m,mode=755";
    mount_tmpfs(base, small, PRIVATE)?;
    for name in [OLD, NEW] {
        let folder = base.join(name.trim_start_matches('/'));
        fs::create_dir(&folder).map_err(at("making", folder))?;
    }
    let old = base.join(OLD.trim_start_matches('/'));
    pivot_root(base, &old).map_err(step("changing the root"))?;
    std::env::set_current_dir("/").map_err(step("changing the folder"))?;
    mount_tmpfs(Path::new(NEW), small, PRIVATE)
}

fn inside(place: &Path) -> PathBuf {
    Path::new(NEW).join(place.strip_prefix("/").unwrap_or(place))
}

fn outside(place: &Path) -> PathBuf {
    Path::new(OLD).join(place.strip_prefix("/").unwrap_or(place))
}

/// Makes a folder that all users may traverse, such as the engine's user.
fn make_folder(folder: &Path) -> Result<(), SandboxError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(at("making", folder))
}

fn make_file(file: &Path) -> Result<(), SandboxError> {
    if let Some(folder) = file.parent() {
        make_folder(folder)?;
    }
    match file.exists() {
        true => Ok(()),
        false => fs::write(file, "").map_err(at("making", file)),
    }
}

fn bind(place: &Path) -> Result<(), SandboxError> {
    let (from, to) = (outside(place), inside(place));
    match from.is_dir() {
        true => make_folder(&to)?,
        false => make_file(&to)?,
    }
    mount_bind_recursive(&from, &to).map_err(at("mounting", place))
}

fn mount_tmpfs(place: &Path, options: &str, flags: MountFlags) -> Result<(), SandboxError> {
    mount("tmpfs", place, "tmpfs", flags, &*text(options)?).map_err(at("mounting", place))
}

fn text(text: &str) -> Result<CString, SandboxError> {
    CString::new(text).map_err(|error| step("options of a mount")(std::io::Error::from(error)))
}

/// Takes from all that was mounted from the machine at and below a place the rights that programs
/// and devices could give, and what `more` says.
fn protect(place: &Path, more: MountFlags) -> Result<(), SandboxError> {
    let list = outside(Path::new("/proc/self/mountinfo"));
    let mountinfo = fs::read(&list).map_err(at("reading", list))?;
    let own: Vec<PathBuf> = IN_MEMORY.iter().map(|(place, _)| inside(Path::new(place))).collect();
    for mount in mount_table::below(&inside(place), &mountinfo) {
        if mount.place != Path::new(NEW) && !own.contains(&mount.place) {
            let flags = mount.flags | PRIVATE | MountFlags::BIND | more;
            mount_remount(&mount.place, flags, c"").map_err(at("protecting", mount.place))?;
        }
    }
    Ok(())
}

/// An empty folder, or an empty file, in its place.
fn hide(place: &Path) -> Result<(), SandboxError> {
    let there = inside(place);
    let Ok(about) = there.symlink_metadata() else { return Ok(()) };
    if about.is_dir() {
        return mount_tmpfs(&there, "size=64k,mode=755", PRIVATE);
    }
    mount_bind(outside(Path::new("/dev/null")), &there).map_err(at("hiding", place))
}

fn make_devices() -> Result<(), SandboxError> {
    for name in DEVICES {
        let place = Path::new("/dev").join(name);
        make_file(&inside(&place))?;
        mount_bind(outside(&place), inside(&place)).map_err(at("mounting", place))?;
    }
    let terminals = inside(Path::new("/dev/pts"));
    make_folder(&terminals)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options: &CStr = c"newinstance,ptmxmode=0666,mode=620";
    mount("devpts", &terminals, "devpts", flags, options).map_err(at("mounting", "/dev/pts"))?;
    for (name, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let link = inside(&Path::new("/dev").join(name));
        symlink(target, &link).map_err(at("linking", link))?;
    }
    Ok(())
}

fn add_process_files() -> Result<(), SandboxError> {
    let place = inside(Path::new("/proc"));
    make_folder(&place)?;
    let flags = PRIVATE | MountFlags::NOEXEC;
    mount("proc", &place, "proc", flags, c"").map_err(at("mounting", "/proc"))
}

/// Adds the engine's user to the run's `passwd` and `group`, because programs look up their user.
fn add_user(plan: &SandboxPlan) -> Result<(), SandboxError> {
    let Some(user) = plan.confinement.engine_user else { return Ok(()) };
    let home = plan.write.first().unwrap_or(&plan.folder).as_os_str().as_bytes();
    let home = String::from_utf8_lossy(home).replace(':', "_");
    for (name, line) in [
        ("passwd", format!("engine:x:{user}:{user}:engine:{home}:/bin/sh\n")),
        ("group", format!("engine:x:{user}:\n")),
    ] {
        let place = Path::new("/etc").join(name);
        let Ok(mut known) = fs::read_to_string(outside(&place)) else { continue };
        if !known.ends_with('\n') && !known.is_empty() {
            known.push('\n');
        }
        let file = Path::new("/").join(name);
        fs::write(&file, known + &line).map_err(at("writing", &file))?;
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .map_err(at("writing", &file))?;
        mount_bind(&file, inside(&place)).map_err(at("mounting", &place))?;
        let flags = MountFlags::BIND | MountFlags::RDONLY | PRIVATE;
        mount_remount(inside(&place), flags, c"").map_err(at("protecting", &place))?;
    }
    Ok(())
}

/// Makes the new tree this process's root and lets go of the machine's.
fn enter_tree() -> Result<(), SandboxError> {
    std::env::set_current_dir(NEW).map_err(step("changing the folder"))?;
    pivot_root(".", ".").map_err(step("changing the root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(step("leaving the machine's files"))?;
    std::env::set_current_dir("/").map_err(step("changing the folder"))?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | PRIVATE;
    mount_remount("/", flags, c"").map_err(step("protecting the root"))
}
