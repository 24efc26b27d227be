//! Files, devices and memory that are not the run's.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use shikiri_testkit::unprivileged;

use super::super::kit::Talk;
use super::*;

const SECRET: &str = "canary-4711";

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_keeps_out_the_admin_key_and_other_conversations() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        let key = world.app.admin_key();
        let other = Talk::start(&world.talk.tenant).await;
        let neighbour = World { talk: other, ..world };
        let told = neighbour.bash(&format!("echo {SECRET} > note; pwd; echo $HOME")).await;
        let mut places = told.lines();
        let (work, home) = (places.next().unwrap(), places.next().unwrap());
        assert!(std::path::Path::new(work).join("note").exists(), "{told}");
        let own = Talk::start(&neighbour.talk.tenant).await;
        let world = World { talk: own, ..neighbour };
        let data = world.data();
        let data = data.display();
        let told = world
            .bash(&format!(
                "cat {data}/admin.key; cat {data}/state.db; cat {work}/note; ls {work} {home}; \
                 grep -r {SECRET} {data} /tmp /dev/shm 2>/dev/null; \
                 ln {data}/admin.key k; ln -s {data}/admin.key l; cat k l; echo over"
            ))
            .await;
        assert!(told.ends_with("over\n"), "{user:?}: {told}");
        assert!(!told.contains(SECRET) && !told.contains(&key), "{user:?}: {told}");
        assert!(!told.contains("note\n"), "{user:?}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_keeps_out_password_hashes() {
    if unprivileged().is_none() {
        eprintln!("SKIPPED: password hashes: only root could read them");
        return;
    }
    let world = World::start(ServerUser::Same).await;
    let told = world.bash("cat /etc/shadow /etc/gshadow; id -u; echo over").await;
    assert!(told.ends_with("over\n"), "{told}");
    assert!(!told.contains("root:"), "{told}");
    assert!(!told.lines().any(|line| line == "0"), "an engine of root's server is root: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_keeps_out_shared_memory_and_terminals() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        let shared = format!("/dev/shm/shikiri-test-{}", std::process::id());
        std::fs::write(&shared, SECRET).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o666)).unwrap();
        let told = world
            .bash(&format!(
                "cat {shared}; echo changed > {shared}; ls /dev/pts; ls /sys/class | head -n 3; \
                 for n in 0 1 2 3 4 5 6 7 8 9; do test -e /dev/pts/$n && echo pts-$n; done; \
                 echo over"
            ))
            .await;
        let left = std::fs::read_to_string(&shared).unwrap();
        std::fs::remove_file(&shared).unwrap();
        assert!(told.ends_with("over\n"), "{user:?}: {told}");
        assert!(!told.contains(SECRET) && left == SECRET, "{user:?}: {told}");
        assert!(!told.contains("pts-"), "{user:?}: {told}");
    }
}

/// A program that fills a device or the machine's own temporary folder harms others.
/// A folder that a run has closed is measured like any other.
#[tokio::test(flavor = "multi_thread")]
async fn sandbox_quota_holds_for_folders_that_the_run_closes() {
    let all = ServerUser::all().into_iter().flat_map(|user| [(user, "000"), (user, "600")]);
    for (user, mode) in all {
        let world = World::start(user).await;
        let limits = json!({ "limits": { "stored_bytes": 2_000_000 } });
        world.app.client().patch("/v1/tenants/acme", &limits).await.expect(200);
        let hides = "mkdir sub; head -c 3000000 /dev/urandom > sub/f; chmod";
        let end = world.turn(&format!("{hides} {mode} sub; sleep 60")).await;
        assert_eq!(end["code"], "QUOTA_EXCEEDED", "{user:?}: {end}");
        let next = world.talk.post(&Talk::body("hi"), &[]).await;
        assert_eq!(next.status, 507, "{user:?}: {}", next.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_has_its_own_temporary_folders() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        let name = format!("shikiri-test-{}-own", std::process::id());
        let told = world
            .bash(&format!("for d in /tmp /run /dev/shm; do echo x > $d/{name} && echo ok; done"))
            .await;
        assert_eq!(told, "ok\nok\nok\n", "{user:?}");
        for folder in ["/tmp", "/run", "/dev/shm"] {
            let place = std::path::Path::new(folder).join(&name);
            assert!(!place.exists(), "{user:?}: {}", place.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_keeps_out_what_the_server_has_inherited() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let (secret, folder) = (secret.display(), folder.path().display());
    let launcher = format!("exec 7< {secret} 8< {folder}; exec \"$@\"");
    let world = World::start_by(&launcher, &[]).await;
    let told = world
        .bash("cat <&7; ls /proc/self/fd/8/; ls -l /proc/self/fd /proc/1/fd | grep -c secret; echo over")
        .await;
    assert!(told.ends_with("0\nover\n"), "{told}");
    assert!(!told.contains(SECRET) && !told.contains("\nsecret"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_opens_a_home_again_that_a_run_has_closed() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        assert_eq!(world.bash("chmod 000 $HOME; echo closed").await, "closed\n", "{user:?}");
        assert_eq!(world.bash("touch $HOME/f && echo again").await, "again\n", "{user:?}");
    }
}
