//! Processes that are not the run's, and what the run's own may use up or leave behind.

use shikiri_testkit::until;

use super::world::decode;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_keeps_out_the_server_process() {
    for user in ServerUser::all() {
        let mut world = World::start_with(user, &[("SHIKIRI_TEST_CANARY", "canary-99")], &[]).await;
        let pid = world.pid();
        let told = world
            .bash(&format!(
                "tr '\\0' '\\n' < /proc/{pid}/environ; cat /proc/{pid}/cmdline; ls /proc/{pid}/cwd/; \
                 grep -l shikiri /proc/[0-9]*/comm; kill -0 {pid} && echo canary; \
                 kill -9 {pid}; echo over"
            ))
            .await;
        assert!(!told.contains("canary") && !told.contains("serve"), "{user:?}: {told}");
        let health = world.app.client().get("/readyz").await;
        assert_eq!(health.status, 200, "{user:?}");
    }
}

/// Processes of the test's user whose command line holds this.
fn alive(mark: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(mark) && !line.contains("shikiri")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_leaves_no_process_behind() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        let mark = format!("{}.{}", 4000 + std::process::id() % 1000, 77);
        let told = world
            .bash(&format!(
                "(setsid bash -c 'setsid sleep {mark} & disown' > /dev/null 2>&1 &) ; \
                 nohup setsid sleep {mark} > /dev/null 2>&1 & sleep 0.3; echo over"
            ))
            .await;
        assert_eq!(told, "over\n", "{user:?}");
        until("no process is left", async || alive(&format!("sleep {mark}")).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_bounds_a_fork_bomb() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        let bomb =
            "for n in $(seq 1 6000); do sleep 471 > /dev/null 2>&1 & done; echo $(jobs -p | wc -l)";
        let end = world.turn(bomb).await;
        // Either the run is ended with the reason, or the kernel refuses it more processes.
        let is_ended = end.to_string().contains("SHIKIRI_ENGINE_PROCESSES");
        let told = end["result"].as_str().map(decode).unwrap_or_default();
        let is_refused = told.contains("Resource temporarily unavailable");
        assert!(is_ended || is_refused, "{user:?}: {end}: {told}");
        until("no process is left", async || alive("sleep 471").is_empty()).await;
        assert_eq!(world.app.client().get("/readyz").await.status, 200, "{user:?}");
        assert_eq!(world.bash("echo again").await, "again\n", "{user:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_bounds_memory_and_files() {
    for user in ServerUser::all() {
        let limits = [("SHIKIRI_ENGINE_MEMORY_MB", "400"), ("SHIKIRI_ENGINE_FILE_MB", "50")];
        let world = World::start_with(user, &limits, &[]).await;
        let hog = "PATH=/usr/bin:$PATH python3 -c 'x = bytearray(1 << 30); import time; time.sleep(20); print(len(x))'";
        let end = world.turn(&format!("{hog}; echo over")).await;
        assert!(end.to_string().contains("SHIKIRI_ENGINE_MEMORY_MB"), "{user:?}: {end}");
        let told = world
            .bash("dd if=/dev/zero of=big bs=1M count=200 2>&1 | tail -n 1; stat -c %s big; rm big")
            .await;
        assert!(told.contains(&(50 << 20).to_string()), "{user:?}: {told}");
        // When the machine has no memory left, runs go before the server.
        assert_eq!(world.bash("cat /proc/self/oom_score_adj").await, "500\n", "{user:?}");
        assert_eq!(world.app.client().get("/readyz").await.status, 200, "{user:?}");
    }
}
