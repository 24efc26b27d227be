use std::time::Duration;

use super::*;

const HALF: Duration = Duration::from_millis(500);

#[test]
fn a_task_starts_when_what_it_needs_is_done() {
    let mut run = run(two());
    let here = offered(&["x"]);
    assert_eq!(run.ready(at(0)), ["a"]);
    run.start("a", "x", call(1), at(0));
    assert_eq!((run.ready(at(0)), run.next_start(at(0))), (Vec::new(), None));
    assert_eq!(run.in_flight(), [("a", "x", &call(1))]);
    run.apply_outcome("a", Some("x"), structured(json!({ "price": 1200 })), &here, at(900));
    assert_eq!(run.ready(at(900)), ["b"]);
    let arguments = json!(run.arguments("b").unwrap());
    assert_eq!(arguments, json!({ "from": 1200, "text": "It is 1200." }));
    play(&mut run, "b", said("ok"), &here, 1_000);
    assert!(run.is_settled());
    assert_eq!(run.task("a").unwrap().duration(), Some(Duration::from_millis(900)));
}

#[test]
fn what_follows_an_outcome() {
    let timed_out = || PlanTaskOutcome::TimedOut { reason: "slow".to_owned() };
    // Fields of the task; servers that offer its tool; outcomes up to the last and what follows it.
    let table: [(Value, &[&str], Vec<PlanTaskOutcome>, PlanTaskDecision); 15] = [
        (json!({}), &["x"], vec![said("y")], PlanTaskDecision::Done),
        (json!({}), &["x"], vec![broken()], PlanTaskDecision::Failed),
        (json!({}), &["x", "y"], vec![broken()], PlanTaskDecision::Failed),
        (json!({ "retries": 2 }), &["x"], vec![broken()], PlanTaskDecision::Again(HALF)),
        (
            json!({ "retries": 2 }),
            &["x"],
            vec![broken(), broken()],
            PlanTaskDecision::Again(HALF * 2),
        ),
        (
            json!({ "retries": 2 }),
            &["x"],
            vec![broken(), broken(), broken()],
            PlanTaskDecision::Failed,
        ),
        (json!({ "retries": 1 }), &["x"], vec![timed_out()], PlanTaskDecision::Again(HALF)),
        (json!({}), &["x"], vec![timed_out()], PlanTaskDecision::Failed),
        (json!({}), &["x", "y"], vec![gone(true)], PlanTaskDecision::Rerouted),
        (json!({}), &["x", "y"], vec![gone(true), gone(true)], PlanTaskDecision::Failed),
        (json!({ "once": true }), &["x", "y"], vec![gone(true)], PlanTaskDecision::Failed),
        (json!({ "once": true }), &["x", "y"], vec![gone(false)], PlanTaskDecision::Rerouted),
        // Nothing has happened yet: it is looked for again, also without retries.
        (json!({}), &["x"], vec![gone(false)], PlanTaskDecision::Again(HALF)),
        (json!({}), &["x"], vec![gone(false); 4], PlanTaskDecision::Failed),
        (
            json!({ "retries": 9 }),
            &["x"],
            vec![PlanTaskOutcome::Cancelled],
            PlanTaskDecision::Failed,
        ),
    ];
    for (mut task, servers, outcomes, wanted) in table {
        task["id"] = json!("a");
        task["tool"] = json!("t");
        let shown = format!("{task} {servers:?} {outcomes:?}");
        let mut run = run(json!({ "task": [task] }));
        let here = offered(servers);
        let last =
            outcomes.into_iter().map(|outcome| play(&mut run, "a", outcome, &here, 0)).last();
        assert_eq!(last, Some(wanted), "{shown}");
    }
}

#[test]
fn a_pause_is_kept_and_bounded() {
    let mut run = run(json!({ "task": [{ "id": "a", "tool": "t", "retries": 10 }] }));
    let here = offered(&["x"]);
    assert_eq!(play(&mut run, "a", broken(), &here, 100), PlanTaskDecision::Again(HALF));
    assert_eq!((run.ready(at(599)), run.next_start(at(599))), (Vec::new(), Some(at(600))));
    assert_eq!(run.ready(at(600)), ["a"]);
    let pauses: Vec<_> = (0..10).map(|_| play(&mut run, "a", broken(), &here, 0)).collect();
    assert_eq!(pauses[7], PlanTaskDecision::Again(Duration::from_secs(30)));
    assert_eq!(pauses[9], PlanTaskDecision::Failed);
    assert_eq!(run.task("a").unwrap().attempts, 11);
}

#[test]
fn a_server_that_did_not_fail_the_task_comes_first() {
    let here = offered(&["x", "y", "z"]);
    let mut any = run(json!({ "task": [
        { "id": "a", "tool": "t", "retries": 9 }, { "id": "b", "tool": "t" },
    ]}));
    let tried: Vec<_> = (0..4)
        .map(|_| {
            let server = any.choose("a", &here).unwrap();
            play(&mut any, "a", gone(true), &here, 0);
            server
        })
        .collect();
    assert_eq!(tried, ["x", "y", "z", "x"]);
    // What failed another task did not fail this one; servers that work already come later.
    any.start("a", "x", call(1), at(0));
    assert_eq!(any.choose("b", &here).as_deref(), Some("y"));

    let named =
        |names: Value| run(json!({ "task": [{ "id": "a", "tool": "t", "server": names }] }));
    let mut fixed = named(json!("y"));
    assert_eq!(play(&mut fixed, "a", gone(true), &here, 0), PlanTaskDecision::Failed);
    let mut listed = named(json!(["z", "x"]));
    assert_eq!(listed.choose("a", &here).as_deref(), Some("z"));
    assert_eq!(play(&mut listed, "a", gone(true), &here, 0), PlanTaskDecision::Rerouted);
    assert_eq!(listed.choose("a", &here).as_deref(), Some("x"));
    // A named server that cannot be asked may come back; one that lacks the tool is no choice.
    let silent = ToolOffers { silent: ["w".to_owned()].into(), ..offered(&["x"]) };
    assert_eq!(named(json!("w")).choose("a", &silent).as_deref(), Some("w"));
    assert_eq!(named(json!(["w", "x"])).choose("a", &silent).as_deref(), Some("x"));
    assert_eq!(named(json!("y")).choose("a", &silent), None);
}

#[test]
fn no_server_to_call_is_a_failure_that_is_looked_into_again() {
    let mut run = run(json!({ "task": [{ "id": "a", "tool": "t" }] }));
    let no_offers = ToolOffers::default();
    assert_eq!(run.choose("a", &no_offers), None);
    for wait in [1, 2, 4] {
        let followed = run.apply_outcome("a", None, gone(false), &no_offers, at(0));
        assert_eq!(followed, PlanTaskDecision::Again(HALF * wait));
    }
    assert_eq!(
        run.apply_outcome("a", None, gone(false), &no_offers, at(0)),
        PlanTaskDecision::Failed
    );
}

#[test]
fn whatever_needs_a_failed_task_is_skipped_and_the_rest_goes_on() {
    let mut run = run(json!({ "task": [
        { "id": "c", "tool": "t", "after": ["b"] },
        { "id": "a", "tool": "t" },
        { "id": "b", "tool": "t", "args": { "x": "${a}" } },
        { "id": "d", "tool": "t" },
    ]}));
    let here = offered(&["x"]);
    play(&mut run, "a", broken(), &here, 5);
    let states: Vec<_> = run.tasks.iter().map(|task| task.state.clone()).collect();
    let skipped = |because: &str| PlanTaskState::Skipped { because: because.to_owned() };
    assert_eq!(states[0], skipped("b was skipped"));
    assert_eq!(states[2], skipped("a failed"));
    assert_eq!(run.ready(at(5)), ["d"]);
    play(&mut run, "d", said("fine"), &here, 6);
    run.finish(run.compose(), at(7));
    assert_eq!(run.state, PlanState::Failed);
}

#[test]
fn a_reference_into_nothing_fails_the_task_that_has_it() {
    let mut run = run(two());
    play(&mut run, "a", structured(json!({ "cost": 3 })), &offered(&["x"]), 0);
    let why = run.arguments("b").unwrap_err();
    assert_eq!(why, "`${a.price}`: a: its result has no `price`; it has cost");
}

#[test]
fn not_everything_runs_at_once() {
    let many: Vec<_> = (0..40).map(|n| json!({ "id": format!("t{n}"), "tool": "t" })).collect();
    let mut run = run(json!({ "task": many }));
    assert_eq!(run.ready(at(0)).len(), MAX_PARALLEL);
    for id in run.ready(at(0)).iter().take(10) {
        run.start(id, "x", call(1), at(0));
    }
    assert_eq!(run.ready(at(0)).len(), MAX_PARALLEL - 10);
}

#[test]
fn a_cancelled_plan_starts_nothing_more() {
    let mut run = run(json!({ "task": [
        { "id": "a", "tool": "t" },
        { "id": "b", "tool": "t", "retries": 9 },
        { "id": "c", "tool": "t" },
        { "id": "d", "tool": "t", "after": ["a"] },
    ]}));
    let here = offered(&["x", "y"]);
    for id in ["a", "b", "c"] {
        run.start(id, "x", call(1), at(0));
    }
    run.cancel(at(1));
    run.apply_outcome("a", Some("x"), PlanTaskOutcome::Cancelled, &here, at(2));
    run.apply_outcome("b", Some("x"), gone(true), &here, at(2));
    run.apply_outcome("c", Some("x"), said("just in time"), &here, at(2));
    let states: Vec<_> = run.tasks.iter().map(|task| task.state.as_str()).collect();
    assert_eq!(states, ["failed", "failed", "done", "skipped"]);
    run.finish(run.compose(), at(3));
    assert_eq!(run.state, PlanState::Cancelled);
}
