//! The commands as people read them.

use super::{ask, cli, history, process};

#[test]
fn lanes_and_history_are_shown_to_people() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    cli.run(&["lanes", "list"]).refused(4, &["no data here"]);
    let mut client = process(&cli.clone().env("SHIKIRI_AGENT_ID", "調査係"), "x");
    let asked = ask(&mut client, "何が\n見える？");
    let lane = asked["lane"].as_str().unwrap();
    let list = cli.run(&["lanes", "list"]).done().stdout;
    assert!(list.contains(lane) && list.contains("chatgpt") && list.contains("open"), "{list}");
    let shown = cli.run(&["lanes", "show", lane]).done().stdout;
    assert!(shown.contains("調査係 (declared)") && shown.contains("offline.invalid"), "{shown}");
    let told = cli.run(&["history", "--agent", "調査係"]).done().stdout;
    assert!(told.contains("何が 見える？") && told.contains("answered"), "{told}");
    assert_eq!(cli.run(&["lanes", "clean"]).done().stdout, "0 lanes have ended\n");
    assert_eq!(history(&cli, &["--agent", "調査係"]).len(), 1);
    cli.run(&["history", "--limit", "0"]).refused(2, &["--limit"]);
}
