//! The rules of plans, seen from servers that play a part.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;

use super::stub::{Does, Stub, fails, gives, says, tool};
use super::{Desk, course, task};

#[tokio::test(flavor = "multi_thread")]
async fn results_become_arguments_and_what_can_runs_at_the_same_time() {
    // Each of the two answers only when the other has been called.
    let both = Arc::new(Barrier::new(2));
    let meets = move |_, _| {
        let both = Arc::clone(&both);
        let meeting: futures_util::future::BoxFuture<'static, Does> = Box::pin(async move {
            both.wait().await;
            gives(json!({ "price": 1200, "list": [{ "city": "東京" }] }))
        });
        meeting
    };
    let first = Stub::start(vec![("meet", Arc::new(meets.clone()))]).await;
    let second = Stub::start(vec![("meet", Arc::new(meets))]).await;
    let third = Stub::start(vec![("tell", tool(|_, _| says("told")))]).await;
    let desk = Desk::with_stubs(&[("one", &first), ("two", &second), ("three", &third)]);
    let plan = r#"
        [[task]]
        id = "end"
        tool = "tell"
        args = { x = { n = "${a.price}", text = "${a.price} in ${b.list.0.city}", all = "${b.list}" } }
        [[task]]
        id = "a"
        tool = "meet"
        timeout_seconds = 30
        [[task]]
        id = "b"
        tool = "meet"
        timeout_seconds = 30
        [synthesis]
        template = "${end}: ${a.price}"
    "#;
    let ended = desk.run(plan, &["--json"]).await.done();
    let report = ended.json();
    assert_eq!(report["state"], "completed");
    let told = [("end", "done", "three", 1), ("a", "done", "one", 1), ("b", "done", "two", 1)];
    assert_eq!(course(&report), told);
    assert_eq!(report["synthesis"], "told: 1200");
    assert_eq!(report["missing"], json!([]));
    let wanted = json!({ "x": { "n": 1200, "text": "1200 in 東京", "all": [{ "city": "東京" }] } });
    assert_eq!(third.calls("tell")[0].arguments, wanted);
    // What has ended is not gone on with: the same plan again is a new run.
    let again = desk.run(plan, &["--resume"]).await;
    again.refused(4, &["unfinished", "--resume"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_fails_is_tried_again_after_longer_and_longer_pauses() {
    let flaky = |_, number| if number < 3 { fails("not yet") } else { says("now") };
    let stub = Stub::start(vec![("flaky", tool(flaky))]).await;
    let desk = Desk::with_stubs(&[("only", &stub)]);
    let plan =
        |retries: u32| format!("[[task]]\nid = \"a\"\ntool = \"flaky\"\nretries = {retries}\n");
    let ended = desk.run(&plan(1), &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_eq!(ended.stdout, "(missing: a: only: not yet)\n\nMissing: a: only: not yet\n");
    let calls = stub.calls("flaky");
    assert_eq!(calls.len(), 2);
    assert!(calls[1].at - calls[0].at >= Duration::from_millis(500));

    let stub = Stub::start(vec![("flaky", tool(flaky))]).await;
    let desk = Desk::with_stubs(&[("only", &stub)]);
    let ended = desk.run(&plan(2), &[]).await.done();
    assert_eq!(ended.stdout, "a: now\n");
    let calls = stub.calls("flaky");
    assert_eq!(calls.len(), 3);
    assert!(calls[2].at - calls[1].at >= Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_answer_in_time_fails_and_the_text_names_every_gap() {
    let slow =
        Stub::start(vec![("hang", tool(|_, _| Does::Hangs)), ("tell", tool(|_, _| says("fine")))])
            .await;
    let desk = Desk::with_stubs(&[("only", &slow)]);
    let plan = r#"
        [[task]]
        id = "a"
        tool = "hang"
        timeout_seconds = 3
        retries = 1
        [[task]]
        id = "b"
        tool = "tell"
        after = ["a"]
        [[task]]
        id = "c"
        tool = "tell"
        [synthesis]
        template = "c is ${c}, a is ${a.x}."
    "#;
    let ended = desk.run(plan, &["--json"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let report = ended.json();
    let told = [("a", "failed", "only", 2), ("b", "skipped", "-", 0), ("c", "done", "only", 1)];
    assert_eq!(course(&report), told);
    let reason = task(&report, "a")["reason"].as_str().unwrap();
    assert!(reason.contains("time limit"), "{reason}");
    let wanted = format!(
        "c is fine, a is (missing: a: {reason}).\n\nMissing: a: {reason}\n\
         Missing: b: skipped, since a failed"
    );
    assert_eq!(report["synthesis"], wanted);
    assert_eq!(report["missing"].as_array().unwrap().len(), 2);
    assert!(task(&report, "a")["duration_ms"].as_u64().unwrap() >= 6_500, "two tries and a pause");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_lost_is_replaced_by_another_unless_it_must_happen_once() {
    let dying = || tool(|_, _| Does::Dies);
    let well = || tool(|_, _| says("here"));
    let first = Stub::start(vec![("t", dying()), ("u", dying()), ("v", dying())]).await;
    let second = Stub::start(vec![("t", well()), ("u", well()), ("v", well())]).await;
    let desk = Desk::with_stubs(&[("one", &first), ("two", &second)]);
    let plan = r#"
        [[task]]
        id = "any"
        tool = "t"
        [[task]]
        id = "listed"
        tool = "u"
        server = ["one", "two"]
        [[task]]
        id = "fixed"
        tool = "v"
        server = "one"
        [[task]]
        id = "once"
        tool = "v"
        server = ["one", "two"]
        once = true
    "#;
    let ended = desk.run(plan, &["--json"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let report = ended.json();
    let told = [
        ("any", "done", "two", 2),
        ("listed", "done", "two", 2),
        ("fixed", "failed", "one", 1),
        ("once", "failed", "one", 1),
    ];
    assert_eq!(course(&report), told);
    assert_eq!(second.calls("v").len(), 0, "it was to happen once");
    let reason = task(&report, "once")["reason"].as_str().unwrap();
    assert!(reason.contains("not known"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_passed_over_or_waited_for() {
    let gone = Stub::start(vec![("t", tool(|_, _| says("never")))]).await;
    let here = Stub::start(vec![("t", tool(|_, _| says("here")))]).await;
    let desk = Desk::with_stubs(&[("gone", &gone), ("here", &here)]);
    drop(gone);
    let plan = r#"
        [[task]]
        id = "any"
        tool = "t"
        [[task]]
        id = "listed"
        tool = "t"
        server = ["gone", "here"]
        [[task]]
        id = "fixed"
        tool = "t"
        server = "gone"
    "#;
    let ended = desk.run(plan, &["--json"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let report = ended.json();
    // It is asked a few times, since it may be starting.
    let told =
        [("any", "done", "here", 1), ("listed", "done", "here", 1), ("fixed", "failed", "gone", 4)];
    assert_eq!(course(&report), told);
    assert!(ended.stderr.contains("gone: cannot be reached"), "{}", ended.stderr);
}
