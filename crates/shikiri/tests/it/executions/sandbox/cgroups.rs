//! Limits that the kernel keeps, where the server may make cgroups. Root makes a cgroup for each
//! test and starts the server in it, as a container or systemd would.

use std::process::Command;

use shikiri_testkit::{Cleanup, unprivileged};

use super::*;

/// Memory that a run may use, in MiB.
const MEMORY_MB: u32 = 300;

/// A cgroup with this name below the topmost, of this user. It is left before it is used: a cgroup
/// namespace makes it the topmost that the server sees.
const LAUNCHER: &str = r#"
exec unshare --mount sh -c '
    umount -l /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 9
    cd /sys/fs/cgroup/NAME || exit 9
    echo "-memory -pids" > cgroup.subtree_control
    chown USER . cgroup.procs cgroup.subtree_control cgroup.threads
    echo 0 > cgroup.procs || exit 9
    cd "$HOME" && chown USER .
    export SHIKIRI_ENGINE_MEMORY_MB=LIMIT SHIKIRI_ENGINE_PROCESSES=100
    exec unshare --cgroup --mount sh -c "
        umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 9
        exec setpriv --reuid=USER --regid=USER --clear-groups \"\$@\"" sh "$@"' sh "$@"
"#;

/// Does this in the topmost cgroup. None if it fails.
fn in_hierarchy(commands: &str) -> Option<String> {
    // A second one in the same place would be refused.
    let mount = "umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup";
    let words = format!("{mount} && cd /sys/fs/cgroup && {{ {commands}; }}");
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &words]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes a cgroup that can be handed over; None if this machine does not let the tests.
fn make_cgroup(name: &str) -> Option<Cleanup<impl FnMut() + use<>>> {
    let made = in_hierarchy(&format!(
        "echo '+memory +pids' > cgroup.subtree_control && mkdir {name} && \
         grep -w memory {name}/cgroup.controllers && grep -w pids {name}/cgroup.controllers"
    ));
    let remove = format!(
        "echo 1 > {name}/cgroup.kill; for n in 1 2 3 4 5 6 7 8 9; do \
         find {name} -depth -type d -exec rmdir {{}} + 2>/dev/null && break; sleep 0.2; done"
    );
    let cleanup = Cleanup::new(move || drop(in_hierarchy(&remove)));
    made.map(|_| cleanup)
}

fn groups_in(name: &str) -> Vec<String> {
    let listed = in_hierarchy(&format!("ls -d {name}/*/")).unwrap_or_default();
    listed.lines().map(|line| line.trim_matches('/').replace(&format!("{name}/"), "")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_limits_of_a_cgroup_end_a_run_with_the_reason() {
    for user in [0, unprivileged().map_or(0, |(user, _)| user)] {
        let name = format!("shikiri-test-{}-{user}", std::process::id());
        let Some(_cleanup) = make_cgroup(&name) else {
            eprintln!(
                "SKIPPED: limits by cgroup: the tests cannot make one with `memory` and `pids`"
            );
            return;
        };
        let launcher = LAUNCHER.replace("NAME", &name).replace("USER", &user.to_string());
        let launcher = launcher.replace("LIMIT", &MEMORY_MB.to_string());
        let mut world = World::start_by(&launcher, &[]).await;
        let told = format!("{:?}", world.app.cli().run(&["doctor"]));
        assert!(told.contains("memory limit: cgroup"), "{user}: {told}");
        // In the middle of a run, the kernel counts for it.
        let limits = "sleep 0.2; grep -o 'shikiri-run-.*' /proc/self/cgroup";
        assert!(world.bash(limits).await.contains("shikiri-run-"), "{user}");

        let hog = "PATH=/usr/bin:$PATH python3 -c 'x = bytearray(1 << 30); print(len(x))'";
        let end = world.turn(&format!("{hog}; sleep 20; echo over")).await.to_string();
        let allowed = format!("more memory than the {MEMORY_MB} MiB that are allowed");
        assert!(end.contains(&allowed), "{user}: {end}");
        // Files in memory count, too: nothing else bounds them together.
        let end = world.turn("head -c 400M /dev/zero > /tmp/big; sleep 20; echo over").await;
        assert!(end.to_string().contains(&allowed), "{user}: {end}");
        let bomb = "for n in $(seq 1 1000); do sleep 473 > /dev/null 2>&1 & done; sleep 20";
        let end = world.turn(bomb).await.to_string();
        assert!(end.contains("more processes and threads than the 100 that"), "{user}: {end}");

        assert_eq!(world.bash("echo again").await, "again\n", "{user}");
        assert_eq!(groups_in(&name), ["shikiri-server"], "{user}");
        // What a supervisor that was killed left is removed at the next start.
        in_hierarchy(&format!("mkdir {name}/shikiri-run-1-1 {name}/another")).unwrap();
        world.app.restart().await;
        assert_eq!(groups_in(&name), ["another", "shikiri-server"], "{user}");
    }
}

/// A cgroup with other processes in it cannot be used, and is left as it is.
#[tokio::test(flavor = "multi_thread")]
async fn sandbox_leaves_a_cgroup_alone_that_others_are_in() {
    let name = format!("shikiri-test-{}-shared", std::process::id());
    let Some(_cleanup) = make_cgroup(&name) else {
        eprintln!("SKIPPED: a shared cgroup: the tests cannot make one with `memory` and `pids`");
        return;
    };
    let other = "cd \"$HOME\" && chown USER .";
    let launcher = LAUNCHER.replace(other, &format!("sleep 300 & {other}"));
    let launcher = launcher.replace("NAME", &name).replace("USER", "0").replace("LIMIT", "300");
    let world = World::start_by(&launcher, &[]).await;
    assert_eq!(groups_in(&name), Vec::<String>::new());
    let hog =
        "PATH=/usr/bin:$PATH python3 -c 'x = bytearray(1 << 30); import time; time.sleep(20)'";
    let end = world.turn(&format!("{hog}; echo over")).await.to_string();
    assert!(end.contains("MiB of memory, 300 MiB are allowed"), "it is watched: {end}");
}
