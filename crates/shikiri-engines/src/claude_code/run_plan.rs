//! Plans what a run may reach: its own folders, programs and ports.
//!
//! A model's commands must not read all files of the server's user, such as the admin key, the store
//! and other conversations' folders. `shikiri_sandbox` confines a run to this plan.

use std::path::{Path, PathBuf};

use shikiri_executions::execution::TurnRequest;
use shikiri_model::confinement::Confinement;
use shikiri_model::server::McpServerTransport;
use shikiri_sandbox::{SandboxLimits, SandboxPlan, system_paths};

/// Files that may be links, such as into `/run`. The folders of their targets become readable.
const LINKED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime"];
/// Variables that name a file or folder that the CLI or its commands need.
const NAMING: [&str; 3] = ["AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", RUSTUP_HOME];
const RUSTUP_HOME: &str = "RUSTUP_HOME";

/// Paths of the machine that apply to all runs.
#[derive(Clone, Debug, Default)]
pub(super) struct MachinePaths {
    /// Programs in unusual places.
    pub(super) readable: Vec<PathBuf>,
    /// Hidden, even below folders of programs.
    pub(super) hidden: Vec<PathBuf>,
}

/// The plan of one run of this CLI.
pub(super) fn plan_run(
    request: &TurnRequest,
    cli: &Path,
    machine: &MachinePaths,
    confinement: Confinement,
    limits: SandboxLimits,
    cgroup: Option<PathBuf>,
) -> SandboxPlan {
    let mut read = readable(request, cli);
    read.extend(machine.readable.iter().cloned());
    SandboxPlan {
        confinement,
        read,
        write: vec![request.home.clone(), request.folder.clone()],
        hidden: machine.hidden.clone(),
        folder: request.folder.clone(),
        loopback_ports: request.loopback_ports.clone(),
        limits,
        cgroup,
        is_probe: false,
    }
}

/// The variable that lets rustup's `cargo` find its toolchain, because a run has another home. The
/// folder is beside the programs, if they are in the run's `PATH`.
pub(super) fn rustup_home(request: &TurnRequest) -> Option<(String, String)> {
    if request.env.contains_key(RUSTUP_HOME) {
        return None;
    }
    let mut folders = std::env::split_paths(request.env.get("PATH")?);
    let programs = folders.find(|folder| folder.join("rustup").exists())?;
    let home = programs.ancestors().nth(2)?.join(".rustup");
    let home = home.to_str().filter(|_| home.is_dir())?;
    Some((RUSTUP_HOME.to_owned(), home.to_owned()))
}

fn readable(request: &TurnRequest, cli: &Path) -> Vec<PathBuf> {
    let mut read = system_paths();
    let linked = LINKED.iter().filter_map(|file| Path::new(file).canonicalize().ok());
    read.extend(linked.filter_map(|file| Some(file.parent()?.to_owned())));
    read.extend(NAMING.iter().filter_map(|name| request.env.get(*name)).map(PathBuf::from));
    if let Some(path) = request.env.get("PATH") {
        std::env::split_paths(path).for_each(|folder| read.extend(around(&folder)));
    }
    read.extend(programs(cli));
    for server in &request.servers {
        // Only an admin can configure a program here.
        if let McpServerTransport::Stdio { command } = &server.transport {
            read.extend(command.first().into_iter().flat_map(|first| programs(Path::new(first))));
            // Arguments may be scripts or folders.
            read.extend(command.iter().skip(1).map(PathBuf::from));
        }
    }
    // A relative path would depend on the current folder.
    read.retain(|place| place.is_absolute());
    read
}

/// The folders that a program needs: around its path, and around the target if it is a link.
fn programs(program: &Path) -> Vec<PathBuf> {
    let real = program.canonicalize().ok();
    let both = [Some(program), real.as_deref()].into_iter().flatten();
    both.filter_map(Path::parent).flat_map(around).collect()
}

/// A folder of programs, and the libraries that are installed with them.
fn around(folder: &Path) -> Vec<PathBuf> {
    let mut places = vec![folder.to_owned()];
    if let Some(above) = folder.parent().filter(|_| folder.ends_with("bin")) {
        // Python recognizes a virtual environment by `pyvenv.cfg`.
        places.extend([above.join("lib"), above.join("pyvenv.cfg")]);
    }
    places
}
