//! The sandbox without a server: what a program finds in it, and what is left of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test]")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use shikiri_model::confinement::{Confinement, ConfinementLevel};
use shikiri_sandbox::{ENGINE_USER, SandboxLimits, SandboxPlan, detect, system_paths};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandboxed");

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

struct World {
    place: TempDir,
    plan: SandboxPlan,
}

impl World {
    fn new(level: ConfinementLevel) -> Self {
        let place = TempDir::new().unwrap();
        let engine_user = is_root().then_some(ENGINE_USER);
        let work = place.path().join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::write(place.path().join("secret"), "canary").unwrap();
        if let Some(user) = engine_user {
            std::os::unix::fs::chown(&work, Some(user), Some(user)).unwrap();
        }
        let plan = SandboxPlan {
            confinement: Confinement { level, engine_user },
            read: system_paths(),
            write: vec![work.clone()],
            hidden: Vec::new(),
            folder: work,
            loopback_ports: Vec::new(),
            limits: SandboxLimits::default(),
            cgroup: None,
            is_probe: false,
        };
        Self { place, plan }
    }

    fn bash(&self, commands: &str) -> String {
        let output = self.output(commands);
        let both = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    fn output(&self, commands: &str) -> Output {
        let plan = serde_json::to_string(&self.plan).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg(plan).args(["/bin/bash", "-c", commands]).output().unwrap()
    }

    fn place(&self) -> &Path {
        self.place.path()
    }
}

#[test]
fn detect_finds_namespaces_where_they_work() {
    let found = detect(Path::new(PROGRAM), None);
    assert_eq!(found.level, ConfinementLevel::Namespaces);
    assert_eq!(found.engine_user, is_root().then_some(ENGINE_USER));
}

#[test]
fn a_program_sees_its_own_folders_and_processes() {
    let world = World::new(ConfinementLevel::Namespaces);
    let place = world.place().display();
    let told = world.bash(&format!(
        "echo mine > note && cat note; pwd; ls {place}; cat {place}/secret; touch {place}/new; \
         touch /usr/x; ps -e 2>/dev/null | wc -l; cat /proc/1/comm; ls -d /sys; id -u; whoami; \
         cat /proc/self/status | grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:'; ls /dev; ls /; \
         echo x > /tmp/a && echo x > /dev/shm/a && echo x > /run/a && echo temporary"
    ));
    assert!(told.starts_with("mine\n"), "{told}");
    assert!(!told.contains("canary") && !world.place().join("new").exists(), "{told}");
    assert!(told.contains("\nexe\n") && told.contains("temporary"), "{told}");
    assert!(told.contains("CapBnd:\t0000000000000000"), "{told}");
    assert!(told.contains("Seccomp:\t2"), "{told}");
    let exit = world.output("exit 7");
    assert_eq!(exit.status.code(), Some(7));
}

#[test]
fn forbidden_calls_fail() {
    let levels = [ConfinementLevel::Namespaces, ConfinementLevel::Landlock];
    for level in levels {
        let world = World::new(level);
        if let Some(user) = world.plan.confinement.engine_user {
            shikiri_sandbox::allow_traversal(world.place(), &world.place().join("work")).unwrap();
            assert_eq!(user, ENGINE_USER);
        }
        let told = world.bash(
            "unshare -U true && echo reached; unshare -m true && echo reached; \
             mount -t tmpfs t . && echo reached; mknod disk b 254 0 && echo reached; \
             mkfifo pipe && echo pipe; echo over",
        );
        assert!(!told.contains("reached") && told.contains("pipe\n"), "{level:?}: {told}");
        assert!(told.contains("over\n"), "{level:?}: {told}");
    }
}

#[test]
fn hidden_places_are_empty_and_links_lead_where_they_did() {
    let mut world = World::new(ConfinementLevel::Namespaces);
    let tools = world.place().join("tools");
    for (name, content) in [("a/tool", "a-tool"), ("data/key", "canary"), ("lonely", "canary")] {
        let file = tools.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    std::os::unix::fs::symlink("tools", world.place().join("link")).unwrap();
    let link: PathBuf = world.place().join("link");
    world.plan.read.push(link.join("a"));
    world.plan.read.push(tools.clone());
    world.plan.hidden = vec![tools.join("data"), tools.join("lonely")];
    let told = world.bash(&format!(
        "cat {0}/a/tool; ls {1}/data; cat {1}/data/key {1}/lonely; echo over",
        link.display(),
        tools.display()
    ));
    assert!(told.starts_with("a-tool") && told.contains("over"), "{told}");
    assert!(!told.contains("canary"), "{told}");
}
