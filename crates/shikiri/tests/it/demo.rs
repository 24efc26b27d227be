//! `shikiri demo --once`, as a newcomer tries it first.

use std::time::Duration;

use shikiri_testkit::Cli;

use crate::PROGRAM;

#[test]
fn the_demo_kills_its_server_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("TMPDIR", &temporary);
    let played = cli.run(&["demo", "--once", "--fast"]).done();
    let story = &played.stdout;
    let mut rest = story.as_str();
    for expected in [
        "listening on http://127.0.0.1:",
        "step  4 of 12 committed",
        "kill -9 ",
        "Last-Event-ID: ",
        "step 12 of 12 committed",
        "byte for byte",
        "12 of 12 steps committed, each once",
        "it asks: ",
        "while the question is open",
        r#""booked":true"#,
        "the bill: ",
        "during the second turn",
        "INTERRUPTED",
        "in the same session",
        "task for worker-a",
        "   1. worker-a  apple",
        "  12. worker-b",
        "12 messages in one talk",
        r#"the task "done""#,
        "servers killed  3,",
        "none lost, repeated or changed",
        "12 committed",
        "the killed turn included",
        "12 messages, in turn",
    ] {
        let at = rest.find(expected);
        let at = at.unwrap_or_else(|| panic!("no {expected:?}, or not there, in:\n{story}"));
        rest = &rest[at + expected.len()..];
    }
    assert!(!story.contains("NO "), "{story}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "the demo left something");
}

#[test]
fn the_demo_stays_up_until_it_is_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("kept");
    let cli = Cli::new(PROGRAM, folder.path());
    let mut demo = cli.start(&["demo", "--root", root.to_str().unwrap()]);
    let ready =
        demo.find(Duration::from_secs(60), |line| line.contains("Ctrl-C ends it").then_some(()));
    assert!(ready.is_some(), "{}", demo.output());
    assert_eq!(demo.ended(), None);
    // The key that it shows opens what it says.
    let key = demo.find(Duration::ZERO, |line| {
        Some(line.trim().strip_prefix("export KEY=")?.split(' ').next()?.to_owned())
    });
    assert!(key.is_some_and(|key| key.len() > 20), "{}", demo.output());
    demo.signal(shikiri_testkit::Signal::INT);
    assert_eq!(demo.wait(Duration::from_secs(60)), 0);
    assert!(root.join(".shikiri/state.db").exists(), "a chosen folder is kept");
}
