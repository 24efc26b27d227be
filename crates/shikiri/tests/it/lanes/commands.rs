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

/// The README's lines run as they are written, beside a server.
#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_lines_about_lanes_run() {
    let readme = include_str!("../../../../../README.md");
    let (_, section) = readme.split_once("\n## Lanes\n").expect("a section about lanes");
    let (_, block) = section.split_once("```sh\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    let (serve, lines) = block.split_once('\n').expect("two lines");
    assert!(serve.starts_with("SHIKIRI_PAGES=offline shikiri serve &"), "{serve}");
    let app = super::server().start().await;
    let programs = std::path::Path::new(crate::PROGRAM).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    for line in lines.lines() {
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", line]).env_clear().current_dir(app.root());
        shell.env("PATH", format!("{}:{path}", programs.display()));
        let ended = shell.output().unwrap();
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{line}: {told}{:?}", ended.stderr);
        assert!(told.contains("offline") || told.contains("local"), "{line}: {told}");
    }
}
