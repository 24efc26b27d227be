//! What of this machine a run may reach: its own folders, programs, and its own ports.
//!
//! The commands that a model thinks of must not read what the server's user may: the admin key, the
//! store, other conversations' folders. `shikiri_sandbox` keeps a run to what is named here.

use std::path::{Path, PathBuf};

use shikiri_app::execution::Order;
use shikiri_model::confinement::Confinement;
use shikiri_model::server::Transport;
use shikiri_sandbox::{SandboxLimits, SandboxPlan, system_places};

/// Files that may be links to another place, such as below `/run`, where they are replaced.
const LINKED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime"];
/// Variables that name a file or folder that the CLI or its commands need.
const NAMING: [&str; 3] = ["AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", RUSTUP_HOME];
const RUSTUP_HOME: &str = "RUSTUP_HOME";
/// What runs may reach besides what their order names.
#[derive(Clone, Debug, Default)]
pub(super) struct MachinePlaces {
    /// Programs that are installed in an odd place.
    pub(super) readable: Vec<PathBuf>,
    /// Not to be read, even if it lies where programs are installed.
    pub(super) hidden: Vec<PathBuf>,
}

/// The plan of one run with this program.
pub(super) fn plan_run(
    order: &Order,
    cli: &Path,
    machine: &MachinePlaces,
    confinement: Confinement,
    limits: SandboxLimits,
    cgroup: Option<PathBuf>,
) -> SandboxPlan {
    let mut read = readable(order, cli);
    read.extend(machine.readable.iter().cloned());
    SandboxPlan {
        confinement,
        read,
        write: vec![order.home.clone(), order.folder.clone()],
        hidden: machine.hidden.clone(),
        folder: order.folder.clone(),
        loopback_ports: order.loopback_ports.clone(),
        limits,
        cgroup,
        is_probe: false,
    }
}

/// The `cargo` that rustup installs looks for its toolchain in the user's home, which in a run is
/// another one. Gives the folder beside the programs, if they are in the run's `PATH`.
pub(super) fn rustup_home(order: &Order) -> Option<(String, String)> {
    if order.env.contains_key(RUSTUP_HOME) {
        return None;
    }
    let mut folders = std::env::split_paths(order.env.get("PATH")?);
    let programs = folders.find(|folder| folder.join("rustup").exists())?;
    let home = programs.ancestors().nth(2)?.join(".rustup");
    let home = home.to_str().filter(|_| home.is_dir())?;
    Some((RUSTUP_HOME.to_owned(), home.to_owned()))
}

fn readable(order: &Order, cli: &Path) -> Vec<PathBuf> {
    let mut read = system_places();
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
            read.extend(command.first().into_iter().flat_map(|first| programs(Path::new(first))));
            // Scripts, or folders that the program is for.
            read.extend(command.iter().skip(1).map(PathBuf::from));
        }
    }
    // A relative one would depend on where this process is.
    read.retain(|place| place.is_absolute());
    read
}

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
