//! Who may drive a browser that was started, and how far: processes of its user that can read its
//! folder, by the commands of the bridge.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use serde_json::json;
use shikiri_testkit::{
    KeeperClient, listening_ports, processes_of_folder, role, spawn_role_in, unprivileged, until,
};

use crate::world::{World, question};

const FILES: [(&str, u32); 3] = [("", 0o700), ("devtools.sock", 0o600), ("devtools.token", 0o600)];

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_for_its_user_only_and_goes_with_the_keeper() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    let browser = world.folder.path().join("browser/local");
    // As if an older version or a person had made it.
    std::fs::create_dir_all(browser.join("profile")).unwrap();
    std::fs::set_permissions(&browser, Permissions::from_mode(0o755)).unwrap();
    world.ask(&question("a-1", "plain", "Begin")).await.unwrap();
    for (name, mode) in FILES {
        let found = browser.join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name:?} has {found:o}");
    }
    assert_eq!(listening_ports(&processes_of_folder(&browser)), Vec::<u16>::new());
    let World { bridge, folder: _folder, .. } = world;
    drop(bridge);
    until("the keeper has ended", async || processes_of_folder(&browser).is_empty()).await;
    for name in ["devtools.sock", "devtools.token", "profile/DevToolsActivePort"] {
        assert!(!browser.join(name).exists(), "{name} is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_and_files_are_not_to_be_had_at_the_socket() {
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    world.ask(&question("a-1", "plain", "Begin")).await.unwrap();
    let browser = world.folder.path().join("browser/local");
    let mut client = KeeperClient::connect(&browser);
    for method in ["Storage.getCookies", "Network.getAllCookies", "Browser.close", "Tethering.bind"]
    {
        let told = client.try_call(method, &json!({})).unwrap();
        assert_eq!(told["error"]["message"], format!("{method} is not allowed here"));
    }
    let told = client.try_call("Target.createTarget", &json!({ "url": "file:///etc/passwd" }));
    let told = told.unwrap();
    assert_eq!(told["error"]["message"], "only http and https addresses can be gone to");
    assert!(client.tabs().iter().all(|(_, url)| !url.starts_with("file")));
    // A guess at the token is no way in.
    let mut guessed = KeeperClient::connect_with(&browser, &[b'0'; 64]).unwrap();
    assert!(guessed.try_call("Browser.getVersion", &json!({})).is_err());
    world.ask(&question("a-1", "plain", "Still here")).await.unwrap();
}

/// Only root can be two users at once. Everything but the user is as it should be: the socket can be
/// reached, and the token is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_another_user_is_refused_at_the_socket() {
    const TEST: &str = "devtools::a_process_of_another_user_is_refused_at_the_socket";
    if let Some(folder) = role() {
        let (folder, token) = folder.split_once('|').unwrap();
        let told = KeeperClient::connect_with(Path::new(folder), token.as_bytes())
            .and_then(|mut client| client.try_call("Browser.getVersion", &json!({})));
        println!("told: {}", told.is_ok());
        return;
    }
    let Some((uid, gid)) = unprivileged() else { return };
    let Some(world) = World::start(&[("plain", json!({ "marked": true }))]).await else { return };
    world.ask(&question("a-1", "plain", "Begin")).await.unwrap();
    let browser = world.folder.path().join("browser/local");
    for folder in [world.folder.path(), &world.folder.path().join("browser"), &browser] {
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    }
    let socket = browser.join("devtools.sock");
    std::fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    let token = std::fs::read_to_string(browser.join("devtools.token")).unwrap();
    let role = format!("{}|{token}", browser.display());
    for (user, expected) in [((0, 0), "told: true"), ((uid, gid), "told: false")] {
        let mut client = spawn_role_in(world.folder.path(), TEST, &role);
        let ended = client.current_dir("/").uid(user.0).gid(user.1).output().unwrap();
        let output = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(output.contains(expected), "as {user:?}: {ended:?}");
    }
}
