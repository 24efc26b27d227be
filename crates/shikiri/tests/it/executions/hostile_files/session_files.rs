//! The file of a session, which the server keeps in the store and puts back.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_link_as_session_file_is_not_read_into_the_store() {
    let world = HostileWorld::start(false).await;
    let key = world.app.data_folder().join("admin.key");
    world.run("echo one > $session").await;
    assert_eq!(world.stored_session().unwrap()["files"]["claude/projects/p/s1.jsonl"], "one\n");
    world.run(&format!("rm $session; ln -s {} $session", key.display())).await;
    let stored = world.stored_session().unwrap_or_default().to_string();
    assert!(
        !stored.contains(world.app.admin_key().trim()),
        "the store has the admin key: {stored}"
    );
    // A link in the place of a folder on the way leads nowhere, either.
    world.victim("no");
    let outside = world.outside.path().display().to_string();
    std::fs::create_dir(world.outside.path().join("p")).unwrap();
    std::fs::write(world.outside.path().join("p/s1.jsonl"), "canary-of-others").unwrap();
    for place in ["$project", "$CLAUDE_CONFIG_DIR/projects", "$CLAUDE_CONFIG_DIR"] {
        let target = match place {
            "$project" => format!("{outside}/p"),
            "$CLAUDE_CONFIG_DIR" => format!("{outside}/c"),
            _ => outside.clone(),
        };
        if place == "$CLAUDE_CONFIG_DIR" {
            std::fs::create_dir_all(world.outside.path().join("c/projects/p")).unwrap();
            let file = world.outside.path().join("c/projects/p/s1.jsonl");
            std::fs::write(file, "canary-of-others").unwrap();
        }
        world.run(&format!("rm -rf {place}; ln -s {target} {place}")).await;
        let stored = world.stored_session().unwrap_or_default().to_string();
        assert!(!stored.contains("canary-of-others"), "{place}: {stored}");
    }
    world.run("true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_as_session_file_is_not_written_through_at_the_next_turn() {
    let world = HostileWorld::start(false).await;
    let victim = world.victim("untouched");
    world.run("echo evil > $session").await;
    // A turn that fails leaves the copy in the store as it was; the next one puts it back.
    let failed = world.turn(&format!("ln -sf {} $session; : FAIL", victim.display())).await;
    assert_eq!(terminal(&failed).kind, "error");
    assert_eq!(world.run("cat $session").await.trim(), "evil");
    assert_eq!(world.victim_content(), "untouched");

    // The same through a folder on the way, and with things that are no files.
    for commands in [
        format!("rm -rf $project; ln -s {} $project; : FAIL", world.outside.path().display()),
        "rm $session; mkfifo $session; : FAIL".to_owned(),
        "rm $session; mkdir -p $session/deep/er; : FAIL".to_owned(),
        "rm -rf $project; mkfifo $project; : FAIL".to_owned(),
    ] {
        assert_eq!(terminal(&world.turn(&commands).await).kind, "error", "{commands}");
        assert_eq!(world.run("cat $session").await.trim(), "evil", "{commands}");
        assert!(!world.outside.path().join("s1.jsonl").exists(), "{commands}");
    }
    assert_eq!(world.victim_content(), "untouched");
    world.delete_conversation().await;
    assert_eq!(world.victim_content(), "untouched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_session_file_does_not_fill_memory() {
    let mut world = HostileWorld::start(false).await;
    world.run("echo one > $session").await;
    // Read when it is put back after a failed turn, and when it is kept after one that went well.
    world.turn("truncate -s 3G $session; : FAIL").await;
    assert_eq!(world.run("cat $session; truncate -s 3G $session").await.trim(), "one");
    assert_eq!(world.stored_session(), None, "an old copy would take later turns back");
    world.run("stat -c %s $session").await;
    assert!(world.peak_memory() < 512 * 1024 * 1024);
}
