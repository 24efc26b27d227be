//! Machines that allow less: what is refused there, and what the operator can accept.

use super::super::kit::Talk;
use super::world::prompt;
use super::*;

/// As in a container that allows no namespaces: limits of a user namespace, which the server cannot
/// raise.
const NO_NAMESPACES: &str = r#"exec unshare --user --map-root-user sh -c '
    for kind in user mnt pid net ipc uts; do
        echo 0 > /proc/sys/user/max_${kind}_namespaces || exit 9
    done
    exec "$@"' sh "$@""#;

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_level_is_told_in_readiness_and_record() {
    let world = World::start(ServerUser::Same).await;
    let ready = world.app.client().get("/readyz").await.expect(200);
    assert_eq!(ready["confinement"], "namespaces", "{ready}");
    let end = world.turn("true").await;
    let record = world.talk.execution(end["execution_id"].as_str().unwrap(), "").await;
    assert_eq!(record["confinement"], "namespaces", "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_without_namespaces_serves_only_the_local_tenant() {
    let mut world = World::start_by(NO_NAMESPACES, &[]).await;
    let ready = world.app.client().get("/readyz").await.expect(200);
    assert_eq!(ready["confinement"], "landlock", "{ready}");
    let refused = world.talk.post(&Talk::body(&prompt("echo ran")), &[]).await;
    let problem = refused.problem(503);
    assert_eq!(problem["code"], "SANDBOX_UNAVAILABLE", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("unconfined_engines"), "{problem}");
    let path = world.talk.tenant.path("/executions");
    let begun = world.app.client().get(&path).await;
    assert!(!begun.text().contains("exe_"), "{}", begun.text());

    world.talk = Talk::start(&world.app.local()).await;
    let (data, port) = (world.data(), world.app.port());
    let key = world.app.admin_key();
    let told = world
        .bash(&format!(
            "echo ran; cat {0}/admin.key /etc/shadow; ls {0}; \
             (exec 3<>/dev/tcp/127.0.0.1/{port} && echo canary); \
             ls /dev/pts/ /dev/shm/ 2>/dev/null; unshare -U true && echo canary; echo over",
            data.display()
        ))
        .await;
    assert!(told.starts_with("ran\n") && told.ends_with("over\n"), "{told}");
    for secret in [&key, "canary", "root:", "state.db"] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
    let warnings = world.app.log().matches("does not allow new namespaces").count();
    assert_eq!(warnings, 1, "{}", world.app.log());
}

/// The key of `local` can be used from elsewhere there.
#[tokio::test(flavor = "multi_thread")]
async fn sandbox_without_namespaces_refuses_the_local_tenant_of_a_remote_server() {
    let mut world = World::start_by(NO_NAMESPACES, &["--allow-remote"]).await;
    world.talk = Talk::start(&world.app.local()).await;
    let refused = world.talk.post(&Talk::body(&prompt("echo ran")), &[]).await;
    assert_eq!(refused.problem(503)["code"], "SANDBOX_UNAVAILABLE");
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_unconfined_engines_lifts_the_demand_and_not_the_level() {
    let world = World::start_by(NO_NAMESPACES, &["--unconfined-engines"]).await;
    let end = world.turn("echo ran").await;
    assert!(end.get("result").is_some(), "{end}");
    let record = world.talk.execution(end["execution_id"].as_str().unwrap(), "").await;
    assert_eq!(record["confinement"], "landlock", "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_demand_is_not_lifted_by_a_project_file() {
    let world = World::start(ServerUser::Same).await;
    std::fs::write(world.app.root().join("shikiri.toml"), "unconfined_engines = true\n").unwrap();
    let output = world.app.cli().run(&["run", "hello"]);
    let told = format!("{output:?}");
    assert!(told.contains("code: 3") && told.contains("unconfined_engines"), "{told}");
}
