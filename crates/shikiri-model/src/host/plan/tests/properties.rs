use proptest::prelude::*;

use super::*;

/// A plan without circles: each task needs some of those before it.
fn some_plan() -> impl Strategy<Value = Value> {
    let task = (any::<u8>(), 0..3_u32, any::<bool>());
    proptest::collection::vec(task, 1..12).prop_map(|tasks| {
        let tasks = tasks.iter().enumerate().map(|(n, (needs, retries, named))| {
            let after: Vec<_> =
                (0..n).filter(|m| needs >> (m % 8) & 1 == 1).map(|m| format!("t{m}")).collect();
            let server = if *named { json!(["x"]) } else { json!([]) };
            json!({
                "id": format!("t{n}"), "tool": "t", "after": after, "retries": retries,
                "server": server,
            })
        });
        json!({ "task": tasks.collect::<Vec<_>>() })
    })
}

fn some_outcome() -> impl Strategy<Value = PlanTaskOutcome> {
    prop_oneof![
        3 => Just(said("yes")),
        1 => Just(broken()),
        1 => Just(gone(true)),
        1 => Just(gone(false)),
        1 => Just(PlanTaskOutcome::TimedOut { reason: "slow".to_owned() }),
    ]
}

proptest! {
    /// Whatever happens, in whichever order: nothing starts too early, nothing is done twice, and
    /// every plan comes to its end in a bounded number of steps.
    #[test]
    fn every_plan_ends(
        written in some_plan(),
        outcomes in proptest::collection::vec(some_outcome(), 1..40),
        picks in proptest::collection::vec(any::<usize>(), 1..40),
    ) {
        let mut run = run(written);
        let here = offered(&["x", "y"]);
        let mut now = 0;
        let mut step = 0;
        while !run.is_settled() {
            prop_assert!(step < 2_000, "{run:?}");
            for id in run.ready(at(now)) {
                for need in run.plan.task(&id).unwrap().needs() {
                    let state = &run.task(need).unwrap().state;
                    let is_done = matches!(state, PlanTaskState::Done { .. });
                    prop_assert!(is_done, "{id} before {need}");
                }
                let server = run.choose(&id, &here).unwrap();
                run.start(&id, &server, call(1), at(now));
            }
            let flying: Vec<_> =
                run.in_flight().iter().map(|(id, at, _)| (id.to_string(), at.to_string())).collect();
            match flying.get(picks[step % picks.len()] % flying.len().max(1)) {
                Some((id, server)) => {
                    let outcome = outcomes[step % outcomes.len()].clone();
                    run.apply_outcome(id, Some(server), outcome, &here, at(now));
                }
                // Nothing works: a task waits for its time.
                None => now = run.next_start(at(now)).expect("a plan that waits for nothing").as_millis(),
            }
            step += 1;
        }
        for task in &run.tasks {
            // Two servers, at most two retries or three looks.
            prop_assert!(task.attempts <= 6, "{task:?}");
            prop_assert!(task.ended_at.is_some());
        }
        let gaps = run.missing().len();
        let done =
            run.tasks.iter().filter(|task| matches!(task.state, PlanTaskState::Done { .. })).count();
        prop_assert_eq!(gaps + done, run.tasks.len());
        run.finish(run.compose(), at(now));
        prop_assert_eq!(run.state == PlanState::Completed, gaps == 0);
    }

    /// Text without references stays as it is, dollar signs and all.
    #[test]
    fn texts_without_references_stay(text in "[a-z$} .]{0,40}") {
        let mut run = run(json!({
            "task": [{ "id": "a", "tool": "t" }], "synthesis": { "template": text },
        }));
        play(&mut run, "a", said("x"), &offered(&["x"]), 0);
        prop_assert_eq!(run.compose().text, text);
    }
}
