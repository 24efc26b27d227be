//! The folders of a run, which the server makes, clears, lists and removes.

use std::path::Path;
use std::process::Command;

use super::*;

/// As an agent would, from within: the whole path would be longer than any system takes. Landlock
/// looks at every folder above at each step, so this is done outside of it.
fn nest(folder: &Path) {
    let script = "for(1..20000){mkdir q(d);chdir q(d)}";
    let made = Command::new("perl").args(["-e", script]).current_dir(folder).status().unwrap();
    assert!(made.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_nested_folders_do_not_end_the_server() {
    let world = HostileWorld::start(true).await;
    world.run("true").await;
    let workspace = world.app.data_folder().join("workspaces").join(&world.talk.id);
    nest(&workspace);
    nest(&world.home().join("tmp"));
    world.assert_alive().await;
    assert_eq!(world.run("ls -A $TMPDIR").await.trim(), "");
    std::fs::create_dir(world.home().join("plugin")).unwrap();
    nest(&world.home().join("plugin"));
    world.delete_conversation().await;
    assert!(!workspace.exists());
    assert_eq!(world.app.client().get("/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_pipes_as_folders_of_a_run_give_way() {
    let world = HostileWorld::start(false).await;
    let skill = json!({ "name": "tea", "description": "How to make tea", "content": "Boil." });
    let path = world.talk.tenant.path("/skills");
    world.app.client().post(&path, &skill).await.expect(201);
    let victim = world.victim("untouched");
    let outside = world.outside.path().display().to_string();
    for place in ["plugin", "tmp", "claude", "claude/projects", "work", "servers-x.json"] {
        for attack in [
            format!("ln -s {outside} $HOME/{place}"),
            format!("mkfifo $HOME/{place}"),
            format!("ln -s {} $HOME/{place}", victim.display()),
            format!("ln -s loop $HOME/{place}"),
        ] {
            world.run(&format!("cd $HOME; rm -rf $HOME/{place}; {attack}")).await;
            let seen =
                world.run("cat $HOME/plugin/skills/tea/SKILL.md; touch $TMPDIR/x; pwd -P").await;
            assert!(seen.contains("Boil."), "{attack}: {seen}");
            assert!(seen.contains(&format!("{}/work", world.talk.id)), "{attack}: {seen}");
            let left: Vec<_> = std::fs::read_dir(world.outside.path()).unwrap().collect();
            assert_eq!(left.len(), 1, "{attack}: {left:?}");
            assert_eq!(world.victim_content(), "untouched", "{attack}");
        }
    }
    world.delete_conversation().await;
    assert_eq!(world.victim_content(), "untouched");
}

/// What a run may write is named by its folder: a link in its place would name another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_as_working_folder_does_not_open_the_data_folder() {
    let world = HostileWorld::start(false).await;
    let data = world.app.data_folder();
    world.run(&format!("cd $HOME; rm -rf work; ln -s {} work", data.display())).await;
    let printed = world.run(&format!("cat {}/admin.key; cat admin.key", data.display())).await;
    assert!(!printed.contains(world.app.admin_key().trim()), "{printed}");
    assert!(world.home().join("work").symlink_metadata().unwrap().is_dir());
}

/// As package managers leave them: what may not be written can still be removed.
#[tokio::test(flavor = "multi_thread")]
async fn folders_without_permissions_are_cleared() {
    let world = HostileWorld::start(true).await;
    world.run("mkdir -p $TMPDIR/a/b a/b; touch $TMPDIR/a/b/c a/b/c; chmod 0 $TMPDIR/a/b a/b; chmod 0 $TMPDIR/a a").await;
    assert_eq!(world.run("ls $TMPDIR").await.trim(), "");
    world.assert_alive().await;
    world.delete_conversation().await;
}
