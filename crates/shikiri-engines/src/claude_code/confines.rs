//! What of this machine's files a run may reach: its own folders, and programs.
//!
//! The CLI runs as the server's user, and so do the commands that a model thinks of. What that user
//! may read, such as the admin key, the store and other conversations' folders, is none of theirs.
//! On Linux the supervisor gives up all that is not named here (Landlock), and whatever it starts
//! inherits that. The same takes from them the server's memory and environment (`/proc/PID/…`), and
//! where the kernel is recent enough, signals to processes that are not of the run. If the server
//! is root's, the powers go with which root could do all that nevertheless.
//!
//! Not held back is the network, on which the CLI depends.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use shikiri_app::execution::Order;
use shikiri_model::server::Transport;

/// Where systems keep programs and what they need to run, certificates too.
const SYSTEM: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix/store",
    "/run/current-system",
    "/var/lib/ca-certificates",
    "/proc",
    "/sys",
];
/// Devices that hold nobody's data. Others may: a disk, for one.
const DEVICES: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];
/// Files that may be links to another place, such as below `/run`, where they are replaced.
const LINKED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime"];
/// Variables that name a file that the CLI needs.
const NAMING: [&str; 5] = [
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "NODE_EXTRA_CA_CERTS",
];

/// Places that are not there do not matter. All else is out of reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Confines {
    /// To be read and executed, with all that is below.
    pub(super) read: Vec<PathBuf>,
    /// To be written, too.
    pub(super) write: Vec<PathBuf>,
    /// Not to be read, even if it lies below what is.
    pub(super) hidden: Vec<PathBuf>,
}

impl Confines {
    pub(super) fn of(order: &Order, cli: &Path) -> Self {
        let mut read: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        let linked = LINKED.iter().filter_map(|file| Path::new(file).canonicalize().ok());
        read.extend(linked.filter_map(|file| Some(file.parent()?.to_owned())));
        read.extend(NAMING.iter().filter_map(|name| order.env.get(*name)).map(PathBuf::from));
        if let Some(path) = order.env.get("PATH") {
            std::env::split_paths(path).for_each(|folder| read.extend(around(&folder)));
        }
        read.extend(programs(cli));
        for server in &order.servers {
            // The admin's word: no other may name a program.
            if let Transport::Stdio { command } = &server.transport {
                read.extend(
                    command.first().into_iter().flat_map(|first| programs(Path::new(first))),
                );
                // Scripts, or folders that the program is for.
                read.extend(command.iter().skip(1).map(PathBuf::from));
            }
        }
        // A relative one would depend on where this process is.
        read.retain(|place| place.is_absolute());
        let mut write = vec![order.home.clone(), order.folder.clone()];
        write.extend(DEVICES.iter().map(PathBuf::from));
        Self { read, write, hidden: Vec::new() }
    }

    pub(super) fn arguments(self) -> impl Iterator<Item = OsString> {
        let named = |name: &'static str, places: Vec<PathBuf>| {
            places.into_iter().map(move |place| {
                let mut argument = OsString::from(name);
                argument.push(place);
                argument
            })
        };
        named(READ, self.read).chain(named(WRITE, self.write)).chain(named(HIDE, self.hidden))
    }

    pub(super) fn parse(arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
        let mut all = Self::default();
        for argument in arguments {
            let places = [(READ, &mut all.read), (WRITE, &mut all.write), (HIDE, &mut all.hidden)];
            let mut meant = places.into_iter().filter_map(|(name, places)| {
                Some((argument.as_bytes().strip_prefix(name.as_bytes())?.to_vec(), places))
            });
            let (place, places) = meant.next()?;
            places.push(OsString::from_vec(place).into());
        }
        Some(all)
    }
}

const READ: &str = "--read=";
const WRITE: &str = "--write=";
const HIDE: &str = "--hide=";

/// What a program needs, where it is named and where it really is.
fn programs(program: &Path) -> Vec<PathBuf> {
    let real = program.canonicalize().ok();
    let both = [Some(program), real.as_deref()].into_iter().flatten();
    both.filter_map(Path::parent).flat_map(around).collect()
}

/// A folder of programs, and the libraries that are installed with them.
fn around(folder: &Path) -> Vec<PathBuf> {
    let mut places = vec![folder.to_owned()];
    if let Some(above) = folder.parent().filter(|_| folder.ends_with("bin")) {
        // A virtual environment of Python is one by the second.
        places.extend([above.join("lib"), above.join("pyvenv.cfg")]);
    }
    places
}

/// The place, or, if something below it is hidden, whatever else is there.
#[cfg(target_os = "linux")]
fn leave_out(place: &Path, hidden: &[PathBuf], left: &mut Vec<PathBuf>) {
    if hidden.iter().any(|hidden| place.starts_with(hidden)) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(place)) {
        left.push(place.to_owned());
        return;
    }
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        // What a link names is elsewhere.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            leave_out(&entry.path(), hidden, left);
        }
    }
}

#[cfg(target_os = "linux")]
mod landlocked {
    use std::io;
    use std::path::PathBuf;

    use landlock::{
        ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
        RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
    };

    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

    use super::{Confines, leave_out};

    /// Older kernels do what they can of it.
    const NEWEST: ABI = ABI::V6;

    impl Confines {
        /// Gives up what is not named, for this thread and whatever it starts.
        pub(in super::super) fn enter(&self) -> io::Result<()> {
            let kept = CapabilitySet::CHOWN
                | CapabilitySet::DAC_OVERRIDE
                | CapabilitySet::FOWNER
                | CapabilitySet::FSETID
                | CapabilitySet::KILL
                | CapabilitySet::SETGID
                | CapabilitySet::SETUID
                | CapabilitySet::NET_BIND_SERVICE;
            for capability in (CapabilitySet::all() - kept).iter() {
                // Of no concern to anybody but root: others have none that they could give up.
                let _ = remove_capability_from_bounding_set(capability);
            }
            self.restrict().map_err(|error| io::Error::other(format!("Landlock: {error}")))
        }

        fn restrict(&self) -> Result<(), RulesetError> {
            let real = |place: &PathBuf| place.canonicalize().ok();
            let hidden: Vec<_> = self.hidden.iter().filter_map(real).collect();
            let mut read = Vec::new();
            for place in self.read.iter().filter_map(real) {
                leave_out(&place, &hidden, &mut read);
            }
            // A device file is a way to all that is on a disk.
            let write = AccessFs::from_all(NEWEST) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
            Ruleset::default()
                .handle_access(AccessFs::from_all(NEWEST))?
                .scope(Scope::from_all(NEWEST))?
                .create()?
                .add_rules(path_beneath_rules(read, AccessFs::from_read(NEWEST)))?
                .add_rules(path_beneath_rules(&self.write, write))?
                .restrict_self()?;
            Ok(())
        }
    }

    /// Whether this kernel can hold a run back.
    pub fn is_confined() -> bool {
        let asked = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V1))
            .and_then(Ruleset::create);
        asked.is_ok()
    }
}

#[cfg(target_os = "linux")]
pub use landlocked::is_confined;

#[cfg(not(target_os = "linux"))]
impl Confines {
    pub(super) fn enter(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether this system can hold a run back.
#[cfg(not(target_os = "linux"))]
pub fn is_confined() -> bool {
    false
}
