//! `shikiri demo --once`, as somebody tries it first.

use std::time::Duration;

use shikiri_testkit::Cli;

use crate::PROGRAM;

#[test]
fn the_demo_kills_its_server_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("TMPDIR", &temporary);
    let played = cli.run(&["demo", "--once"]).done();
    let story = &played.stdout;
    let at = |what: &str| story.find(what).unwrap_or_else(|| panic!("no {what:?} in:\n{story}"));
    let (live, kill) = (at("step 4"), at("SIGKILL"));
    let (again, went_on, end) = (at("Last-Event-ID"), at("step 12"), at("byte for byte"));
    assert!(live < kill && kill < again && again < went_on && went_on < end, "{story}");
    at("listening on http://127.0.0.1:");
    at("12 of 12 steps committed, each once");
    let (asks, second_kill) = (at("it asks: "), at("while the question is open"));
    let booked = at(r#""booked":true"#);
    assert!(end < asks && asks < second_kill && second_kill < booked, "{story}");
    let (bill, third_kill) = (at("the bill: "), at("in the middle of it"));
    let (lost, same) = (at("INTERRUPTED"), at("in the same session"));
    assert!(booked < bill && bill < third_kill && third_kill < lost && lost < same, "{story}");
    let (task, first, last) =
        (at("task for worker-a"), at("   1. worker-a  りんご"), at("  12. worker-b"));
    let (talked, done) = (at("12 messages in one talk"), at(r#"the task is "done""#));
    assert!(
        same < task && task < first && first < last && last < talked && talked < done,
        "{story}"
    );
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
    demo.signal(shikiri_testkit::Signal::INT);
    assert_eq!(demo.wait(Duration::from_secs(60)), 0);
    assert!(root.join(".shikiri/state.db").exists(), "a chosen folder is kept");
}
